/* SPDX-License-Identifier: MIT */
/*
 * Each allocation of a walk over the public API fails once, one after the other, whoever makes it: the library, jansson, the C
 * library. The error has a name and a sentence, nothing stays open, mapped, allocated or counted, and the next walk succeeds.
 * malloc() and its like, and mmap(), are replaced below.
 */
#include "harness.h"
#include "sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/context.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Beneath the replaced ones are the C library's own. A sanitizer's cannot be replaced: there the linker has the library's calls
 * come here (--wrap), and those that the C library makes itself do not.
 */
#if SANITIZED
#define ABOVE(name)   __wrap_##name
#define BENEATH(name) __real_##name
int __lsan_do_recoverable_leak_check(void);
void *ABOVE(malloc)(size_t size);
void *ABOVE(calloc)(size_t n, size_t size);
void *ABOVE(realloc)(void *p, size_t size);
void *ABOVE(aligned_alloc)(size_t align, size_t size);
int ABOVE(posix_memalign)(void **out, size_t align, size_t size);
void ABOVE(free)(void *p);
void *ABOVE(mmap64)(void *addr, size_t len, int prot, int flags, int fd, off_t off);
#else
#define ABOVE(name)   name
#define BENEATH(name) __libc_##name
#endif
void *BENEATH(malloc)(size_t size);
void *BENEATH(calloc)(size_t n, size_t size);
void *BENEATH(realloc)(void *p, size_t size);
void BENEATH(free)(void *p);
#if SANITIZED
void *BENEATH(aligned_alloc)(size_t align, size_t size);
#else
void *BENEATH(memalign)(size_t align, size_t size);
#endif

static void *aligned(size_t align, size_t size)
{
#if SANITIZED
	return BENEATH(aligned_alloc)(align, size);
#else
	return BENEATH(memalign)(align, size);
#endif
}

static atomic_bool armed;
static atomic_uint calls;
static atomic_int living; /* what was allocated and not freed */
static unsigned int failing;

static bool fails(void)
{
	return atomic_load(&armed) && atomic_fetch_add(&calls, 1) + 1 == failing;
}

static void *lives(void *p)
{
	atomic_fetch_add(&living, p != NULL);
	return p;
}

static void *refuse(void)
{
	errno = ENOMEM;
	return NULL;
}

void *ABOVE(malloc)(size_t size)
{
	return fails() ? refuse() : lives(BENEATH(malloc)(size));
}

void *ABOVE(calloc)(size_t n, size_t size)
{
	return fails() ? refuse() : lives(BENEATH(calloc)(n, size));
}

/* A size of 0 frees, and is nothing that the library asks for. */
void *ABOVE(realloc)(void *p, size_t size)
{
	void *q;

	if (fails())
		return refuse();
	q = BENEATH(realloc)(p, size);
	atomic_fetch_add(&living, (q && !p) - (p && !q && !size));
	return q;
}

void *ABOVE(aligned_alloc)(size_t align, size_t size)
{
	return fails() ? refuse() : lives(aligned(align, size));
}

int ABOVE(posix_memalign)(void **out, size_t align, size_t size)
{
	void *p = fails() ? NULL : lives(aligned(align, size));

	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}

void ABOVE(free)(void *p)
{
	atomic_fetch_sub(&living, p != NULL);
	BENEATH(free)(p);
}

void *ABOVE(mmap64)(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	if (fails()) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

/* ---- the sweep ----------------------------------------------------------------------------------------------------- */

static int walk(struct sweep_walk *w, unsigned int nth)
{
	failing = nth;
	atomic_store(&calls, 0);
	atomic_store(&armed, true);
	sweep_walk(w);
	atomic_store(&armed, false);
	return w->ret;
}

static void same(const struct sweep_tally *was, const char *when, unsigned int nth, const struct sweep_walk *w)
{
	struct sweep_tally is = sweep_tally();

	ck_assert_msg(is.fds == was->fds, "%s %u (%s: %s): %u descriptors, %u before", when, nth, w->step, w->why, is.fds,
		      was->fds);
	ck_assert_msg(is.maps == was->maps, "%s %u (%s: %s): %u maps, %u before", when, nth, w->step, w->why, is.maps, was->maps);
	ck_assert_msg(is.files == was->files, "%s %u (%s: %s): %u files, %u before", when, nth, w->step, w->why, is.files,
		      was->files);
}

/* How many more live than @before. Where there was no memory for a ring, a worker did its work, which stays two seconds for more. */
static int left(int before)
{
	for (int i = 0; i < 3000 && atomic_load(&living) != before; i++)
		usleep(10000);
	return atomic_load(&living) - before;
}

START_TEST(each_allocation_fails_once)
{
	unsigned int nth, refused = 0, survived = 0;
	struct sweep_tally was;
	struct sweep_walk w;
	int before;

	sweep_prepare();
	/* What the C library makes once, and the counter file, are there from the first walk on. */
	for (int i = 0; i < 2; i++)
		ck_assert_msg(walk(&w, 0) == 0, "%s: %d (%s)", w.step, w.ret, w.why);
	was = sweep_tally();
	for (nth = 1;; nth++) {
		const char *bad;

		before = atomic_load(&living);
		walk(&w, nth);
		if (atomic_load(&calls) < nth)
			break;
		bad = w.ret ? sweep_judge(&w) : NULL;
		ck_assert_msg(!bad, "allocation %u, %s: %d (%s): %s", nth, w.step, w.ret, w.why, bad);
		refused += w.ret != 0;
		survived += w.ret == 0;
		same(&was, "after allocation", nth, &w);
		if (getenv("PINION_SWEEP_SHOW"))
			printf("%u: %s %d %s\n", nth, w.step ? w.step : "-", w.ret, w.why);
		ck_assert_msg(walk(&w, 0) == 0, "the walk after allocation %u, %s: %d (%s)", nth, w.step, w.ret, w.why);
		same(&was, "the walk after allocation", nth, &w);
		/* A thread forgets its lanes of a context that is closed when it counts in the next one. */
		ck_assert_msg(SANITIZED || !left(before), "%d of them are left after allocation %u", left(before), nth);
	}
	ck_assert_int_eq(w.ret, 0);
#if SANITIZED
	ck_assert_int_eq(__lsan_do_recoverable_leak_check(), 0);
#endif
	printf("%u allocations: %u refused, %u done without\n", nth - 1, refused, survived);
	ck_assert_uint_gt(refused, 20);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("sweep_memory");
	TCase *tc = tcase_create("sweep");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, each_allocation_fails_once);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(suite)
