/* SPDX-License-Identifier: MIT */
/*
 * counts ops: what the two grounds of counts do differently when it is no matter of nanoseconds. What is, is the same code on
 * both: a unit is counted in the context's page, a device is current while the word at its place says so, and totals are read
 * from a roster.
 *
 * Every function leaves a sentence when it fails.
 */
#ifndef PINION_LIB_COUNTS_OPS_H
#define PINION_LIB_COUNTS_OPS_H

#include "counter_file.h"

struct counts_ops {
	const char *name;
	int (*device_add)(struct counts *c, const char *key, const struct pinion_device_opts *opts, bool has_queue,
			  struct counts_device *out);
	int (*device_find)(struct counts *c, const char *key, struct counts_device *out);
	int (*device_at)(struct counts *c, uint32_t i, struct counts_device *out, char key[PINION_KEY_MAX + 1]);
	int (*device_next)(struct counts *c, uint32_t *place, struct counts_device *out, char key[PINION_KEY_MAX + 1]);
	int (*device_remove)(struct counts *c, const struct counts_device *dev);
	/* The device that a claim was made on; -ESTALE. */
	int (*device_of)(struct counts *c, const struct counter_claim *claim, struct counts_device *out,
			 char key[PINION_KEY_MAX + 1]);

	int (*lane_attach)(struct counts *c, const struct counts_device *dev, bool shared, uint32_t *lane);
	void (*lanes_return)(struct counts *c, uint64_t lanes);
	/* A unit ended in @lane of this context's page, for whose device somebody sleeps. */
	void (*wake)(struct counts *c, const struct counts_device *dev, const struct pinion_lane *lane);

	int (*pending_mine)(const struct counts *c, const struct counts_device *dev, uint32_t *pending);
	int (*info)(const struct counts *c, const struct counts_device *dev, struct pinion_device_info *info);
	int (*users)(const struct counts *c, const struct counts_device *dev, struct pinion_device_user *rows, size_t cap,
		     size_t *n);

	int (*reserve)(struct counts *c, const struct counts_device *dev, const struct counter_claim *want, uint64_t budget,
		       uint32_t capacity);
	void (*claims)(struct counts *c, const struct counts_device *dev, struct claims_sum *sum);
	int (*claim_of)(struct counts *c, int fd, struct counter_claim *claim);

	/*
	 * For io_uring: the open that commands which count on @lane of this context's page go to, borrowed, and the lane's name
	 * there. A watch, the caller's, of what is in flight now (of this context, or of all): it polls readable when that is done,
	 * and then watch_take() says how many units died. NULL on a ground where no kernel counts.
	 */
	int (*uring_lane)(const struct counts *c, const struct pinion_lane *lane, int *fd, uint32_t *handle);
	int (*watch)(struct counts *c, const struct counts_device *dev, bool mine, int *fd);
	int (*watch_take)(int fd, uint64_t *lost);

	int (*flush)(struct counts *c, const struct counts_device *dev, bool mine, int64_t deadline_ns, uint64_t *lost);
};

extern const struct counts_ops counts_memfd;
extern const struct counts_ops counts_kmod;

#endif
