/* SPDX-License-Identifier: MIT */
/*
 * storage sequence: readers see whole writes without a lock.
 *
 * Writer: sequence odd; release fence; elements; sequence even with release. Reader: sequence with acquire; elements;
 * acquire fence; sequence again, and begin anew if it is another. If an element came from a write, the reader's fence
 * pairs with that write's: the reader then sees that write's odd sequence, or a later one.
 */
#include "../deadline.h"
#include "../error.h"
#include "storage_header.h"
#include "storage_writer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pinion/context.h>
#include <string.h>
#include <time.h>

#define SPINS 64u
#define NAP_MAX_US 1000u

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

struct patience {
	int64_t deadline_ns;
	unsigned int spins;
	unsigned int nap_us;
};

/* Whether it is time for a look that takes system calls: naps are long by now, or there will be no other. */
static bool look_closer(const struct patience *p)
{
	return p->nap_us >= NAP_MAX_US || deadline_now() >= p->deadline_ns;
}

/* Waits a moment; false when the deadline is over. */
static bool wait_more(struct patience *p)
{
	int64_t now = deadline_now(), left;
	struct timespec nap = { 0 };

	if (now >= p->deadline_ns)
		return false;
	left = p->deadline_ns - now;
	if (p->spins < SPINS) {
		p->spins++;
		return true;
	}
	p->nap_us = p->nap_us ? p->nap_us * 2 : 16;
	if (p->nap_us > NAP_MAX_US)
		p->nap_us = NAP_MAX_US;
	nap.tv_nsec = p->nap_us * 1000 < left ? p->nap_us * 1000 : left;
	nanosleep(&nap, NULL);
	return true;
}

static int need_header(const struct pinion_storage *st)
{
	if (st->header)
		return 0;
	return fail(EOPNOTSUPP, "the storage has no header, so that there is no sequence: %s", st->ops->name);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool is_known(const struct storage_writer *writer)
{
	return writer->known && process_is_maker(&writer->mark);
}

/* False in a forked child, whose copy says what its parent does. */
static bool is_inside(const struct pinion_storage *st)
{
	return st->writer.inside && is_known(&st->writer);
}

static int know_self(struct storage_writer *writer)
{
	int ret;

	if (is_known(writer))
		return 0;
	writer->known = writer->inside = false;
	ret = process_mark(&writer->mark);
	if (ret)
		return ret;
	writer->self = writer_self();
	writer->known = true;
	return 0;
}

/* Changes the place from @was, or says in it who has it. */
static bool take_place(uint64_t *place, uint64_t *was, uint64_t self)
{
	return __atomic_compare_exchange_n(place, was, self, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Makes this object the one writer. */
static int enter(struct pinion_storage *st, int64_t deadline_ns)
{
	struct patience patience = { .deadline_ns = deadline_ns };
	uint64_t *place = &st->header->writer;

	for (;;) {
		uint64_t other = 0;

		if (take_place(place, &other, st->writer.self))
			return 0;
		if (look_closer(&patience) && writer_is_dead(other) && take_place(place, &other, st->writer.self))
			return 0;
		if (!wait_more(&patience))
			return fail(ETIMEDOUT, "process %" PRId32 " is writing to the storage", writer_pid(other));
	}
}

PINION_API int pinion_storage_write_begin(struct pinion_storage *st, int64_t deadline_ns, bool *torn)
{
	uint64_t sequence;
	int ret;

	assert(st);
	ret = need_header(st);
	if (ret)
		return ret;
	if (!(st->rights & PINION_WRITE))
		return fail(EPERM, "the storage is read-only: %s", st->ops->name);
	if (is_inside(st))
		return fail(EBUSY, "a write through this storage has begun already");
	ret = know_self(&st->writer);
	if (!ret)
		ret = enter(st, deadline_ns);
	if (ret)
		return ret;
	sequence = __atomic_load_n(&st->header->sequence, __ATOMIC_RELAXED);
	if (torn)
		*torn = sequence & 1;
	/* Odd already: no reader uses what the dead writer left, nor what is now written over it. */
	st->writer.sequence = sequence | 1;
	__atomic_store_n(&st->header->sequence, st->writer.sequence, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	st->writer.inside = true;
	return 0;
}

PINION_API int pinion_storage_write_end(struct pinion_storage *st)
{
	assert(st);
	if (!st->writer.inside)
		return fail(EINVAL, "no write through this storage has begun");
	if (!is_inside(st))
		return fail(EOWNERDEAD, "the write was begun by process %" PRId32 "; a forked child cannot end it",
			    writer_pid(st->writer.self));
	__atomic_store_n(&st->header->sequence, st->writer.sequence + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&st->header->writer, 0, __ATOMIC_RELEASE);
	st->writer.inside = false;
	return 0;
}

void storage_leave(struct pinion_storage *st)
{
	if (is_inside(st))
		__atomic_store_n(&st->header->writer, 0, __ATOMIC_RELEASE);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Whether nobody is going to end the write of the odd @sequence. A writer leaves its place after it made it even. */
static bool is_abandoned(const struct storage_header *header, uint64_t sequence)
{
	uint64_t writer = __atomic_load_n(&header->writer, __ATOMIC_ACQUIRE);

	if (writer && !writer_is_dead(writer))
		return false;
	return __atomic_load_n(&header->sequence, __ATOMIC_ACQUIRE) == sequence &&
	       __atomic_load_n(&header->writer, __ATOMIC_ACQUIRE) == writer;
}

PINION_API int pinion_storage_read_begin(const struct pinion_storage *st, int64_t deadline_ns, uint64_t *sequence)
{
	struct patience patience = { .deadline_ns = deadline_ns };
	int ret;

	assert(st);
	ret = need_header(st);
	while (!ret) {
		uint64_t now = __atomic_load_n(&st->header->sequence, __ATOMIC_ACQUIRE);

		if (!(now & 1)) {
			*sequence = now;
			return 0;
		}
		if (look_closer(&patience) && is_abandoned(st->header, now))
			ret = fail(EOWNERDEAD, "the last writer died inside a write; another has to write first");
		else if (!wait_more(&patience))
			ret = fail(ETIMEDOUT, "process %" PRId32 " is writing to the storage",
				   writer_pid(__atomic_load_n(&st->header->writer, __ATOMIC_RELAXED)));
	}
	return ret;
}

PINION_API bool pinion_storage_read_retry(const struct pinion_storage *st, uint64_t sequence)
{
	assert(st && st->header);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&st->header->sequence, __ATOMIC_RELAXED) != sequence;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/*
 * Every access is to a whole aligned word, so that no two atomic accesses overlap in part. The room for elements ends
 * with a whole word.
 */
static void load_words(const char *data, uint64_t offset, char *dst, uint64_t bytes)
{
	const uint64_t *word = (const uint64_t *)data + offset / sizeof(*word);

	for (uint64_t skip = offset % sizeof(*word), part; bytes; bytes -= part, dst += part, skip = 0) {
		uint64_t value = __atomic_load_n(word++, __ATOMIC_RELAXED);

		part = sizeof(value) - skip < bytes ? sizeof(value) - skip : bytes;
		memcpy(dst, (const char *)&value + skip, part);
	}
}

/* One writer at a time, so that a word may be changed in part by reading and writing it. @src NULL: zeros. */
static void store_words(char *data, uint64_t offset, const char *src, uint64_t bytes)
{
	uint64_t *word = (uint64_t *)data + offset / sizeof(*word);

	for (uint64_t skip = offset % sizeof(*word), part; bytes; bytes -= part, skip = 0) {
		uint64_t value = __atomic_load_n(word, __ATOMIC_RELAXED);

		part = sizeof(value) - skip < bytes ? sizeof(value) - skip : bytes;
		if (src) {
			memcpy((char *)&value + skip, src, part);
			src += part;
		} else {
			memset((char *)&value + skip, 0, part);
		}
		__atomic_store_n(word++, value, __ATOMIC_RELAXED);
	}
}

static int check_range(const struct pinion_storage *st, uint64_t offset, uint64_t bytes)
{
	uint64_t end;

	if (__builtin_add_overflow(offset, bytes, &end) || end > st->layout.bytes)
		return fail(EINVAL, "out of bounds: %" PRIu64 " bytes from byte %" PRIu64 " on of %" PRIu64, bytes,
			    offset, st->layout.bytes);
	return 0;
}

PINION_API int pinion_storage_store(struct pinion_storage *st, uint64_t offset, const void *src, uint64_t bytes)
{
	int ret;

	assert(st);
	ret = need_header(st);
	if (!ret && !is_inside(st))
		ret = fail(EINVAL, "no write through this storage has begun");
	if (!ret)
		ret = check_range(st, offset, bytes);
	if (!ret && bytes)
		store_words(st->data, offset, src, bytes);
	return ret;
}

PINION_API int pinion_storage_load(const struct pinion_storage *st, uint64_t offset, void *dst, uint64_t bytes,
				   int64_t deadline_ns)
{
	uint64_t sequence;
	int ret;

	assert(st);
	ret = need_header(st);
	if (!ret)
		ret = check_range(st, offset, bytes);
	while (!ret) {
		ret = pinion_storage_read_begin(st, deadline_ns, &sequence);
		if (ret)
			break;
		load_words(st->data, offset, dst, bytes);
		if (!pinion_storage_read_retry(st, sequence))
			break;
		if (deadline_now() >= deadline_ns)
			ret = fail(ETIMEDOUT, "the storage was written to each time it was read");
	}
	return ret;
}

int storage_renew(struct pinion_storage *st)
{
	int ret = pinion_storage_write_begin(st, pinion_deadline_in(STORAGE_PATIENCE_NS), NULL);

	if (ret)
		return ret;
	store_words(st->data, 0, NULL, st->layout.bytes);
	__atomic_add_fetch(&st->header->generation, 1, __ATOMIC_RELAXED);
	return pinion_storage_write_end(st);
}
