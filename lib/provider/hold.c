/* SPDX-License-Identifier: MIT */
/* hold: keeps pages in RAM by an io_uring registration where the kernel and RLIMIT_MEMLOCK allow it, else by mlock, else not. */
#include "provider.h"

#include "../error.h"
#include "../machine/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Entries of a ring that must still be had after a registration: as much as the rings of a few streams take. */
#define SPARE_RING 256
#define RINGS_BYTES (UINT64_C(64) << 10) /* what such a ring and that of the pin take, roughly */
/* io_uring takes at most this much in one registered buffer. */
#define REGISTER_BYTES (UINT64_C(1) << 30)

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

/* Pins the pages by registering them with a ring that is never used for I/O; its descriptor is the hold. */
static int hold_registered(struct pages *pages, char *addr)
{
	uint64_t n = (pages->bytes + REGISTER_BYTES - 1) / REGISTER_BYTES;
	struct iovec *iov;
	struct io_uring ring;
	int ret;

	if (n > 16384) /* IORING_MAX_REG_BUFFERS */
		return -E2BIG;
	iov = calloc(n, sizeof(*iov));
	if (!iov)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		iov[i].iov_base = addr + i * REGISTER_BYTES;
		iov[i].iov_len = i + 1 < n ? REGISTER_BYTES : pages->bytes - i * REGISTER_BYTES;
	}
	ret = may_fit(pages) ? ring_open(1, &ring) : io_uring_queue_init(1, &ring, 0);
	if (ret)
		goto out;
	ret = may_fit(pages) ? ring_register(&ring, iov, n) : io_uring_register_buffers(&ring, iov, n);
	pages->pin_fd = ret ? -1 : fcntl(ring.ring_fd, F_DUPFD_CLOEXEC, 0);
	if (!ret && pages->pin_fd < 0)
		ret = -errno;
	io_uring_queue_exit(&ring);
out:
	free(iov);
	return ret;
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

int pages_hold(struct pages *pages, enum pinion_hold want, void *addr)
{
	char why[64] = "";
	int err, ret;

	pages->hold = PINION_HOLD_NONE;
	if (want == PINION_HOLD_NONE) {
		snprintf(pages->hold_why, sizeof(pages->hold_why), "not asked for");
		return 0;
	}
	if (want != PINION_HOLD_LOCKED) {
		ret = hold_registered(pages, addr);
		if (!ret && want == PINION_HOLD_AUTO && spare_ring(pages)) {
			close(pages->pin_fd);
			pages->pin_fd = -1;
			ret = -ENOMEM;
		}
		if (!ret) {
			pages->hold = PINION_HOLD_REGISTERED;
			return 0;
		}
		snprintf(why, sizeof(why), "io_uring registration: %s; ", strerrordesc_np(-ret));
		if (want == PINION_HOLD_REGISTERED)
			return fail(-ret, "io_uring registration of %llu bytes: %s; RLIMIT_MEMLOCK is %lld bytes (ulimit -l)",
				    (unsigned long long)pages->bytes, strerrordesc_np(-ret), (long long)memlock_limit());
	}
	if (!mlock(addr, pages->bytes)) {
		pages->hold = PINION_HOLD_LOCKED;
		snprintf(pages->hold_why, sizeof(pages->hold_why), "%s%s", why, *why ? "locked instead" : "asked for");
		return 0;
	}
	err = errno;
	snprintf(pages->hold_why, sizeof(pages->hold_why), "%smlock: %s (RLIMIT_MEMLOCK is %llu KiB, need %llu KiB; ulimit -l)", why,
		 strerrordesc_np(err), (unsigned long long)memlock_limit() / 1024, (unsigned long long)pages->bytes / 1024);
	return want == PINION_HOLD_LOCKED ? fail(err, "%s", pages->hold_why) : 0;
}
