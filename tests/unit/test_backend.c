/* SPDX-License-Identifier: MIT */
#include "conform.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pinion/array.h>
#include <pinion/pinion.h>
#include <pinion/select.h>
#include <pinion/storage.h>
#include <pinion/type.h>
#include <stdbool.h>

#include "dispatch/registry.h"

/* ---- the backend of Documentation/backends.md, letter by letter
 * ------------------------------------------------------------ */

/* A pretended card: memory of its own, at addresses that the host cannot follow. */
#define CARD_BYTES (UINT64_C(64) << 20)
#define CARD_SHIFT ((uintptr_t)1 << 56)

static uint64_t card_used;

static char *card_address(void *host)
{
	return (char *)((uintptr_t)host + CARD_SHIFT);
}

static char *card_host(const void *address)
{
	return (char *)((uintptr_t)address - CARD_SHIFT);
}

/* Takes what there is, never more: figures that are read meanwhile are true. */
static bool card_take(uint64_t bytes)
{
	uint64_t used = __atomic_load_n(&card_used, __ATOMIC_RELAXED);

	do {
		if (bytes > CARD_BYTES - used)
			return false;
	} while (!__atomic_compare_exchange_n(&card_used, &used, used + bytes, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return true;
}

static int card_alloc(const struct backend_device *dev, uint64_t bytes, bool zero, struct pinion_storage *out)
{
	bool taken = card_take(bytes);

	if (taken)
		out->handle = aligned_alloc(256, (bytes / 256 + 1) * 256);
	if (taken && !out->handle)
		__atomic_sub_fetch(&card_used, bytes, __ATOMIC_RELAXED);
	if (!out->handle)
		return fail(ENOMEM, "an array of %llu bytes does not fit on '%s'", (unsigned long long)bytes,
			    dev->desc.key);
	if (zero)
		memset(out->handle, 0, bytes);
	out->data = card_address(out->handle);
	return 0;
}

static void card_free(const struct backend_device *dev, struct pinion_storage *storage)
{
	(void)dev;
	__atomic_sub_fetch(&card_used, storage->layout.bytes, __ATOMIC_RELAXED);
	free(storage->handle);
}

static int card_upload(const struct backend_device *dev, struct pinion_storage *dst, uint64_t off, const void *src,
		       uint64_t bytes)
{
	(void)dev;
	memcpy((char *)dst->handle + off, src, bytes);
	return 0;
}

static int card_download(const struct backend_device *dev, void *dst, const struct pinion_storage *src, uint64_t off,
			 uint64_t bytes)
{
	(void)dev;
	memcpy(dst, (const char *)src->handle + off, bytes);
	return 0;
}

static int card_fill(const struct backend_device *dev, const struct pinion_view *dst, const struct pinion_scalar *value)
{
	struct pinion_view view = *dst;

	(void)dev;
	view.data = card_host(view.data);
	return pinion_view_fill(&view, value);
}

/* The card's copy engine reads the card's memory and writes the host's. */
static int card_copy_to(const struct backend_copy *copy)
{
	if (copy->to->desc.caps.substrate != PINION_SUBSTRATE_HOST)
		return fail(EOPNOTSUPP, "the card's copy engine reaches the host alone");
	memcpy(copy->dst->data, copy->src->handle, copy->bytes);
	return 0;
}

static int card_available(const struct backend_device *dev, uint64_t *bytes)
{
	(void)dev;
	*bytes = CARD_BYTES - __atomic_load_n(&card_used, __ATOMIC_RELAXED);
	return 0;
}

static int card_total(const struct backend_device *dev, uint64_t *bytes)
{
	(void)dev;
	*bytes = CARD_BYTES;
	return 0;
}

static const struct backend_ops card_ops = {
	.alloc = card_alloc,
	.available = card_available,
	.copy_to = card_copy_to,
	.download = card_download,
	.fill = card_fill,
	.free = card_free,
	.total = card_total,
	.upload = card_upload,
};

static int card_copy(const struct backend_call *call)
{
	struct pinion_view dst = call->dst, src = call->src[0];

	dst.data = card_host(dst.data);
	src.data = card_host(src.data);
	return pinion_view_copy(&dst, &src);
}

static float *card_f32(const struct pinion_view *view, uint64_t row, uint64_t column)
{
	int64_t element = (int64_t)view->offset + (int64_t)row * view->stride[0] + (int64_t)column * view->stride[1];

	return (float *)card_host(view->data) + element;
}

static void card_multiply(const struct pinion_view *a, const struct pinion_view *b, const struct pinion_view *c)
{
	for (uint64_t i = 0; i < c->shape[0]; i++) {
		for (uint64_t j = 0; j < c->shape[1]; j++) {
			float sum = 0;

			for (uint64_t k = 0; k < a->shape[1]; k++)
				sum += *card_f32(a, i, k) * *card_f32(b, k, j);
			*card_f32(c, i, j) = sum;
		}
	}
}

/* The axes in front of the matrices are gone through by views of views. */
static int card_matmul(const struct backend_call *call)
{
	int ret = 0;

	if (call->dst.rank == 2)
		card_multiply(&call->src[0], &call->src[1], &call->dst);
	for (uint64_t i = 0; !ret && call->dst.rank > 2 && i < call->dst.shape[0]; i++) {
		struct backend_call part = *call;
		struct pinion_view *views[] = { &part.dst, &part.src[0], &part.src[1] };

		for (int v = 0; !ret && v < 3; v++) {
			ret = pinion_view_narrow(views[v], 0, i, 1, views[v]);
			if (!ret)
				ret = pinion_view_squeeze(views[v], 0, views[v]);
		}
		if (!ret)
			ret = card_matmul(&part);
	}
	return ret;
}

static const struct backend_kernel card_kernels[] = {
	{ PINION_OP_COPY, PINION_DTYPE_U8, card_copy },
	{ PINION_OP_COPY, PINION_DTYPE_I32, card_copy },
	{ PINION_OP_COPY, PINION_DTYPE_F32, card_copy },
	{ PINION_OP_MATMUL, PINION_DTYPE_F32, card_matmul },
};

static const struct pinion_transfer card_transfers[] = {
	{ .to = { PINION_BACKEND_CPU, 0 },
	  .path = PINION_PATH_COPY,
	  .measured = true,
	  .bytes_per_ns = 10,
	  .latency_ns = 25000 },
};

static int card_enumerate(struct backend_list *list)
{
	const struct backend_desc card = {
		.key = "card",
		.caps = {
			.backend = PINION_BACKEND_VULKAN,
			.location = { PINION_BACKEND_VULKAN, 0 },
			.substrate = PINION_SUBSTRATE_VULKAN,
			.alignment = 256,
			.granularity_bits = 8,
			.slot_capacity = 4,
			.rank_max = PINION_RANK_MAX,
			.extent_max = UINT32_MAX,
			.flops_per_ns = 30,
			.bytes_per_ns = 40,
			.transfers = card_transfers,
			.transfer_count = 1,
		},
		.kernels = card_kernels,
		.kernel_count = sizeof(card_kernels) / sizeof(*card_kernels),
	};

	return backend_found(list, &card);
}

static const struct pinion_backend backend_card = {
	.name = "card",
	.abi = BACKEND_ABI,
	.enumerate = card_enumerate,
	.ops = &card_ops,
};

/* ---- others, to be refused or to be absent
 * ------------------------------------------------------------------------------------ */

/* One without an op, which has the defaults; and one that reaches the card, and predicts for itself: that nothing fits.
 */
static enum pinion_fit far_would_fit(const struct backend_device *dev, uint64_t bytes)
{
	(void)dev;
	return bytes ? PINION_FIT_NO : PINION_FIT_TIGHT;
}

static const struct backend_ops bare_ops;

#define GOOD_CAPS                                                                                                    \
	.backend = PINION_BACKEND_CUDA, .substrate = PINION_SUBSTRATE_CUDA, .alignment = 256, .granularity_bits = 8, \
	.rank_max = 4, .extent_max = 1000, .flops_per_ns = 30, .bytes_per_ns = 40

static int bare_enumerate(struct backend_list *list)
{
	const struct backend_desc bare = { .key = "bare",
					   .caps = { GOOD_CAPS, .location = { PINION_BACKEND_CUDA, 0 } } };

	return backend_found(list, &bare);
}

static const struct backend_quant_kernel far_quant[] = {
	{ PINION_OP_QMATMUL, PINION_TYPE_Q4_0, card_copy },
	{ PINION_OP_QMATMUL, PINION_TYPE_F32, card_copy },
};

static const struct pinion_transfer far_transfers[] = {
	{ .to = { PINION_BACKEND_VULKAN, 0 }, .path = PINION_PATH_COPY },
	{ .to = { PINION_BACKEND_VULKAN, 0 }, .path = PINION_PATH_PEER, .bytes_per_ns = 777, .latency_ns = 777 },
	{ .to = { PINION_BACKEND_VULKAN, 0 },
	  .path = PINION_PATH_PEER,
	  .measured = true,
	  .bytes_per_ns = 15,
	  .latency_ns = 9000 },
	{ .to = { PINION_BACKEND_CPU, 0 }, .path = PINION_PATH_STAGED, .measured = true, .bytes_per_ns = 10, .latency_ns = 5000 },
	/* To "near": short for little, wide for much, and two that are neither. */
	{ .to = { PINION_BACKEND_VULKAN, 2 },
	  .path = PINION_PATH_PEER,
	  .measured = true,
	  .bytes_per_ns = 1,
	  .latency_ns = 500000 },
	{ .to = { PINION_BACKEND_VULKAN, 2 }, .path = PINION_PATH_SHARED },
	{ .to = { PINION_BACKEND_VULKAN, 2 },
	  .path = PINION_PATH_PEER,
	  .measured = true,
	  .bytes_per_ns = 200,
	  .latency_ns = 30000 },
	{ .to = { PINION_BACKEND_VULKAN, 2 },
	  .path = PINION_PATH_COPY,
	  .measured = true,
	  .bytes_per_ns = 25,
	  .latency_ns = 3000 },
	/* To "bare": as long one way as the other. */
	{ .to = { PINION_BACKEND_CUDA, 0 }, .path = PINION_PATH_COPY, .measured = true, .bytes_per_ns = 7, .latency_ns = 9 },
	{ .to = { PINION_BACKEND_CUDA, 0 }, .path = PINION_PATH_SHARED, .measured = true, .bytes_per_ns = 7, .latency_ns = 9 },
	{ .to = { PINION_BACKEND_CUDA, 0 }, .path = PINION_PATH_STAGED, .measured = true, .bytes_per_ns = 7, .latency_ns = 9 },
};

static unsigned int peer_copies;
static enum pinion_path far_path; /* of the last copy */

static int far_copy_to(const struct backend_copy *copy)
{
	far_path = copy->path;
	peer_copies += copy->path == PINION_PATH_PEER;
	memcpy(copy->dst->handle, copy->src->handle, copy->bytes);
	return 0;
}

static const struct backend_ops far_ops = {
	.alloc = card_alloc,
	.copy_to = far_copy_to,
	.download = card_download,
	.fill = card_fill,
	.free = card_free,
	.upload = card_upload,
	.would_fit = far_would_fit,
};

static int far_enumerate(struct backend_list *list)
{
	const struct backend_desc far = {
		.key = "far",
		.caps = { GOOD_CAPS, .location = { PINION_BACKEND_CUDA, 1 }, .transfers = far_transfers,
			  .transfer_count = sizeof(far_transfers) / sizeof(*far_transfers) },
		.kernels = card_kernels,
		.kernel_count = sizeof(card_kernels) / sizeof(*card_kernels),
		.quant_kernels = far_quant,
		.quant_kernel_count = sizeof(far_quant) / sizeof(*far_quant),
	};

	return backend_found(list, &far);
}

/* The card with less: it multiplies, and can neither copy nor fill; and no array of it has a fourth axis. */
static const struct backend_ops plain_ops = {
	.alloc = card_alloc,
	.download = card_download,
	.free = card_free,
	.upload = card_upload,
};

static const struct backend_kernel plain_kernels[] = { { PINION_OP_MATMUL, PINION_DTYPE_F32, card_matmul } };

static int plain_enumerate(struct backend_list *list)
{
	const struct backend_desc plain = {
		.key = "plain",
		.caps = { .backend = PINION_BACKEND_VULKAN,
			  .location = { PINION_BACKEND_VULKAN, 1 },
			  .substrate = PINION_SUBSTRATE_VULKAN,
			  .alignment = 1,
			  .granularity_bits = 8,
			  .rank_max = 3,
			  .extent_max = 100,
			  .flops_per_ns = 30,
			  .bytes_per_ns = 40 },
		.kernels = plain_kernels,
		.kernel_count = 1,
	};

	return backend_found(list, &plain);
}

/* The card again, that one can reach in several ways. */
static int near_enumerate(struct backend_list *list)
{
	const struct backend_desc near = {
		.key = "near",
		.caps = { .backend = PINION_BACKEND_VULKAN,
			  .location = { PINION_BACKEND_VULKAN, 2 },
			  .substrate = PINION_SUBSTRATE_VULKAN,
			  .alignment = 256,
			  .granularity_bits = 8,
			  .rank_max = 3,
			  .extent_max = UINT32_MAX,
			  .flops_per_ns = 30,
			  .bytes_per_ns = 40 },
	};

	return backend_found(list, &near);
}

/* On the host's memory, with one kernel and nothing else but memory. */
static int lean_alloc(const struct backend_device *dev, uint64_t bytes, bool zero, struct pinion_storage *out)
{
	out->data = bytes <= CARD_BYTES ? calloc(1, bytes + 1) : NULL;
	(void)zero;
	return out->data ? 0 : fail(ENOMEM, "'%s' has no room", dev->desc.key);
}

static void lean_free(const struct backend_device *dev, struct pinion_storage *storage)
{
	(void)dev;
	free(storage->data);
}

static const struct backend_ops lean_ops = { .alloc = lean_alloc, .free = lean_free };

/* Of a view of one axis. */
static int lean_neg(const struct backend_call *call)
{
	const struct pinion_view *src = &call->src[0];
	float *to = call->dst.data;

	for (uint64_t i = 0; i < call->dst.shape[0]; i++)
		to[i] = -((float *)src->data)[(int64_t)src->offset + (int64_t)i * src->stride[0]];
	return 0;
}

static float lean_at(const struct backend_call *call, size_t src, uint64_t i, float otherwise)
{
	const struct pinion_view *view = &call->src[src];

	return src < call->srcs ? ((float *)view->data)[(int64_t)view->offset + (int64_t)i * view->stride[0]] : otherwise;
}

/* In place: its first operand is where it writes. One operand more is a factor, two a summand as well. */
static int lean_affine(const struct backend_call *call)
{
	float *to = (float *)call->dst.data + call->dst.offset;

	for (uint64_t i = 0; i < call->dst.shape[0]; i++)
		to[i] = to[i] * lean_at(call, 0, i, -1) + lean_at(call, 1, i, 0);
	return 0;
}

static const struct backend_kernel lean_kernels[] = { { PINION_OP_NEG, PINION_DTYPE_F32, lean_neg },
						      { PINION_OP_INPLACE_AFFINE, PINION_DTYPE_F32, lean_affine } };

static int lean_enumerate(struct backend_list *list)
{
	const struct backend_desc lean = {
		.key = "lean",
		.caps = { .backend = PINION_BACKEND_CPU,
			  .location = { PINION_BACKEND_CPU, 0 },
			  .substrate = PINION_SUBSTRATE_HOST,
			  .alignment = 8,
			  .granularity_bits = 8,
			  .rank_max = 3,
			  .extent_max = 64,
			  .flops_per_ns = 1,
			  .bytes_per_ns = 4 },
		.kernels = lean_kernels,
		.kernel_count = sizeof(lean_kernels) / sizeof(*lean_kernels),
	};

	return backend_found(list, &lean);
}

static int absent_enumerate(struct backend_list *list)
{
	(void)list;
	return fail(ENODEV, "libabsent.so.1 is not installed; apt install libabsent1");
}

static void (*spoil)(struct backend_desc *desc);

/* Reports a device that is spoiled, when a test wants that. */
static int refused;
static char refused_why[SENTENCE_MAX];

static int liar_enumerate(struct backend_list *list)
{
	static const struct backend_kernel kernels[] = { { PINION_OP_COPY, PINION_DTYPE_U8, card_copy } };
	struct backend_desc liar = { .key = "liar",
				     .caps = { GOOD_CAPS, .location = { PINION_BACKEND_CUDA, 2 } },
				     .kernels = kernels,
				     .kernel_count = 1 };

	if (!spoil)
		return 0;
	spoil(&liar);
	refused = backend_found(list, &liar);
	sentence_get(refused_why);
	return refused;
}

static const struct pinion_backend backend_bare = { "bare", BACKEND_ABI, bare_enumerate, &bare_ops };
static const struct pinion_backend backend_far = { "far", BACKEND_ABI, far_enumerate, &far_ops };
static const struct pinion_backend backend_plain = { "plain", BACKEND_ABI, plain_enumerate, &plain_ops };
static const struct pinion_backend backend_near = { "near", BACKEND_ABI, near_enumerate, &plain_ops };
static const struct pinion_backend backend_lean = { "lean", BACKEND_ABI, lean_enumerate, &lean_ops };
static const struct pinion_backend backend_absent = { "absent", BACKEND_ABI, absent_enumerate, &bare_ops };
static const struct pinion_backend backend_old = { "old", BACKEND_ABI + 1, bare_enumerate, &bare_ops };
static const struct pinion_backend backend_liar = { "liar", BACKEND_ABI, liar_enumerate, &bare_ops };

extern const struct pinion_backend backend_cpu, backend_hostio, backend_reference;

/* In place of the library's table, which is not linked because this one comes first. */
const struct pinion_backend *const backend_table[] = {
	&backend_cpu,  &backend_hostio, &backend_reference, &backend_card, &backend_bare, &backend_far, &backend_plain,
	&backend_lean, &backend_near,	&backend_absent,    &backend_old,  &backend_liar, NULL,
};

static struct pinion_context *ctx;

static struct pinion_device *find(const char *key)
{
	struct pinion_device *dev;

	if (!ctx)
		ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_find(ctx, key, &dev));
	return dev;
}

/* ---- the guide
 * ------------------------------------------------------------------------------------------------------------------ */

static char *read_source(const char *name)
{
	char path[PATH_MAX], *text;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", test_data(), name);
	f = fopen(path, "re");
	ck_assert_msg(f, "%s: cannot be read", path);
	text = calloc(1, 1 << 18);
	n = fread(text, 1, (1 << 18) - 1, f);
	ck_assert_uint_gt(n, 0);
	fclose(f);
	return text;
}

/* Whoever changes the one has to change the other. */
START_TEST(the_guides_code_is_this_code)
{
	char *guide = read_source("../Documentation/backends.md"), *source = read_source("unit/test_backend.c"),
	     *block = guide, *end;
	int blocks = 0;

	while ((block = strstr(block, "```c\n"))) {
		block += strlen("```c\n");
		end = strstr(block, "```");
		ck_assert_ptr_nonnull(end);
		*end = 0;
		ck_assert_msg(strstr(source, block), "not in test_backend.c:\n%s", block);
		block = end + 1;
		blocks++;
	}
	ck_assert_int_ge(blocks, 8);
	free(guide);
	free(source);
}
END_TEST

/* The three of the quantized traits, with their sentences. */
START_TEST(what_the_example_leaves_out_is_refused)
{
	const struct backend_device *dev = registry_find("card");
	struct backend_quant q = { .type = PINION_TYPE_Q4_0, .elements = 32 };
	struct pinion_storage out = { .handle = &out };
	struct backend_moe moe = { .weights = &q };
	uint64_t address = 77, left, limit;

	ck_assert_ptr_nonnull(dev);
	ck_assert_int_eq(dev->ops.dequantize_f16(dev, &q, 32, &out), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "dequantize_f16 not supported on this backend"));
	ck_assert_int_eq(dev->ops.device_ptr(dev, &q, &address), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "device_ptr not supported on this backend"));
	ck_assert_int_eq(dev->ops.indexed_moe_forward(dev, &moe), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "indexed_moe_forward not supported on this backend"));
	ck_assert_ptr_eq(out.handle, &out);
	ck_assert_uint_eq(address, 77);
	ck_assert_int_eq(pinion_device_pinned(find("card"), &left, &limit), -ENODATA);
	pinion_close(ctx);
}
END_TEST

START_TEST(the_examples_signals_are_its_own)
{
	struct pinion_device *card = find("card");
	uint64_t shape = CARD_BYTES / 2, bytes;
	struct pinion_array *array, *more = (void *)1;
	uint32_t n;

	ck_ok(pinion_device_available(card, &bytes));
	ck_assert_uint_eq(bytes, CARD_BYTES);
	ck_ok(pinion_array_zeros(card, PINION_DTYPE_U8, 1, &shape, &array));
	ck_ok(pinion_device_available(card, &bytes));
	ck_assert_uint_eq(bytes, CARD_BYTES / 2);
	ck_assert_int_eq(pinion_device_would_fit(card, CARD_BYTES / 2 + 1), PINION_FIT_NO);
	ck_assert_int_eq(pinion_device_would_fit(card, CARD_BYTES / 2), PINION_FIT_TIGHT);
	ck_assert_int_eq(pinion_device_would_fit(card, CARD_BYTES / 4), PINION_FIT_COMFORTABLE);
	shape++;
	ck_assert_int_eq(pinion_array_uninit(card, PINION_DTYPE_U8, 1, &shape, &more), -ENOMEM);
	ck_assert_ptr_eq(more, (void *)1);
	pinion_array_free(array);
	ck_ok(pinion_device_available(card, &bytes));
	ck_assert_uint_eq(bytes, CARD_BYTES);
	ck_ok(pinion_device_capacity(card, &n));
	ck_assert_uint_eq(n, 4);
	ck_ok(pinion_device_pending(card, PINION_SCOPE_ALL, &n));
	ck_assert_uint_eq(n, 0);
	pinion_close(ctx);
}
END_TEST

/* ---- defaults
 * ---------------------------------------------------------------------------------------------------------------------
 */

START_TEST(a_backend_without_ops_refuses_everything_and_knows_nothing)
{
	const struct backend_device *dev = registry_find("bare");
	struct pinion_view view = { .rank = 0 };
	struct pinion_scalar value = { 0 };
	struct pinion_storage storage = { 0 };
	struct backend_copy copy = { .from = dev, .to = dev };
	struct pinion_array *array = (void *)1;
	uint64_t bytes;

	ck_assert_int_eq(pinion_array_zeros(find("bare"), PINION_DTYPE_U8, 0, NULL, &array), -EOPNOTSUPP);
	ck_assert_int_eq(pinion_array_upload(find("bare"), &view, &array), -EINVAL);
	ck_assert_ptr_eq(array, (void *)1);
	ck_assert_int_eq(dev->ops.upload(dev, &storage, 0, NULL, 0), -EOPNOTSUPP);
	ck_assert_int_eq(dev->ops.download(dev, NULL, &storage, 0, 0), -EOPNOTSUPP);
	ck_assert_int_eq(dev->ops.fill(dev, &view, &value), -EOPNOTSUPP);
	ck_assert_int_eq(dev->ops.copy_to(&copy), -EOPNOTSUPP);
	dev->ops.free(dev, &storage);
	ck_assert_int_eq(pinion_device_available(find("bare"), &bytes), -ENODATA);
	ck_assert_int_eq(pinion_device_total(find("bare"), &bytes), -ENODATA);
	ck_assert_int_eq(pinion_device_would_fit(find("bare"), UINT64_MAX), PINION_FIT_UNKNOWN);
	ck_assert_int_eq(pinion_device_pinned(find("bare"), &bytes, &bytes), -ENODATA);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_predictor_of_ones_own_is_asked)
{
	struct pinion_device *far = find("far");

	ck_assert_int_eq(pinion_device_would_fit(far, 1), PINION_FIT_NO);
	ck_assert_int_eq(pinion_device_would_fit(far, 0), PINION_FIT_TIGHT);
	pinion_close(ctx);
}
END_TEST

START_TEST(quantized_formats_are_read_from_their_table)
{
	struct pinion_device *far = find("far");

	for (uint32_t type = 0; type < 64; type++)
		for (int op = 0; op <= PINION_OP_LAST; op++)
			ck_assert_int_eq(pinion_device_supports_type(far, op, type),
					 op == PINION_OP_QMATMUL &&
						 (type == PINION_TYPE_Q4_0 || type == PINION_TYPE_F32));
	pinion_close(ctx);
}
END_TEST

/* ---- an array's memory
 * -------------------------------------------------------------------------------------------------------------------
 */

static const char *described(const struct pinion_storage *st)
{
	static char text[512];

	pinion_storage_describe(st, text, sizeof(text));
	return text;
}

/* Off the host: what is known of it is as of any storage, and its elements come by a copy. */
START_TEST(an_arrays_memory_is_a_storage_of_its_device)
{
	struct pinion_storage_info info = { .size = sizeof(info) };
	float data[6] = { 1, 2, 3, 4, 5, 6 };
	struct pinion_storage *st, *own = (void *)1;
	struct pinion_buffer *buf;
	struct pinion_view view;
	struct pinion_array *a;
	uint64_t offset;
	char cut[8];

	ck_ok(pinion_view_init(&view, data, sizeof(data), PINION_DTYPE_F32, 2, (uint64_t[]){ 2, 3 }, NULL, 0));
	ck_ok(pinion_array_upload(find("card"), &view, &a));
	st = pinion_array_storage(a);
	ck_assert_int_eq(pinion_storage_kind(st), PINION_STORAGE_DEVICE);
	ck_assert_int_eq(pinion_storage_dtype(st), PINION_DTYPE_F32);
	ck_assert_uint_eq(pinion_storage_elements(st), 6);
	ck_assert_uint_eq(pinion_storage_len_bytes(st), 24);
	ck_ok(pinion_storage_info(st, &info));
	ck_assert_str_eq(info.device, "card");
	ck_assert(pinion_location_equal(info.location, (struct pinion_location){ PINION_BACKEND_VULKAN, 0 }));
	ck_assert_uint_eq(info.rank, 2);
	ck_assert_uint_eq(info.shape[1], 3);
	ck_assert_str_eq(described(st), "device f32[2,3] 24 bytes, read and write, of 'card' at vulkan 0");
	ck_assert_int_eq(pinion_storage_view(st, PINION_READ, &view), -EOPNOTSUPP);
	ck_assert_ptr_eq(view.data, data);
	ck_assert_int_eq(pinion_storage_buffer(st, &buf, &offset), -EOPNOTSUPP);
	ck_assert_int_eq(pinion_storage_write_begin(st, 0, NULL), -EOPNOTSUPP);
	ck_assert_int_eq(pinion_storage_describe(st, cut, sizeof(cut)), (int)strlen(described(st)));
	ck_assert_str_eq(cut, "device ");
	pinion_array_free(a);
	ck_assert_uint_eq(card_used, 24);
	ck_ok(pinion_storage_into_owned(st, &own));
	ck_assert_uint_eq(card_used, 0);
	ck_assert_int_eq(pinion_storage_kind(own), PINION_STORAGE_OWNED);
	ck_ok(pinion_storage_view(own, PINION_READ, &view));
	ck_assert_uint_eq(view.rank, 2);
	ck_assert_mem_eq(view.data, data, sizeof(data));
	pinion_storage_free(own);
	pinion_close(ctx);
}
END_TEST

/* On the host: the view is that of the array, also of one that another device made. */
START_TEST(the_host_sees_the_storage_of_its_own_devices)
{
	struct pinion_storage_info info = { .size = sizeof(info) };
	struct pinion_array *a, *shared;
	struct pinion_storage *st;
	struct pinion_view view;

	ck_ok(pinion_array_zeros(find("cpu"), PINION_DTYPE_I32, 0, NULL, &a));
	ck_ok(pinion_array_share(a, find("hostio"), &shared));
	pinion_array_free(a);
	st = pinion_array_storage(shared);
	ck_ok(pinion_storage_view(st, PINION_READ | PINION_WRITE, &view));
	ck_assert_ptr_eq(view.data, pinion_array_view(shared)->data);
	ck_ok(pinion_storage_info(st, &info));
	ck_assert_str_eq(info.device, "cpu");
	ck_assert_str_eq(described(st), "device i32[1] 4 bytes, read and write, of 'cpu' at cpu 0");
	*pinion_view_i32(&view) = 7;
	pinion_array_free(shared);
	ck_ok(pinion_storage_into_owned(st, &st));
	ck_ok(pinion_storage_view(st, PINION_READ, &view));
	ck_assert_int_eq(*pinion_view_i32(&view), 7);
	pinion_storage_free(st);
	pinion_close(ctx);
}
END_TEST

/* ---- without a kernel for it
 * -------------------------------------------------------------------------------------------------------------------
 */

/* Into a part of each row, over its own source: what is between stays. */
START_TEST(a_result_goes_anywhere_without_the_op_copy)
{
	float data[2][8] = { { 1, 2, 3, 4, 5, 6, 7, 8 }, { 9, 10, 11, 12, 13, 14, 15, 16 } }, back[2][8];
	static const float want[2][8] = { { 7, 10, 3, 4, 5, 6, 7, 8 }, { 39, 58, 11, 12, 13, 14, 15, 16 } };
	struct pinion_device *plain = find("plain");
	struct pinion_view view, place, left;
	struct pinion_operand dst, src[2];
	struct pinion_array *a, *b, *out = (void *)1;

	ck_assert(pinion_device_supports(plain, PINION_OP_MATMUL, PINION_DTYPE_F32));
	ck_assert(!pinion_device_supports(plain, PINION_OP_COPY, PINION_DTYPE_F32));
	ck_ok(pinion_view_init(&view, data, sizeof(data), PINION_DTYPE_F32, 2, (uint64_t[]){ 2, 8 }, NULL, 0));
	ck_ok(pinion_array_upload(plain, &view, &a));
	ck_ok(pinion_view_narrow(&view, 1, 0, 2, &left));
	left.data = (float[]){ 1, 2, 3, 4 };
	left.stride[0] = 2;
	left.bytes = 16;
	ck_ok(pinion_array_upload(plain, &left, &b));
	ck_ok(pinion_view_narrow(pinion_array_view(a), 1, 0, 2, &place));
	dst = (struct pinion_operand){ a, &place };
	src[0] = (struct pinion_operand){ a, &place };
	src[1] = (struct pinion_operand){ b, NULL };
	ck_ok(pinion_array_run(PINION_OP_MATMUL, &dst, src, 2, NULL, 0));
	view.data = back;
	ck_ok(pinion_array_download(a, NULL, &view));
	ck_assert_mem_eq(back, want, sizeof(want));
	ck_assert_int_eq(pinion_array_clone(a, NULL, &out), -EOPNOTSUPP);
	ck_assert_ptr_eq(out, (void *)1);
	pinion_array_free(a);
	pinion_array_free(b);
	ck_assert_uint_eq(card_used, 0);
	pinion_close(ctx);
}
END_TEST

/* The same on the host, for any op: over its own source, backwards, into every other element. */
START_TEST(any_op_goes_anywhere_on_the_host)
{
	float data[6] = { 1, 2, 3, 4, 5, 6 }, back[6];
	static const float want[6] = { 1, -5, 3, -3, 5, -1 };
	struct pinion_view view, odd, even;
	struct pinion_operand dst, src;
	struct pinion_array *a;

	ck_ok(pinion_view_init(&view, data, sizeof(data), PINION_DTYPE_F32, 1, (uint64_t[]){ 6 }, NULL, 0));
	ck_ok(pinion_array_upload(find("lean"), &view, &a));
	odd = even = *pinion_array_view(a);
	odd.shape[0] = even.shape[0] = 3;
	odd.stride[0] = 2;
	odd.offset = 1;
	even.stride[0] = -2;
	even.offset = 4;
	dst = (struct pinion_operand){ a, &odd };
	src = (struct pinion_operand){ a, &even };
	ck_ok(pinion_array_run(PINION_OP_NEG, &dst, &src, 1, NULL, 0));
	view.data = back;
	ck_ok(pinion_array_download(a, NULL, &view));
	ck_assert_mem_eq(back, want, sizeof(want));
	pinion_array_free(a);
	pinion_close(ctx);
}
END_TEST

/*
 * A hook of one, two and three operands: a name, and a step whose first operand is the destination. Also where the step is not
 * run in place: because the destination is in pieces, or is another operand too.
 */
START_TEST(ops_in_place_change_their_first_operand)
{
	static const float want[][6] = {
		{ -1, -2, -3, -4, -5, -6 },    /* alone */
		{ 10, 40, 90, 160, 250, 360 }, /* times another */
		{ 17, 47, 97, 167, 257, 367 }, /* and one that is repeated added */
		{ 1, -2, 3, -4, 5, -6 },       /* every second one, alone */
		{ 1, 4, 9, 16, 25, 36 },       /* times itself */
		{ 6, 10, 12, 12, 10, 6 },      /* times itself, backwards */
	};
	float data[6] = { 1, 2, 3, 4, 5, 6 }, tens[6] = { 10, 20, 30, 40, 50, 60 }, seven[6] = { 7 }, back[6];
	struct pinion_view view, second, turned, same;
	struct pinion_array *a, *b, *c;

	ck_ok(pinion_view_init(&view, tens, sizeof(tens), PINION_DTYPE_F32, 1, (uint64_t[]){ 6 }, NULL, 0));
	ck_ok(pinion_array_upload(find("lean"), &view, &b));
	view.data = seven;
	ck_ok(pinion_array_upload(find("lean"), &view, &c));
	same = *pinion_array_view(c);
	same.stride[0] = 0;
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		struct pinion_operand dst, src[2] = { { b, NULL }, { c, &same } };

		view.data = data;
		ck_ok(pinion_array_upload(find("lean"), &view, &a));
		second = *pinion_array_view(a);
		second.shape[0] = 3;
		second.stride[0] = 2;
		second.offset = 1;
		ck_ok(pinion_view_flip(pinion_array_view(a), 0, &turned));
		dst = (struct pinion_operand){ a, i == 3 ? &second : NULL };
		if (i > 3)
			src[0] = (struct pinion_operand){ a, i == 5 ? &turned : NULL };
		ck_ok(pinion_array_run(PINION_OP_INPLACE_AFFINE, &dst, src, i < 3 ? i : i > 3, NULL, 0));
		view.data = back;
		ck_ok(pinion_array_download(a, NULL, &view));
		ck_assert_msg(!memcmp(back, want[i], sizeof(back)), "case %zu: %g %g %g %g %g %g", i, back[0], back[1], back[2],
			      back[3], back[4], back[5]);
		pinion_array_free(a);
	}
	pinion_array_free(b);
	pinion_array_free(c);
	pinion_close(ctx);
}
END_TEST

static void not_to_free(void *arg, void *data)
{
	(void)arg;
	(void)data;
}

static int add_up(const struct pinion_kernel_call *call)
{
	struct pinion_view x, y, sum;
	int ret = pinion_storage_view(call->in[0], PINION_READ, &x);

	if (!ret)
		ret = pinion_storage_view(call->in[1], PINION_READ, &y);
	if (!ret)
		ret = pinion_storage_view(call->out[0], PINION_READ | PINION_WRITE, &sum);
	for (uint64_t i = 0; !ret && i < pinion_view_elements(&sum); i++)
		((float *)sum.data)[i] = ((float *)x.data)[i] + ((float *)y.data)[i];
	return ret;
}

/* What candidates work on is what arrays are in, and what any other storage is. */
START_TEST(a_candidates_kernel_takes_storages_of_arrays_and_others)
{
	float data[3] = { 1, 2, 3 };
	static const float want[3] = { 2, 4, 6 };
	struct pinion_candidate candidate = { .kernel = add_up };
	struct pinion_storage *in[2], *out;
	struct pinion_kernel_call call = { .in = in, .ins = 2, .out = &out, .outs = 1 };
	struct pinion_view view;
	struct pinion_array *a;

	ck_ok(pinion_view_init(&view, data, sizeof(data), PINION_DTYPE_F32, 1, (uint64_t[]){ 3 }, NULL, 0));
	ck_ok(pinion_array_upload(find("cpu"), &view, &a));
	in[0] = pinion_array_storage(a);
	ck_ok(pinion_storage_adopt(data, PINION_DTYPE_F32, 3, not_to_free, NULL, &in[1]));
	out = pinion_array_storage(a);
	ck_ok(candidate.kernel(&call));
	ck_ok(pinion_array_download(a, NULL, &view));
	ck_assert_mem_eq(data, want, sizeof(want));
	pinion_storage_free(in[0]);
	pinion_storage_free(in[1]);
	pinion_storage_free(out);
	pinion_array_free(a);
	pinion_close(ctx);
}
END_TEST

/* ---- shape limits
 * -------------------------------------------------------------------------------------------------------------------
 */

START_TEST(shapes_over_the_limits_are_refused)
{
	struct pinion_device *far = find("far");
	struct pinion_array *array = (void *)1;

	ck_assert_int_eq(pinion_array_zeros(far, PINION_DTYPE_U8, 5, (uint64_t[]){ 1, 1, 1, 1, 1 }, &array), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "up to 4 axes"));
	ck_assert_int_eq(pinion_array_zeros(far, PINION_DTYPE_U8, 2, (uint64_t[]){ 1, 1001 }, &array), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "1000"));
	ck_assert_ptr_eq(array, (void *)1);
	ck_ok(pinion_array_zeros(far, PINION_DTYPE_U8, 2, (uint64_t[]){ 1, 1000 }, &array));
	pinion_array_free(array);
	pinion_close(ctx);
}
END_TEST

/* No kernel sees more axes, or longer ones, than its device takes: not by a layout, and not by sharing. */
START_TEST(layouts_and_shares_over_the_limits_are_refused)
{
	struct pinion_device *plain = find("plain"), *cpu = find("cpu");
	struct pinion_operand dst, src[2];
	struct pinion_array *a, *other = (void *)1;
	struct pinion_view deep, row, column;

	ck_ok(pinion_array_zeros(plain, PINION_DTYPE_F32, 2, (uint64_t[]){ 1, 1 }, &a));
	ck_ok(pinion_view_broadcast(pinion_array_view(a), 4, (uint64_t[]){ 1, 1, 1, 1 }, &deep));
	ck_ok(pinion_view_broadcast(pinion_array_view(a), 2, (uint64_t[]){ 1, 101 }, &row));
	ck_ok(pinion_view_broadcast(pinion_array_view(a), 2, (uint64_t[]){ 101, 1 }, &column));
	dst = src[0] = src[1] = (struct pinion_operand){ a, &deep };
	ck_assert_int_eq(pinion_array_run(PINION_OP_MATMUL, &dst, src, 2, NULL, 0), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "up to 3 axes"));
	dst.layout = NULL;
	src[0].layout = &row;
	src[1].layout = &column;
	ck_assert_int_eq(pinion_array_run(PINION_OP_MATMUL, &dst, src, 2, NULL, 0), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "up to 100"));
	pinion_array_free(a);
	ck_ok(pinion_array_zeros(cpu, PINION_DTYPE_F32, 1, (uint64_t[]){ 65 }, &a));
	ck_assert_int_eq(pinion_array_share(a, find("lean"), &other), -EINVAL);
	ck_assert_ptr_eq(other, (void *)1);
	pinion_array_free(a);
	pinion_close(ctx);
}
END_TEST

/* ---- paths
 * ----------------------------------------------------------------------------------------------------------------------------
 */

static struct pinion_transfer path(const char *from, const char *to)
{
	struct pinion_transfer t;

	ck_ok(pinion_device_path(find(from), find(to), &t));
	return t;
}

START_TEST(the_cheapest_advertised_path_is_taken)
{
	struct pinion_transfer t = path("far", "card");

	ck_assert_int_eq(t.path, PINION_PATH_PEER);
	ck_assert(t.measured && t.bytes_per_ns == 15 && t.latency_ns == 9000);
	t = path("card", "cpu");
	ck_assert_int_eq(t.path, PINION_PATH_COPY);
	ck_assert(t.measured && t.bytes_per_ns == 10 && t.latency_ns == 25000);
	t = path("card", "card");
	ck_assert_int_eq(t.path, PINION_PATH_SAME);
	ck_assert(isinf(t.bytes_per_ns) && t.latency_ns == 0);
	pinion_close(ctx);
}
END_TEST

/*
 * By what the bytes at hand take: not by the kind of path, not by whether it was measured, not by what some other number of bytes
 * takes. A copy goes the way that its own bytes say.
 */
START_TEST(the_way_is_the_cheapest_for_the_bytes_at_hand)
{
	static const struct {
		uint64_t bytes, ns;
		enum pinion_path path;
		bool measured;
	} rows[] = {
		{ 0, 2000, PINION_PATH_SHARED, false },
		{ 4000, 2200, PINION_PATH_SHARED, false },
		{ 100000, 7000, PINION_PATH_SHARED, false }, /* the copy takes as long */
		{ 120000, 7800, PINION_PATH_COPY, true },
		{ 600000, 27000, PINION_PATH_COPY, true },
		{ 1000000, 35000, PINION_PATH_PEER, true },
		{ 4000000, 50000, PINION_PATH_PEER, true },
		{ UINT64_MAX, 92233720368577760, PINION_PATH_PEER, true },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct pinion_array *from, *to;
		struct pinion_transfer t;
		enum pinion_path taken = 0;

		ck_ok(pinion_device_path_for(find("far"), find("near"), rows[i].bytes, &t));
		ck_assert_int_eq(t.path, rows[i].path);
		ck_assert_int_eq(t.measured, rows[i].measured);
		ck_assert_uint_eq(pinion_transfer_ns(&t, rows[i].bytes), rows[i].ns);
		if (!rows[i].bytes || rows[i].bytes > CARD_BYTES)
			continue;
		far_path = 0;
		ck_ok(pinion_array_zeros(find("far"), PINION_DTYPE_F32, 2, (uint64_t[]){ rows[i].bytes / 4000, 1000 }, &from));
		ck_ok(pinion_array_copy_to(from, NULL, find("near"), &to, &taken));
		ck_assert_int_eq(taken, rows[i].path);
		ck_assert_int_eq(far_path, rows[i].path);
		pinion_array_free(from);
		pinion_array_free(to);
	}
	/* Where nobody says how many, it is 1 MiB. */
	ck_assert_int_eq(path("far", "near").path, PINION_PATH_PEER);
	pinion_close(ctx);
}
END_TEST

/* A part of an array has its own bytes, not those of the whole. */
START_TEST(a_part_goes_the_way_of_its_own_bytes)
{
	struct pinion_array *from, *to;
	struct pinion_view part;
	enum pinion_path taken = 0;

	ck_ok(pinion_array_zeros(find("far"), PINION_DTYPE_U8, 1, (uint64_t[]){ 1000 }, &from));
	ck_ok(pinion_view_narrow(pinion_array_view(from), 0, 10, 100, &part));
	ck_ok(pinion_array_copy_to(from, &part, find("near"), &to, &taken));
	ck_assert_int_eq(taken, PINION_PATH_SHARED);
	pinion_array_free(to);
	/* And what is repeated has more. */
	ck_ok(pinion_view_narrow(pinion_array_view(from), 0, 0, 1, &part));
	ck_ok(pinion_view_broadcast(&part, 2, (uint64_t[]){ 1000, 1000 }, &part));
	ck_ok(pinion_array_copy_to(from, &part, find("near"), &to, &taken));
	ck_assert_int_eq(taken, PINION_PATH_PEER);
	pinion_array_free(to);
	pinion_array_free(from);
	pinion_close(ctx);
}
END_TEST

START_TEST(of_ways_that_take_as_long_the_first_of_the_contract_is_taken)
{
	struct pinion_transfer t = path("far", "bare");

	ck_assert_int_eq(t.path, PINION_PATH_SHARED);
	ck_assert(t.measured && t.bytes_per_ns == 7 && t.latency_ns == 9);
	pinion_close(ctx);
}
END_TEST

START_TEST(figures_that_were_not_measured_are_the_fallback_ones)
{
	const struct pinion_caps *caps = pinion_device_caps(find("far"));

	ck_assert_uint_eq(caps->transfer_count, sizeof(far_transfers) / sizeof(*far_transfers));
	ck_assert(caps->transfers[0].bytes_per_ns == 8 && caps->transfers[0].latency_ns == 30000);
	ck_assert(caps->transfers[1].bytes_per_ns == 12 && caps->transfers[1].latency_ns == 15000);
	ck_assert(caps->transfers[2].bytes_per_ns == 15 && caps->transfers[2].latency_ns == 9000);
	pinion_close(ctx);
}
END_TEST

/* One leg from or to the host, two legs joined, and what nobody advertises. */
START_TEST(what_is_not_advertised_is_staged)
{
	struct pinion_transfer t = path("cpu", "card");

	ck_assert_int_eq(t.path, PINION_PATH_STAGED);
	ck_assert(t.measured && t.bytes_per_ns == 10 && t.latency_ns == 25000);
	t = path("card", "far");
	ck_assert_int_eq(t.path, PINION_PATH_STAGED);
	ck_assert(pinion_location_equal(t.to, (struct pinion_location){ PINION_BACKEND_CUDA, 1 }));
	ck_assert_double_eq_tol(t.bytes_per_ns, 5, 1e-12);
	ck_assert_uint_eq(t.latency_ns, 30000);
	t = path("card", "bare");
	ck_assert_int_eq(t.path, PINION_PATH_STAGED);
	ck_assert(!t.measured && t.bytes_per_ns == 4 && t.latency_ns == 60000);
	pinion_close(ctx);
}
END_TEST

static struct pinion_transfer staged(const char *from, const char *to)
{
	struct pinion_transfer t;

	ck_ok(pinion_device_path_staged(find(from), find(to), &t));
	ck_assert_int_eq(t.path, PINION_PATH_STAGED);
	return t;
}

/* Where no backend measured it the library does, on the first question, and keeps it; what cannot be is fallback. */
START_TEST(staging_is_measured_where_it_can_be)
{
	static const char *const pairs[][2] = {
		{ "cpu", "plain" },	 { "plain", "cpu" },	{ "plain", "card" }, { "plain", "plain" },
		{ "hostio", "plain" }, { "plain", "hostio" }, { "lean", "plain" }, { "plain", "lean" },
	};
	bool latency = false;

	find("cpu");
	fail(EINVAL, "what was there before");
	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		struct pinion_transfer t = i < 3 ? path(pairs[i][0], pairs[i][1]) : staged(pairs[i][0], pairs[i][1]),
				       again = staged(pairs[i][0], pairs[i][1]);

		ck_assert_int_eq(t.path, PINION_PATH_STAGED);
		ck_assert(t.measured && isfinite(t.bytes_per_ns) && t.bytes_per_ns > 0);
		latency |= t.latency_ns > 0;
		ck_assert(again.bytes_per_ns == t.bytes_per_ns && again.latency_ns == t.latency_ns);
		ck_assert(pinion_location_equal(t.to, pinion_device_caps(find(pairs[i][1]))->location));
	}
	/* One may have none, where somebody else had the processor during all of the small copies. */
	ck_assert(latency);
	ck_assert_int_eq(path("cpu", "lean").path, PINION_PATH_SAME);
	ck_assert(staged("cpu", "lean").measured && staged("lean", "lean").measured);
	for (int again = 0; again < 2; again++) {
		struct pinion_transfer t = path("plain", "bare");

		ck_assert(!t.measured && t.bytes_per_ns == 4 && t.latency_ns == 60000);
	}
	ck_assert_str_eq(pinion_error(), "what was there before");
	ck_assert_uint_eq(card_used, 0);
	pinion_close(ctx);
}
END_TEST

/* A backend's own figures are not measured again. */
START_TEST(figures_of_a_backend_are_not_measured_anew)
{
	ck_assert(staged("cpu", "card").bytes_per_ns == 10);
	ck_assert(staged("card", "cpu").bytes_per_ns == 10);
	ck_assert_double_eq_tol(staged("far", "card").bytes_per_ns, 5, 1e-12);
	pinion_close(ctx);
}
END_TEST

START_TEST(copies_go_where_the_path_leads)
{
	static const char *const keys[] = { "cpu", "hostio", "reference", "card", "far" };
	float data[6] = { 1, 2, 3, 4, 5, 6 }, back[6], turned[6] = { 1, 4, 2, 5, 3, 6 };
	struct pinion_view view, got, layout;

	ck_ok(pinion_view_init(&view, data, sizeof(data), PINION_DTYPE_F32, 2, (uint64_t[]){ 2, 3 }, NULL, 0));
	ck_ok(pinion_view_init(&got, back, sizeof(back), PINION_DTYPE_F32, 2, (uint64_t[]){ 3, 2 }, NULL, 0));
	for (int from = 0; from < 5; from++) {
		for (int to = 0; to < 5; to++) {
			struct pinion_array *a, *b;
			enum pinion_path taken = 0;

			ck_ok(pinion_array_upload(find(keys[from]), &view, &a));
			ck_ok(pinion_view_transpose(pinion_array_view(a), 0, 1, &layout));
			ck_ok(pinion_array_copy_to(a, &layout, find(keys[to]), &b, &taken));
			ck_assert_int_eq(taken, path(keys[from], keys[to]).path);
			pinion_array_free(a);
			memset(back, 0, sizeof(back));
			ck_ok(pinion_array_download(b, NULL, &got));
			ck_assert_mem_eq(back, turned, sizeof(back));
			pinion_array_free(b);
		}
	}
	ck_assert_uint_eq(peer_copies, 1);
	ck_assert_uint_eq(card_used, 0);
	pinion_close(ctx);
}
END_TEST

/* Same substrate and same location; neither alone is enough. */
START_TEST(devices_share_by_substrate_and_location)
{
	ck_assert(pinion_devices_share(find("cpu"), find("reference")));
	ck_assert(pinion_devices_share(find("card"), find("card")));
	ck_assert(!pinion_devices_share(find("card"), find("cpu")));
	ck_assert(!pinion_devices_share(find("bare"), find("far")));
	pinion_close(ctx);
}
END_TEST

START_TEST(operands_of_another_device_are_refused)
{
	struct pinion_array *here, *there, *out = (void *)1;

	ck_ok(pinion_array_zeros(find("card"), PINION_DTYPE_F32, 2, (uint64_t[]){ 2, 2 }, &here));
	ck_ok(pinion_array_zeros(find("cpu"), PINION_DTYPE_F32, 2, (uint64_t[]){ 2, 2 }, &there));
	ck_assert_int_eq(pinion_array_matmul(here, NULL, there, NULL, &out), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "device mismatch"));
	ck_assert_int_eq(pinion_array_copy(there, NULL, here, NULL), -EINVAL);
	ck_assert_ptr_eq(out, (void *)1);
	pinion_array_free(here);
	pinion_array_free(there);
	pinion_close(ctx);
}
END_TEST

/* ---- the registry
 * ---------------------------------------------------------------------------------------------------------------------
 */

START_TEST(an_absent_backend_says_why)
{
	struct pinion_device *dev = (void *)1;

	find("cpu");
	ck_assert_int_eq(pinion_device_find(ctx, "absent", &dev), -ENODEV);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "libabsent.so.1"));
	ck_assert_int_eq(pinion_device_find(ctx, "old", &dev), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "contract"));
	ck_assert_int_eq(pinion_device_find(ctx, "no-such-thing", &dev), -ENOENT);
	ck_assert_ptr_eq(dev, (void *)1);
	pinion_close(ctx);
}
END_TEST

/* Row 39: a device whose backend failed is not passed over in silence. */
START_TEST(a_pick_says_why_a_backend_has_no_device)
{
	static const char *const keys[] = { "absent:0", "there" };
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 1 << 20 };
	struct pinion_want want = { .size = sizeof(want), .bytes = 1, .keys = keys, .key_count = 2 };
	struct pinion_reservation_info info = { .size = sizeof(info) };
	struct pinion_reservation *r = NULL;
	struct pinion_pick_row rows[2];
	struct pinion_device *dev;
	size_t n;

	find("cpu");
	ck_ok(pinion_device_add(ctx, "there", &opts, &dev));
	ck_ok(pinion_pick_explain(ctx, &want, rows, 2, &n, &r));
	ck_ok(pinion_reservation_info(r, &info));
	ck_assert_str_eq(info.key, "there");
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(rows[0].err, -ENODEV);
	ck_assert_ptr_nonnull(strstr(rows[0].why, "libabsent.so.1"));
	pinion_reservation_free(r);
	want.require = true;
	ck_assert_int_eq(pinion_pick(ctx, &want, &r), -ENODEV);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "libabsent.so.1"));
	pinion_close(ctx);
}
END_TEST

START_TEST(devices_are_listed_in_the_order_of_the_table)
{
	static const char *const keys[] = { "cpu", "hostio", "reference", "card", "bare", "far", "plain", "lean", "near" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		ck_assert_str_eq(registry_at(i)->desc.key, keys[i]);
		ck_assert_ptr_eq(registry_at(i), registry_find(keys[i]));
	}
	ck_assert_ptr_null(registry_at(sizeof(keys) / sizeof(*keys)));
	ck_assert_ptr_null(registry_find("liar"));
}
END_TEST

START_TEST(asking_the_backends_leaves_the_callers_sentence)
{
	fail(EINVAL, "what was there before");
	registry_find("cpu");
	ck_assert_str_eq(pinion_error(), "what was there before");
}
END_TEST

#define SPOIL(name, change)                              \
	static void spoil_##name(struct backend_desc *d) \
	{                                                \
		change;                                  \
	}

static const struct backend_kernel twice[] = { { PINION_OP_COPY, PINION_DTYPE_U8, card_copy },
					       { PINION_OP_COPY, PINION_DTYPE_U8, card_copy } };
static const struct backend_kernel packed[] = { { PINION_OP_COPY, PINION_DTYPE_F4, card_copy } };
static const struct backend_kernel hollow[] = { { PINION_OP_COPY, PINION_DTYPE_U8, NULL } };
static const struct backend_quant_kernel no_op[] = { { 0, PINION_TYPE_Q4_0, card_copy } };
static const struct backend_kernel placeless[] = { { PINION_OP_MATMUL, PINION_DTYPE_F32, card_matmul } };
static const struct pinion_transfer peer[] = { { .to = { PINION_BACKEND_CPU, 0 }, .path = PINION_PATH_PEER } };
static const struct pinion_transfer same[] = { { .to = { PINION_BACKEND_CPU, 0 }, .path = PINION_PATH_SAME } };
static const struct pinion_transfer nowhere[] = { { .path = PINION_PATH_STAGED } };
static const struct pinion_transfer standing[] = {
	{ .to = { PINION_BACKEND_CPU, 0 }, .path = PINION_PATH_STAGED, .measured = true }
};

SPOIL(key, d->key = "")
SPOIL(no_key, d->key = NULL)
SPOIL(known, d->key = "cpu")
SPOIL(kind, d->caps.location.kind = PINION_BACKEND_CPU)
SPOIL(backend, d->caps.backend = d->caps.location.kind = 9)
SPOIL(substrate, d->caps.substrate = 0)
SPOIL(alignment, d->caps.alignment = 48)
SPOIL(no_alignment, d->caps.alignment = 0)
SPOIL(rank, d->caps.rank_max = PINION_RANK_MAX + 1)
SPOIL(extent, d->caps.extent_max = 0)
SPOIL(granularity, d->caps.granularity_bits = 0)
SPOIL(rate, d->caps.flops_per_ns = 0)
SPOIL(infinite, d->caps.bytes_per_ns = INFINITY)
SPOIL(nan, d->caps.bytes_per_ns = NAN)
SPOIL(twice, (d->kernels = twice, d->kernel_count = 2))
SPOIL(packed, d->kernels = packed)
SPOIL(hollow, d->kernels = hollow)
SPOIL(placeless, d->kernels = placeless)
SPOIL(no_op, (d->quant_kernels = no_op, d->quant_kernel_count = 1))
SPOIL(peer, (d->caps.transfers = peer, d->caps.transfer_count = 1))
SPOIL(same, (d->caps.transfers = same, d->caps.transfer_count = 1))
SPOIL(nowhere, (d->caps.transfers = nowhere, d->caps.transfer_count = 1))
SPOIL(standing, (d->caps.transfers = standing, d->caps.transfer_count = 1))
SPOIL(too_many, (d->caps.transfers = nowhere, d->caps.transfer_count = BACKEND_TRANSFERS + 1))

static void (*const spoils[])(struct backend_desc *d) = {
	spoil_key,	 spoil_no_key,	     spoil_known,   spoil_kind,	    spoil_backend,     spoil_substrate,
	spoil_alignment, spoil_no_alignment, spoil_rank,    spoil_extent,   spoil_granularity, spoil_rate,
	spoil_infinite,	 spoil_nan,	     spoil_twice,   spoil_packed,   spoil_hollow,      spoil_no_op,
	spoil_peer,	 spoil_same,	     spoil_nowhere, spoil_standing, spoil_too_many,
	spoil_placeless,
};

/* And the sentence names it; nothing else is lost by it. */
START_TEST(a_description_that_cannot_be_true_is_refused)
{
	spoil = spoils[_i];
	ck_assert_ptr_nonnull(registry_find("cpu"));
	ck_assert_int_eq(refused, -EINVAL);
	ck_assert_ptr_nonnull(strstr(refused_why, "backend 'liar'"));
	ck_assert_ptr_null(registry_at(9));
	ck_assert_int_eq(registry_why_not("liar"), -EINVAL);
}
END_TEST

static Suite *backend_suite(void)
{
	Suite *s = suite_create("backend");
	TCase *c = tcase_create("backend");

	/* The example is held to what every backend is. */
	setenv("PINION_CONFORM_DEVICES", "card,cpu,plain,far,lean", 0);
#if SANITIZED
	/* The large products are test_conform's, and the plain build's: five devices more, each beside the reference, take forty seconds. */
	setenv("PINION_TEST_SCALE", "99", 0);
#endif
	tcase_add_test(c, the_guides_code_is_this_code);
	tcase_add_test(c, what_the_example_leaves_out_is_refused);
	tcase_add_test(c, the_examples_signals_are_its_own);
	tcase_add_test(c, a_backend_without_ops_refuses_everything_and_knows_nothing);
	tcase_add_test(c, a_predictor_of_ones_own_is_asked);
	tcase_add_test(c, quantized_formats_are_read_from_their_table);
	tcase_add_test(c, an_arrays_memory_is_a_storage_of_its_device);
	tcase_add_test(c, the_host_sees_the_storage_of_its_own_devices);
	tcase_add_test(c, a_result_goes_anywhere_without_the_op_copy);
	tcase_add_test(c, any_op_goes_anywhere_on_the_host);
	tcase_add_test(c, ops_in_place_change_their_first_operand);
	tcase_add_test(c, a_candidates_kernel_takes_storages_of_arrays_and_others);
	tcase_add_test(c, shapes_over_the_limits_are_refused);
	tcase_add_test(c, layouts_and_shares_over_the_limits_are_refused);
	tcase_add_test(c, the_cheapest_advertised_path_is_taken);
	tcase_add_test(c, the_way_is_the_cheapest_for_the_bytes_at_hand);
	tcase_add_test(c, a_part_goes_the_way_of_its_own_bytes);
	tcase_add_test(c, of_ways_that_take_as_long_the_first_of_the_contract_is_taken);
	tcase_add_test(c, figures_that_were_not_measured_are_the_fallback_ones);
	tcase_add_test(c, what_is_not_advertised_is_staged);
	tcase_add_test(c, staging_is_measured_where_it_can_be);
	tcase_add_test(c, figures_of_a_backend_are_not_measured_anew);
	tcase_add_test(c, copies_go_where_the_path_leads);
	tcase_add_test(c, devices_share_by_substrate_and_location);
	tcase_add_test(c, operands_of_another_device_are_refused);
	tcase_add_test(c, an_absent_backend_says_why);
	tcase_add_test(c, a_pick_says_why_a_backend_has_no_device);
	tcase_add_test(c, devices_are_listed_in_the_order_of_the_table);
	tcase_add_test(c, asking_the_backends_leaves_the_callers_sentence);
	tcase_add_loop_test(c, a_description_that_cannot_be_true_is_refused, 0, sizeof(spoils) / sizeof(*spoils));
	suite_add_tcase(s, c);
	suite_add_tcase(s, conform_case());
	return s;
}

PINION_TEST_MAIN(backend_suite)
