/* SPDX-License-Identifier: MIT */
/*
 * reference: the specification. One element after the other, in the order of the index, by the simplest code that is
 * right; every other backend is compared with it.
 */
#include "reference.h"

#include "../host/host.h"

bool reference_next(const struct pinion_view *view, uint64_t *index)
{
	for (uint32_t axis = view->rank; axis--;) {
		if (++index[axis] < view->shape[axis])
			return true;
		index[axis] = 0;
	}
	return false;
}

void *reference_at(const struct pinion_view *view, const uint64_t *index)
{
	int64_t element = (int64_t)view->offset;

	for (uint32_t axis = 0; axis < view->rank; axis++)
		element += (int64_t)index[axis] * view->stride[axis];
	return (char *)view->data + element * (int64_t)pinion_dtype_bytes(view->dtype);
}

static const struct backend_kernel kernels[] = {
	HOST_KERNELS(PINION_OP_COPY, reference_copy),
	HOST_KERNELS(PINION_OP_CAST, reference_cast),
	{ PINION_OP_MATMUL, PINION_DTYPE_F16, reference_matmul },
	{ PINION_OP_MATMUL, PINION_DTYPE_F32, reference_matmul },
	{ PINION_OP_MATMUL, PINION_DTYPE_F64, reference_matmul },
};

static int enumerate(struct backend_list *list)
{
	const struct backend_desc reference = {
		.key = "reference",
		.caps = { HOST_CAPS },
		.kernels = kernels,
		.kernel_count = sizeof(kernels) / sizeof(*kernels),
	};

	return backend_found(list, &reference);
}

extern const struct pinion_backend backend_reference;

const struct pinion_backend backend_reference = {
	.name = "reference",
	.abi = BACKEND_ABI,
	.enumerate = enumerate,
	.ops = &host_ops,
};
