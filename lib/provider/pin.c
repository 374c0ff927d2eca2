/* SPDX-License-Identifier: MIT */
#include "pin.h"

#include "../fork.h"
#include "../machine/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#define PARTS_MAX 16384 /* IORING_MAX_REG_BUFFERS */

/* ---- shares -------------------------------------------------------------------------------------------------------- */

/*
 * Guards which rings share in which pin. It is held for no call of the kernel's, because a free, a stream's first use of a buffer
 * and every fork wait for it, and a ring may be long in leaving: up to Linux 6.12 the kernel waits for what the ring has in
 * flight.
 */
static pthread_mutex_t shares_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

/* Who waits is a thread of the parent. */
static void renew(void)
{
	ended = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

DEFINE_WATCH_FORKS_AND(shares_lock, renew)

static void lock_shares(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&shares_lock);
}

static void link_share(struct pin *pin, struct pin_share *share)
{
	share->next = pin->shares;
	share->at = &pin->shares;
	if (share->next)
		share->next->at = &share->next;
	pin->shares = share;
}

static void unlink_share(struct pin_share *share)
{
	if (!share->at)
		return;
	*share->at = share->next;
	if (share->next)
		share->next->at = share->at;
	share->at = NULL;
}

/* Under the lock, which is given back meanwhile: until no thread is in the share's end(). */
static void wait_for_end(const struct pin_share *share)
{
	while (share->ending)
		pthread_cond_wait(&ended, &shares_lock);
}

int pin_join(struct pin *pin, const struct process_mark *mark, struct pin_share *share)
{
	int ret = 0;

	lock_shares();
	wait_for_end(share);
	/* What a child inherits has the parent's rings in its list, and the kernel lets no other process share. */
	if (pin->mark.now && !process_is_maker(&pin->mark)) {
		ret = -EXDEV;
	} else {
		pin->mark = *mark;
		link_share(pin, share);
	}
	pthread_mutex_unlock(&shares_lock);
	return ret;
}

void pin_leave(struct pin_share *share)
{
	lock_shares();
	wait_for_end(share);
	unlink_share(share);
	pthread_mutex_unlock(&shares_lock);
}

/* In a forked child the rings are the parent's. */
static void end_shares(struct pin *pin)
{
	struct pin_share *share;

	if (!pin->mark.now || !process_is_maker(&pin->mark))
		return;
	lock_shares();
	while ((share = pin->shares)) {
		unlink_share(share);
		share->ending = true;
		pthread_mutex_unlock(&shares_lock);
		share->end(share);
		lock_shares();
		share->ending = false;
		pthread_cond_broadcast(&ended);
	}
	pthread_mutex_unlock(&shares_lock);
}

/* ---- the pin ------------------------------------------------------------------------------------------------------- */

static int register_parts(struct io_uring *ring, char *addr, uint64_t bytes, bool patient)
{
	uint64_t n = (bytes + PIN_PART - 1) / PIN_PART;
	struct iovec *iov;
	int ret;

	if (n > PARTS_MAX)
		return -E2BIG;
	iov = calloc(n, sizeof(*iov));
	if (!iov)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		iov[i].iov_base = addr + i * PIN_PART;
		iov[i].iov_len = i + 1 < n ? PIN_PART : bytes - i * PIN_PART;
	}
	ret = patient ? ring_register(ring, iov, n) : io_uring_register_buffers(ring, iov, n);
	free(iov);
	return ret;
}

int pin_new(void *addr, uint64_t bytes, bool patient, struct pin **out)
{
	struct pin *pin = calloc(1, sizeof(*pin));
	struct io_uring ring;
	int ret;

	if (!pin)
		return -ENOMEM;
	*pin = (struct pin){ .refs = 1, .addr = addr, .bytes = bytes };
	ret = patient ? ring_open(1, &ring) : io_uring_queue_init(1, &ring, 0);
	if (ret)
		goto out;
	ret = register_parts(&ring, addr, bytes, patient);
	pin->fd = ret ? -1 : fcntl(ring.ring_fd, F_DUPFD_CLOEXEC, 0);
	if (!ret && pin->fd < 0)
		ret = -errno;
	io_uring_queue_exit(&ring);
out:
	if (ret)
		free(pin);
	else
		*out = pin;
	return ret;
}

struct pin *pin_ref(struct pin *pin)
{
	if (pin)
		__atomic_add_fetch(&pin->refs, 1, __ATOMIC_RELAXED);
	return pin;
}

void pin_unref(struct pin *pin)
{
	if (!pin || __atomic_sub_fetch(&pin->refs, 1, __ATOMIC_ACQ_REL))
		return;
	end_shares(pin);
	close(pin->fd);
	free(pin);
}

void pin_let_out(struct pin *pin)
{
	if (pin)
		__atomic_store_n(&pin->let_out, true, __ATOMIC_RELAXED);
}

bool pin_is_let_out(const struct pin *pin)
{
	return __atomic_load_n(&pin->let_out, __ATOMIC_RELAXED);
}
