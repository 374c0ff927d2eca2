/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <machine/mapping.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define MIB  (UINT64_C(1) << 20)
#define HUGE (2 * MIB)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* From now on this process has no ioctl(), so nothing but smaps tells. */
static void refuse_ioctl(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(program) / sizeof(program[0]), program };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0), 0);
}

/* Room that begins on a huge page, between two pages that cannot be touched: a mapping of its own. */
static char *room(uint64_t bytes)
{
	char *all = mmap(NULL, bytes + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at = (char *)(((uintptr_t)all + HUGE) & ~(HUGE - 1));

	ck_assert_ptr_ne(all, MAP_FAILED);
	ck_assert_ptr_eq(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at);
	return at;
}

/* False: this machine has no transparent huge pages to give now. */
static bool make_huge(char *at, uint64_t bytes)
{
	ck_assert_int_eq(madvise(at, bytes, MADV_HUGEPAGE), 0);
	ck_assert_int_eq(madvise(at, bytes, MADV_POPULATE_WRITE), 0);
	return mapping_huge_bytes(at, bytes) == bytes;
}

/* A page of 4 KiB in every other huge page, so that there are more ranges than one answer of the kernel holds. */
START_TEST(huge_pages_are_told_from_small_ones)
{
	const uint64_t bytes = 40 * HUGE;
	char *at = room(bytes);

	ck_assert_uint_eq(mapping_huge_bytes(at, bytes), 0);
	if (!make_huge(at, bytes))
		SKIP("no transparent huge pages here");
	for (uint64_t off = 0; off < bytes; off += 2 * HUGE)
		ck_assert_int_eq(madvise(at + off + HUGE / 2, 4096, MADV_DONTNEED), 0);
	ck_assert_uint_eq(mapping_huge_bytes(at, bytes), bytes / 2);
	ck_assert_uint_eq(mapping_huge_bytes(at + HUGE, HUGE), HUGE);
	ck_assert_uint_eq(mapping_huge_bytes(at, HUGE), 0);
	refuse_ioctl();
	ck_assert_uint_eq(mapping_huge_bytes(at, bytes), bytes / 2);
}
END_TEST

START_TEST(small_pages_are_none)
{
	const uint64_t bytes = 2 * HUGE;
	char *at = room(bytes);

	ck_assert_int_eq(madvise(at, bytes, MADV_NOHUGEPAGE), 0);
	ck_assert_int_eq(madvise(at, bytes, MADV_POPULATE_WRITE), 0);
	ck_assert_uint_eq(mapping_huge_bytes(at, bytes), 0);
	ck_assert_uint_eq(mapping_huge_bytes(at, 0), 0);
	refuse_ioctl();
	ck_assert_uint_eq(mapping_huge_bytes(at, bytes), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("mapping");
	TCase *c = tcase_create("huge");

	tcase_add_test(c, huge_pages_are_told_from_small_ones);
	tcase_add_test(c, small_pages_are_none);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
