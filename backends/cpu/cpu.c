/* SPDX-License-Identifier: MIT */
/* cpu: the machine itself. Synchronous: a call is done when it returns, and there is no queue. */
#include "cpu.h"
#include "../host/host.h"

static const struct backend_kernel kernels[] = {
	HOST_KERNELS(PINION_OP_COPY, host_copy),
	HOST_KERNELS(PINION_OP_CAST, host_cast),
	{ PINION_OP_MATMUL, PINION_DTYPE_F16, cpu_matmul },
	{ PINION_OP_MATMUL, PINION_DTYPE_F32, cpu_matmul },
	{ PINION_OP_MATMUL, PINION_DTYPE_F64, cpu_matmul },
};

static int enumerate(struct backend_list *list)
{
	const struct backend_desc cpu = {
		.key = "cpu",
		.caps = { HOST_CAPS },
		.kernels = kernels,
		.kernel_count = sizeof(kernels) / sizeof(*kernels),
	};

	return backend_found(list, &cpu);
}

extern const struct pinion_backend backend_cpu;

const struct pinion_backend backend_cpu = {
	.name = "cpu",
	.abi = BACKEND_ABI,
	.enumerate = enumerate,
	.ops = &host_ops,
};
