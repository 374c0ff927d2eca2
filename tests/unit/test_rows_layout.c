/* SPDX-License-Identifier: MIT */
/*
 * Contract 2.14 and 2.16, the rows that test_view.c, test_strided.c and test_type.c do not state: runs of equal length, the
 * layouts of bundles, block formats as the contract has them, and the order in which operands are checked.
 */
#include "harness.h"

#include <errno.h>
#include <pinion/pinion.h>

#include "dispatch/backend.h"
#include "memory/walk.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BOTH	     (PINION_READ | PINION_WRITE)

#define ck_refused(expr, err, phrase)                                                                                       \
	do {                                                                                                                \
		int ck_refused_ret = (expr);                                                                                \
		ck_assert_msg(ck_refused_ret == -(err) && strstr(pinion_error(), phrase), "%s: %d (%s), not \"%s\"", #expr, \
			      ck_refused_ret, pinion_error(), phrase);                                                      \
	} while (0)

/* ---- 2.14: one contiguous run, or several of equal length -------------------------------------------------------- */

static uint16_t memory[2 * 3 * 4];

/* The rows of a walk: how many, how long, and whether each starts a fixed step after the one before. */
struct runs {
	struct walk_op op;
	uint64_t n, elements, positions;
	int64_t step;
};

static void note_run(const struct walk_op *op, char *dst, int64_t dst_step, const char *src, int64_t src_step, uint64_t n)
{
	struct runs *runs = (struct runs *)op;

	ck_assert_ptr_eq(dst, src);
	ck_assert_int_eq(dst_step, src_step);
	ck_assert(!runs->n || (runs->elements == n && runs->step == dst_step));
	runs->n++;
	runs->elements = n;
	runs->step = dst_step;
	for (uint64_t i = 0; i < n; i++)
		runs->positions |= UINT64_C(1) << ((dst - (char *)memory) + (int64_t)i * dst_step) / 2;
}

enum how { WHOLE, COLUMNS, PLANES, FRONT, FLIPPED, TRANSPOSED, REPEATED, EVERY_OTHER };

static struct pinion_view made(enum how how)
{
	const uint64_t shape[] = { 2, 3, 4 }, half[] = { 2, 3, 2 }, more[] = { 5, 2, 3, 4 };
	const int64_t second[] = { 12, 4, 2 };
	struct pinion_view v;

	ck_ok(pinion_view_init(&v, memory, sizeof(memory), PINION_DTYPE_F16, 3, shape, NULL, 0));
	if (how == COLUMNS)
		ck_ok(pinion_view_narrow(&v, 2, 1, 2, &v));
	if (how == PLANES)
		ck_ok(pinion_view_narrow(&v, 1, 1, 2, &v));
	if (how == FRONT)
		ck_ok(pinion_view_narrow(&v, 0, 1, 1, &v));
	for (uint32_t axis = 0; how == FLIPPED && axis < 3; axis++)
		ck_ok(pinion_view_flip(&v, axis, &v));
	if (how == TRANSPOSED)
		ck_ok(pinion_view_transpose(&v, 0, 2, &v));
	if (how == REPEATED)
		ck_ok(pinion_view_broadcast(&v, 4, more, &v));
	if (how == EVERY_OTHER)
		ck_ok(pinion_view_init(&v, memory, sizeof(memory), PINION_DTYPE_F16, 3, half, second, 0));
	return v;
}

START_TEST(a_layout_is_one_run_or_several_of_equal_length)
{
	static const struct {
		enum how how;
		uint64_t runs, elements;
		int64_t step; /* bytes */
		uint64_t positions;
		bool contiguous;
	} rows[] = {
		{ WHOLE, 1, 24, 2, 0xffffff, true },
		{ COLUMNS, 6, 2, 2, 0x666666, false },
		{ PLANES, 2, 8, 2, 0xff0ff0, false },
		{ FRONT, 1, 12, 2, 0xfff000, true }, /* the start offset does not matter */
		{ FLIPPED, 1, 24, 2, 0xffffff, false },
		{ TRANSPOSED, 1, 24, 2, 0xffffff, false }, /* as a place, it is the same run */
		{ REPEATED, 1, 24, 2, 0xffffff, false },
		{ EVERY_OTHER, 1, 12, 4, 0x555555, false },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct runs runs = { .op = { .row = note_run } };
		struct pinion_view v = made(rows[i].how);
		struct walk walk;

		walk_plan(&walk, &v, &v);
		walk_run(&walk, &runs.op);
		ck_assert_msg(runs.n == rows[i].runs && runs.elements == rows[i].elements && runs.step == rows[i].step,
			      "row %zu: %llu runs of %llu, %lld bytes apart", i, (unsigned long long)runs.n,
			      (unsigned long long)runs.elements, (long long)runs.step);
		ck_assert_uint_eq(runs.positions, rows[i].positions);
		ck_assert_int_eq(pinion_view_is_contiguous(&v), rows[i].contiguous);
	}
}
END_TEST

/* Indices in row-major order, the last axis the fastest, through any layout. */
START_TEST(positions_are_counted_row_major)
{
	for (enum how how = WHOLE; how <= EVERY_OTHER; how++) {
		struct pinion_view v = made(how), packed;
		uint16_t gathered[5 * 24];
		uint64_t n = 0, index[4] = { 0 };

		for (uint16_t i = 0; i < COUNT(memory); i++)
			memory[i] = i;
		ck_ok(pinion_view_init(&packed, gathered, sizeof(gathered), v.dtype, v.rank, v.shape, NULL, 0));
		ck_ok(pinion_view_copy(&packed, &v));
		while (n < pinion_view_elements(&v)) {
			int64_t at = (int64_t)v.offset;
			uint32_t axis = v.rank;

			for (uint32_t a = 0; a < v.rank; a++)
				at += (int64_t)index[a] * v.stride[a];
			ck_assert_msg(gathered[n] == at, "layout %d, position %llu", how, (unsigned long long)n);
			n++;
			while (axis-- && ++index[axis] == v.shape[axis])
				index[axis] = 0;
		}
	}
}
END_TEST

/* ---- 2.14: bundles ----------------------------------------------------------------------------------------------- */

struct slot {
	enum pinion_dtype dtype;
	uint32_t rank;
	uint64_t shape[3];
	uint64_t start; /* byte */
};

/* Several outputs in one allocation: each begins at the next multiple of its element size. */
static const struct {
	const char *name;
	struct slot slot[5];
	size_t slots;
	uint64_t total, primary; /* bytes; elements of slot 0's dtype that hold them */
} bundles[] = {
	{ "f32[2,3]", { { PINION_DTYPE_F32, 2, { 2, 3 }, 0 } }, 1, 24, 6 },
	{ "f32[2,3], f64[3]", { { PINION_DTYPE_F32, 2, { 2, 3 }, 0 }, { PINION_DTYPE_F64, 1, { 3 }, 24 } }, 2, 48, 12 },
	{ "f32[1], f64[1]", { { PINION_DTYPE_F32, 1, { 1 }, 0 }, { PINION_DTYPE_F64, 1, { 1 }, 8 } }, 2, 16, 4 },
	{ "f64[1], u8[3]", { { PINION_DTYPE_F64, 1, { 1 }, 0 }, { PINION_DTYPE_U8, 1, { 3 }, 8 } }, 2, 11, 2 },
	{ "five",
	  { { PINION_DTYPE_U8, 1, { 3 }, 0 },
	    { PINION_DTYPE_F32, 1, { 1 }, 4 },
	    { PINION_DTYPE_BOOL, 1, { 1 }, 8 },
	    { PINION_DTYPE_I64, 2, { 2, 1 }, 16 },
	    { PINION_DTYPE_BF16, 1, { 1 }, 32 } },
	  5,
	  34,
	  34 },
};

/* The view of a slot in the memory of @st. */
static int slot_view(const struct pinion_storage *st, const struct slot *slot, struct pinion_view *view)
{
	struct pinion_view whole;

	ck_ok(pinion_storage_view(st, BOTH, &whole));
	return pinion_view_init(view, whole.data, whole.bytes, slot->dtype, slot->rank, slot->shape, NULL,
				slot->start / pinion_dtype_bytes(slot->dtype));
}

/* The rule itself, so that the table's numbers are not only the test's. */
static uint64_t next_start(const struct slot *slot, uint64_t end)
{
	uint64_t size = pinion_dtype_bytes(slot->dtype);

	return (end + size - 1) / size * size;
}

static uint64_t slot_end(const struct slot *slot)
{
	uint64_t bytes = pinion_dtype_bytes(slot->dtype);

	for (uint32_t axis = 0; axis < slot->rank; axis++)
		bytes *= slot->shape[axis];
	return slot->start + bytes;
}

START_TEST(a_bundles_slots_are_views_of_one_storage)
{
	for (size_t b = 0; b < COUNT(bundles); b++) {
		const struct slot *slot = bundles[b].slot;
		size_t size = pinion_dtype_bytes(slot[0].dtype);
		struct pinion_storage *st = NULL, *less = NULL;
		struct pinion_view view[5], whole;
		uint64_t end = 0;

		ck_assert_uint_eq(bundles[b].primary, (bundles[b].total + size - 1) / size);
		ck_ok(pinion_storage_owned(slot[0].dtype, bundles[b].primary, &st));
		ck_ok(pinion_storage_view(st, BOTH, &whole));
		for (size_t i = 0; i < bundles[b].slots; i++) {
			struct pinion_scalar one;

			ck_assert_msg(slot[i].start == next_start(&slot[i], end), "%s: slot %zu", bundles[b].name, i);
			end = slot_end(&slot[i]);
			ck_ok(slot_view(st, &slot[i], &view[i]));
			ck_assert(pinion_view_is_contiguous(&view[i]));
			/* Zeros to begin with, and what is written to one slot is not seen in another. */
			for (uint64_t byte = slot[i].start; byte < end; byte++)
				ck_assert_int_eq(((const char *)whole.data)[byte], 0);
			ck_ok(pinion_dtype_scalar(slot[i].dtype, 1, &one));
			ck_ok(pinion_view_fill(&view[i], &one));
		}
		ck_assert_uint_eq(end, bundles[b].total);
		/* With one element fewer the last slot is out of bounds. */
		ck_ok(pinion_storage_owned(slot[0].dtype, bundles[b].primary - 1, &less));
		ck_refused(slot_view(less, &slot[bundles[b].slots - 1], &view[0]), EINVAL, "out of bounds");
		pinion_storage_free(less);
		pinion_storage_free(st);
	}
}
END_TEST

/* A slot that starts where the one before it ends, and not at a multiple of its element, is no view. */
START_TEST(a_slot_that_is_not_aligned_is_refused)
{
	const uint64_t one = 1;
	struct pinion_storage *st = NULL;
	struct pinion_view whole, view;

	ck_ok(pinion_storage_owned(PINION_DTYPE_F32, 4, &st));
	ck_ok(pinion_storage_view(st, BOTH, &whole));
	ck_refused(pinion_view_init(&view, (char *)whole.data + 4, 12, PINION_DTYPE_F64, 1, &one, NULL, 0), EINVAL,
		   "not aligned to");
	ck_ok(pinion_view_init(&view, (char *)whole.data + 8, 8, PINION_DTYPE_F64, 1, &one, NULL, 0));
	pinion_storage_free(st);
}
END_TEST

/* "Disagrees": a layout whose shape is not the slot's, and a dtype that is not the storage's. */
START_TEST(what_disagrees_with_a_slot_is_refused)
{
	const struct slot f32 = { PINION_DTYPE_F32, 2, { 2, 3 }, 0 }, f64 = { PINION_DTYPE_F64, 1, { 3 }, 24 };
	const uint64_t flat = 6;
	struct pinion_storage *st = NULL;
	struct pinion_view view, second, other;
	float values[6] = { 1, 1, 1, 1, 1, 1 };

	ck_ok(pinion_storage_owned(PINION_DTYPE_F32, 12, &st));
	ck_ok(slot_view(st, &f32, &view));
	ck_ok(slot_view(st, &f64, &second));
	ck_ok(pinion_view_init(&other, values, sizeof(values), PINION_DTYPE_F32, 1, &flat, NULL, 0));
	ck_refused(pinion_view_copy(&view, &other), EINVAL, "rank is 2, the source's 1");
	ck_refused(pinion_view_copy(&second, &other), EINVAL, "dtype mismatch");
	ck_assert_ptr_null(pinion_view_f32(&second));
	ck_assert_ptr_null(pinion_view_f64(&view));
	ck_assert_ptr_eq(pinion_view_f64(&second), (double *)view.data + 3);
	pinion_storage_free(st);
}
END_TEST

/* CpuStorageBytes: a typed slice of bytes fails when they are no whole elements or not aligned, and not otherwise. */
START_TEST(bytes_are_read_as_whole_aligned_elements)
{
	static const struct {
		enum pinion_dtype dtype;
		uint64_t start, bytes, elements;
		const char *phrase; /* NULL: it is a slice */
	} rows[] = {
		{ PINION_DTYPE_F32, 0, 16, 4, NULL },
		{ PINION_DTYPE_F32, 0, 15, 4, "out of bounds" },
		{ PINION_DTYPE_F32, 0, 15, 3, NULL },
		{ PINION_DTYPE_F32, 2, 8, 1, "not aligned to" },
		{ PINION_DTYPE_F64, 4, 8, 1, "not aligned to" },
		{ PINION_DTYPE_F64, 8, 7, 1, "out of bounds" },
		{ PINION_DTYPE_I16, 1, 2, 1, "not aligned to" },
		{ PINION_DTYPE_I16, 14, 2, 1, NULL },
		{ PINION_DTYPE_BOOL, 15, 1, 1, NULL },
	};
	struct pinion_storage *st = NULL;
	struct pinion_view bytes, view;

	ck_ok(pinion_storage_owned(PINION_DTYPE_U8, 16, &st));
	ck_ok(pinion_storage_view(st, BOTH, &bytes));
	ck_assert_uint_eq((uintptr_t)bytes.data % 64, 0);
	for (size_t i = 0; i < COUNT(rows); i++) {
		char *start = (char *)bytes.data + rows[i].start;

		if (rows[i].phrase)
			ck_refused(pinion_view_init(&view, start, rows[i].bytes, rows[i].dtype, 1, &rows[i].elements, NULL, 0),
				   EINVAL, rows[i].phrase);
		else
			ck_ok(pinion_view_init(&view, start, rows[i].bytes, rows[i].dtype, 1, &rows[i].elements, NULL, 0));
	}
	pinion_storage_free(st);
}
END_TEST

/* ---- 2.16 -------------------------------------------------------------------------------------------------------- */

/* As the contract prints it. Bits per weight in ten-thousandths: 6.5625 is 65625. */
static const struct {
	const char *name;
	uint32_t code, elements, bytes, bits_10000;
} ggml_rows[] = {
	{ "f32", 0, 1, 4, 320000 },	 { "f16", 1, 1, 2, 160000 },	  { "q4_0", 2, 32, 18, 45000 },
	{ "q4_1", 3, 32, 20, 50000 },	 { "q5_0", 6, 32, 22, 55000 },	  { "q5_1", 7, 32, 24, 60000 },
	{ "q8_0", 8, 32, 34, 85000 },	 { "q8_1", 9, 32, 36, 90000 },	  { "q2_K", 10, 256, 84, 26250 },
	{ "q3_K", 11, 256, 110, 34375 }, { "q4_K", 12, 256, 144, 45000 }, { "q5_K", 13, 256, 176, 55000 },
	{ "q6_K", 14, 256, 210, 65625 }, { "q8_K", 15, 256, 292, 91250 }, { "bf16", 30, 1, 2, 160000 },
};

START_TEST(block_formats_row_by_row)
{
	for (size_t i = 0; i < COUNT(ggml_rows); i++) {
		const struct pinion_type_info *info = pinion_type_info(ggml_rows[i].code);
		uint64_t bytes = 0;

		ck_assert_str_eq(info->name, ggml_rows[i].name);
		ck_assert_uint_eq(info->block_elems, ggml_rows[i].elements);
		ck_assert_uint_eq(info->block_bytes, ggml_rows[i].bytes);
		ck_ok(pinion_type_bytes(ggml_rows[i].code, 256, &bytes));
		ck_assert_uint_eq(bytes * 8 * 10000 / 256, ggml_rows[i].bits_10000);
		/* SType: no encoding is plain, and that is what has a dtype. */
		enum pinion_dtype dtype = 0;

		ck_assert_int_eq(pinion_dtype_of_type(ggml_rows[i].code, &dtype), info->quantized ? -EOPNOTSUPP : 0);
		ck_assert_int_eq(info->quantized, info->block_elems > 1);
	}
}
END_TEST

/* ---- 2.14: device, then dtype, then shape ------------------------------------------------------------------------ */

static int never_runs(const struct backend_call *call)
{
	(void)call;
	ck_abort_msg("a kernel ran with operands that do not go together");
	return 0;
}

static const struct backend_kernel away_kernels[] = {
	{ PINION_OP_COPY, PINION_DTYPE_F32, never_runs },
	{ PINION_OP_MATMUL, PINION_DTYPE_F32, never_runs },
};

static int away_enumerate(struct backend_list *list)
{
	const struct backend_desc away = {
		.key = "away",
		.caps = { .backend = PINION_BACKEND_VULKAN,
			  .location = { PINION_BACKEND_VULKAN, 0 },
			  .substrate = PINION_SUBSTRATE_HOST,
			  .alignment = 16,
			  .granularity_bits = 8,
			  .rank_max = PINION_RANK_MAX,
			  .extent_max = 1000,
			  .flops_per_ns = 30,
			  .bytes_per_ns = 40 },
		.kernels = away_kernels,
		.kernel_count = COUNT(away_kernels),
	};

	return backend_found(list, &away);
}

/* Memory is the host's there as well: what differs is the location alone. */
extern const struct backend_ops host_ops;
extern const struct pinion_backend backend_cpu, backend_hostio, backend_reference;

static const struct pinion_backend backend_away = { "away", BACKEND_ABI, away_enumerate, &host_ops };

/* In place of the library's table, which is not linked because this one comes first. */
const struct pinion_backend *const backend_table[] = { &backend_cpu, &backend_hostio, &backend_reference, &backend_away, NULL };

/* The right-hand side of a product, or the source of a copy; the left-hand side and the result are f32[2,2]. */
static const struct {
	const char *device;
	enum pinion_dtype dtype;
	uint32_t rank;
	uint64_t extent;
	const char *copy, *matmul; /* what the sentence begins with; NULL: it runs */
} operand_rows[] = {
	{ "away", PINION_DTYPE_I32, 1, 3, "device mismatch", "device mismatch" },
	{ "away", PINION_DTYPE_I32, 2, 2, "device mismatch", "device mismatch" },
	{ "away", PINION_DTYPE_F32, 2, 2, "device mismatch", "device mismatch" },
	{ "cpu", PINION_DTYPE_I32, 1, 3, "dtype mismatch in copy", "dtype mismatch in matmul" },
	{ "cpu", PINION_DTYPE_I32, 2, 2, "dtype mismatch in copy", "dtype mismatch in matmul" },
	{ "cpu", PINION_DTYPE_F64, 2, 2, "dtype mismatch in copy", "dtype mismatch in matmul" },
	{ "cpu", PINION_DTYPE_F32, 1, 3, "the shapes", "matmul takes two arrays of one rank" },
	{ "cpu", PINION_DTYPE_F32, 2, 3, "the shapes", "matmul: [2,2] times [3,3]" },
	{ "cpu", PINION_DTYPE_F32, 2, 2, NULL, NULL },
	/* Another backend at the same location is the same device as far as memory goes. */
	{ "reference", PINION_DTYPE_F32, 2, 2, NULL, NULL },
};

static struct pinion_array *array_on(struct pinion_context *ctx, const char *key, enum pinion_dtype dtype, uint32_t rank,
				     uint64_t extent)
{
	struct pinion_array *array = NULL;
	struct pinion_device *dev = NULL;

	ck_ok(pinion_device_find(ctx, key, &dev));
	ck_ok(pinion_array_zeros(dev, dtype, rank, (uint64_t[]){ extent, extent }, &array));
	return array;
}

static void ck_run(enum pinion_op op, const struct pinion_operand *dst, const struct pinion_operand *src, size_t srcs,
		   const char *sentence, size_t row)
{
	int ret = pinion_array_run(op, dst, src, srcs, NULL, 0);

	ck_assert_msg(ret == (sentence ? -EINVAL : 0), "%s, row %zu: %d", pinion_op_name(op), row, ret);
	if (sentence)
		ck_assert_msg(strstr(pinion_error(), sentence) == pinion_error(), "%s, row %zu: %s", pinion_op_name(op), row,
			      pinion_error());
}

START_TEST(operands_are_checked_for_device_dtype_and_shape_in_this_order)
{
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(NULL, &ctx));
	for (size_t i = 0; i < COUNT(operand_rows); i++) {
		struct pinion_operand dst = { .array = array_on(ctx, "cpu", PINION_DTYPE_F32, 2, 2) };
		struct pinion_operand other = { .array = array_on(ctx, operand_rows[i].device, operand_rows[i].dtype,
								  operand_rows[i].rank, operand_rows[i].extent) };
		struct pinion_operand pair[] = { { .array = array_on(ctx, "cpu", PINION_DTYPE_F32, 2, 2) }, other };

		ck_run(PINION_OP_COPY, &dst, &other, 1, operand_rows[i].copy, i);
		ck_run(PINION_OP_MATMUL, &dst, pair, 2, operand_rows[i].matmul, i);
		/* On whichever side it is. */
		pair[1] = pair[0];
		pair[0] = other;
		if (operand_rows[i].rank == 2 && operand_rows[i].extent == 2)
			ck_run(PINION_OP_MATMUL, &dst, pair, 2, operand_rows[i].matmul, i);
		pinion_array_free(dst.array);
		pinion_array_free(other.array);
		pinion_array_free(pair[1].array);
	}
	pinion_close(ctx);
}
END_TEST

/* NoBackendForOp names the op, the dtype and the device, before any operand is looked at. */
START_TEST(an_op_that_a_device_has_not_is_refused_before_its_operands)
{
	struct pinion_context *ctx = NULL;
	struct pinion_operand dst, src;

	ck_ok(pinion_open(NULL, &ctx));
	dst.array = array_on(ctx, "cpu", PINION_DTYPE_I8, 2, 2);
	src.array = array_on(ctx, "away", PINION_DTYPE_F32, 1, 3);
	dst.layout = src.layout = NULL;
	ck_refused(pinion_array_run(PINION_OP_MATMUL, &dst, &src, 1, NULL, 0), EOPNOTSUPP, "matmul");
	ck_assert_ptr_nonnull(strstr(pinion_error(), "i8"));
	ck_assert_ptr_nonnull(strstr(pinion_error(), "cpu"));
	pinion_array_free(dst.array);
	pinion_array_free(src.array);
	pinion_close(ctx);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rows_layout");
	TCase *tc = tcase_create("rows");

	tcase_add_test(tc, a_layout_is_one_run_or_several_of_equal_length);
	tcase_add_test(tc, positions_are_counted_row_major);
	tcase_add_test(tc, a_bundles_slots_are_views_of_one_storage);
	tcase_add_test(tc, a_slot_that_is_not_aligned_is_refused);
	tcase_add_test(tc, what_disagrees_with_a_slot_is_refused);
	tcase_add_test(tc, bytes_are_read_as_whole_aligned_elements);
	tcase_add_test(tc, block_formats_row_by_row);
	tcase_add_test(tc, operands_are_checked_for_device_dtype_and_shape_in_this_order);
	tcase_add_test(tc, an_op_that_a_device_has_not_is_refused_before_its_operands);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(suite)
