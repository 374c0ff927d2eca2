/* SPDX-License-Identifier: MIT */
/*
 * backend: all that a backend includes besides the public headers. A backend describes its devices, and gives an ops
 * table for what is done with their memory and signals and a kernel table for what is computed on them.
 * Documentation/backends.md goes through it by an example.
 *
 * Every op and kernel may be called from any thread at any time, returns 0 or -errno and leaves a sentence with fail()
 * when it fails. Operands of kernels are checked before they are called.
 */
#ifndef PINION_LIB_BACKEND_H
#define PINION_LIB_BACKEND_H

#include <pinion/caps.h>
#include <pinion/device.h>
#include <pinion/dtype.h>
#include <pinion/op.h>
#include <pinion/signal.h>
#include <pinion/view.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../error.h"
#include "../memory/storage.h"

#define BACKEND_ABI	  2
#define BACKEND_TRANSFERS 16 /* transfer paths of a device, at most */
#define BACKEND_SOURCES	  4  /* operands of a kernel besides its result, at most */

struct backend_device;
struct backend_list;

/*
 * Memory of a device is a struct pinion_storage, of which a backend has three members: data, where the device has the
 * bytes (aligned to caps.alignment, never 0 when there are bytes, and for the host to follow only when the substrate is
 * PINION_SUBSTRATE_HOST), layout.bytes, how many they are, and handle, which is of the backend whose alloc set it: what
 * fill, copy_to and kernels get may be memory of another device that shares, and they go by the address.
 */
struct pinion_storage;

/*
 * What a kernel works on. The views are over addresses of the device, perhaps in memory of another one that shares. The
 * result has elements; a source may have none (a product over k = 0). The kernels of copy and cast keep to the rules of
 * pinion_view_copy(), also for views that overlap. For all others the result is row-major without gaps, in other memory
 * than the sources, and these have any strides: where the caller wants it elsewhere, the library copies it there. Kernels that
 * need scratch memory take their own.
 */
struct backend_call {
	const struct backend_device *dev;
	struct pinion_view dst;
	struct pinion_view src[BACKEND_SOURCES];
	size_t srcs;
	const void *params; /* of the op; none yet has any */
	size_t params_size;
};

/* An op for results of one dtype. What is in the table is supported, and what is not is refused: one table for both. */
struct backend_kernel {
	enum pinion_op op;
	enum pinion_dtype dtype;
	int (*run)(const struct backend_call *call);
};

/* Quantized elements in a device's memory: a flat run of blocks. */
struct backend_quant {
	uint32_t type; /* the code of a block format, enum pinion_type */
	uint64_t elements;
	struct pinion_storage *storage;
};

/* out[b,t,:] = w[ids[b,t]] times x[b, t or 0]: views over addresses of the device. */
struct backend_moe {
	const struct backend_quant *weights;
	uint64_t experts, n, k;
	struct pinion_view x, ids, out;
};

/* The same for block formats. */
struct backend_quant_kernel {
	enum pinion_op op;
	uint32_t type;
	int (*run)(const struct backend_call *call);
};

/* Pieces of memory of two devices, the second one's of another backend perhaps. */
struct backend_copy {
	const struct backend_device *from, *to;
	const struct pinion_storage *src, *dst;
	uint64_t bytes;
	enum pinion_path path; /* one that the source advertises */
};

/*
 * In the order of the alphabet. One that a backend leaves out is filled from the table in defaults.c, so that nobody
 * who calls asks whether it is there.
 */
struct backend_ops {
	/*
	 * Memory of @bytes, 0 to INT64_MAX, which are @out's layout.bytes too; zeroed, or with any content. Sets data
	 * and handle of @out, which come NULL. Default: -EOPNOTSUPP.
	 */
	int (*alloc)(const struct backend_device *dev, uint64_t bytes, bool zero, struct pinion_storage *out);

	/* Bytes that a new allocation could use now. -ENODATA, which is the default: it cannot be measured. */
	int (*available)(const struct backend_device *dev, uint64_t *bytes);

	/* Copies along a peer, shared or copy path. Needed where one is advertised. Default: -EOPNOTSUPP. */
	int (*copy_to)(const struct backend_copy *copy);

	/* The first @elements of @q as f16. Default: -EOPNOTSUPP. */
	int (*dequantize_f16)(const struct backend_device *dev, const struct backend_quant *q, uint64_t elements,
			      struct pinion_storage *out);

	/* The raw address of @q, for callers that need it. Default: -EOPNOTSUPP. */
	int (*device_ptr)(const struct backend_device *dev, const struct backend_quant *q, uint64_t *address);

	/* From memory that this device's alloc made to the host's; not called for PINION_SUBSTRATE_HOST. Default: -EOPNOTSUPP. */
	int (*download)(const struct backend_device *dev, void *dst, const struct pinion_storage *src, uint64_t off,
			uint64_t bytes);

	/* Stores @value, of the view's dtype, at each position of a checked view. Default: the library does it on the host. */
	int (*fill)(const struct backend_device *dev, const struct pinion_view *dst, const struct pinion_scalar *value);

	/* Of what alloc() made. Default: nothing. */
	void (*free)(const struct backend_device *dev, struct pinion_storage *storage);

	/* Selected experts' products. Default: -EOPNOTSUPP. */
	int (*indexed_moe_forward)(const struct backend_device *dev, const struct backend_moe *moe);

	/* What may be pinned of this memory. -ENODATA, which is the default: no limit is set, or it is not told. */
	int (*pinned)(const struct backend_device *dev, uint64_t *left, uint64_t *limit);

	/* Of the device, all of it; never changes. -ENODATA, which is the default. */
	int (*total)(const struct backend_device *dev, uint64_t *bytes);

	/* From the host's memory to what this device's alloc made; not called for PINION_SUBSTRATE_HOST. Default: -EOPNOTSUPP. */
	int (*upload)(const struct backend_device *dev, struct pinion_storage *dst, uint64_t off, const void *src,
		      uint64_t bytes);

	/* For backends with a predictor of their own. Default: pinion_fit_of() available and total. */
	enum pinion_fit (*would_fit)(const struct backend_device *dev, uint64_t bytes);
};

/*
 * A device as its backend describes it. Everything it points to stays for as long as the process. Transfers whose
 * figures were not measured get the fallback ones, whatever they hold.
 */
struct backend_desc {
	const char *key; /* as of pinion_device_add() */
	struct pinion_caps caps;
	const struct backend_kernel *kernels;
	size_t kernel_count;
	const struct backend_quant_kernel *quant_kernels;
	size_t quant_kernel_count;
	void *data; /* the backend's own */
};

/* A device as the registry has it: checked and complete. Ops get this one. */
struct backend_device {
	const struct pinion_backend *backend; /* NULL: of the device that nobody describes */
	struct backend_desc desc;
	struct backend_ops ops;
	struct pinion_transfer transfers[BACKEND_TRANSFERS];
};

struct pinion_backend {
	const char *name;
	uint32_t abi; /* BACKEND_ABI */

	/* Once per process: reports each device with backend_found(). -errno and a sentence: why there is none. */
	int (*enumerate)(struct backend_list *list);
	const struct backend_ops *ops;
};

/* The table of backends, backends/table.c. It ends with NULL. */
extern const struct pinion_backend *const backend_table[];

/* Adds a device. -EINVAL the description contradicts itself or claims what its tables do not do; -ENOMEM. */
int backend_found(struct backend_list *list, const struct backend_desc *desc);

/* The machine's memory for this process, cgroups counted in; at most 100 ms old, in nanoseconds when hot. -ENODATA. */
int backend_host_available(uint64_t *bytes);
int backend_host_total(uint64_t *bytes);

/* What this process may still lock in memory, of RLIMIT_MEMLOCK. -ENODATA: no limit is set. */
int backend_host_pinned(uint64_t *left, uint64_t *limit);

#endif
