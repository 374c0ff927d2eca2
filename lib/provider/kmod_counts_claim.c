/* SPDX-License-Identifier: MIT */
/* kmod counts claim: reservations that the module keeps, each a descriptor of its own. */
#include "kmod_counts.h"

#include "../advice.h"
#include "../error.h"
#include "kmod.h"

#include <errno.h>
#include <stdio.h>

#define EXCLUSIVE UINT64_MAX /* what the table says of the bytes of a device that is held exclusively */

/* ---- what stands --------------------------------------------------------------------------------------------------- */

struct standing {
	uint64_t generation;
	struct claims_sum *sum;
};

static void note_claim(void *arg, const void *row)
{
	const struct pinion_list_claim *claim = row;
	struct standing *standing = arg;
	struct claims_sum *sum = standing->sum;

	if (claim->generation != standing->generation)
		return;
	sum->count++;
	sum->bytes += claim->bytes;
	sum->units += claim->units;
	sum->exclusive |= claim->flags & PINION_RESERVE_EXCLUSIVE;
	if (claim->bytes >= sum->most) {
		sum->most = claim->bytes;
		sum->most_pid = claim->pid;
	}
}

/* One by one: for sentences, and where the sum does not say. */
static void list_claims(const struct counts *c, const struct counts_device *dev, struct claims_sum *sum)
{
	struct standing standing = { .generation = dev->generation, .sum = sum };

	*sum = (struct claims_sum){ 0 };
	kmod_list(c, PINION_LIST_RESERVATIONS, sizeof(struct pinion_list_claim), note_claim, &standing);
}

void kmod_claims(struct counts *c, const struct counts_device *dev, struct claims_sum *sum)
{
	struct pinion_reading row;
	int ret = kmod_read(c, dev, &row);

	*sum = (struct claims_sum){ 0 };
	if (ret && ret != -ENODATA)
		return;
	if (row.claimed_bytes == EXCLUSIVE)
		list_claims(c, dev, sum);
	else
		*sum = (struct claims_sum){ .bytes = row.claimed_bytes, .units = row.claimed_units, .count = row.claims };
}

/* What is held exclusively takes from the budget what was asked for with it, as any other claim. */
uint64_t kmod_counts_claimed(struct counts *c, const struct counts_device *dev)
{
	uint64_t bytes = __atomic_load_n(&kmod_line(c->kmod, dev->index)->claimed_bytes, __ATOMIC_ACQUIRE);
	struct claims_sum sum;

	if (__builtin_expect(bytes != EXCLUSIVE, 1))
		return bytes;
	list_claims(c, dev, &sum);
	return sum.bytes;
}

/* ---- reserve ------------------------------------------------------------------------------------------------------- */

static int no_room(struct counts *c, const struct counts_device *dev, const struct counter_claim *want, uint64_t budget,
		   uint32_t capacity)
{
	struct kmod_key key = kmod_key(c, dev);
	struct pinion_info info;
	struct claims_sum sum;
	char most[80] = "";

	if (!kmod_info(c->kmod->device->fd, &info) && info.user_claims >= info.max_user_claims)
		return fail_advise(EAGAIN, PINION_ADVICE_MODULE_USER_LIMIT, "max_user_claims",
				   "%u claims of this user stand, as many as the module allows", info.user_claims);
	list_claims(c, dev, &sum);
	if (want->units && (want->units > capacity || sum.units > capacity - want->units))
		return fail_advise(ENOSPC, PINION_ADVICE_DEVICE_ROOM, NULL, "'%s' has %llu of %u units left, %u are asked for",
				   key.s, (unsigned long long)(capacity > sum.units ? capacity - sum.units : 0), capacity,
				   want->units);
	if (sum.most)
		snprintf(most, sizeof(most), "; the largest claim, %llu, is of process %d", (unsigned long long)sum.most,
			 sum.most_pid);
	return fail_advise(ENOSPC, PINION_ADVICE_DEVICE_ROOM, NULL, "'%s' has %llu of %llu bytes left, %llu are asked for%s",
			   key.s, (unsigned long long)(budget > sum.bytes ? budget - sum.bytes : 0), (unsigned long long)budget,
			   (unsigned long long)want->bytes, most);
}

static int is_busy(struct counts *c, const struct counts_device *dev, bool exclusive)
{
	struct kmod_key key = kmod_key(c, dev);
	struct claims_sum sum;

	list_claims(c, dev, &sum);
	if (!sum.exclusive && exclusive)
		return fail_advise(EBUSY, PINION_ADVICE_DEVICE_BUSY, NULL,
				   "'%s' cannot be had exclusively: %u claims stand, the largest of process %d", key.s, sum.count,
				   sum.most_pid);
	return fail_advise(EBUSY, PINION_ADVICE_DEVICE_BUSY, NULL, "'%s' is held exclusively by process %d", key.s, sum.most_pid);
}

int kmod_reserve(struct counts *c, const struct counts_device *dev, const struct counter_claim *want, uint64_t budget,
		 uint32_t capacity)
{
	struct pinion_reserve args = { .size = sizeof(args),
				       .flags = want->exclusive ? PINION_RESERVE_EXCLUSIVE : 0,
				       .index = dev->index,
				       .units = want->units,
				       .generation = dev->generation,
				       .bytes = want->bytes,
				       .most_bytes = dev->budget ? 0 : budget,
				       .most_units = dev->capacity ? 0 : capacity };
	int ret = kmod_call(c, PINION_IOC_RESERVE, &args);

	switch (ret) {
	case 0:
		return args.fd;
	case -ENOSPC:
		return no_room(c, dev, want, budget, capacity);
	case -EBUSY:
		return is_busy(c, dev, want->exclusive);
	case -ESTALE:
		return kmod_stale(dev);
	default:
		return fail_errno(-ret, "claiming on '%s'", kmod_key(c, dev).s);
	}
}

int kmod_claim_of(struct counts *c, int fd, struct counter_claim *claim)
{
	struct pinion_reserve args = { .size = sizeof(args), .fd = fd };

	if (kmod_call(c, PINION_IOC_CLAIMINFO, &args))
		return fail(EINVAL, "descriptor %d is no claim of the module", fd);
	*claim = (struct counter_claim){
		.generation = args.generation,
		.bytes = args.bytes,
		.units = args.units,
		.exclusive = !!(args.flags & PINION_RESERVE_EXCLUSIVE),
		.device = args.index,
	};
	return 0;
}
