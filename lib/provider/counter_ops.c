/* SPDX-License-Identifier: MIT */
/* counter ops: the counter file as a ground of counts. */
#include "counts_ops.h"

#include "../error.h"

#include <errno.h>
#include <string.h>

uint32_t counts_apart(const struct counts *c)
{
	const struct counter_file *f = c->file;
	uint32_t used = __atomic_load_n(&f->head.slots_used, __ATOMIC_ACQUIRE), n = 0;

	for (uint32_t s = 0; s < used && s < COUNTER_SLOTS; s++)
		if (pinion_owner_alive(__atomic_load_n(&f->owner[s], __ATOMIC_ACQUIRE)))
			n += !__atomic_load_n(&f->facts[s].on_module, __ATOMIC_RELAXED) != !c->kmod;
	return n;
}

static int device_of(struct counts *c, const struct counter_claim *claim, struct counts_device *out, char key[PINION_KEY_MAX + 1])
{
	uint32_t index = claim->device % COUNTER_DEVICES;
	struct counter_device *entry = &c->file->device[index];

	*out = (struct counts_device){
		.now = (const __u64 *)&entry->generation, .entry = entry, .index = index, .generation = claim->generation
	};
	memcpy(key, counter_key(entry).s, PINION_KEY_MAX + 1);
	return counts_device_current(out) ? 0 : fail(ESTALE, "the device of this claim was removed");
}

static void wake(struct counts *c, const struct counts_device *dev, const struct pinion_lane *lane)
{
	(void)c;
	(void)lane;
	counts_wake(dev->entry);
}

const struct counts_ops counts_memfd = {
	.name = "memfd",
	.device_add = counts_device_add,
	.device_find = counts_device_find,
	.device_at = counts_device_at,
	.device_next = counts_device_next,
	.device_remove = counts_device_remove,
	.device_of = device_of,
	.lane_attach = counts_lane_attach,
	.lanes_return = counts_lanes_return,
	.wake = wake,
	.pending_mine = counts_pending_mine,
	.info = counts_info,
	.users = counts_users,
	.reserve = counts_reserve,
	.claims = counts_claims,
	.claim_of = counts_claim_of,
	.flush = counts_flush,
};
