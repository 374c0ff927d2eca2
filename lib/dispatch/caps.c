/* SPDX-License-Identifier: MIT */
#include <pinion/caps.h>

#include "../error.h"

#include <math.h>

PINION_API const char *pinion_backend_name(enum pinion_backend_id id)
{
	static const char *const name[] = { [PINION_BACKEND_CPU] = "cpu",
					    [PINION_BACKEND_CUDA] = "cuda",
					    [PINION_BACKEND_VULKAN] = "vulkan",
					    [PINION_BACKEND_METAL] = "metal" };

	return (unsigned int)id < sizeof(name) / sizeof(*name) ? name[id] : NULL;
}

/* In the order of enum pinion_path. The figures are the contract's, for want of measured ones. */
static const struct {
	const char *name;
	double bytes_per_ns;
	uint64_t latency_ns;
} paths[] = {
	[PINION_PATH_SAME] = { "same device", INFINITY, 0 },
	[PINION_PATH_PEER] = { "peer", 12, 15000 },
	[PINION_PATH_SHARED] = { "shared memory", 20, 2000 },
	[PINION_PATH_COPY] = { "device copy", 8, 30000 },
	[PINION_PATH_STAGED] = { "host staging", 4, 60000 },
};

static bool is_path(enum pinion_path path)
{
	return path >= PINION_PATH_SAME && path <= PINION_PATH_STAGED;
}

PINION_API const char *pinion_path_name(enum pinion_path path)
{
	return is_path(path) ? paths[path].name : NULL;
}

PINION_API bool pinion_location_equal(struct pinion_location a, struct pinion_location b)
{
	return a.kind == b.kind && a.index == b.index;
}

PINION_API struct pinion_transfer pinion_path_fallback(enum pinion_path path)
{
	/* What is no path costs what is always possible. */
	enum pinion_path known = is_path(path) ? path : PINION_PATH_STAGED;

	return (struct pinion_transfer){ .path = known,
					 .bytes_per_ns = paths[known].bytes_per_ns,
					 .latency_ns = paths[known].latency_ns };
}

PINION_API uint64_t pinion_transfer_ns(const struct pinion_transfer *t, uint64_t bytes)
{
	uint64_t whole, sum;
	double ns;

	if (!bytes)
		return t->latency_ns;
	/* Over what is no bandwidth nothing ever arrives. */
	ns = t->bytes_per_ns > 0 ? bytes / t->bytes_per_ns : INFINITY;
	whole = ns < (double)UINT64_MAX ? (uint64_t)ns : UINT64_MAX;
	return __builtin_add_overflow(whole, t->latency_ns, &sum) ? UINT64_MAX : sum;
}

PINION_API struct pinion_transfer pinion_transfer_join(const struct pinion_transfer *a, const struct pinion_transfer *b)
{
	struct pinion_transfer both = { .to = b->to,
					.path = a->path > b->path ? a->path : b->path,
					.measured = a->measured && b->measured };

	/* Two wrongs must not make a bandwidth. */
	both.bytes_per_ns = a->bytes_per_ns > 0 && b->bytes_per_ns > 0 ? 1 / (1 / a->bytes_per_ns + 1 / b->bytes_per_ns) : 0;
	if (__builtin_add_overflow(a->latency_ns, b->latency_ns, &both.latency_ns))
		both.latency_ns = UINT64_MAX;
	return both;
}
