/* SPDX-License-Identifier: MIT */
#include "array.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- making and freeing -------------------------------------------------------------------------------------------
 */

static bool is_within_limits(const struct backend_device *backend, uint32_t rank, const uint64_t *shape)
{
	bool within = rank <= backend->desc.caps.rank_max;

	for (uint32_t axis = 0; within && axis < rank; axis++)
		within = shape[axis] <= backend->desc.caps.extent_max;
	return within;
}

static int limits_check(const struct backend_device *backend, uint32_t rank, const uint64_t *shape)
{
	const struct pinion_caps *caps = &backend->desc.caps;

	if (!backend->backend)
		return fail(EOPNOTSUPP, "alloc not supported: the device was added by its key alone");
	if (rank > caps->rank_max)
		return fail(EINVAL, "an array on '%s' has up to %" PRIu32 " axes, not %" PRIu32, backend->desc.key,
			    caps->rank_max, rank);
	for (uint32_t axis = 0; axis < rank; axis++)
		if (shape[axis] > caps->extent_max)
			return fail(EINVAL,
				    "axis %" PRIu32 " has %" PRIu64 " elements, an array on '%s' has up to %" PRIu64
				    " along an axis",
				    axis, shape[axis], backend->desc.key, caps->extent_max);
	return 0;
}

/* An axis without elements makes the product 0, however large the others are. */
static int layout_of(enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape, struct storage_layout *layout)
{
	uint64_t n = 1;
	int ret;

	*layout = (struct storage_layout){ .dtype = dtype, .rank = rank };
	if (dtype == PINION_DTYPE_F8E6M2)
		return fail(EOPNOTSUPP, "f8e6m2 has no agreed encoding, so that no array can hold it");
	for (uint32_t axis = 0; axis < rank; axis++) {
		layout->shape[axis] = shape[axis];
		n = shape[axis] ? n : 0;
	}
	for (uint32_t axis = 0; axis < rank && n; axis++)
		if (__builtin_mul_overflow(n, shape[axis], &n))
			return fail(EOVERFLOW, "an array of that shape has more elements than 64 bits count");
	layout->elements = n;
	ret = pinion_dtype_size(dtype, n, &layout->bytes);
	if (!ret && layout->bytes > INT64_MAX)
		ret = fail(EOVERFLOW, "an array of %" PRIu64 " bytes is more than there can be", layout->bytes);
	layout->total = layout->bytes;
	return ret;
}

/* Consumes the reference to @storage, also when it fails. */
static int array_over(struct pinion_device *dev, struct pinion_storage *storage, uint32_t rank, const uint64_t *shape,
		      struct pinion_array **out)
{
	struct pinion_array *array = calloc(1, sizeof(*array));
	int ret;

	if (!array) {
		ret = fail(ENOMEM, "no memory for an array");
		goto err_storage;
	}
	ret = pinion_view_init(&array->whole, storage->data, storage->layout.bytes, storage->layout.dtype, rank, shape,
			       NULL, 0);
	if (ret)
		goto err_array;
	array->dev = dev;
	array->storage = storage;
	*out = array;
	return 0;

err_array:
	free(array);
err_storage:
	pinion_storage_free(storage);
	return ret;
}

static int array_new(struct pinion_device *dev, enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape,
		     bool zero, struct pinion_array **out)
{
	struct pinion_storage *storage = NULL;
	struct storage_layout layout;
	int ret = device_check(dev);

	if (!ret)
		ret = limits_check(dev->backend, rank, shape);
	if (!ret)
		ret = layout_of(dtype, rank, shape, &layout);
	if (!ret)
		ret = array_storage_new(dev->backend, &layout, zero, &storage);
	return ret ? ret : array_over(dev, storage, rank, shape, out);
}

int array_like(struct pinion_device *dev, enum pinion_dtype dtype, const struct pinion_view *like,
	       struct pinion_array **out)
{
	return array_new(dev, dtype, like->rank, like->shape, false, out);
}

PINION_API int pinion_array_zeros(struct pinion_device *dev, enum pinion_dtype dtype, uint32_t rank,
				  const uint64_t *shape, struct pinion_array **out)
{
	struct pinion_scalar zero;
	int ret = pinion_dtype_scalar(dtype, 0, &zero);

	return ret ? ret : array_new(dev, dtype, rank, shape, true, out);
}

PINION_API int pinion_array_uninit(struct pinion_device *dev, enum pinion_dtype dtype, uint32_t rank,
				   const uint64_t *shape, struct pinion_array **out)
{
	return array_new(dev, dtype, rank, shape, false, out);
}

PINION_API void pinion_array_free(struct pinion_array *array)
{
	if (!array)
		return;
	pinion_storage_free(array->storage);
	free(array);
}

PINION_API const struct pinion_view *pinion_array_view(const struct pinion_array *array)
{
	return &array->whole;
}

PINION_API struct pinion_device *pinion_array_device(const struct pinion_array *array)
{
	return array->dev;
}

PINION_API int pinion_array_share(const struct pinion_array *src, struct pinion_device *dev, struct pinion_array **out)
{
	int ret = device_check(dev);

	if (ret)
		return ret;
	if (!backends_share(src->dev->backend, dev->backend))
		return fail(EINVAL, "devices '%s' and '%s' share no memory; copy the array",
			    src->dev->backend->desc.key, dev->backend->desc.key);
	ret = limits_check(dev->backend, src->whole.rank, src->whole.shape);
	if (ret)
		return ret;
	return array_over(dev, storage_ref(src->storage), src->whole.rank, src->whole.shape, out);
}

/* ---- layouts and operands -----------------------------------------------------------------------------------------
 */

int array_layout(const struct pinion_array *array, const struct pinion_view *layout, struct pinion_view *out)
{
	const struct pinion_view *whole = &array->whole;
	struct pinion_view view = layout ? *layout : *whole;
	int ret = device_check(array->dev);

	if (ret)
		return ret;
	if (view.data != whole->data || view.bytes != whole->bytes || view.dtype != whole->dtype)
		return fail(EINVAL, "the layout is not one of this array: make it from pinion_array_view()");
	/* Checks the bounds. */
	ret = pinion_view_init(out, view.data, view.bytes, view.dtype, view.rank, view.shape, view.stride, view.offset);
	return ret;
}

/* A layout may have more axes, or longer ones, than the array that was made within the device's limits. */
static int operand_check(const struct backend_device *backend, const struct pinion_operand *o, struct pinion_view *view)
{
	int ret;

	assert(o->array);
	if (!backends_share(backend, o->array->dev->backend))
		return fail(EINVAL, "device mismatch: an operand is on '%s', the result on '%s'; copy it there first",
			    o->array->dev->backend->desc.key, backend->desc.key);
	ret = array_layout(o->array, o->layout, view);
	return ret ? ret : limits_check(backend, view->rank, view->shape);
}

static int same_shape(const struct pinion_view *dst, const struct pinion_view *src)
{
	bool same = dst->rank == src->rank;

	for (uint32_t axis = 0; same && axis < dst->rank; axis++)
		same = dst->shape[axis] == src->shape[axis];
	return same ? 0 : fail(EINVAL, "the shapes of the operands differ");
}

static int matmul_check(const struct backend_call *call)
{
	const struct pinion_view *a = &call->src[0], *b = &call->src[1], *c = &call->dst;
	uint32_t r = c->rank;

	if (a->dtype != c->dtype || b->dtype != c->dtype)
		return fail(EINVAL, "dtype mismatch in matmul: %s times %s into %s", pinion_dtype_name(a->dtype),
			    pinion_dtype_name(b->dtype), pinion_dtype_name(c->dtype));
	if (r < 2 || a->rank != r || b->rank != r)
		return fail(EINVAL, "matmul takes two arrays of one rank from 2 on, not ranks %" PRIu32 " and %" PRIu32,
			    a->rank, b->rank);
	for (uint32_t axis = 0; axis + 2 < r; axis++)
		if (a->shape[axis] != c->shape[axis] || b->shape[axis] != c->shape[axis])
			return fail(EINVAL,
				    "matmul: axis %" PRIu32 " differs; broadcast it with pinion_view_broadcast()",
				    axis);
	if (a->shape[r - 1] != b->shape[r - 2] || a->shape[r - 2] != c->shape[r - 2] ||
	    b->shape[r - 1] != c->shape[r - 1])
		return fail(EINVAL,
			    "matmul: [%" PRIu64 ",%" PRIu64 "] times [%" PRIu64 ",%" PRIu64 "] is not [%" PRIu64
			    ",%" PRIu64 "]",
			    a->shape[r - 2], a->shape[r - 1], b->shape[r - 2], b->shape[r - 1], c->shape[r - 2],
			    c->shape[r - 1]);
	return 0;
}

/* What an op asks of its operands, so that no kernel has to. */
static int op_check(enum pinion_op op, const struct backend_call *call)
{
	size_t needs = op == PINION_OP_MATMUL ? 2 : op == PINION_OP_COPY || op == PINION_OP_CAST ? 1 : call->srcs;

	if (call->srcs != needs)
		return fail(EINVAL, "%s takes %zu operands, not %zu", pinion_op_name(op), needs, call->srcs);
	if (op == PINION_OP_MATMUL)
		return matmul_check(call);
	if (op == PINION_OP_COPY && call->src[0].dtype != call->dst.dtype)
		return fail(EINVAL, "dtype mismatch in copy: %s into %s", pinion_dtype_name(call->src[0].dtype),
			    pinion_dtype_name(call->dst.dtype));
	return op == PINION_OP_COPY || op == PINION_OP_CAST ? same_shape(&call->dst, &call->src[0]) : 0;
}

/* Copies and casts keep the rules of views themselves; other kernels may have a result in one run, apart from its
 * sources. */
static bool needs_aside(enum pinion_op op, const struct backend_call *call)
{
	if (op == PINION_OP_COPY || op == PINION_OP_CAST)
		return false;
	for (size_t i = 0; i < call->srcs; i++)
		if (call->src[i].data == call->dst.data)
			return true;
	return !pinion_view_is_contiguous(&call->dst);
}

/*
 * Without the kernel for it: the elements are changed on the host, where the layout may be any. Off the host all bytes
 * of the array go down and up again, so that those between the elements stay.
 */
static int edit_on_host(struct pinion_array *array, const struct pinion_view *layout,
			int (*edit)(const struct pinion_view *dst, const void *arg), const void *arg)
{
	struct pinion_view here = *layout;
	int ret;

	if (array_on_host(array))
		return edit(layout, arg);
	here.data = malloc(array->whole.bytes);
	if (!here.data)
		return fail(ENOMEM, "no memory for the %" PRIu64 " bytes of '%s' that change on the host",
			    array->whole.bytes, array->dev->backend->desc.key);
	ret = array_storage_download(array->storage, here.data);
	if (!ret)
		ret = edit(&here, arg);
	if (!ret)
		ret = array_storage_upload(array->storage, here.data);
	free(here.data);
	return ret;
}

static int edit_download(const struct pinion_view *dst, const void *from)
{
	const struct pinion_operand *src = from;

	return pinion_array_download(src->array, src->layout, dst);
}

static int edit_fill(const struct pinion_view *dst, const void *value)
{
	return pinion_view_fill(dst, value);
}

/* Elements to other memory of the device, by its kernel for that where it has one. @place: the layout of @dst. */
static int move_elements(const struct pinion_operand *dst, const struct pinion_view *place, const struct pinion_operand *src)
{
	if (pinion_device_supports(dst->array->dev, PINION_OP_COPY, place->dtype))
		return pinion_array_run(PINION_OP_COPY, dst, src, 1, NULL, 0);
	return edit_on_host(dst->array, place, edit_download, src);
}

/* Whether the destination is an operand too. */
static bool is_in_place(enum pinion_op op)
{
	return op >= PINION_OP_RELU_INPLACE && op <= PINION_OP_INPLACE_AFFINE;
}

/* The result of @kernel in an array of its own, and from there to where it is wanted. */
static int run_aside(const struct backend_kernel *kernel, struct backend_call *call, const struct pinion_operand *dst)
{
	struct pinion_operand aside = { 0 };
	struct pinion_view place = call->dst;
	int ret = array_like(dst->array->dev, place.dtype, &place, &aside.array);

	if (ret)
		return ret;
	call->dst = aside.array->whole;
	if (is_in_place(kernel->op))
		ret = move_elements(&aside, &aside.array->whole, dst);
	if (!ret)
		ret = kernel->run(call);
	if (!ret)
		ret = move_elements(dst, &place, &aside);
	pinion_array_free(aside.array);
	return ret;
}

PINION_API int pinion_array_run(enum pinion_op op, const struct pinion_operand *dst, const struct pinion_operand *src,
				size_t srcs, const void *params, size_t params_size)
{
	const struct backend_device *backend = dst->array->dev->backend;
	struct backend_call call = { .dev = backend, .srcs = srcs, .params = params, .params_size = params_size };
	const struct backend_kernel *kernel;
	int ret = device_check(dst->array->dev);

	if (!ret)
		ret = kernel_find(backend, op, dst->array->whole.dtype, &kernel);
	if (!ret && srcs > BACKEND_SOURCES)
		ret = fail(EINVAL, "%zu operands are more than any op takes", srcs);
	if (!ret)
		ret = operand_check(backend, dst, &call.dst);
	for (size_t i = 0; !ret && i < srcs; i++)
		ret = operand_check(backend, &src[i], &call.src[i]);
	if (!ret)
		ret = op_check(op, &call);
	if (ret || !pinion_view_elements(&call.dst))
		return ret;
	return needs_aside(op, &call) ? run_aside(kernel, &call, dst) : kernel->run(&call);
}

/* ---- ops with a result of their own ---------------------------------------------------------------------------------
 */

/* Sources are only read, but one struct holds both. */
static struct pinion_operand operand(const struct pinion_array *array, const struct pinion_view *layout)
{
	return (struct pinion_operand){ .array = (struct pinion_array *)array, .layout = layout };
}

/* Runs into @made, which becomes *@out or goes. */
static int run_into(enum pinion_op op, struct pinion_array *made, const struct pinion_operand *src, size_t srcs,
		    struct pinion_array **out)
{
	struct pinion_operand dst = operand(made, NULL);
	int ret = pinion_array_run(op, &dst, src, srcs, NULL, 0);

	if (ret)
		pinion_array_free(made);
	else
		*out = made;
	return ret;
}

/* Asked before memory is taken for the result. */
static int needs_kernel(struct pinion_device *dev, enum pinion_op op, enum pinion_dtype dtype)
{
	const struct backend_kernel *kernel;
	int ret = device_check(dev);

	return ret ? ret : kernel_find(dev->backend, op, dtype, &kernel);
}

static int unary(enum pinion_op op, const struct pinion_array *src, const struct pinion_view *layout,
		 enum pinion_dtype dtype, struct pinion_array **out)
{
	struct pinion_operand in = operand(src, layout);
	struct pinion_array *made;
	struct pinion_view view;
	int ret = needs_kernel(src->dev, op, dtype);

	if (!ret)
		ret = array_layout(src, layout, &view);
	if (!ret)
		ret = array_like(src->dev, dtype, &view, &made);
	return ret ? ret : run_into(op, made, &in, 1, out);
}

PINION_API int pinion_array_clone(const struct pinion_array *src, const struct pinion_view *layout,
				  struct pinion_array **out)
{
	return unary(PINION_OP_COPY, src, layout, src->whole.dtype, out);
}

PINION_API int pinion_array_cast(const struct pinion_array *src, const struct pinion_view *layout,
				 enum pinion_dtype dtype, struct pinion_array **out)
{
	return unary(PINION_OP_CAST, src, layout, dtype, out);
}

PINION_API int pinion_array_copy(struct pinion_array *dst, const struct pinion_view *dst_layout,
				 const struct pinion_array *src, const struct pinion_view *src_layout)
{
	struct pinion_operand to = operand(dst, dst_layout), from = operand(src, src_layout);

	return pinion_array_run(PINION_OP_COPY, &to, &from, 1, NULL, 0);
}

PINION_API int pinion_array_fill(struct pinion_array *dst, const struct pinion_view *layout,
				 const struct pinion_scalar *value)
{
	const struct backend_device *backend = dst->dev->backend;
	struct pinion_view view;
	int ret = array_layout(dst, layout, &view);

	if (ret)
		return ret;
	if (value->dtype != view.dtype)
		return fail(EINVAL, "dtype mismatch in fill: the value is %s, the array %s",
			    pinion_dtype_name(value->dtype) ? pinion_dtype_name(value->dtype) : "none",
			    pinion_dtype_name(view.dtype));
	if (!pinion_view_elements(&view))
		return 0;
	if (backend->ops.fill == backend_defaults.fill || !is_within_limits(backend, view.rank, view.shape))
		return edit_on_host(dst, &view, edit_fill, value);
	return backend->ops.fill(backend, &view, value);
}

PINION_API int pinion_array_matmul(const struct pinion_array *lhs, const struct pinion_view *lhs_layout,
				   const struct pinion_array *rhs, const struct pinion_view *rhs_layout,
				   struct pinion_array **out)
{
	struct pinion_operand in[2] = { operand(lhs, lhs_layout), operand(rhs, rhs_layout) };
	struct pinion_view a, b, shape;
	struct pinion_array *made;
	int ret = needs_kernel(lhs->dev, PINION_OP_MATMUL, lhs->whole.dtype);

	if (!ret)
		ret = array_layout(lhs, lhs_layout, &a);
	if (!ret)
		ret = array_layout(rhs, rhs_layout, &b);
	if (ret)
		return ret;
	shape = a;
	/* Ranks that do not go together are refused below; the shape is only made from what is there. */
	if (a.rank >= 2 && b.rank >= 2)
		shape.shape[a.rank - 1] = b.shape[b.rank - 1];
	/* Before memory is taken, which may be much for a product that there is not. */
	ret = matmul_check(&(struct backend_call){ .dst = shape, .src = { a, b }, .srcs = 2 });
	if (!ret)
		ret = array_like(lhs->dev, a.dtype, &shape, &made);
	return ret ? ret : run_into(PINION_OP_MATMUL, made, in, 2, out);
}

/* ---- to and from the host -------------------------------------------------------------------------------------------
 */

/* A row-major view over @memory with the shape of @like. */
static int packed(const struct pinion_view *like, void *memory, struct pinion_view *out)
{
	uint64_t bytes;
	int ret = pinion_dtype_size(like->dtype, pinion_view_elements(like), &bytes);

	return ret ? ret : pinion_view_init(out, memory, bytes, like->dtype, like->rank, like->shape, NULL, 0);
}

/* Through packed host memory, because a device takes its bytes in one run. */
static int upload_packed(struct pinion_array *array, const struct pinion_view *src)
{
	const struct backend_device *backend = array->dev->backend;
	uint64_t bytes = array->whole.bytes;
	struct pinion_view aside;
	void *memory;
	int ret;

	if (!bytes)
		return 0;
	memory = malloc(bytes);
	if (!memory)
		return fail(ENOMEM, "no memory for the %" PRIu64 " bytes that are on their way to '%s'", bytes,
			    backend->desc.key);
	ret = packed(src, memory, &aside);
	if (!ret)
		ret = pinion_view_copy(&aside, src);
	if (!ret)
		ret = array_storage_upload(array->storage, memory);
	free(memory);
	return ret;
}

PINION_API int pinion_array_upload(struct pinion_device *dev, const struct pinion_view *src, struct pinion_array **out)
{
	struct pinion_array *array;
	struct pinion_view checked;
	int ret;

	ret = pinion_view_init(&checked, src->data, src->bytes, src->dtype, src->rank, src->shape, src->stride,
			       src->offset);
	if (!ret)
		ret = array_like(dev, src->dtype, src, &array);
	if (ret)
		return ret;
	ret = array_on_host(array) ? pinion_view_copy(&array->whole, src) : upload_packed(array, src);
	if (ret)
		pinion_array_free(array);
	else
		*out = array;
	return ret;
}

/* The whole comes down and the layout is applied on the host: then the device needs no kernel for it. */
static int download_whole(const struct pinion_array *array, const struct pinion_view *layout,
			  const struct pinion_view *dst)
{
	const struct backend_device *backend = array->dev->backend;
	uint64_t bytes = array->whole.bytes;
	struct pinion_view here = *layout;
	int ret;

	here.data = malloc(bytes ? bytes : 1);
	if (!here.data)
		return fail(ENOMEM, "no memory for the %" PRIu64 " bytes that come from '%s'", bytes,
			    backend->desc.key);
	ret = array_storage_download(array->storage, here.data);
	if (!ret)
		ret = pinion_view_copy(dst, &here);
	free(here.data);
	return ret;
}

PINION_API int pinion_array_download(const struct pinion_array *array, const struct pinion_view *layout,
				     const struct pinion_view *dst)
{
	struct pinion_view view;
	int ret = array_layout(array, layout, &view);

	if (ret)
		return ret;
	return array_on_host(array) ? pinion_view_copy(dst, &view) : download_whole(array, &view, dst);
}
