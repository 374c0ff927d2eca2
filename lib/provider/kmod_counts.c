/* SPDX-License-Identifier: MIT */
/* kmod counts: the context's session, its counter page and its lanes. */
#include "kmod_counts.h"

#include "../advice.h"
#include "../error.h"
#include "counter_roster.h"
#include "counts_ops.h"
#include "kmod.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

int kmod_call(const struct counts *c, unsigned long cmd, void *arg)
{
	return ioctl(c->kmod->device->fd, cmd, arg) < 0 ? -errno : 0;
}

const struct pinion_info_device *kmod_line(const struct kmod_counts *k, uint32_t index)
{
	return (const struct pinion_info_device *)(k->info + 1) + index;
}

int kmod_stale(const struct counts_device *dev)
{
	return fail(ESTALE, "the device with generation %llu was removed; find it again by its key",
		    (unsigned long long)dev->generation);
}

/* ---- open, close --------------------------------------------------------------------------------------------------- */

bool kmod_counts_exist(const struct kmod_device *device)
{
	return device && device->features & PINION_FEATURE_COUNTS;
}

/* Neither is a child's: it has none of the counter page, and what the info page says would be of its parent's devices. */
static int map(int fd, int prot, off_t offset, size_t bytes, void **out)
{
	void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, offset);

	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, bytes, MADV_DONTFORK)) {
		int err = errno;

		munmap(p, bytes);
		return -err;
	}
	*out = p;
	return 0;
}

static int map_failed(int err, const struct pinion_info *info)
{
	if (err == ENOSPC)
		return fail_advise(EAGAIN, PINION_ADVICE_MODULE_USER_LIMIT, "max_user_sessions",
				   "this user has %u sessions, as many as the module allows", info->user_sessions);
	return fail_errno(err, "mapping the counters of " PINION_DEVICE);
}

/* Both mappings of an open; *@page is the session's. */
static int map_session(struct kmod_counts *k, const struct pinion_info *info, void **page)
{
	int ret;

	k->max_inflight = info->max_inflight;
	k->info_bytes = info->info_page_bytes;
	ret = map(k->device->fd, PROT_READ, PINION_MMAP_INFO, k->info_bytes, (void **)&k->info);
	if (ret)
		return map_failed(-ret, info);
	if (k->info->devices > ROSTER_DEVICES)
		ret = fail(EPROTO, "the module's table has %u places, this library knows %u: install both from one release",
			   k->info->devices, ROSTER_DEVICES);
	if (!ret) {
		ret = map(k->device->fd, PROT_READ | PROT_WRITE, PINION_MMAP_COUNTERS, sizeof(struct pinion_counter_page), page);
		if (ret)
			ret = map_failed(-ret, info);
	}
	if (ret)
		munmap((void *)k->info, k->info_bytes);
	return ret;
}

static int open_session(struct kmod_counts *k, void **page)
{
	struct pinion_info info;
	int ret = kmod_open(O_RDWR, &k->device);

	if (ret)
		return ret;
	ret = kmod_info(k->device->fd, &info);
	if (ret)
		ret = fail_errno(-ret, "asking " PINION_DEVICE " for its limits");
	else
		ret = map_session(k, &info, page);
	if (ret)
		kmod_close(k->device);
	return ret;
}

int kmod_counts_open(struct counts *c)
{
	struct kmod_counts *k = calloc(1, sizeof(*k));
	void *page;
	int ret;

	if (!k)
		return fail(ENOMEM, "no memory for a session");
	ret = open_session(k, &page);
	if (ret) {
		free(k);
		return ret;
	}
	kmod_windows_open(k);
	c->kmod = k;
	c->page = page;
	c->ops = &counts_kmod;
	__atomic_store_n(&c->file->facts[c->slot].on_module, 1, __ATOMIC_RELAXED);
	c->roster->seq_now = &k->info->roster;
	return 0;
}

/* The session ends with the page's mapping, whoever may have inherited the descriptor. */
void kmod_counts_close(struct counts *c)
{
	struct kmod_counts *k = c->kmod;
	bool is_maker = process_is_maker(&c->mark);

	kmod_windows_close(k, is_maker);
	if (is_maker) {
		munmap(c->page, sizeof(*c->page));
		munmap((void *)k->info, k->info_bytes);
	}
	kmod_close(k->device);
	free(k);
}

/* ---- lanes --------------------------------------------------------------------------------------------------------- */

static int attach_failed(struct counts *c, const struct counts_device *dev, int err)
{
	switch (err) {
	case ESTALE:
		return kmod_stale(dev);
	case ENODATA:
		return fail(ENODATA, "device '%s' is synchronous and has no queue to count", kmod_key(c, dev).s);
	case ENOSPC:
		if (!counts_lanes_free(c))
			return fail_advise(EAGAIN, PINION_ADVICE_LANES, NULL, "all %u lanes of this context are bound",
					   PINION_LANES);
		return fail(EAGAIN,
			    "device '%s' has as many lanes, over all processes or of this user (max_user_lanes), as the "
			    "module allows",
			    kmod_key(c, dev).s);
	default:
		return fail_errno(err, "binding a lane to '%s'", kmod_key(c, dev).s);
	}
}

static void lanes_moved(struct kmod_counts *k)
{
	pinion_roster_bump(&k->moves);
}

static int lane_attach(struct counts *c, const struct counts_device *dev, bool shared, uint32_t *lane)
{
	struct kmod_counts *k = c->kmod;
	struct pinion_attach args = { .size = sizeof(args),
				      .index = dev->index,
				      .max_inflight = k->max_inflight,
				      .generation = dev->generation,
				      .completed_fd = -1 };
	int ret = kmod_call(c, PINION_IOC_ATTACH, &args);

	if (ret)
		return attach_failed(c, dev, -ret);
	__atomic_and_fetch(&c->free_lanes, ~(UINT64_C(1) << args.lane), __ATOMIC_RELAXED);
	k->lane[args.lane].handle = args.handle;
	k->lane[args.lane].shared = shared;
	__atomic_store_n(&k->lane[args.lane].generation, dev->generation, __ATOMIC_RELEASE);
	lanes_moved(k);
	*lane = args.lane;
	return 0;
}

/* One that the module does not take back is one less to give. */
static void lanes_return(struct counts *c, uint64_t lanes)
{
	struct kmod_counts *k = c->kmod;

	for (; lanes; lanes &= lanes - 1) {
		uint32_t l = __builtin_ctzll(lanes);
		struct pinion_handle args = { .size = sizeof(args), .handle = k->lane[l].handle };

		lanes_moved(k);
		__atomic_store_n(&k->lane[l].generation, 0, __ATOMIC_RELEASE);
		if (!kmod_call(c, PINION_IOC_DETACH, &args))
			__atomic_or_fetch(&c->free_lanes, UINT64_C(1) << l, __ATOMIC_RELEASE);
	}
}

/* That the device is gone by now is nobody's trouble. */
static void wake(struct counts *c, const struct counts_device *dev, const struct pinion_lane *lane)
{
	struct pinion_handle args = { .size = sizeof(args), .handle = c->kmod->lane[lane - c->page->lane].handle };
	int err = errno;

	(void)dev;
	kmod_call(c, PINION_IOC_KICK, &args);
	errno = err;
}

static int uring_lane(const struct counts *c, const struct pinion_lane *lane, int *fd, uint32_t *handle)
{
	const struct kmod_counts *k = c->kmod;

	if (!(k->device->features & PINION_FEATURE_URING))
		return fail(EOPNOTSUPP, "the module on this kernel takes no commands of io_uring (PINION_FEATURE_URING)");
	*fd = k->device->fd;
	*handle = k->lane[lane - c->page->lane].handle;
	return 0;
}

const struct counts_ops counts_kmod = {
	.name = "kmod",
	.device_add = kmod_device_add,
	.device_find = kmod_device_find,
	.device_at = kmod_device_at,
	.device_next = kmod_device_next,
	.device_remove = kmod_device_remove,
	.device_of = kmod_device_of,
	.lane_attach = lane_attach,
	.lanes_return = lanes_return,
	.wake = wake,
	.pending_mine = kmod_pending_mine,
	.info = kmod_device_info,
	.users = kmod_device_users,
	.reserve = kmod_reserve,
	.claims = kmod_claims,
	.claim_of = kmod_claim_of,
	.uring_lane = uring_lane,
	.watch = kmod_watch,
	.watch_take = kmod_watch_take,
	.flush = kmod_flush,
};
