/* SPDX-License-Identifier: MIT */
#include <pinion/reservation.h>

#include "../error.h"
#include "../provider/counts_ops.h"
#include "account.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pinion_reservation {
	struct pinion_context *ctx;
	struct counter_claim claim; /* as it was made; it never changes */
	int fd;
};

static int make(struct pinion_context *ctx, const struct counter_claim *claim, int fd, struct pinion_reservation **out)
{
	struct pinion_reservation *r = calloc(1, sizeof(*r));

	if (!r)
		return fail(ENOMEM, "no memory for a reservation");
	r->ctx = ctx;
	r->claim = *claim;
	r->fd = fd;
	*out = r;
	return 0;
}

/* What may be claimed in all. A device that was given no budget has its memory's total, when it can tell. */
static int limits(struct pinion_device *dev, const struct pinion_reserve_opts *opts, uint64_t *budget, uint32_t *capacity)
{
	*budget = dev->at.budget;
	*capacity = dev->at.capacity;
	if (!*budget && opts->bytes && pinion_device_total(dev, budget))
		return fail(ENODATA, "'%s' has no budget to claim %llu bytes from; give it one when it is added", dev->key,
			    (unsigned long long)opts->bytes);
	if (!*capacity && opts->units)
		return fail(ENODATA, "'%s' has no capacity to claim %u units from; give it one when it is added", dev->key,
			    opts->units);
	return 0;
}

PINION_API int pinion_device_reserve(struct pinion_device *dev, const struct pinion_reserve_opts *opts,
				     struct pinion_reservation **out)
{
	struct pinion_reserve_opts own = { .size = sizeof(own) };
	struct counter_claim want = { 0 };
	uint64_t budget;
	uint32_t capacity;
	int fd, ret = process_is_maker(&dev->mark) ? 0 : process_fail("device");

	if (!ret)
		ret = opts_in(&own, sizeof(own), opts, "pinion_reserve_opts");
	if (!ret && !own.bytes && !own.units && !own.exclusive)
		ret = fail(EINVAL, "a reservation asks for bytes, units, or the whole device");
	if (!ret)
		ret = limits(dev, &own, &budget, &capacity);
	if (ret)
		return ret;
	want.generation = dev->at.generation;
	want.bytes = own.bytes;
	want.units = own.units;
	want.exclusive = own.exclusive;
	want.device = dev->at.index;
	want.pid = getpid();
	fd = dev->counts->ops->reserve(dev->counts, &dev->at, &want, budget, capacity);
	if (fd < 0)
		return fd;
	ret = make(dev->ctx, &want, fd, out);
	if (ret)
		counts_claim_close(fd);
	return ret;
}

PINION_API int pinion_reservation_adopt(struct pinion_context *ctx, int fd, struct pinion_reservation **out)
{
	struct counter_claim claim;
	int own, ret = context_check(ctx);

	if (!ret)
		ret = ctx->counts->ops->claim_of(ctx->counts, fd, &claim);
	if (ret)
		return ret;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return fail_errno(errno, "duplicating a claim's descriptor");
	ret = make(ctx, &claim, own, out);
	if (ret)
		close(own);
	return ret;
}

PINION_API int pinion_reservation_fd(const struct pinion_reservation *r)
{
	return r->fd;
}

PINION_API void pinion_reservation_free(struct pinion_reservation *r)
{
	if (!r)
		return;
	counts_claim_close(r->fd);
	free(r);
}

PINION_API int pinion_reservation_info(const struct pinion_reservation *r, struct pinion_reservation_info *info)
{
	struct pinion_reservation_info own = { .size = sizeof(own) };
	struct counts_device at;
	int ret = context_check(r->ctx);

	if (!ret)
		ret = r->ctx->counts->ops->device_of(r->ctx->counts, &r->claim, &at, own.key);
	if (ret)
		return ret;
	own.generation = r->claim.generation;
	own.bytes = r->claim.bytes;
	own.units = r->claim.units;
	own.exclusive = r->claim.exclusive;
	return opts_out(info, &own, sizeof(own), "pinion_reservation_info");
}

PINION_API int pinion_reservation_device(const struct pinion_reservation *r, struct pinion_device **out)
{
	struct pinion_reservation_info info = { .size = sizeof(info) };
	int ret = pinion_reservation_info(r, &info);

	return ret ? ret : pinion_device_find(r->ctx, info.key, out);
}

PINION_API int pinion_reservation_describe(const struct pinion_reservation *r, char *buf, size_t n)
{
	struct pinion_reservation_info info = { .size = sizeof(info) };

	if (pinion_reservation_info(r, &info))
		return snprintf(buf, n, "reservation of a device that is gone");
	return snprintf(buf, n, "reservation of %llu bytes and %u units on %s%s", (unsigned long long)info.bytes, info.units, info.key,
			info.exclusive ? ", exclusive" : "");
}
