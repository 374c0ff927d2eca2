/* SPDX-License-Identifier: MIT */
/* kmod counts device: the module's table of devices, which all users share. */
#include "kmod_counts.h"

#include "../advice.h"
#include "../error.h"
#include "kmod.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void describe(struct counts *c, const struct pinion_dev *dev, struct counts_device *out)
{
	*out = (struct counts_device){
		.now = &kmod_line(c->kmod, dev->index)->generation,
		.generation = dev->generation,
		.index = dev->index,
		.capacity = dev->capacity,
		.budget = dev->budget,
		.has_queue = !(dev->flags & PINION_DEV_SYNC),
	};
}

static void take_key(const struct pinion_dev *dev, char key[PINION_KEY_MAX + 1])
{
	memcpy(key, dev->key, PINION_KEY_MAX);
	key[PINION_KEY_MAX] = 0;
}

struct kmod_key kmod_key(const struct counts *c, const struct counts_device *dev)
{
	struct pinion_dev args = {
		.size = sizeof(args), .by = PINION_BY_INDEX, .index = dev->index, .generation = dev->generation
	};
	struct kmod_key key = { "?" };

	if (!kmod_call(c, PINION_IOC_DEV_GET, &args))
		take_key(&args, key.s);
	return key;
}

/* ---- add ----------------------------------------------------------------------------------------------------------- */

static int add_failed(struct counts *c, const char *key, int err)
{
	struct pinion_info info;

	switch (err) {
	case ENOSPC:
		if (!kmod_info(c->kmod->device->fd, &info) && info.user_devices >= info.max_user_devices)
			return fail_advise(ENOSPC, PINION_ADVICE_MODULE_USER_LIMIT, "max_user_devices",
					   "this user has added %u devices, as many as the module allows", info.user_devices);
		return fail_advise(ENOSPC, PINION_ADVICE_DEVICES, NULL, "the module's table holds %u devices, all in use",
				   c->kmod->info->devices);
	case EEXIST:
		return fail(EEXIST, "'%s' is there, added by a program that counts its cost in other units than this library",
			    key);
	default:
		return fail_errno(err, "adding device '%s' to the module", key);
	}
}

int kmod_device_add(struct counts *c, const char *key, const struct pinion_device_opts *opts, bool has_queue,
		    struct counts_device *out)
{
	struct pinion_dev args = {
		.size = sizeof(args), .flags = has_queue ? 0 : PINION_DEV_SYNC, .budget = opts->budget, .capacity = opts->capacity
	};
	int ret = counts_check_key(key);

	if (ret)
		return ret;
	strcpy(args.key, key);
	ret = kmod_call(c, PINION_IOC_DEV_ADD, &args);
	if (ret)
		return add_failed(c, key, -ret);
	describe(c, &args, out);
	return 0;
}

/* ---- find ---------------------------------------------------------------------------------------------------------- */

static int none(const char *key)
{
	return fail(ENOENT, "no device has the key '%s'; add it with pinion_device_add()", key);
}

/*
 * Adds what is there once more, so that it stays for as long as this context is open: to the module a handle is nothing. What has
 * gone since it was seen is not made anew.
 */
static int keep(struct counts *c, struct pinion_dev *args)
{
	struct pinion_dev add = { .size = sizeof(add),
				  .flags = args->flags,
				  .budget = args->budget,
				  .capacity = args->capacity,
				  .cost_unit = args->cost_unit };
	struct pinion_dev_del del = { .size = sizeof(del) };
	int ret;

	memcpy(add.key, args->key, sizeof(add.key));
	ret = kmod_call(c, PINION_IOC_DEV_ADD, &add);
	if (ret)
		return add_failed(c, args->key, -ret);
	if (!(add.flags & PINION_DEV_CREATED)) {
		*args = add;
		return 0;
	}
	del.index = add.index;
	del.generation = add.generation;
	kmod_call(c, PINION_IOC_DEV_DEL, &del);
	return none(args->key);
}

int kmod_device_find(struct counts *c, const char *key, struct counts_device *out)
{
	struct pinion_dev args = { .size = sizeof(args), .by = PINION_BY_KEY };
	int ret = counts_check_key(key);

	if (ret)
		return ret;
	strcpy(args.key, key);
	ret = kmod_call(c, PINION_IOC_DEV_GET, &args);
	if (ret == -ENOENT)
		return none(key);
	if (ret)
		return fail_errno(-ret, "asking the module for device '%s'", key);
	ret = keep(c, &args);
	if (!ret)
		describe(c, &args, out);
	return ret;
}

int kmod_device_next(struct counts *c, uint32_t *place, struct counts_device *out, char key[PINION_KEY_MAX + 1])
{
	struct pinion_dev args = { .size = sizeof(args), .by = PINION_BY_NEXT, .index = *place };
	int ret = kmod_call(c, PINION_IOC_DEV_GET, &args);

	if (ret == -ENOENT)
		return ret;
	if (ret)
		return fail_errno(-ret, "asking the module for its devices");
	describe(c, &args, out);
	take_key(&args, key);
	*place = args.index + 1;
	return 0;
}

int kmod_device_at(struct counts *c, uint32_t i, struct counts_device *out, char key[PINION_KEY_MAX + 1])
{
	const struct kmod_counts *k = c->kmod;
	uint32_t place;
	int ret;

	/* The place before the i-th is found without a call. */
	for (place = 0; place < k->info->devices && i; place++)
		i -= __atomic_load_n(&kmod_line(k, place)->generation, __ATOMIC_RELAXED) != 0;
	ret = i ? -ENOENT : kmod_device_next(c, &place, out, key);
	return ret == -ENOENT ? fail(ENOENT, "there are no more devices") : ret;
}

int kmod_device_of(struct counts *c, const struct counter_claim *claim, struct counts_device *out, char key[PINION_KEY_MAX + 1])
{
	struct pinion_dev args = {
		.size = sizeof(args), .by = PINION_BY_INDEX, .index = claim->device, .generation = claim->generation
	};

	if (kmod_call(c, PINION_IOC_DEV_GET, &args))
		return fail(ESTALE, "the device of this claim was removed");
	describe(c, &args, out);
	take_key(&args, key);
	return 0;
}

/* ---- remove -------------------------------------------------------------------------------------------------------- */

int kmod_device_remove(struct counts *c, const struct counts_device *dev)
{
	struct pinion_dev_del args = { .size = sizeof(args), .index = dev->index, .generation = dev->generation };
	struct kmod_key key = kmod_key(c, dev);
	int ret;

	/* The caller's own too, to which the module has no objection: who else holds a descriptor of it is not known. */
	if (counts_device_current(dev) && __atomic_load_n(&kmod_line(c->kmod, dev->index)->claims, __ATOMIC_ACQUIRE))
		return fail_advise(EBUSY, PINION_ADVICE_DEVICE_BUSY, NULL,
				   "claims stand on device '%s', and who holds them is not known", key.s);
	ret = kmod_call(c, PINION_IOC_DEV_DEL, &args);

	switch (ret) {
	case 0:
		return 0;
	case -ESTALE:
		return kmod_stale(dev);
	case -EPERM:
		return fail(EPERM, "device '%s' was added by another user, who may remove it", key.s);
	case -EBUSY:
		return fail_advise(EBUSY, PINION_ADVICE_DEVICE_BUSY, NULL,
				   "device '%s' is counted on or waited for by another process", key.s);
	default:
		return fail_errno(-ret, "removing device '%s'", key.s);
	}
}
