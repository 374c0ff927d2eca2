/* SPDX-License-Identifier: MIT */
/*
 * Contract 2.9 to 2.12, the rows that test_set.c, test_cost.c and test_select.c do not state: what a candidate's kernel is
 * called with, the tags of kernel sources, digits where bounds disagree, the cap per device, selectors on many threads.
 */
#include "harness.h"

#include <errno.h>
#include <math.h>
#include <pinion/context.h>
#include <pinion/select.h>
#include <pinion/storage.h>
#include <pthread.h>
#include <stdatomic.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BOTH	     (PINION_READ | PINION_WRITE)

static const struct pinion_task task = { PINION_OP_AFFINE, PINION_DTYPE_F32, 3 };

static struct pinion_candidate candidate(enum pinion_backend_id backend, uint32_t index, uint64_t flops, uint64_t bytes)
{
	return (struct pinion_candidate){
		.backend = backend,
		.device = { backend, index },
		.precision = pinion_precision_deterministic(),
		.static_cost = { .flops = flops, .bytes_moved = bytes },
		.kernel_source = "",
	};
}

static struct pinion_set *set_of(const struct pinion_candidate *list, size_t n)
{
	struct pinion_set *set = NULL;

	ck_ok(pinion_set_from(list, n, &set));
	pinion_set_set_task(set, &task);
	return set;
}

/* ---- 2.9: the kernel --------------------------------------------------------------------------------------------- */

struct affine {
	float mul, add;
};

/* out = in * mul + add, by the layouts alone: that of the input, then that of the output. */
static int affine(const struct pinion_kernel_call *call)
{
	const struct affine *params = call->params;
	const struct pinion_view *in = &call->layouts[0], *out = &call->layouts[1];

	if (call->ins != 1 || call->outs != 1 || call->params_size != sizeof(*params) ||
	    pinion_storage_dtype(call->in[0]) != PINION_DTYPE_F32 || pinion_storage_dtype(call->out[0]) != PINION_DTYPE_F32)
		return -EINVAL;
	for (uint64_t i = 0; i < in->shape[0]; i++)
		((float *)out->data)[(int64_t)out->offset + (int64_t)i * out->stride[0]] =
			((float *)in->data)[(int64_t)in->offset + (int64_t)i * in->stride[0]] * params->mul + params->add;
	return 0;
}

START_TEST(a_kernel_gets_inputs_outputs_their_layouts_and_the_ops_parameters)
{
	const struct affine params = { .mul = 2, .add = 1 };
	struct pinion_candidate c = candidate(PINION_BACKEND_CPU, 0, 4, 32);
	struct pinion_storage *in = NULL, *out = NULL, *other = NULL;
	struct pinion_view layouts[2], whole;
	const struct pinion_candidate *chosen;
	struct pinion_kernel_call call;
	struct pinion_set *set;

	c.kernel = affine;
	c.flags = PINION_KERNEL_STRIDED;
	c.op_params = &params;
	c.op_params_size = sizeof(params);
	set = set_of(&c, 1);
	chosen = pinion_set_winner(set);
	ck_ok(pinion_storage_owned(PINION_DTYPE_F32, 4, &in));
	ck_ok(pinion_storage_owned(PINION_DTYPE_F32, 6, &out));
	ck_ok(pinion_storage_owned(PINION_DTYPE_I32, 4, &other));
	ck_ok(pinion_storage_view(in, BOTH, &layouts[0]));
	ck_ok(pinion_storage_view(out, BOTH, &whole));
	for (int i = 0; i < 4; i++)
		pinion_view_f32(&layouts[0])[i] = i;
	/* Backwards in; into the middle of what was allocated before the call. */
	ck_ok(pinion_view_flip(&layouts[0], 0, &layouts[0]));
	ck_ok(pinion_view_narrow(&whole, 0, 1, 4, &layouts[1]));
	call = (struct pinion_kernel_call){ .in = &in,
					    .ins = 1,
					    .out = &out,
					    .outs = 1,
					    .layouts = layouts,
					    .params = chosen->op_params,
					    .params_size = chosen->op_params_size };
	ck_ok(chosen->kernel(&call));
	ck_assert_mem_eq(pinion_view_f32(&whole), ((float[]){ 0, 7, 5, 3, 1, 0 }), 24);
	/* An error is an answer. */
	call.in = &other;
	ck_assert_int_eq(chosen->kernel(&call), -EINVAL);
	pinion_storage_free(in);
	pinion_storage_free(out);
	pinion_storage_free(other);
	pinion_set_free(set);
}
END_TEST

/* ---- 2.9, 2.12: kernel sources ----------------------------------------------------------------------------------- */

static const char *const sources[] = { "", "portable-cpu", "aocl", "mkl", "cublas", "cutlass", "baracuda", "slang" };

START_TEST(each_kernel_source_has_measurements_of_its_own)
{
	struct pinion_candidate list[COUNT(sources)];
	struct pinion_set *set;

	for (size_t i = 0; i < COUNT(sources); i++) {
		list[i] = candidate(PINION_BACKEND_CPU, 0, 1, 1);
		list[i].kernel_source = sources[i];
	}
	set = set_of(list, COUNT(list));
	for (size_t fast = 0; fast < COUNT(sources); fast++) {
		struct pinion_selector_opts opts = { .size = sizeof(opts) };
		struct pinion_selector *selector = NULL;
		struct pinion_judge *judge = NULL;
		size_t index = SIZE_MAX;

		ck_assert_str_eq(pinion_set_at(set, fast)->kernel_source, sources[fast]);
		ck_ok(pinion_judge_new(&judge));
		for (size_t i = 0; i < COUNT(sources); i++) {
			struct pinion_measure measure = { .ns = i == fast ? 100 : 200 + i };

			ck_ok(pinion_judge_put(judge, &task, PINION_BACKEND_CPU, sources[i], &measure));
		}
		ck_assert_uint_eq(pinion_judge_size(judge), COUNT(sources));
		opts.judge = judge;
		ck_ok(pinion_selector_judge_aware(&opts, &selector));
		ck_ok(pinion_select(selector, set, &index));
		ck_assert_uint_eq(index, fast);
		pinion_selector_unref(selector);
		pinion_judge_free(judge);
	}
	pinion_set_free(set);
}
END_TEST

/* ---- 2.10: digits and the cap ------------------------------------------------------------------------------------ */

/* "relative bound <= 0 or ulp 0: 18; else floor(-log10 relative); else bit-stable: 9; else 0", where bounds disagree. */
static const struct {
	const char *name;
	struct pinion_precision precision;
	uint32_t digits;
} digit_rows[] = {
	{ "relative 0, 5 ulp", { .has_relative = true, .has_ulp = true, .max_ulp = 5 }, 18 },
	{ "relative below 0", { .has_relative = true, .max_relative = -1e-3 }, 18 },
	{ "relative 1e-3, 0 ulp", { .has_relative = true, .max_relative = 1e-3, .has_ulp = true }, 18 },
	{ "relative 1e-3, 1 ulp, stable",
	  { .bit_stable = true, .has_relative = true, .max_relative = 1e-3, .has_ulp = true, .max_ulp = 1 },
	  3 },
	{ "relative 0.5, stable", { .bit_stable = true, .has_relative = true, .max_relative = 0.5 }, 0 },
	{ "relative 2e-7", { .has_relative = true, .max_relative = 2e-7 }, 6 },
	{ "relative 1e-30", { .has_relative = true, .max_relative = 1e-30 }, 18 },
	{ "4 ulp, stable", { .bit_stable = true, .has_ulp = true, .max_ulp = 4 }, 9 },
	{ "4 ulp", { .has_ulp = true, .max_ulp = 4 }, 0 },
	{ "absolute 0 alone", { .has_absolute = true }, 0 },
	{ "absolute 0, stable", { .bit_stable = true, .has_absolute = true }, 9 },
	{ "nothing", { 0 }, 0 },
};

START_TEST(digits_row_by_row)
{
	for (size_t i = 0; i < COUNT(digit_rows); i++) {
		uint32_t digits = pinion_precision_digits(&digit_rows[i].precision);

		ck_assert_msg(digits == digit_rows[i].digits, "%s: %u", digit_rows[i].name, digits);
	}
}
END_TEST

/* How many of the set are on @index of CUDA. */
static size_t on_device(const struct pinion_set *set, uint32_t index)
{
	size_t n = 0;

	for (size_t i = 0; i < pinion_set_size(set); i++)
		n += pinion_set_at(set, i)->device.index == index;
	return n;
}

START_TEST(the_cap_counts_for_each_device_alone)
{
	static const struct {
		size_t cap, large, small;
	} rows[] = { { 100, 40, 20 }, { PINION_PRUNE_CAP, 32, 20 }, { 20, 20, 20 }, { 7, 7, 7 }, { 1, 1, 1 }, { 0, 1, 1 } };

	ck_assert_uint_eq(PINION_PRUNE_CAP, 32);
	for (size_t r = 0; r < COUNT(rows); r++) {
		struct pinion_candidate list[60];
		struct pinion_set *set;

		/* Each device's candidates are one front: the slower, the fewer bytes. 40 on the first, 20 on the second. */
		for (uint64_t i = 0; i < COUNT(list); i++)
			list[i] = candidate(PINION_BACKEND_CUDA, i >= 40, 30 * (10000 + i), 1000 - i);
		set = set_of(list, COUNT(list));
		ck_ok(pinion_set_prune(set, rows[r].cap));
		ck_assert_uint_eq(on_device(set, 0), rows[r].large);
		ck_assert_uint_eq(on_device(set, 1), rows[r].small);
		ck_assert_uint_eq(pinion_set_winner(set)->static_cost.bytes_moved, 1000);
		pinion_set_free(set);
	}
}
END_TEST

/* ---- 2.11: any selector, any thread ------------------------------------------------------------------------------ */

/* A device that is too small and busy: the worst that a selector can be told. */
static int nothing_available(struct pinion_runtime *rt, uint64_t *bytes)
{
	(void)rt;
	*bytes = 0;
	return 0;
}

static int some_total(struct pinion_runtime *rt, uint64_t *bytes)
{
	(void)rt;
	*bytes = 100;
	return 0;
}

static int many_pending(struct pinion_runtime *rt, uint32_t *n)
{
	(void)rt;
	*n = UINT32_MAX;
	return 0;
}

static int no_capacity(struct pinion_runtime *rt, uint32_t *n)
{
	(void)rt;
	*n = 0;
	return 0;
}

static const struct pinion_runtime_ops worst_ops = {
	.available = nothing_available, .total = some_total, .pending = many_pending, .capacity = no_capacity
};

static struct pinion_runtime *worst(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	(void)backend;
	(void)device;
	return arg;
}

static int (*const makers[])(const struct pinion_selector_opts *opts, struct pinion_selector **out) = {
	pinion_selector_winner,	     pinion_selector_vram_pressure, pinion_selector_device_load,
	pinion_selector_judge_aware, pinion_selector_chained,
};

#define THREADS 4
#define PICKS	5000

struct crew {
	struct pinion_selector *selector;
	struct pinion_set *set;
	size_t expected;
	atomic_uint wrong;
};

static void *pick_many(void *arg)
{
	struct crew *crew = arg;

	for (int i = 0; i < PICKS; i++) {
		size_t index = SIZE_MAX;

		if (pinion_select(crew->selector, crew->set, &index) || index != crew->expected)
			atomic_fetch_add(&crew->wrong, 1);
	}
	return NULL;
}

static unsigned int wrong_picks(struct crew *crew)
{
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, pick_many, crew), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	return atomic_load(&crew->wrong);
}

/* One of the set's own whatever is known, and the same for each thread: none is the answer to an empty set alone. */
START_TEST(every_selector_answers_each_thread_from_the_set)
{
	struct pinion_runtime rt = { .ops = &worst_ops };
	struct pinion_selector_opts opts = { .size = sizeof(opts), .lookup = worst, .lookup_arg = &rt };

	for (size_t m = 0; m < COUNT(makers); m++)
		for (size_t n = 1; n <= 6; n += 5) {
			struct crew crew = { 0 };
			struct pinion_candidate list[6];

			/* The last is the fastest, which only judge-aware goes by when nothing fits. */
			for (size_t i = 0; i < n; i++)
				list[i] = candidate(PINION_BACKEND_CUDA, i, 3000 - 30 * i, 100);
			crew.set = set_of(list, n);
			crew.expected = makers[m] == pinion_selector_judge_aware ? n - 1 : 0;
			ck_ok(makers[m](&opts, &crew.selector));
			ck_assert_msg(wrong_picks(&crew) == 0, "selector %zu, %zu candidates", m, n);
			pinion_selector_unref(crew.selector);
			pinion_set_free(crew.set);
		}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rows_sets");
	TCase *tc = tcase_create("rows");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_kernel_gets_inputs_outputs_their_layouts_and_the_ops_parameters);
	tcase_add_test(tc, each_kernel_source_has_measurements_of_its_own);
	tcase_add_test(tc, digits_row_by_row);
	tcase_add_test(tc, the_cap_counts_for_each_device_alone);
	tcase_add_test(tc, every_selector_answers_each_thread_from_the_set);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(suite)
