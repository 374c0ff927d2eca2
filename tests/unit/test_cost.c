/* SPDX-License-Identifier: MIT */
/* Contract 2.8, 2.12 and the cost vector of 2.10: estimates, promises of precision, size classes, and measurements. */
#include "harness.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <pinion/context.h>
#include <pinion/select.h>
#include <pthread.h>
#include <stdatomic.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- time -------------------------------------------------------------------------------------------------------- */

static uint64_t ns(uint64_t flops, uint64_t bytes, uint32_t overhead, double flops_per_ns, double bytes_per_ns)
{
	struct pinion_cost cost = { .flops = flops, .bytes_moved = bytes, .overhead_ns = overhead };

	return pinion_cost_ns(&cost, flops_per_ns, bytes_per_ns);
}

START_TEST(time_is_the_larger_of_compute_and_memory_and_the_overhead)
{
	ck_assert_uint_eq(ns(0, 0, 0, 1, 4), 0);
	ck_assert_uint_eq(ns(0, 0, 7, 1, 4), 7);
	ck_assert_uint_eq(ns(1000, 100, 0, 1, 4), 1000);
	ck_assert_uint_eq(ns(10, 8000, 0, 1, 4), 2000);
	ck_assert_uint_eq(ns(2000, 8000, 5, 1, 4), 2005);
	ck_assert_uint_eq(ns(3000, 3000, 0, 30, 40), 100);
	ck_assert_uint_eq(ns(3000, 8000, 11, 30, 40), 211);
	ck_assert_uint_eq(ns(5, 5, 1, 0.5, 0.25), 21);
}
END_TEST

START_TEST(each_quotient_is_cut_to_a_whole_number)
{
	ck_assert_uint_eq(ns(29, 0, 0, 30, 40), 0);
	ck_assert_uint_eq(ns(59, 0, 0, 30, 40), 1);
	ck_assert_uint_eq(ns(0, 79, 0, 30, 40), 1);
	ck_assert_uint_eq(ns(0, 3, 2, 1, 4), 2);
	/* 1.97 and 1.98 are both 1 before the larger is taken, and before the overhead is added. */
	ck_assert_uint_eq(ns(59, 79, 1, 30, 40), 2);
}
END_TEST

START_TEST(what_is_too_large_saturates)
{
	ck_assert_uint_eq(ns(UINT64_MAX, 0, 0, 1, 4), UINT64_MAX);
	ck_assert_uint_eq(ns(UINT64_MAX, 0, UINT32_MAX, 1, 4), UINT64_MAX);
	ck_assert_uint_eq(ns(0, UINT64_MAX, 0, 1, 0.5), UINT64_MAX);
	ck_assert_uint_eq(ns(1, 0, 0, DBL_MIN, 4), UINT64_MAX);
	ck_assert_uint_eq(ns(UINT64_MAX, 0, 1, 0x1p-1074, 4), UINT64_MAX);
	ck_assert_uint_eq(ns(UINT64_MAX, 0, 0, DBL_MAX, 4), 0);
	/* The quotient fits and the sum does not: 2^64 - 2048 is the largest that a double below 2^64 can be. */
	ck_assert_uint_eq(ns(UINT64_MAX - 2047, 0, 2047, 1, 4), UINT64_MAX);
	ck_assert_uint_eq(ns(UINT64_MAX - 2047, 0, 2048, 1, 4), UINT64_MAX);
	ck_assert_uint_eq(ns(UINT64_MAX - 2047, 0, 2046, 1, 4), UINT64_MAX - 1);
}
END_TEST

START_TEST(rates_that_are_none_are_replaced_by_the_cpus)
{
	const double bad[] = { 0, -0.0, -1, -DBL_MAX, INFINITY, -INFINITY, NAN };

	for (unsigned int i = 0; i < COUNT(bad); i++) {
		ck_assert_uint_eq(ns(1000, 0, 0, bad[i], 40), 1000);
		ck_assert_uint_eq(ns(0, 1000, 0, 30, bad[i]), 250);
		ck_assert_uint_eq(ns(1000, 8000, 3, bad[i], bad[i]), 2003);
	}
}
END_TEST

START_TEST(backends_have_default_rates)
{
	struct pinion_cost cost = { .flops = 6000, .bytes_moved = 1000, .overhead_ns = 1 };

	ck_assert_uint_eq(pinion_cost_ns_on(&cost, PINION_BACKEND_CPU), 6001);
	ck_assert_uint_eq(pinion_cost_ns_on(&cost, PINION_BACKEND_CUDA), 201);
	ck_assert_uint_eq(pinion_cost_ns_on(&cost, PINION_BACKEND_VULKAN), 201);
	ck_assert_uint_eq(pinion_cost_ns_on(&cost, PINION_BACKEND_METAL), 201);
	cost = (struct pinion_cost){ .bytes_moved = 8000 };
	ck_assert_uint_eq(pinion_cost_ns_on(&cost, PINION_BACKEND_CPU), 2000);
	ck_assert_uint_eq(pinion_cost_ns_on(&cost, PINION_BACKEND_CUDA), 200);
}
END_TEST

/* ---- precision --------------------------------------------------------------------------------------------------- */

START_TEST(the_four_presets)
{
	struct pinion_precision p = pinion_precision_exact();

	ck_assert(p.bit_stable && p.has_ulp && p.has_relative && p.has_absolute);
	ck_assert(p.max_ulp == 0 && p.max_relative == 0 && p.max_absolute == 0);
	ck_assert_uint_eq(pinion_precision_digits(&p), 18);
	ck_assert_uint_eq(pinion_precision_accuracy(&p), PINION_ACCURACY_EXACT);

	p = pinion_precision_deterministic();
	ck_assert(p.bit_stable && !p.has_ulp && !p.has_relative && !p.has_absolute);
	ck_assert_uint_eq(pinion_precision_digits(&p), 9);
	ck_assert_uint_eq(pinion_precision_accuracy(&p), PINION_ACCURACY_STABLE);

	p = pinion_precision_unaudited();
	ck_assert(!p.bit_stable && !p.has_ulp && !p.has_relative && !p.has_absolute);
	ck_assert_uint_eq(pinion_precision_digits(&p), 0);
	ck_assert_uint_eq(pinion_precision_accuracy(&p), PINION_ACCURACY_UNBOUNDED);

	p = pinion_precision_none("sums in the order of the scheduler");
	ck_assert(!p.bit_stable && !p.has_ulp && !p.has_relative && !p.has_absolute);
	ck_assert_str_eq(p.note, "sums in the order of the scheduler");
	ck_assert_uint_eq(pinion_precision_digits(&p), 0);
	ck_assert_uint_eq(pinion_precision_accuracy(&p), PINION_ACCURACY_UNBOUNDED);
}
END_TEST

static uint32_t digits_of(double bound)
{
	struct pinion_precision p = { .has_relative = true, .max_relative = bound };

	return pinion_precision_digits(&p);
}

START_TEST(digits_are_those_of_the_relative_bound)
{
	char text[16];

	for (uint32_t digits = 1; digits <= 18; digits++) {
		double power;

		snprintf(text, sizeof(text), "1e-%u", digits);
		power = strtod(text, NULL);
		ck_assert_uint_eq(digits_of(power), digits);
		ck_assert_uint_eq(digits_of(nextafter(power, 1)), digits - 1);
		ck_assert_uint_eq(digits_of(power * 9.9), digits - 1);
		ck_assert_uint_eq(digits_of(power * 0.5), digits);
	}
	ck_assert_uint_eq(digits_of(1e-19), 18);
	ck_assert_uint_eq(digits_of(DBL_MIN), 18);
	ck_assert_uint_eq(digits_of(0), 18);
	ck_assert_uint_eq(digits_of(-1), 18);
	ck_assert_uint_eq(digits_of(0.2), 0);
	ck_assert_uint_eq(digits_of(1), 0);
	ck_assert_uint_eq(digits_of(50), 0);
	ck_assert_uint_eq(digits_of(INFINITY), 0);
	ck_assert_uint_eq(digits_of(NAN), 0);
}
END_TEST

START_TEST(digits_in_the_order_of_the_contract)
{
	struct pinion_precision p = { .has_ulp = true };

	ck_assert_uint_eq(pinion_precision_digits(&p), 18);
	p.max_ulp = 1;
	ck_assert_uint_eq(pinion_precision_digits(&p), 0);
	p.bit_stable = true;
	ck_assert_uint_eq(pinion_precision_digits(&p), 9);
	p.has_relative = true;
	p.max_relative = 1e-3;
	ck_assert_uint_eq(pinion_precision_digits(&p), 3);
	/* A bound that is not claimed does not count, whatever it is. */
	p = (struct pinion_precision){ .max_ulp = 0, .max_relative = 0 };
	ck_assert_uint_eq(pinion_precision_digits(&p), 0);
}
END_TEST

START_TEST(accuracy_by_rung)
{
	struct pinion_precision p = { 0 };

	ck_assert_uint_eq(pinion_precision_accuracy(&p), 0);
	p.bit_stable = true;
	ck_assert_uint_eq(pinion_precision_accuracy(&p), 1);
	p.has_ulp = true;
	p.max_ulp = UINT32_MAX;
	ck_assert_uint_eq(pinion_precision_accuracy(&p), 2);
	p.max_ulp = 3;
	ck_assert_uint_eq(pinion_precision_accuracy(&p), 2);
	p.max_ulp = 2;
	ck_assert_uint_eq(pinion_precision_accuracy(&p), 3);
	p.max_ulp = 1;
	ck_assert_uint_eq(pinion_precision_accuracy(&p), 3);
	p.max_ulp = 0;
	ck_assert_uint_eq(pinion_precision_accuracy(&p), 4);
	p.bit_stable = false;
	ck_assert_uint_eq(pinion_precision_accuracy(&p), 4);
}
END_TEST

/* ---- the vector -------------------------------------------------------------------------------------------------- */

START_TEST(the_vector_of_a_candidate)
{
	struct pinion_candidate c = {
		.backend = PINION_BACKEND_CUDA,
		.device = { PINION_BACKEND_CUDA, 1 },
		.precision = pinion_precision_deterministic(),
		.static_cost = { .flops = 3000, .bytes_moved = 500, .overhead_ns = 5 },
		.inbound_transfer_ns = 20,
	};
	struct pinion_cost_vector v;

	pinion_cost_vector_of(&c, &v);
	ck_assert_uint_eq(v.time_ns, 125);
	ck_assert_uint_eq(v.host_bytes, 0);
	ck_assert_uint_eq(v.device_bytes, 500);
	ck_assert_uint_eq(v.digits, 9);
	ck_assert_uint_eq(v.accuracy, PINION_ACCURACY_STABLE);
	/* Rates are the backend's; the memory is where the device is. */
	c.device = (struct pinion_location){ PINION_BACKEND_CPU, 0 };
	pinion_cost_vector_of(&c, &v);
	ck_assert_uint_eq(v.time_ns, 125);
	ck_assert_uint_eq(v.host_bytes, 500);
	ck_assert_uint_eq(v.device_bytes, 0);
	c.inbound_transfer_ns = UINT64_MAX - 100;
	pinion_cost_vector_of(&c, &v);
	ck_assert_uint_eq(v.time_ns, UINT64_MAX);
}
END_TEST

/* ---- size classes ------------------------------------------------------------------------------------------------ */

START_TEST(size_classes_are_logarithms)
{
	ck_assert_uint_eq(pinion_size_class(0), 0);
	ck_assert_uint_eq(pinion_size_class(1), 0);
	ck_assert_uint_eq(pinion_size_class(2), 1);
	ck_assert_uint_eq(pinion_size_class(3), 1);
	ck_assert_uint_eq(pinion_size_class(65535), 15);
	ck_assert_uint_eq(pinion_size_class(65536), 16);
	ck_assert_uint_eq(pinion_size_class(UINT64_MAX), 63);
	for (uint32_t bit = 1; bit < 64; bit++) {
		ck_assert_uint_eq(pinion_size_class(UINT64_C(1) << bit), bit);
		ck_assert_uint_eq(pinion_size_class((UINT64_C(1) << bit) - 1), bit - 1);
	}
}
END_TEST

START_TEST(size_classes_of_a_matmul)
{
	ck_assert_uint_eq(pinion_size_class_matmul(0, 0, 0), 0);
	ck_assert_uint_eq(pinion_size_class_matmul(1, 1, 1), 0);
	ck_assert_uint_eq(pinion_size_class_matmul(4, 8, 16), 5 << 16 | 2 << 8 | 4);
	/* 3 * 3 is over 8 although each 3 is counted as 2. */
	ck_assert_uint_eq(pinion_size_class_matmul(3, 3, 7), 3 << 16 | 1 << 8 | 2);
	/* As many outputs, another aspect. */
	ck_assert_uint_ne(pinion_size_class_matmul(1, 4096, 64), pinion_size_class_matmul(64, 64, 64));
	ck_assert_uint_eq(pinion_size_class_matmul(UINT64_MAX, UINT64_MAX, UINT64_MAX), 63 << 16 | 63 << 8 | 63);
	ck_assert_uint_eq(pinion_size_class_matmul(UINT64_C(1) << 40, UINT64_C(1) << 40, 1), 63 << 16 | 40 << 8);
}
END_TEST

START_TEST(size_classes_of_attention)
{
	ck_assert_uint_eq(pinion_size_class_attention(0, 0, 0), 0);
	ck_assert_uint_eq(pinion_size_class_attention(32, 1024, 128), 22 << 16 | 10 << 8 | 7);
	ck_assert_uint_eq(pinion_size_class_attention(3, 5, 9), 7 << 16 | 2 << 8 | 3);
	ck_assert_uint_eq(pinion_size_class_attention(UINT64_MAX, 2, 1), 63 << 16 | 1 << 8);
	ck_assert_uint_eq(pinion_size_class_attention(UINT64_MAX, UINT64_MAX, 0), 63 << 8);
}
END_TEST

/* ---- 2.12: measurements ------------------------------------------------------------------------------------------ */

static const struct pinion_task task = { PINION_OP_MATMUL, PINION_DTYPE_F32, 20 };

static void put(struct pinion_judge *judge, enum pinion_backend_id backend, const char *source, uint64_t ns)
{
	struct pinion_measure measure = { .ns = ns };

	ck_ok(pinion_judge_put(judge, &task, backend, source, &measure));
}

START_TEST(the_last_measurement_wins)
{
	struct pinion_measure m = { .ns = 5, .error = 0.25 };
	struct pinion_judge *judge = NULL;

	ck_ok(pinion_judge_new(&judge));
	ck_assert_uint_eq(pinion_judge_size(judge), 0);
	ck_assert_int_eq(pinion_judge_get(judge, &task, PINION_BACKEND_CPU, "mkl", &m), -ENODATA);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "matmul"));
	ck_ok(pinion_judge_put(judge, &task, PINION_BACKEND_CPU, "mkl", &m));
	m = (struct pinion_measure){ .ns = 900 };
	ck_ok(pinion_judge_put(judge, &task, PINION_BACKEND_CPU, "mkl", &m));
	m = (struct pinion_measure){ .ns = 7, .error = 0.5 };
	ck_ok(pinion_judge_put(judge, &task, PINION_BACKEND_CPU, "mkl", &m));
	m = (struct pinion_measure){ 0 };
	ck_ok(pinion_judge_get(judge, &task, PINION_BACKEND_CPU, "mkl", &m));
	ck_assert_uint_eq(m.ns, 7);
	ck_assert(m.error == 0.5);
	ck_assert_uint_eq(pinion_judge_size(judge), 1);
	pinion_judge_free(judge);
	pinion_judge_free(NULL);
}
END_TEST

START_TEST(every_part_of_the_key_counts)
{
	struct pinion_task other[] = { task, task, task };
	struct pinion_judge *judge = NULL;
	struct pinion_measure m;

	other[0].op = PINION_OP_QMATMUL;
	other[1].dtype = PINION_DTYPE_F16;
	other[2].size_class = 21;
	ck_ok(pinion_judge_new(&judge));
	put(judge, PINION_BACKEND_CPU, "mkl", 1);
	for (size_t i = 0; i < COUNT(other); i++)
		ck_assert_int_eq(pinion_judge_get(judge, &other[i], PINION_BACKEND_CPU, "mkl", &m), -ENODATA);
	ck_assert_int_eq(pinion_judge_get(judge, &task, PINION_BACKEND_CUDA, "mkl", &m), -ENODATA);
	ck_assert_int_eq(pinion_judge_get(judge, &task, PINION_BACKEND_CPU, "aocl", &m), -ENODATA);
	ck_assert_int_eq(pinion_judge_get(judge, &task, PINION_BACKEND_CPU, "", &m), -ENODATA);
	put(judge, PINION_BACKEND_CPU, "", 2);
	ck_ok(pinion_judge_get(judge, &task, PINION_BACKEND_CPU, NULL, &m));
	ck_assert_uint_eq(m.ns, 2);
	put(judge, PINION_BACKEND_CPU, NULL, 3);
	ck_ok(pinion_judge_get(judge, &task, PINION_BACKEND_CPU, "", &m));
	ck_assert_uint_eq(m.ns, 3);
	ck_ok(pinion_judge_get(judge, &task, PINION_BACKEND_CPU, "mkl", &m));
	ck_assert_uint_eq(m.ns, 1);
	ck_assert_uint_eq(pinion_judge_size(judge), 2);
	pinion_judge_free(judge);
}
END_TEST

START_TEST(a_judge_remembers_many)
{
	struct pinion_judge *judge = NULL;
	struct pinion_measure m;
	char source[16];

	ck_ok(pinion_judge_new(&judge));
	for (uint32_t i = 0; i < 20000; i++) {
		struct pinion_task t = { (enum pinion_op)(1 + i % 100), (enum pinion_dtype)(1 + i % 18), i / 7 };

		snprintf(source, sizeof(source), "source-%u", i % 5);
		m = (struct pinion_measure){ .ns = i };
		ck_ok(pinion_judge_put(judge, &t, (enum pinion_backend_id)(1 + i % 4), source, &m));
	}
	ck_assert_uint_eq(pinion_judge_size(judge), 20000);
	for (uint32_t i = 0; i < 20000; i++) {
		struct pinion_task t = { (enum pinion_op)(1 + i % 100), (enum pinion_dtype)(1 + i % 18), i / 7 };

		snprintf(source, sizeof(source), "source-%u", i % 5);
		ck_ok(pinion_judge_get(judge, &t, (enum pinion_backend_id)(1 + i % 4), source, &m));
		ck_assert_uint_eq(m.ns, i);
	}
	pinion_judge_free(judge);
}
END_TEST

static atomic_bool stop;

static void *measure_on(void *arg)
{
	struct pinion_judge *judge = arg;

	for (uint64_t i = 0; !atomic_load_explicit(&stop, memory_order_relaxed); i++) {
		struct pinion_measure m = { .ns = i, .error = (double)i };

		if (pinion_judge_put(judge, &task, PINION_BACKEND_CPU, "mkl", &m))
			return judge;
	}
	return NULL;
}

START_TEST(a_measurement_is_read_whole_while_another_is_made)
{
	struct pinion_judge *judge = NULL;
	uint64_t changes = 0, last = 0;
	bool whole = true, ordered = true;
	pthread_t writer;
	void *failed;

	ck_ok(pinion_judge_new(&judge));
	put(judge, PINION_BACKEND_CPU, "mkl", 0);
	ck_assert_int_eq(pthread_create(&writer, NULL, measure_on, judge), 0);
	/* On a busy machine longer, until the writer has had its turn. */
	for (int i = 0; (i < 10000000 && changes < 2000000) || !changes; i = i < 10000000 ? i + 1 : i) {
		struct pinion_measure m;

		whole &= !pinion_judge_get(judge, &task, PINION_BACKEND_CPU, "mkl", &m) && m.error == (double)m.ns;
		ordered &= m.ns >= last;
		changes += m.ns != last;
		last = m.ns;
	}
	atomic_store(&stop, true);
	pthread_join(writer, &failed);
	ck_assert_ptr_null(failed);
	ck_assert(whole && ordered);
	ck_assert_uint_gt(changes, 0);
	pinion_judge_free(judge);
}
END_TEST

START_TEST(errors_that_are_none_are_refused)
{
	const double bad[] = { -1e-9, -INFINITY, INFINITY, NAN };
	struct pinion_judge *judge = NULL;

	ck_ok(pinion_judge_new(&judge));
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct pinion_measure m = { .ns = 1, .error = bad[i] };

		ck_assert_int_eq(pinion_judge_put(judge, &task, PINION_BACKEND_CPU, "", &m), -EINVAL);
	}
	ck_assert_uint_eq(pinion_judge_size(judge), 0);
	pinion_judge_free(judge);
}
END_TEST

static struct pinion_set *set_of(const struct pinion_candidate *list, size_t n, bool with_task)
{
	struct pinion_set *set = NULL;

	ck_ok(pinion_set_from(list, n, &set));
	pinion_set_set_task(set, with_task ? &task : NULL);
	return set;
}

START_TEST(criteria_of_measured_kernels)
{
	struct pinion_candidate list[5];
	static const char *const sources[] = { "none", "slow", "rough", "middle", "middle-too" };
	const struct pinion_measure measures[] = { { 0 }, { 1000, 0 }, { 100, 0.5 }, { 300, 0.01 }, { 300, 0.01 } };
	struct pinion_set *set, *no_task;
	struct pinion_judge *judge = NULL;
	size_t index = 99;

	ck_ok(pinion_judge_new(&judge));
	for (size_t i = 0; i < COUNT(list); i++) {
		list[i] = (struct pinion_candidate){
			.backend = PINION_BACKEND_CPU,
			.device = { PINION_BACKEND_CPU, 0 },
			.kernel_source = sources[i],
		};
	}
	set = set_of(list, COUNT(list), true);
	no_task = set_of(list, COUNT(list), false);
	ck_assert_int_eq(pinion_judge_best(judge, set, PINION_CRITERION_FASTEST, &index), -ENODATA);
	for (size_t i = 1; i < COUNT(list); i++)
		ck_ok(pinion_judge_put(judge, &task, PINION_BACKEND_CPU, sources[i], &measures[i]));
	ck_assert_int_eq(pinion_judge_best(judge, no_task, PINION_CRITERION_FASTEST, &index), -ENODATA);
	ck_assert_uint_eq(index, 99);
	ck_ok(pinion_judge_best(judge, set, PINION_CRITERION_FASTEST, &index));
	ck_assert_uint_eq(index, 2);
	ck_ok(pinion_judge_best(judge, set, PINION_CRITERION_ACCURATE, &index));
	ck_assert_uint_eq(index, 1);
	/* 1000, 5100, 600, 600 */
	ck_ok(pinion_judge_best(judge, set, PINION_CRITERION_BALANCED, &index));
	ck_assert_uint_eq(index, 3);
	ck_assert(pinion_criterion_score(PINION_CRITERION_FASTEST, &measures[3]) == 300);
	ck_assert(pinion_criterion_score(PINION_CRITERION_ACCURATE, &measures[3]) == 0.01);
	ck_assert(pinion_criterion_score(PINION_CRITERION_BALANCED, &measures[3]) == 600);
	pinion_set_free(set);
	/* The way there counts; of equal errors, the faster. */
	list[2].inbound_transfer_ns = 250;
	list[3].inbound_transfer_ns = 1;
	set = set_of(list, COUNT(list), true);
	ck_ok(pinion_judge_best(judge, set, PINION_CRITERION_FASTEST, &index));
	ck_assert_uint_eq(index, 4);
	pinion_set_free(set);
	list[1].kernel_source = "middle";
	list[1].inbound_transfer_ns = 500;
	set = set_of(list, COUNT(list), true);
	ck_ok(pinion_judge_best(judge, set, PINION_CRITERION_ACCURATE, &index));
	ck_assert_uint_eq(index, 4);
	pinion_set_free(set);
	pinion_set_free(no_task);
	pinion_judge_free(judge);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cost");
	TCase *time = tcase_create("time"), *precision = tcase_create("precision"), *sizes = tcase_create("sizes"),
	      *judge = tcase_create("judge");

	tcase_add_test(time, time_is_the_larger_of_compute_and_memory_and_the_overhead);
	tcase_add_test(time, each_quotient_is_cut_to_a_whole_number);
	tcase_add_test(time, what_is_too_large_saturates);
	tcase_add_test(time, rates_that_are_none_are_replaced_by_the_cpus);
	tcase_add_test(time, backends_have_default_rates);
	suite_add_tcase(s, time);
	tcase_add_test(precision, the_four_presets);
	tcase_add_test(precision, digits_are_those_of_the_relative_bound);
	tcase_add_test(precision, digits_in_the_order_of_the_contract);
	tcase_add_test(precision, accuracy_by_rung);
	tcase_add_test(precision, the_vector_of_a_candidate);
	suite_add_tcase(s, precision);
	tcase_add_test(sizes, size_classes_are_logarithms);
	tcase_add_test(sizes, size_classes_of_a_matmul);
	tcase_add_test(sizes, size_classes_of_attention);
	suite_add_tcase(s, sizes);
	tcase_set_timeout(judge, 60);
	tcase_add_test(judge, the_last_measurement_wins);
	tcase_add_test(judge, every_part_of_the_key_counts);
	tcase_add_test(judge, a_judge_remembers_many);
	tcase_add_test(judge, a_measurement_is_read_whole_while_another_is_made);
	tcase_add_test(judge, errors_that_are_none_are_refused);
	tcase_add_test(judge, criteria_of_measured_kernels);
	suite_add_tcase(s, judge);
	return s;
}

PINION_TEST_MAIN(suite)
