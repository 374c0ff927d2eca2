/* SPDX-License-Identifier: MIT */
/*
 * counter claim: reservations on the memfd ground. A claim is a row of the counter file and a lock on one byte of it that
 * an open file description holds (an OFD lock). Descriptors of that description are the claim: duplicated, inherited or
 * passed on they hold it, and the kernel drops the lock with the last of them. A row whose byte nobody locks is free.
 */
#include "counter_file.h"

#include "../advice.h"
#include "../error.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static off_t row_offset(uint32_t k)
{
	return offsetof(struct counter_file, claim) + k * sizeof(struct counter_claim);
}

/* Whether a description other than that of @fd holds the byte of row @k. */
static bool is_held_besides(int fd, uint32_t k)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = row_offset(k), .l_len = 1 };

	return fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

/* Whether any does. The context's own descriptor holds none, so it may ask. */
static bool is_held(const struct counts *c, uint32_t k)
{
	return is_held_besides(c->fd, k);
}

static void add_row(struct claims_sum *sum, const struct counter_claim *row)
{
	sum->count++;
	sum->exclusive |= row->exclusive;
	sum->bytes += row->bytes;
	sum->units += row->units;
	if (row->bytes >= sum->most) {
		sum->most = row->bytes;
		sum->most_pid = row->pid;
	}
}

/*
 * Under head.lock: sums the claims on the device, clears rows of it that nobody holds, and finds a free one, COUNTER_CLAIMS:
 * none. That a killed maker has left us the lock says nothing of its descriptors: the kernel gives robust locks on first and
 * closes files later. So a row is free when nobody holds its byte, and not when it says that it is no claim, or lies behind those
 * that were ever used.
 */
static void look(struct counts *c, const struct counts_device *dev, struct claims_sum *sum, uint32_t *free_row)
{
	struct counter_file *f = c->file;

	*sum = (struct claims_sum){ 0 };
	*free_row = COUNTER_CLAIMS;
	for (uint32_t k = 0; k < COUNTER_CLAIMS; k++) {
		bool used = k < f->head.claims_used, ours = used && f->claim[k].generation == dev->generation;

		if (!ours && *free_row < COUNTER_CLAIMS) {
			if (!used)
				break;
			continue;
		}
		if (!is_held(c, k)) {
			if (used)
				__atomic_store_n(&f->claim[k].generation, 0, __ATOMIC_RELAXED);
			*free_row = k < *free_row ? k : *free_row;
		} else if (ours) {
			add_row(sum, &f->claim[k]);
		}
	}
}

static int fail_room(const char *key, const struct claims_sum *sum, const struct counter_claim *want, uint64_t budget)
{
	char most[80] = "";

	if (sum->most)
		snprintf(most, sizeof(most), "; the largest claim, %llu, is of process %d", (unsigned long long)sum->most, sum->most_pid);
	return fail_advise(ENOSPC, PINION_ADVICE_DEVICE_ROOM, NULL, "'%s' has %llu of %llu bytes left, %llu are asked for%s", key,
			   (unsigned long long)(budget > sum->bytes ? budget - sum->bytes : 0), (unsigned long long)budget,
			   (unsigned long long)want->bytes, most);
}

static int check(const struct counts_device *dev, const struct claims_sum *sum, const struct counter_claim *want, uint64_t budget,
		 uint32_t capacity)
{
	struct counter_key key = counter_key(dev->entry);

	if (sum->exclusive)
		return fail_advise(EBUSY, PINION_ADVICE_DEVICE_BUSY, NULL, "'%s' is held exclusively by process %d", key.s,
				   sum->most_pid);
	if (want->exclusive && sum->count)
		return fail_advise(EBUSY, PINION_ADVICE_DEVICE_BUSY, NULL,
				   "'%s' cannot be had exclusively: %u claims stand, the largest of process %d", key.s,
				   sum->count, sum->most_pid);
	if (want->bytes > budget || sum->bytes > budget - want->bytes)
		return fail_room(key.s, sum, want, budget);
	if (want->units > capacity || sum->units > capacity - want->units)
		return fail_advise(ENOSPC, PINION_ADVICE_DEVICE_ROOM, NULL, "'%s' has %llu of %u units left, %u are asked for",
				   key.s, (unsigned long long)(capacity > sum->units ? capacity - sum->units : 0), capacity,
				   want->units);
	return 0;
}

/* A description of its own, for a claim. */
static int open_description(const struct counts *c)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", c->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? fail_errno(errno, "opening the counter file for a claim") : fd;
}

/* Has @fd hold row @k, placed at it, which is how whoever receives it knows which. */
static int hold(int fd, uint32_t k)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = row_offset(k), .l_len = 1 };

	if (fcntl(fd, F_OFD_SETLK, &lock) || lseek(fd, row_offset(k), SEEK_SET) < 0)
		return fail_errno(errno, "locking a claim");
	return 0;
}

/* The generation goes first and comes last, so that a reader never takes one claim's figures for another's. */
static void write_row(struct counter_claim *claim, const struct counter_claim *want)
{
	__atomic_store_n(&claim->generation, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&claim->bytes, want->bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&claim->units, want->units, __ATOMIC_RELAXED);
	__atomic_store_n(&claim->exclusive, want->exclusive, __ATOMIC_RELAXED);
	__atomic_store_n(&claim->device, want->device, __ATOMIC_RELAXED);
	__atomic_store_n(&claim->pid, want->pid, __ATOMIC_RELAXED);
	__atomic_store_n(&claim->generation, want->generation, __ATOMIC_RELEASE);
}

/*
 * Under head.lock, around the writing of a row, so that who summed without it does so again. A maker that dies in between
 * leaves it odd, and then no sum is kept for long.
 */
static void say_making(const struct counts_device *dev)
{
	__atomic_store_n(&dev->entry->claims, (dev->entry->claims + 1) | 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void say_made(const struct counts_device *dev)
{
	__atomic_store_n(&dev->entry->claims, dev->entry->claims + 1, __ATOMIC_RELEASE);
}

/* Under head.lock. Rows that are passed over because they are held count as used from then on, and say that they are no claim. */
static int take_row(struct counts *c, int fd, uint32_t k, const struct counter_claim *want)
{
	struct counter_file *f = c->file;
	uint32_t used = f->head.claims_used;
	int ret = 0;

	if (k == COUNTER_CLAIMS)
		return fail_advise(EAGAIN, PINION_ADVICE_CLAIMS, NULL, "%u claims stand, as many as the table holds",
				   COUNTER_CLAIMS);
	if (k >= used)
		ret = counter_room(c, &f->claim[used], (k + 1 - used) * sizeof(f->claim[k]));
	if (!ret)
		ret = hold(fd, k);
	if (ret)
		return ret;
	for (uint32_t passed = used; passed < k; passed++)
		__atomic_store_n(&f->claim[passed].generation, 0, __ATOMIC_RELAXED);
	write_row(&f->claim[k], want);
	if (k >= used)
		__atomic_store_n(&f->head.claims_used, k + 1, __ATOMIC_RELEASE);
	return 0;
}

/* Under head.lock. */
static int make_claim(struct counts *c, int fd, const struct counts_device *dev, const struct counter_claim *want,
		      uint64_t budget, uint32_t capacity)
{
	struct claims_sum sum;
	uint32_t k;
	int ret;

	if (!counts_device_current(dev))
		return fail(ESTALE, "the device with generation %llu was removed; find it again by its key",
			    (unsigned long long)dev->generation);
	look(c, dev, &sum, &k);
	ret = check(dev, &sum, want, budget, capacity);
	if (ret)
		return ret;
	say_making(dev);
	ret = take_row(c, fd, k, want);
	say_made(dev);
	counter_note_use(c, dev->entry);
	return ret;
}

int counts_reserve(struct counts *c, const struct counts_device *dev, const struct counter_claim *want, uint64_t budget,
		   uint32_t capacity)
{
	int ret, fd = open_description(c);

	if (fd < 0)
		return fd;
	ret = counter_lock(c);
	if (!ret) {
		ret = make_claim(c, fd, dev, want, budget, capacity);
		counter_unlock(c);
	}
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/* Row @k as it stands; false when it does not, or changed while it was read. */
static bool read_row(const struct counts *c, uint32_t k, uint64_t generation, struct counter_claim *row)
{
	const struct counter_claim *claim = &c->file->claim[k];

	if (__atomic_load_n(&claim->generation, __ATOMIC_ACQUIRE) != generation || !is_held(c, k))
		return false;
	row->bytes = __atomic_load_n(&claim->bytes, __ATOMIC_RELAXED);
	row->units = __atomic_load_n(&claim->units, __ATOMIC_RELAXED);
	row->exclusive = __atomic_load_n(&claim->exclusive, __ATOMIC_RELAXED);
	row->pid = __atomic_load_n(&claim->pid, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&claim->generation, __ATOMIC_RELAXED) == generation;
}

bool counts_is_claimed(const struct counts *c, uint64_t generation)
{
	for (uint32_t k = 0; k < c->file->head.claims_used && k < COUNTER_CLAIMS; k++)
		if (c->file->claim[k].generation == generation && is_held(c, k))
			return true;
	return false;
}

/* Rows one after the other: what is made behind the walk and given up before it is not there at all. */
static void walk_rows(struct counts *c, const struct counts_device *dev, struct claims_sum *sum)
{
	uint32_t used = __atomic_load_n(&c->file->head.claims_used, __ATOMIC_ACQUIRE);
	struct counter_claim row;

	*sum = (struct claims_sum){ 0 };
	for (uint32_t k = 0; k < used && k < COUNTER_CLAIMS; k++)
		if (read_row(c, k, dev->generation, &row))
			add_row(sum, &row);
}

/*
 * Without the lock, which a process that is stopped may hold: who only looks waits for nobody. While no claim is made the
 * sum is one that stood. Where claims are made without a pause it is, after some walks, the last one's.
 */
void counts_claims(struct counts *c, const struct counts_device *dev, struct claims_sum *sum)
{
	uint32_t made;

	for (int walks = 0; walks < 64; walks++) {
		made = __atomic_load_n(&dev->entry->claims, __ATOMIC_ACQUIRE);
		walk_rows(c, dev, sum);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&dev->entry->claims, __ATOMIC_RELAXED) == made)
			break;
	}
}

/* ---- kept ---------------------------------------------------------------------------------------------------------- */

uint32_t counts_given_up;

void counts_claim_close(int fd)
{
	close(fd);
	__atomic_fetch_add(&counts_given_up, 1, __ATOMIC_RELEASE);
}

/* Differs about every 8 ms, or as often as the coarse clock moves; never 0. */
static uint32_t moment_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint32_t)((ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec) >> 23) | 1u << 31;
}

static void keep(struct claims_kept *kept, uint64_t of, uint64_t bytes)
{
	if (__atomic_exchange_n(&kept->busy, 1, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&kept->of, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&kept->bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&kept->of, of, __ATOMIC_RELEASE);
	__atomic_store_n(&kept->busy, 0, __ATOMIC_RELEASE);
}

/* While a claim is being made, by a process that may have died over it, that there is none is only as good as the clock says. */
uint64_t counts_claimed_some(struct counts *c, const struct counts_device *dev, struct claims_kept *kept, struct claims_now *now)
{
	uint32_t changes = claims_changes(dev, now);
	struct claims_sum sum;

	if (!now->moment) {
		now->moment = moment_now();
		return counts_claimed(c, dev, kept, now);
	}
	counts_claims(c, dev, &sum);
	if (sum.bytes || (changes - now->given_up) & 1)
		keep(kept, (uint64_t)changes << 32 | now->moment, sum.bytes);
	else
		__atomic_store_n(&kept->none, changes + 1, __ATOMIC_RELEASE);
	return sum.bytes;
}

int counts_claim_of(struct counts *c, int fd, struct counter_claim *claim)
{
	off_t first = row_offset(0), at = lseek(fd, 0, SEEK_CUR);
	struct stat ours, theirs;
	uint32_t k;
	int ret;

	if (at < 0 || fstat(c->fd, &ours) || fstat(fd, &theirs) || ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino)
		return fail(EINVAL, "descriptor %d is no claim of this runtime directory", fd);
	k = (at - first) / sizeof(struct counter_claim);
	if (at < first || (at - first) % sizeof(struct counter_claim) || k >= COUNTER_CLAIMS)
		return fail(EINVAL, "descriptor %d is no claim", fd);
	ret = counter_lock(c);
	if (ret)
		return ret;
	/* By this very one: a descriptor of the file that is only placed there would leave the claim to its true holder. */
	if (k >= c->file->head.claims_used || !is_held(c, k) || is_held_besides(fd, k))
		claim->generation = 0;
	else
		*claim = c->file->claim[k];
	counter_unlock(c);
	return claim->generation ? 0 : fail(EINVAL, "descriptor %d is no claim that stands", fd);
}
