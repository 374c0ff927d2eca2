/* SPDX-License-Identifier: MIT */
/* host: what the backends whose memory is the host's have in common. */
#ifndef PINION_BACKENDS_HOST_H
#define PINION_BACKENDS_HOST_H

#include "dispatch/backend.h"

/* Memory from the heap, and the signals of the machine's memory. */
extern const struct backend_ops host_ops;

/* Kernels over the calls of view.h. */
int host_copy(const struct backend_call *call);
int host_cast(const struct backend_call *call);

/* Rows of a kernel table: @op for every dtype that has elements and an encoding. */
#define HOST_KERNELS(op, run)                                                                                          \
	{ op, PINION_DTYPE_U8, run }, { op, PINION_DTYPE_I8, run }, { op, PINION_DTYPE_U32, run },                     \
		{ op, PINION_DTYPE_I16, run }, { op, PINION_DTYPE_I32, run }, { op, PINION_DTYPE_I64, run },           \
		{ op, PINION_DTYPE_BF16, run }, { op, PINION_DTYPE_F16, run }, { op, PINION_DTYPE_F32, run },          \
		{ op, PINION_DTYPE_F64, run }, { op, PINION_DTYPE_F8E4M3, run }, { op, PINION_DTYPE_F8E5M2, run },     \
		{ op, PINION_DTYPE_F8E8M0, run }, { op, PINION_DTYPE_BOOL, run }

/* The capabilities of the machine itself, which are those of all three; the rates are crude. */
#define HOST_ALIGNMENT 64

extern const struct pinion_transfer host_transfers[1];

#define HOST_CAPS                                                                                                      \
	.backend = PINION_BACKEND_CPU, .location = { PINION_BACKEND_CPU, 0 }, .substrate = PINION_SUBSTRATE_HOST,      \
	.alignment = HOST_ALIGNMENT, .granularity_bits = 8, .rank_max = PINION_RANK_MAX, .extent_max = INT64_MAX,      \
	.flops_per_ns = 1, .bytes_per_ns = 4, .transfers = host_transfers, .transfer_count = 1

#endif
