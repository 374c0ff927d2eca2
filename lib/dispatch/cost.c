/* SPDX-License-Identifier: MIT */
#include "../error.h"
#include "select.h"

#include <math.h>

#define CPU_FLOPS_PER_NS 1.0
#define CPU_BYTES_PER_NS 4.0
#define GPU_FLOPS_PER_NS 30.0
#define GPU_BYTES_PER_NS 40.0

static double rate_or(double rate, double otherwise)
{
	return isfinite(rate) && rate > 0 ? rate : otherwise;
}

/* Cut to a whole number. A double that is too large for the conversion is not converted: that is undefined. */
static uint64_t quotient(uint64_t amount, double rate)
{
	double ns = (double)amount / rate;

	return ns < 0x1p64 ? (uint64_t)ns : UINT64_MAX;
}

PINION_API uint64_t pinion_cost_ns(const struct pinion_cost *cost, double flops_per_ns, double bytes_per_ns)
{
	uint64_t compute = quotient(cost->flops, rate_or(flops_per_ns, CPU_FLOPS_PER_NS));
	uint64_t memory = quotient(cost->bytes_moved, rate_or(bytes_per_ns, CPU_BYTES_PER_NS));

	return add_saturating(compute > memory ? compute : memory, cost->overhead_ns);
}

PINION_API uint64_t pinion_cost_ns_on(const struct pinion_cost *cost, enum pinion_backend_id backend)
{
	if (backend == PINION_BACKEND_CPU)
		return pinion_cost_ns(cost, CPU_FLOPS_PER_NS, CPU_BYTES_PER_NS);
	return pinion_cost_ns(cost, GPU_FLOPS_PER_NS, GPU_BYTES_PER_NS);
}

PINION_API void pinion_cost_vector_of(const struct pinion_candidate *c, struct pinion_cost_vector *out)
{
	bool host = c->device.kind == PINION_BACKEND_CPU;
	uint64_t bytes = c->static_cost.bytes_moved;

	*out = (struct pinion_cost_vector){
		.time_ns = add_saturating(pinion_cost_ns_on(&c->static_cost, c->backend), c->inbound_transfer_ns),
		.host_bytes = host ? bytes : 0,
		.device_bytes = host ? 0 : bytes,
		.digits = pinion_precision_digits(&c->precision),
		.accuracy = pinion_precision_accuracy(&c->precision),
	};
}
