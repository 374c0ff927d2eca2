/* SPDX-License-Identifier: MIT */
/* cpu: the kernels of the cpu backend. */
#ifndef PINION_BACKENDS_CPU_H
#define PINION_BACKENDS_CPU_H

#include "dispatch/backend.h"

int cpu_matmul(const struct backend_call *call);

#endif
