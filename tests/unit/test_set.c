/* SPDX-License-Identifier: MIT */
/* Contract 2.10: sets of candidates, their order, what pruning keeps. Candidates are told apart by revision hash. */
#include "harness.h"

#include <errno.h>
#include <pinion/context.h>
#include <pinion/select.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int no_kernel(const struct pinion_kernel_call *call)
{
	(void)call;
	return 0;
}

/* On a CPU it takes @flops ns, as long as @bytes are fewer than four times that. */
static struct pinion_candidate candidate(uint64_t id, enum pinion_backend_id backend, uint32_t index, uint64_t flops,
					 uint64_t bytes)
{
	return (struct pinion_candidate){
		.kernel = no_kernel,
		.backend = backend,
		.device = { backend, index },
		.precision = pinion_precision_deterministic(),
		.static_cost = { .flops = flops, .bytes_moved = bytes },
		.kernel_revision_hash = id,
	};
}

static struct pinion_candidate on_cpu(uint64_t id, uint64_t flops, uint64_t bytes)
{
	return candidate(id, PINION_BACKEND_CPU, 0, flops, bytes);
}

static struct pinion_set *set_of(const struct pinion_candidate *list, size_t n)
{
	struct pinion_set *set = NULL;

	ck_ok(pinion_set_from(list, n, &set));
	ck_assert_uint_eq(pinion_set_size(set), n);
	return set;
}

static uint64_t id_at(const struct pinion_set *set, size_t i)
{
	return pinion_set_at(set, i)->kernel_revision_hash;
}

/* The ids of the set are exactly these digits, in this order. */
static void ck_ids(const struct pinion_set *set, const char *digits)
{
	char got[64] = "";

	ck_assert_uint_lt(pinion_set_size(set), sizeof(got));
	for (size_t i = 0; i < pinion_set_size(set); i++)
		got[i] = (char)('0' + id_at(set, i));
	ck_assert_str_eq(got, digits);
}

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t below(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

START_TEST(an_empty_set)
{
	struct pinion_set *set = NULL;
	size_t none;

	ck_ok(pinion_set_new(&set));
	ck_assert_uint_eq(pinion_set_size(set), 0);
	ck_assert_ptr_null(pinion_set_at(set, 0));
	ck_assert_ptr_null(pinion_set_winner(set));
	ck_assert_ptr_null(pinion_set_task(set));
	pinion_set_rank(set);
	ck_ok(pinion_set_prune(set, 0));
	ck_ok(pinion_set_keep(set, &none, 0));
	ck_assert_uint_eq(pinion_set_size(set), 0);
	pinion_set_free(set);
	set = set_of(NULL, 0);
	pinion_set_free(set);
	pinion_set_free(NULL);
}
END_TEST

START_TEST(candidates_stay_in_order_and_the_first_is_the_winner)
{
	struct pinion_set *set = NULL;

	ck_ok(pinion_set_new(&set));
	for (uint64_t i = 0; i < 100; i++) {
		struct pinion_candidate c = on_cpu(i, 100 - i, 0);

		ck_ok(pinion_set_push(set, &c));
		ck_assert_uint_eq(pinion_set_size(set), i + 1);
		for (uint64_t j = 0; j <= i; j++)
			ck_assert_uint_eq(id_at(set, j), j);
		ck_assert_ptr_null(pinion_set_at(set, i + 1));
		ck_assert_ptr_eq(pinion_set_winner(set), pinion_set_at(set, 0));
	}
	pinion_set_free(set);
}
END_TEST

START_TEST(all_members_of_a_candidate_are_kept)
{
	const struct pinion_coupling coupling[] = { { "input is in bank 0", -20 }, { "clock is low", 300 } };
	const int params[] = { 1, 2, 3 };
	struct pinion_candidate c = candidate(77, PINION_BACKEND_VULKAN, 3, 10, 20);
	const struct pinion_candidate *kept;
	struct pinion_set *set;

	c.flags = PINION_KERNEL_STRIDED | PINION_KERNEL_BROADCAST;
	c.precision = pinion_precision_none("scheduler");
	c.static_cost.overhead_ns = 30;
	c.inbound_transfer_ns = 40;
	c.op_params = params;
	c.op_params_size = sizeof(params);
	c.coupling = coupling;
	c.couplings = COUNT(coupling);
	c.kernel_source = "slang";
	set = set_of(&c, 1);
	kept = pinion_set_winner(set);
	ck_assert_ptr_ne(kept, &c);
	ck_assert(kept->kernel == no_kernel && kept->kernel(NULL) == 0);
	ck_assert_uint_eq(kept->flags, 3);
	ck_assert_int_eq(kept->backend, PINION_BACKEND_VULKAN);
	ck_assert_int_eq(kept->device.kind, PINION_BACKEND_VULKAN);
	ck_assert_uint_eq(kept->device.index, 3);
	ck_assert_str_eq(kept->precision.note, "scheduler");
	ck_assert_uint_eq(kept->static_cost.flops, 10);
	ck_assert_uint_eq(kept->static_cost.bytes_moved, 20);
	ck_assert_uint_eq(kept->static_cost.overhead_ns, 30);
	ck_assert_uint_eq(kept->inbound_transfer_ns, 40);
	ck_assert_ptr_eq(kept->op_params, params);
	ck_assert_uint_eq(kept->op_params_size, sizeof(params));
	ck_assert_ptr_eq(kept->coupling, coupling);
	ck_assert_uint_eq(kept->couplings, 2);
	ck_assert_int_eq(kept->coupling[0].delta_ns, -20);
	ck_assert_str_eq(kept->kernel_source, "slang");
	ck_assert_uint_eq(kept->kernel_revision_hash, 77);
	pinion_set_free(set);
	c.kernel_source = NULL;
	set = set_of(&c, 1);
	ck_assert_str_eq(pinion_set_winner(set)->kernel_source, "");
	pinion_set_free(set);
}
END_TEST

START_TEST(candidates_that_cannot_be_are_refused)
{
	struct pinion_candidate c = on_cpu(0, 1, 1), list[3];
	struct pinion_set *set = set_of(&c, 1), *none = NULL;

	c.backend = 0;
	ck_assert_int_eq(pinion_set_push(set, &c), -EINVAL);
	c.backend = PINION_BACKEND_METAL + 1;
	ck_assert_int_eq(pinion_set_push(set, &c), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "backend"));
	c = on_cpu(0, 1, 1);
	c.op_params_size = 12;
	ck_assert_int_eq(pinion_set_push(set, &c), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "12"));
	c = on_cpu(0, 1, 1);
	c.couplings = 2;
	ck_assert_int_eq(pinion_set_push(set, &c), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "coupling"));
	ck_assert_uint_eq(pinion_set_size(set), 1);
	list[0] = list[1] = on_cpu(0, 1, 1);
	list[2] = c;
	ck_assert_int_eq(pinion_set_from(list, 3, &none), -EINVAL);
	ck_assert_ptr_null(none);
	pinion_set_free(set);
}
END_TEST

START_TEST(a_set_holds_so_many_and_says_so)
{
	struct pinion_candidate c = on_cpu(0, 1, 1);
	struct pinion_set *set = set_of(&c, 1);

	for (size_t i = 1; i < PINION_SET_MAX; i++)
		ck_ok(pinion_set_push(set, &c));
	ck_assert_int_eq(pinion_set_push(set, &c), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "4096"));
	ck_assert_uint_eq(pinion_set_size(set), PINION_SET_MAX);
	pinion_set_free(set);
}
END_TEST

START_TEST(a_task_can_be_set_and_taken_away)
{
	struct pinion_candidate list[] = { on_cpu(0, 9, 0), on_cpu(1, 1, 0) };
	struct pinion_task task = { PINION_OP_MATMUL, PINION_DTYPE_F16, 17 };
	struct pinion_set *set = set_of(list, 2);
	const size_t first = 0;

	pinion_set_set_task(set, &task);
	task.op = PINION_OP_ROPE;
	pinion_set_rank(set);
	ck_ok(pinion_set_prune(set, 1));
	ck_ok(pinion_set_keep(set, &first, 1));
	ck_assert_int_eq(pinion_set_task(set)->op, PINION_OP_MATMUL);
	ck_assert_int_eq(pinion_set_task(set)->dtype, PINION_DTYPE_F16);
	ck_assert_uint_eq(pinion_set_task(set)->size_class, 17);
	pinion_set_set_task(set, &task);
	ck_assert_int_eq(pinion_set_task(set)->op, PINION_OP_ROPE);
	pinion_set_set_task(set, NULL);
	ck_assert_ptr_null(pinion_set_task(set));
	pinion_set_free(set);
}
END_TEST

START_TEST(keeping_by_sorted_indices)
{
	const size_t some[] = { 1, 3, 4, 6 }, all[] = { 0, 1, 2, 3 }, ends[] = { 0, 3 };
	struct pinion_candidate list[7];
	struct pinion_set *set;

	for (uint64_t i = 0; i < 7; i++)
		list[i] = on_cpu(i, i, i);
	set = set_of(list, 7);
	ck_ok(pinion_set_keep(set, some, 4));
	ck_ids(set, "1346");
	ck_ok(pinion_set_keep(set, all, 4));
	ck_ids(set, "1346");
	ck_ok(pinion_set_keep(set, ends, 2));
	ck_ids(set, "16");
	ck_ok(pinion_set_push(set, &list[5]));
	ck_ids(set, "165");
	ck_ok(pinion_set_keep(set, NULL, 0));
	ck_ids(set, "");
	pinion_set_free(set);
}
END_TEST

START_TEST(indices_that_do_not_ascend_change_nothing)
{
	const size_t twice[] = { 0, 1, 1 }, down[] = { 0, 2, 1 }, past[] = { 0, 1, 3 };
	struct pinion_candidate list[] = { on_cpu(0, 1, 1), on_cpu(1, 1, 1), on_cpu(2, 1, 1) };
	struct pinion_set *set = set_of(list, 3);

	ck_assert_int_eq(pinion_set_keep(set, twice, 3), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "ascend"));
	ck_assert_int_eq(pinion_set_keep(set, down, 3), -EINVAL);
	ck_assert_int_eq(pinion_set_keep(set, past, 3), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "3 candidates"));
	ck_ids(set, "012");
	pinion_set_free(set);
}
END_TEST

START_TEST(a_set_describes_itself)
{
	struct pinion_candidate list[] = { candidate(0, PINION_BACKEND_CUDA, 2, 3000, 3000), on_cpu(1, 200, 200) };
	struct pinion_task task = { PINION_OP_MATMUL, PINION_DTYPE_F32, 20 };
	static const char text[] = "2 candidates for matmul of f32, size class 20: cuda:2 by cublas 105 ns, cpu 200 ns";
	struct pinion_set *set;
	char buf[200], cut[10];

	list[0].kernel_source = "cublas";
	list[0].inbound_transfer_ns = 5;
	set = set_of(list, 2);
	pinion_set_set_task(set, &task);
	ck_assert_int_eq(pinion_set_describe(set, buf, sizeof(buf)), strlen(text));
	ck_assert_str_eq(buf, text);
	ck_assert_int_eq(pinion_set_describe(set, cut, sizeof(cut)), strlen(text));
	ck_assert_str_eq(cut, "2 candida");
	ck_assert_int_eq(pinion_set_describe(set, NULL, 0), strlen(text));
	pinion_set_free(set);
	set = set_of(list, 0);
	pinion_set_describe(set, buf, sizeof(buf));
	ck_assert_str_eq(buf, "0 candidates");
	pinion_set_free(set);
}
END_TEST

/* ---- ranking ----------------------------------------------------------------------------------------------------- */

START_TEST(ranking_is_by_time_digits_accuracy_and_bytes)
{
	struct pinion_candidate list[] = {
		on_cpu(0, 100, 80), on_cpu(1, 100, 40), on_cpu(2, 100, 40),
		on_cpu(3, 100, 40), on_cpu(4, 99, 90),	on_cpu(5, 100, 80),
	};
	struct pinion_set *set;

	/* As many digits as the reference, but less well rounded; and fewer digits. */
	list[1].precision = (struct pinion_precision){ .has_relative = true, .bit_stable = true };
	list[2].precision = pinion_precision_exact();
	list[3].precision = pinion_precision_unaudited();
	list[4].precision = pinion_precision_unaudited();
	set = set_of(list, COUNT(list));
	pinion_set_rank(set);
	/* 4 is the fastest; 2 and 1 have 18 digits; 0 and 5 have 9 and are equal; 3 has none. */
	ck_ids(set, "421053");
	pinion_set_free(set);
	list[0].inbound_transfer_ns = 1;
	list[5].static_cost.bytes_moved = 4;
	set = set_of(list, COUNT(list));
	pinion_set_rank(set);
	ck_ids(set, "421530");
	pinion_set_free(set);
}
END_TEST

/* The order of the contract, written down a second time; bigger is later. */
static bool comes_later(const struct pinion_candidate *a, const struct pinion_candidate *b)
{
	struct pinion_cost_vector x, y;

	pinion_cost_vector_of(a, &x);
	pinion_cost_vector_of(b, &y);
	if (x.time_ns != y.time_ns)
		return x.time_ns > y.time_ns;
	if (x.digits != y.digits)
		return x.digits < y.digits;
	if (x.accuracy != y.accuracy)
		return x.accuracy < y.accuracy;
	return x.host_bytes + x.device_bytes > y.host_bytes + y.device_bytes;
}

static struct pinion_precision random_precision(void)
{
	return (struct pinion_precision){
		.bit_stable = below(2),
		.has_ulp = below(2),
		.max_ulp = (uint32_t)below(4),
		.has_relative = below(2),
		.max_relative = below(2) ? 1e-3 : 1e-6,
	};
}

static struct pinion_candidate random_candidate(uint64_t id)
{
	struct pinion_candidate c =
		candidate(id, (enum pinion_backend_id)(1 + below(3)), 0, 30 * below(6), 40 * below(6));

	/* Several backends on one device, too. */
	c.device = (struct pinion_location){ (enum pinion_backend_id)(1 + below(2)), (uint32_t)below(2) };
	c.precision = random_precision();
	c.inbound_transfer_ns = below(3);
	return c;
}

START_TEST(ranking_random_sets_is_stable)
{
	static struct pinion_candidate list[150];

	for (int round = 0; round < 2000; round++) {
		size_t n = below(round % 50 ? 20 : COUNT(list));
		struct pinion_set *set;

		for (size_t i = 0; i < n; i++)
			list[i] = random_candidate(i);
		set = set_of(list, n);
		pinion_set_rank(set);
		ck_assert_uint_eq(pinion_set_size(set), n);
		for (size_t i = 1; i < n; i++) {
			const struct pinion_candidate *a = pinion_set_at(set, i - 1), *b = pinion_set_at(set, i);

			ck_assert(!comes_later(a, b));
			ck_assert(comes_later(b, a) || a->kernel_revision_hash < b->kernel_revision_hash);
		}
		pinion_set_free(set);
	}
}
END_TEST

/* ---- pruning ----------------------------------------------------------------------------------------------------- */

START_TEST(pruning_drops_what_is_dominated_on_its_device)
{
	struct pinion_candidate list[] = {
		on_cpu(0, 100, 300),				  /* fastest */
		on_cpu(1, 110, 300),				  /* slower than 0, not better */
		on_cpu(2, 110, 200),				  /* fewer bytes */
		on_cpu(3, 110, 200),				  /* as 2 */
		on_cpu(4, 150, 300),				  /* slower, but exact */
		candidate(5, PINION_BACKEND_CUDA, 0, 90000, 400), /* worse than all, elsewhere */
		candidate(6, PINION_BACKEND_CUDA, 1, 90000, 400), /* and on yet another device */
		candidate(7, PINION_BACKEND_CUDA, 0, 90000, 401), /* worse than 5 */
	};
	struct pinion_set *set;

	list[4].precision = pinion_precision_exact();
	set = set_of(list, COUNT(list));
	ck_ok(pinion_set_prune(set, PINION_PRUNE_CAP));
	ck_ids(set, "023456");
	pinion_set_free(set);
}
END_TEST

START_TEST(candidate_0_stays_whatever_it_is)
{
	struct pinion_candidate list[] = { on_cpu(0, 500, 500), on_cpu(1, 100, 100), on_cpu(2, 90, 110) };
	struct pinion_set *set = set_of(list, COUNT(list));

	ck_ok(pinion_set_prune(set, 32));
	ck_ids(set, "012");
	ck_ok(pinion_set_prune(set, 1));
	ck_ids(set, "0");
	pinion_set_free(set);
}
END_TEST

START_TEST(the_last_candidate_of_a_backend_on_a_device_stays)
{
	struct pinion_candidate list[] = {
		candidate(0, PINION_BACKEND_CUDA, 0, 100, 100),	    candidate(1, PINION_BACKEND_VULKAN, 0, 90000, 900),
		candidate(2, PINION_BACKEND_VULKAN, 0, 80000, 900), candidate(3, PINION_BACKEND_VULKAN, 0, 80000, 900),
		candidate(4, PINION_BACKEND_CUDA, 0, 3000, 100),
	};
	struct pinion_set *set;

	for (size_t i = 0; i < COUNT(list); i++)
		list[i].device = list[0].device;
	set = set_of(list, COUNT(list));
	/* The best of the Vulkan ones, the first of two that are equal, over the cap too. */
	ck_ok(pinion_set_prune(set, 1));
	ck_ids(set, "02");
	pinion_set_free(set);
}
END_TEST

/* Six on one front: time 1000 + t, bytes 1000 - t. */
static struct pinion_set *front(void)
{
	static const uint64_t at[] = { 0, 1, 50, 60, 99, 100 };
	struct pinion_candidate list[COUNT(at)];

	for (size_t i = 0; i < COUNT(at); i++)
		list[i] = on_cpu(i, 1000 + at[i], 1000 - at[i]);
	return set_of(list, COUNT(at));
}

START_TEST(over_the_cap_the_crowded_go)
{
	static const struct {
		size_t cap;
		const char *ids;
	} rows[] = {
		{ 32, "012345" }, { 6, "012345" }, { 5, "01235" }, { 4, "0125" },
		{ 3, "025" },	  { 2, "05" },	   { 1, "0" },	   { 0, "0" },
	};

	/* Room, over two axes: 0 and 5 all there is; 1: 1.0; 2: 1.18; 3: 0.98; 4: 0.8. */
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct pinion_set *set = front();

		ck_ok(pinion_set_prune(set, rows[i].cap));
		ck_ids(set, rows[i].ids);
		pinion_set_free(set);
	}
}
END_TEST

static bool same_place(const struct pinion_candidate *a, const struct pinion_candidate *b)
{
	return a->device.kind == b->device.kind && a->device.index == b->device.index;
}

static bool is_dominated(const struct pinion_candidate *list, size_t n, size_t i)
{
	struct pinion_cost_vector x, y;

	pinion_cost_vector_of(&list[i], &x);
	for (size_t j = 0; j < n; j++) {
		if (!same_place(&list[i], &list[j]))
			continue;
		pinion_cost_vector_of(&list[j], &y);
		if (y.time_ns <= x.time_ns && y.host_bytes <= x.host_bytes && y.device_bytes <= x.device_bytes &&
		    y.digits >= x.digits && y.accuracy >= x.accuracy && memcmp(&x, &y, sizeof(x)))
			return true;
	}
	return false;
}

/* What may stay before the cap: candidate 0, the fronts, and the best of each backend that has neither. */
static void uncapped(const struct pinion_candidate *list, size_t n, bool *stays)
{
	for (size_t i = 0; i < n; i++)
		stays[i] = !i || !is_dominated(list, n, i);
	for (size_t i = 0; i < n; i++) {
		size_t best = i, kept = 0;

		for (size_t j = 0; j < n; j++) {
			if (!same_place(&list[i], &list[j]) || list[i].backend != list[j].backend)
				continue;
			kept += stays[j];
			if (comes_later(&list[best], &list[j]) || (!comes_later(&list[j], &list[best]) && j < best))
				best = j;
		}
		if (!kept)
			stays[best] = true;
	}
}

/* On the device of candidate @i: how many may stay before the cap, how many backends there are, how many stayed. */
static void count_device(const struct pinion_candidate *list, size_t n, size_t i, const bool *stays, const bool *kept,
			 size_t *may, size_t *backends, size_t *did)
{
	unsigned int seen = 0, seen_after = 0;

	*may = *did = 0;
	for (size_t j = 0; j < n; j++) {
		if (!same_place(&list[i], &list[j]))
			continue;
		*may += stays[j];
		*did += kept[j];
		seen |= 1u << list[j].backend;
		seen_after |= kept[j] ? 1u << list[j].backend : 0;
	}
	ck_assert_uint_eq(seen, seen_after);
	*backends = (size_t)__builtin_popcount(seen);
}

static void check_pruned(const struct pinion_candidate *list, size_t n, const struct pinion_set *set, size_t cap)
{
	bool stays[64] = { 0 }, kept[64] = { 0 };

	uncapped(list, n, stays);
	for (size_t i = 0; i < pinion_set_size(set); i++) {
		ck_assert(!i || id_at(set, i) > id_at(set, i - 1));
		ck_assert(stays[id_at(set, i)]);
		kept[id_at(set, i)] = true;
	}
	ck_assert(kept[0]);
	for (size_t i = 0; i < n; i++) {
		size_t may, backends, did, most = cap ? cap : 1;

		count_device(list, n, i, stays, kept, &may, &backends, &did);
		if (may > most)
			ck_assert_uint_eq(did, most > backends ? most : backends);
		else
			ck_assert_uint_eq(did, may);
	}
}

START_TEST(pruning_random_sets_keeps_its_promises)
{
	static const size_t caps[] = { 0, 1, 2, 3, 5, 8, 32 };
	struct pinion_candidate list[64];

	for (int round = 0; round < 7000; round++) {
		size_t n = 1 + below(COUNT(list)), cap = caps[round % COUNT(caps)], size;
		struct pinion_set *set;

		for (size_t i = 0; i < n; i++)
			list[i] = random_candidate(i);
		set = set_of(list, n);
		ck_ok(pinion_set_prune(set, cap));
		check_pruned(list, n, set, cap);
		/* A second time there is nothing left to do. */
		size = pinion_set_size(set);
		ck_ok(pinion_set_prune(set, cap));
		ck_assert_uint_eq(pinion_set_size(set), size);
		pinion_set_free(set);
	}
}
END_TEST

START_TEST(pruning_a_ranked_set_leaves_it_ranked_and_its_winner)
{
	struct pinion_candidate list[64];

	for (int round = 0; round < 500; round++) {
		struct pinion_set *set;
		uint64_t winner;

		for (size_t i = 0; i < COUNT(list); i++)
			list[i] = random_candidate(i);
		set = set_of(list, COUNT(list));
		pinion_set_rank(set);
		winner = id_at(set, 0);
		ck_ok(pinion_set_prune(set, 3));
		ck_assert_uint_eq(id_at(set, 0), winner);
		for (size_t i = 1; i < pinion_set_size(set); i++)
			ck_assert(!comes_later(pinion_set_at(set, i - 1), pinion_set_at(set, i)));
		pinion_set_free(set);
	}
}
END_TEST

START_TEST(a_full_set_can_be_ranked_and_pruned)
{
	struct pinion_candidate *list = calloc(PINION_SET_MAX, sizeof(*list));
	struct pinion_set *set;

	/* One front, in the wrong order: the worst case of both. */
	for (uint64_t i = 0; i < PINION_SET_MAX; i++)
		list[i] = on_cpu(i, 20000 - i, 2000 + i);
	set = set_of(list, PINION_SET_MAX);
	pinion_set_rank(set);
	ck_assert_uint_eq(id_at(set, 0), PINION_SET_MAX - 1);
	ck_ok(pinion_set_prune(set, PINION_PRUNE_CAP));
	ck_assert_uint_eq(pinion_set_size(set), PINION_PRUNE_CAP);
	ck_assert_uint_eq(id_at(set, 0), PINION_SET_MAX - 1);
	ck_assert_uint_eq(id_at(set, PINION_PRUNE_CAP - 1), 0);
	pinion_set_free(set);
	free(list);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("set");
	TCase *list = tcase_create("list"), *rank = tcase_create("rank"), *prune = tcase_create("prune");

	tcase_add_test(list, an_empty_set);
	tcase_add_test(list, candidates_stay_in_order_and_the_first_is_the_winner);
	tcase_add_test(list, all_members_of_a_candidate_are_kept);
	tcase_add_test(list, candidates_that_cannot_be_are_refused);
	tcase_add_test(list, a_set_holds_so_many_and_says_so);
	tcase_add_test(list, a_task_can_be_set_and_taken_away);
	tcase_add_test(list, keeping_by_sorted_indices);
	tcase_add_test(list, indices_that_do_not_ascend_change_nothing);
	tcase_add_test(list, a_set_describes_itself);
	suite_add_tcase(s, list);
	tcase_set_timeout(rank, 60);
	tcase_add_test(rank, ranking_is_by_time_digits_accuracy_and_bytes);
	tcase_add_test(rank, ranking_random_sets_is_stable);
	suite_add_tcase(s, rank);
	tcase_set_timeout(prune, 120);
	tcase_add_test(prune, pruning_drops_what_is_dominated_on_its_device);
	tcase_add_test(prune, candidate_0_stays_whatever_it_is);
	tcase_add_test(prune, the_last_candidate_of_a_backend_on_a_device_stays);
	tcase_add_test(prune, over_the_cap_the_crowded_go);
	tcase_add_test(prune, pruning_random_sets_keeps_its_promises);
	tcase_add_test(prune, pruning_a_ranked_set_leaves_it_ranked_and_its_winner);
	tcase_add_test(prune, a_full_set_can_be_ranked_and_pruned);
	suite_add_tcase(s, prune);
	return s;
}

PINION_TEST_MAIN(suite)
