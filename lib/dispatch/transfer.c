/* SPDX-License-Identifier: MIT */
/* transfer: how elements get from one device to another. */
#include "array.h"

#include <errno.h>

/* ---- which way ------------------------------------------------------------------------------------------------------
 */

bool backends_share(const struct backend_device *a, const struct backend_device *b)
{
	const struct pinion_caps *x = &a->desc.caps, *y = &b->desc.caps;

	if (a == b)
		return true;
	return a->backend && b->backend && x->substrate == y->substrate &&
	       pinion_location_equal(x->location, y->location);
}

PINION_API bool pinion_devices_share(const struct pinion_device *a, const struct pinion_device *b)
{
	return a->backend->backend && backends_share(a->backend, b->backend);
}

/* Where nobody says how many bytes are to go. */
#define TYPICAL_BYTES (UINT64_C(1) << 20)

/* Whether @a is the better way to a place for @bytes: less time; then an earlier kind, then one whose figures are known. */
static bool is_cheaper(const struct pinion_transfer *a, const struct pinion_transfer *b, uint64_t bytes)
{
	uint64_t ns_a = pinion_transfer_ns(a, bytes), ns_b = pinion_transfer_ns(b, bytes);

	if (ns_a != ns_b)
		return ns_a < ns_b;
	return a->path != b->path ? a->path < b->path : a->measured && !b->measured;
}

/* What @dev advertises to @to and takes the least time for @bytes, NULL: nothing. Being there already is no way anywhere. */
static const struct pinion_transfer *advertised(const struct backend_device *dev, struct pinion_location to, uint64_t bytes)
{
	const struct pinion_transfer *best = NULL;

	for (size_t i = 0; i < dev->desc.caps.transfer_count; i++) {
		const struct pinion_transfer *t = &dev->transfers[i];

		if (t->path != PINION_PATH_SAME && pinion_location_equal(t->to, to) && (!best || is_cheaper(t, best, bytes)))
			best = t;
	}
	return best;
}

/* What @dev advertises of its leg to the host. */
static const struct pinion_transfer *leg(const struct backend_device *dev, uint64_t bytes)
{
	return advertised(dev, (struct pinion_location){ PINION_BACKEND_CPU, 0 }, bytes);
}

/*
 * Down to the host and up again. A device on the host has one leg; where a device says nothing of its leg, the figures
 * of staging are for the whole of it. Unless the devices know better, they are measured.
 */
static struct pinion_transfer staged(const struct backend_device *src, const struct backend_device *dst, uint64_t bytes)
{
	const struct pinion_transfer *down = leg(src, bytes), *up = leg(dst, bytes);
	struct pinion_transfer t = pinion_path_fallback(PINION_PATH_STAGED);

	if (src->desc.caps.substrate == PINION_SUBSTRATE_HOST)
		t = up ? *up : t;
	else if (dst->desc.caps.substrate == PINION_SUBSTRATE_HOST)
		t = down ? *down : t;
	else if (down && up)
		t = pinion_transfer_join(down, up);
	if (!t.measured)
		transfer_probe(src, dst, &t);
	t.path = PINION_PATH_STAGED;
	t.to = dst->desc.caps.location;
	return t;
}

static struct pinion_transfer path_between(const struct backend_device *src, const struct backend_device *dst, uint64_t bytes)
{
	const struct pinion_transfer *direct = advertised(src, dst->desc.caps.location, bytes);
	struct pinion_transfer same = pinion_path_fallback(PINION_PATH_SAME);

	if (backends_share(src, dst)) {
		same.to = dst->desc.caps.location;
		return same;
	}
	/* One location may have two kinds of memory; what goes between them is not "no move". */
	return direct ? *direct : staged(src, dst, bytes);
}

static int both_known(const struct pinion_device *src, const struct pinion_device *dst)
{
	if (src->backend->backend && dst->backend->backend)
		return 0;
	return fail(ENODATA, "a device that was added by its key alone has no known way to others");
}

PINION_API int pinion_device_path_for(const struct pinion_device *src, const struct pinion_device *dst, uint64_t bytes,
				      struct pinion_transfer *out)
{
	int ret = both_known(src, dst);

	if (!ret)
		*out = path_between(src->backend, dst->backend, bytes);
	return ret;
}

PINION_API int pinion_device_path(const struct pinion_device *src, const struct pinion_device *dst, struct pinion_transfer *out)
{
	return pinion_device_path_for(src, dst, TYPICAL_BYTES, out);
}

PINION_API int pinion_device_path_staged(const struct pinion_device *src, const struct pinion_device *dst,
					 struct pinion_transfer *out)
{
	int ret = both_known(src, dst);

	if (!ret)
		*out = staged(src->backend, dst->backend, TYPICAL_BYTES);
	return ret;
}

/* ---- going it
 * --------------------------------------------------------------------------------------------------------- */

static int copy_along(enum pinion_path path, const struct pinion_array *src, struct pinion_array *dst)
{
	struct backend_copy copy = { .from = src->dev->backend,
				     .to = dst->dev->backend,
				     .src = src->storage,
				     .dst = dst->storage,
				     .bytes = src->whole.bytes,
				     .path = path };

	if (!copy.bytes)
		return 0;
	return path == PINION_PATH_STAGED ? array_storage_copy(copy.src, dst->storage) : copy.from->ops.copy_to(&copy);
}

/* Between devices that share the copy is the source's, which has the kernel for it. */
static int copy_same(const struct pinion_array *src, const struct pinion_view *layout, struct pinion_device *dev,
		     struct pinion_array **out)
{
	struct pinion_array *copy;
	int ret = pinion_array_clone(src, layout, &copy);

	if (ret)
		return ret;
	ret = pinion_array_share(copy, dev, out);
	pinion_array_free(copy);
	return ret;
}

/* What is not all of the array in its own order is made so on its device first: paths take bytes in one run. */
static int copy_over(enum pinion_path path, const struct pinion_array *src, const struct pinion_view *layout,
		     struct pinion_device *dev, struct pinion_array **out)
{
	struct pinion_array *run = NULL, *made = NULL;
	int ret = layout ? pinion_array_clone(src, layout, &run) : 0;

	if (!ret)
		ret = array_like(dev, src->whole.dtype, run ? &run->whole : &src->whole, &made);
	if (!ret)
		ret = copy_along(path, run ? run : src, made);
	pinion_array_free(run);
	if (ret)
		pinion_array_free(made);
	else
		*out = made;
	return ret;
}

/* What a copy of a layout takes, which is not checked for that yet; UINT64_MAX: more than can be. */
static uint64_t bytes_of(const struct pinion_view *layout)
{
	uint64_t elements = pinion_view_elements(layout), bytes;

	return __builtin_mul_overflow(elements, pinion_dtype_bytes(layout->dtype), &bytes) ? UINT64_MAX : bytes;
}

PINION_API int pinion_array_copy_to(const struct pinion_array *src, const struct pinion_view *layout,
				    struct pinion_device *dev, struct pinion_array **out, enum pinion_path *taken)
{
	struct pinion_transfer t;
	struct pinion_view view;
	int ret = array_layout(src, layout, &view);

	if (!ret)
		ret = device_check(dev);
	if (!ret)
		ret = pinion_device_path_for(src->dev, dev, bytes_of(&view), &t);
	if (!ret)
		ret = t.path == PINION_PATH_SAME ? copy_same(src, layout, dev, out) :
						   copy_over(t.path, src, layout, dev, out);
	if (!ret && taken)
		*taken = t.path;
	return ret;
}
