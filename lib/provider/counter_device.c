/* SPDX-License-Identifier: MIT */
/* counter device: the table of devices in the counter file, and the lanes that slots have for them. */
#include "counter_file.h"

#include "../advice.h"
#include "../error.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

int counts_check_key(const char *key)
{
	size_t len = strnlen(key, PINION_KEY_MAX + 1);

	if (len == 0 || len > PINION_KEY_MAX)
		return fail(EINVAL, "a device key has 1 to %d characters, this one has %s", PINION_KEY_MAX, len ? "more" : "none");
	for (size_t i = 0; i < len; i++)
		if (!isgraph((unsigned char)key[i]))
			return fail(EINVAL, "a device key is printable ASCII without space; character %zu is 0x%02x", i + 1,
				    (unsigned char)key[i]);
	return 0;
}

/* Under head.lock. */
static void describe(struct counts *c, uint32_t index, struct counts_device *out)
{
	struct counter_device *entry = &c->file->device[index];

	*out = (struct counts_device){
		.now = (const __u64 *)&entry->generation,
		.entry = entry,
		.generation = __atomic_load_n(&entry->generation, __ATOMIC_ACQUIRE),
		.index = index,
		.capacity = __atomic_load_n(&entry->capacity, __ATOMIC_RELAXED),
		.budget = __atomic_load_n(&entry->budget, __ATOMIC_RELAXED),
		.has_queue = __atomic_load_n(&entry->has_queue, __ATOMIC_RELAXED),
	};
}

/* Under head.lock. */
static bool lookup(struct counts *c, const char *key, struct counts_device *out)
{
	for (uint32_t d = 0; d < COUNTER_DEVICES; d++) {
		struct counter_device *dev = &c->file->device[d];

		if (dev->generation && !strncmp(dev->key, key, sizeof(dev->key))) {
			describe(c, d, out);
			return true;
		}
	}
	return false;
}

/* Under head.lock: whether a living context other than @mine has a lane for the device. */
static bool in_use(struct counts *c, uint32_t index, uint32_t mine)
{
	const struct counter_file *f = c->file;

	for (uint32_t s = 0; s < f->head.slots_used && s < COUNTER_SLOTS; s++)
		if (s != mine && (f->device[index].slots[s / 64] >> (s % 64) & 1) &&
		    pinion_owner_alive(__atomic_load_n(&f->owner[s], __ATOMIC_ACQUIRE)))
			return true;
	return false;
}

void counter_note_use(struct counts *c, struct counter_device *entry)
{
	entry->used = ++c->file->head.uses;
}

/*
 * Under head.lock: a place of the table for a new device. When it is full, of the devices that nobody living counts on and nobody
 * has claimed the one gives way of which no use was made for the longest. Who merely has a handle is not known here.
 */
static int find_place(struct counts *c, uint32_t *index)
{
	const struct counter_device *dev = c->file->device;
	uint32_t idle = COUNTER_DEVICES;

	for (uint32_t d = 0; d < COUNTER_DEVICES; d++) {
		if (!dev[d].generation) {
			*index = d;
			return 0;
		}
		if (idle < COUNTER_DEVICES && dev[idle].used < dev[d].used)
			continue;
		if (!in_use(c, d, COUNTER_SLOTS) && !counts_is_claimed(c, dev[d].generation))
			idle = d;
	}
	*index = idle;
	return idle < COUNTER_DEVICES ? 0 :
					fail_advise(ENOSPC, PINION_ADVICE_DEVICES, NULL, "the table holds %u devices, all in use",
						    COUNTER_DEVICES);
}

/* Under head.lock: takes the device's lanes from every slot; the lanes stay unused until their owner closes. */
static void clear_device(struct counts *c, uint32_t index)
{
	struct counter_file *f = c->file;
	struct counter_device *dev = &f->device[index];

	__atomic_store_n(&dev->generation, 0, __ATOMIC_SEQ_CST);
	pinion_roster_bump(&f->head.seq);
	for (uint32_t s = 0; s < f->head.slots_used && s < COUNTER_SLOTS; s++)
		if (dev->slots[s / 64] >> (s % 64) & 1)
			__atomic_store_n(&f->lanes[index][s], 0, __ATOMIC_RELEASE);
	memset(dev->slots, 0, sizeof(dev->slots));
	pinion_roster_bump(&f->head.seq);
	counts_wake(dev);
}

static int add_new(struct counts *c, const char *key, const struct pinion_device_opts *opts, bool has_queue,
		   struct counts_device *out)
{
	struct counter_file *f = c->file;
	struct counter_device *dev;
	uint32_t index = 0;
	int ret;

	ret = find_place(c, &index);
	if (!ret)
		ret = counter_room(c, f->lanes[index], sizeof(f->lanes[index]));
	if (ret)
		return ret;
	dev = &f->device[index];
	if (dev->generation)
		clear_device(c, index);
	memset(dev->key, 0, sizeof(dev->key));
	memcpy(dev->key, key, strlen(key));
	__atomic_store_n(&dev->budget, opts->budget, __ATOMIC_RELAXED);
	__atomic_store_n(&dev->capacity, opts->capacity, __ATOMIC_RELAXED);
	__atomic_store_n(&dev->has_queue, has_queue, __ATOMIC_RELAXED);
	__atomic_store_n(&dev->reclaimed, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&dev->retired, 0, __ATOMIC_RELAXED);
	/* Whoever sees the generation below sees these. Before as well: a maker that dies between the two must not leave a roster that never learns of the device. */
	pinion_roster_bump(&f->head.seq);
	__atomic_store_n(&dev->generation, ++f->head.generation, __ATOMIC_SEQ_CST);
	pinion_roster_bump(&f->head.seq);
	describe(c, index, out);
	return 0;
}

int counts_device_add(struct counts *c, const char *key, const struct pinion_device_opts *opts, bool has_queue,
		      struct counts_device *out)
{
	int ret = counts_check_key(key);

	if (!ret)
		ret = counter_lock(c);
	if (ret)
		return ret;
	if (!lookup(c, key, out))
		ret = add_new(c, key, opts, has_queue, out);
	if (!ret)
		counter_note_use(c, out->entry);
	counter_unlock(c);
	return ret;
}

int counts_device_find(struct counts *c, const char *key, struct counts_device *out)
{
	bool found;
	int ret = counts_check_key(key);

	if (!ret)
		ret = counter_lock(c);
	if (ret)
		return ret;
	found = lookup(c, key, out);
	if (found)
		counter_note_use(c, out->entry);
	counter_unlock(c);
	return found ? 0 : fail_advise(ENOENT, PINION_ADVICE_DEVICE_UNKNOWN, key, "no device has the key '%s'", key);
}

int counts_device_at(struct counts *c, uint32_t i, struct counts_device *out, char key[PINION_KEY_MAX + 1])
{
	int ret = counter_lock(c);

	if (ret)
		return ret;
	ret = -ENOENT;
	for (uint32_t d = 0; d < COUNTER_DEVICES; d++) {
		if (c->file->device[d].generation && i-- == 0) {
			describe(c, d, out);
			memcpy(key, counter_key(out->entry).s, PINION_KEY_MAX + 1);
			ret = 0;
			break;
		}
	}
	counter_unlock(c);
	return ret ? fail(ENOENT, "there are no more devices") : 0;
}

int counts_device_next(struct counts *c, uint32_t *place, struct counts_device *out, char key[PINION_KEY_MAX + 1])
{
	uint32_t d = *place;
	int ret = counter_lock(c);

	if (ret)
		return ret;
	while (d < COUNTER_DEVICES && !c->file->device[d].generation)
		d++;
	if (d < COUNTER_DEVICES) {
		describe(c, d, out);
		memcpy(key, counter_key(out->entry).s, PINION_KEY_MAX + 1);
	}
	counter_unlock(c);
	*place = d + 1;
	return d < COUNTER_DEVICES ? 0 : -ENOENT;
}

static int stale(const struct counts_device *dev)
{
	return fail(ESTALE, "the device with generation %llu was removed; find it again by its key",
		    (unsigned long long)dev->generation);
}

int counts_device_remove(struct counts *c, const struct counts_device *dev)
{
	int ret = counter_lock(c);

	if (ret)
		return ret;
	if (!counts_device_current(dev))
		ret = stale(dev);
	else if (in_use(c, dev->index, c->slot))
		ret = fail_advise(EBUSY, PINION_ADVICE_DEVICE_BUSY, NULL, "device '%s' is in use by another process",
				  counter_key(dev->entry).s);
	else if (counts_is_claimed(c, dev->generation))
		ret = fail_advise(EBUSY, PINION_ADVICE_DEVICE_BUSY, NULL,
				  "claims stand on device '%s', and who holds them is not known", counter_key(dev->entry).s);
	else
		clear_device(c, dev->index);
	counter_unlock(c);
	return ret;
}

/* Under head.lock: the epoch that the slot's other lanes of the device show, so that a flush sees one parity. */
static uint32_t sibling_epoch(struct counts *c, uint32_t index)
{
	struct counter_file *f = c->file;
	uint64_t mask = f->lanes[index][c->slot] & COUNTER_LANE_MASK;

	return mask ? pinion_load(&pinion_lane_control(&f->page[c->slot], __builtin_ctzll(mask))->epoch) : 0;
}

/*
 * A free lane, looked for from a place that differs from slot to slot: pages are 4 KiB apart, so lanes of the same number
 * in many slots would fall into one set of the reader's first-level cache.
 */
static uint32_t choose_lane(const struct counts *c)
{
	uint32_t from = c->slot % PINION_LANES;
	uint64_t free_lanes = __atomic_load_n(&c->free_lanes, __ATOMIC_ACQUIRE), after = free_lanes >> from << from;

	return __builtin_ctzll(after ? after : free_lanes);
}

int counts_lane_attach(struct counts *c, const struct counts_device *dev, bool shared, uint32_t *lane)
{
	struct counter_file *f = c->file;
	struct pinion_counter_page *page = &f->page[c->slot];
	int ret = counter_lock(c);

	if (ret)
		return ret;
	if (!counts_device_current(dev)) {
		ret = stale(dev);
	} else if (!dev->has_queue) {
		ret = fail(ENODATA, "device '%s' is synchronous and has no queue to count", counter_key(dev->entry).s);
	} else if (!__atomic_load_n(&c->free_lanes, __ATOMIC_ACQUIRE)) {
		ret = fail_advise(EAGAIN, PINION_ADVICE_LANES, NULL, "all %u lanes of this context are bound", PINION_LANES);
	} else {
		*lane = choose_lane(c);
		__atomic_and_fetch(&c->free_lanes, ~(UINT64_C(1) << *lane), __ATOMIC_RELAXED);
		/* A thread of the slot's dead owner may have run a moment longer than the owner word said. */
		pinion_lane_retire(&page->lane[*lane]);
		pinion_lane_control(page, *lane)->armed = 0;
		pinion_store(&pinion_lane_control(page, *lane)->epoch, sibling_epoch(c, dev->index));
		/* What the lane counted before is not the device's; it is added back when the lane is taken away. */
		__atomic_sub_fetch(&dev->entry->retired, pinion_lane_submitted(&page->lane[*lane], PINION_BOTH), __ATOMIC_RELAXED);
		if (shared)
			__atomic_or_fetch(&f->facts[c->slot].shared, UINT64_C(1) << *lane, __ATOMIC_RELAXED);
		__atomic_or_fetch(&f->lanes[dev->index][c->slot], UINT64_C(1) << *lane, __ATOMIC_RELEASE);
		__atomic_or_fetch(&dev->entry->slots[c->slot / 64], UINT64_C(1) << (c->slot % 64), __ATOMIC_RELEASE);
		counter_note_use(c, dev->entry);
		pinion_roster_bump(&f->head.seq);
	}
	counter_unlock(c);
	return ret;
}

void counts_lanes_return(struct counts *c, uint64_t lanes)
{
	__atomic_or_fetch(&c->free_lanes, lanes, __ATOMIC_RELEASE);
}

uint32_t counts_lanes_free(struct counts *c)
{
	return __builtin_popcountll(__atomic_load_n(&c->free_lanes, __ATOMIC_ACQUIRE));
}
