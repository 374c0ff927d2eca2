/* SPDX-License-Identifier: MIT */
/* hold: keeps pages in RAM by an io_uring registration where the kernel and RLIMIT_MEMLOCK allow it, else by mlock, else not. */
#include "provider.h"

#include "../advice.h"
#include "../error.h"
#include "../machine/ring.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Entries of a ring that must still be had after a registration: as much as the rings of a few streams take. */
#define SPARE_RING  256
#define RINGS_BYTES    (UINT64_C(64) << 10) /* what such a ring and that of the pin take, roughly */
#define WHY_MAX	       96

static uint64_t memlock_limit(void)
{
	struct rlimit lim;

	return getrlimit(RLIMIT_MEMLOCK, &lim) ? 0 : lim.rlim_cur;
}

/* Whether the pages and a few rings fit the limit at all: what never can is not waited for. */
static bool may_fit(const struct pages *pages)
{
	uint64_t limit = memlock_limit();

	return pages->bytes <= limit && limit - pages->bytes >= RINGS_BYTES;
}

/*
 * Some kernels count rings against the same limit as registrations. One that left no room for the next ring would stop
 * every further stream of the user.
 */
static int spare_ring(const struct pages *pages)
{
	struct io_uring ring;
	int ret = may_fit(pages) ? ring_open(SPARE_RING, &ring) : io_uring_queue_init(SPARE_RING, &ring, 0);

	if (!ret)
		io_uring_queue_exit(&ring);
	return ret;
}

/* 0, or a failure, which is none where another hold will do: then @why has the reason. */
static int by_ring(struct pages *pages, enum pinion_hold want, void *addr, char why[WHY_MAX])
{
	int ret;

	if (pages->sealed) {
		snprintf(why, WHY_MAX, "io_uring registers no memory that is sealed against writing; ");
		return fail(EOPNOTSUPP, "%sask for LOCKED, or leave the hold AUTO", why);
	}
	ret = pin_new(addr, pages->bytes, may_fit(pages), &pages->pin);
	if (!ret && want == PINION_HOLD_AUTO && spare_ring(pages)) {
		pin_unref(pages->pin);
		pages->pin = NULL;
		ret = -ENOMEM;
	}
	if (!ret) {
		pages->hold = PINION_HOLD_REGISTERED;
		return 0;
	}
	snprintf(why, WHY_MAX, "io_uring registration: %.40s; ", strerrordesc_np(-ret));
	if (ret != -ENOMEM)
		return fail_advise(-ret, pinion_advice_uring(-ret), NULL, "io_uring registration of %llu bytes: %s",
				   (unsigned long long)pages->bytes, strerrordesc_np(-ret));
	return fail_advise(-ret, PINION_ADVICE_MEMLOCK, NULL,
			   "io_uring registration of %llu bytes: %s; RLIMIT_MEMLOCK is %lld bytes",
			   (unsigned long long)pages->bytes, strerrordesc_np(-ret), (long long)memlock_limit());
}

int pages_need_module(void)
{
	return fail_advise(EOPNOTSUPP, PINION_ADVICE_MODULE_NEEDED, NULL,
			   "pages pinned for every device need the kernel module, and this context stands on memfd");
}

int pages_lock(const struct pages *pages, void *addr)
{
	return !pages_of_pool(pages) && mlock(addr, pages->bytes) ? errno : 0;
}

static int by_lock(struct pages *pages, enum pinion_hold want, void *addr, const char *why)
{
	char text[WHY_MAX + 160];
	int err = pages_lock(pages, addr);

	if (!err) {
		pages->hold = PINION_HOLD_LOCKED;
		snprintf(pages->hold_why, sizeof(pages->hold_why), "%s%s", why,
			 pages_of_pool(pages) ? "pages of the pool are never swapped" :
			 *why		      ? "locked instead" :
						"asked for");
		return 0;
	}
	snprintf(text, sizeof(text), "%smlock: %s (RLIMIT_MEMLOCK is %llu KiB, need %llu KiB)", why, strerrordesc_np(err),
		 (unsigned long long)memlock_limit() / 1024, (unsigned long long)pages->bytes / 1024);
	sentence_fit(pages->hold_why, sizeof(pages->hold_why), text);
	return want == PINION_HOLD_LOCKED ? fail_advise(err, PINION_ADVICE_MEMLOCK, NULL, "%s", pages->hold_why) : 0;
}

int pages_hold(struct pages *pages, enum pinion_hold want, void *addr)
{
	char why[WHY_MAX] = "";
	int ret;

	pages->hold = PINION_HOLD_NONE;
	if (want == PINION_HOLD_NONE) {
		snprintf(pages->hold_why, sizeof(pages->hold_why), "not asked for");
		return 0;
	}
	if (want != PINION_HOLD_LOCKED) {
		ret = by_ring(pages, want, addr, why);
		if (!ret || want == PINION_HOLD_REGISTERED)
			return ret;
	}
	return by_lock(pages, want, addr, why);
}
