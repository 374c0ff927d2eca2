/* SPDX-License-Identifier: MIT */
/* caps: what a device is and what it can do; fixed for as long as the device is there. */
#ifndef PINION_CAPS_H
#define PINION_CAPS_H

#include <pinion/dtype.h>
#include <pinion/op.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_device;

/* A kind of device. Implementations of one kind (a vendor's library, say) differ by a candidate's kernel source. */
enum pinion_backend_id {
	PINION_BACKEND_CPU = 1,
	PINION_BACKEND_CUDA,
	PINION_BACKEND_VULKAN,
	PINION_BACKEND_METAL, /* reserved: opening one says why not */
};

/* Where memory or work is. index is 0 for the CPU. */
struct pinion_location {
	enum pinion_backend_id kind;
	uint32_t index;
};

/* What kind of memory a storage is. Two devices share storages without a copy when class and location are the same. */
enum pinion_substrate {
	PINION_SUBSTRATE_HOST = 1,
	PINION_SUBSTRATE_CUDA,
	PINION_SUBSTRATE_VULKAN,
	PINION_SUBSTRATE_METAL,
};

/* How bytes get from one device to another. Of two that take as long the earlier one is gone. */
enum pinion_path {
	PINION_PATH_SAME = 1, /* they are there */
	PINION_PATH_PEER,     /* directly, device to device */
	PINION_PATH_SHARED,   /* both ends map the same memory */
	PINION_PATH_COPY,     /* one device's copy engine */
	PINION_PATH_STAGED,   /* down to the host and up again; always possible */
};

/* A path to a destination and what it costs. */
struct pinion_transfer {
	struct pinion_location to;
	enum pinion_path path;
	bool measured;		   /* by the backend or by the library; else the path's fallback figures */
	double bytes_per_ns;	   /* over 0; infinity for PINION_PATH_SAME */
	uint64_t latency_ns;
};

struct pinion_caps {
	enum pinion_backend_id backend;
	struct pinion_location location;
	enum pinion_substrate substrate;
	size_t alignment;	    /* bytes, of a storage's start */
	uint32_t granularity_bits;  /* smallest addressable unit */
	uint32_t slot_capacity;	    /* units it works on at once; 0: synchronous, no queue */
	uint32_t rank_max;	    /* most axes of an operand */
	uint64_t extent_max;	    /* most elements along an axis */
	double flops_per_ns;	    /* crude rates for estimates, positive */
	double bytes_per_ns;
	const struct pinion_transfer *transfers;
	size_t transfer_count;
};

const char *pinion_backend_name(enum pinion_backend_id id);	/* "cpu", "cuda", "vulkan", "metal"; NULL: none */
const char *pinion_path_name(enum pinion_path path);
bool pinion_location_equal(struct pinion_location a, struct pinion_location b);

/*
 * What the device is and has; fixed, borrowed for as long as the process. NULL, with a sentence: it was added by its key
 * alone, and nobody knows.
 */
const struct pinion_caps *pinion_device_caps(const struct pinion_device *dev);

/*
 * Whether the device has a kernel for @op with results of @dtype, or for @op over weights of a block format (enum
 * pinion_type). Read from the table that calls are dispatched by: false is -EOPNOTSUPP there, and nothing else is.
 */
bool pinion_device_supports(const struct pinion_device *dev, enum pinion_op op, enum pinion_dtype dtype);
bool pinion_device_supports_type(const struct pinion_device *dev, enum pinion_op op, uint32_t type);

/* Whether a storage of one is one of the other, without a copy: the same substrate at the same location. */
bool pinion_devices_share(const struct pinion_device *a, const struct pinion_device *b);

/*
 * The cheapest path for @bytes from @src to @dst: SAME where they share; else, of those that @src advertises, the one for which
 * pinion_transfer_ns() is least, by measured figures where it has them and by the fallback figures otherwise, and of equals the
 * first in the order of enum pinion_path; else staged through the host, as pinion_device_path_staged() has it, its legs chosen
 * likewise. -ENODATA one of them was added by its key alone.
 */
int pinion_device_path_for(const struct pinion_device *src, const struct pinion_device *dst, uint64_t bytes,
			   struct pinion_transfer *out);

/* The same for 1 MiB, where it is not known yet how many bytes will go. */
int pinion_device_path(const struct pinion_device *src, const struct pinion_device *dst, struct pinion_transfer *out);

/*
 * Staging from @src to @dst, which is always possible, also where another path is cheaper: between devices that share,
 * it is what a copy of the bytes costs. The figures are the devices' legs joined, where they were measured; else they
 * are measured here, on the first call for the two in this process, by copies of up to 4 MiB, which take memory of both
 * and some milliseconds; where that cannot be done, and while another thread does it, they are the fallback figures.
 * Errors as above.
 */
int pinion_device_path_staged(const struct pinion_device *src, const struct pinion_device *dst,
			      struct pinion_transfer *out);

/* The fallback figures of @path, used until a measurement replaces them. */
struct pinion_transfer pinion_path_fallback(enum pinion_path path);

/*
 * Estimated ns for @bytes over @t: latency + bytes / bandwidth, truncated and saturating at UINT64_MAX, which is also what any
 * byte takes over a bandwidth that is not a number over 0.
 */
uint64_t pinion_transfer_ns(const struct pinion_transfer *t, uint64_t bytes);

/* Two legs one after the other: latencies add, bandwidths combine harmonically; to 0 where one is not a number over 0. */
struct pinion_transfer pinion_transfer_join(const struct pinion_transfer *a, const struct pinion_transfer *b);

#ifdef __cplusplus
}
#endif
#endif
