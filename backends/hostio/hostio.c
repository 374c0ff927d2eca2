/* SPDX-License-Identifier: MIT */
/* hostio: the asynchronous host engine. Its queue is the ring of a stream; it holds memory and computes nothing. */
#include "../host/host.h"

static const struct backend_kernel kernels[] = {
	HOST_KERNELS(PINION_OP_COPY, host_copy),
};

static int enumerate(struct backend_list *list)
{
	const struct backend_desc hostio = {
		.key = "hostio",
		.caps = { HOST_CAPS, .slot_capacity = 64 },
		.kernels = kernels,
		.kernel_count = sizeof(kernels) / sizeof(*kernels),
	};

	return backend_found(list, &hostio);
}

extern const struct pinion_backend backend_hostio;

const struct pinion_backend backend_hostio = {
	.name = "hostio",
	.abi = BACKEND_ABI,
	.enumerate = enumerate,
	.ops = &host_ops,
};
