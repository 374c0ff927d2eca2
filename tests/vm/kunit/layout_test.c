// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of kmod/layout.c: where page i of a storage lies. Everything is compared with a walk over the chunks one by one,
 * which is slow and cannot be wrong.
 */
#include <kunit/test.h>
#include <linux/module.h>

#include "layout.c"

#define HUGE (1UL << LAYOUT_HUGE_ORDER)
#define MIDDLE (1UL << LAYOUT_MIDDLE_ORDER)

static struct layout layout_of(unsigned long huge, unsigned long middle, unsigned long single)
{
	return (struct layout){ .chunks = { huge, middle, single } };
}

/* Walks every page of every chunk in order, and asks layout_find() for each: place, order, alignment. */
static void expect_all(struct kunit *test, const struct layout *l)
{
	unsigned long chunk = 0, index = 0, n, within;
	unsigned int kind;

	for (kind = 0; kind < LAYOUT_KINDS; kind++)
		for (n = 0; n < l->chunks[kind]; n++, chunk++) {
			unsigned int order = layout_order(kind);

			/* What the fault path's 2 MiB entries rest on. */
			KUNIT_ASSERT_EQ(test, index % (1UL << order), 0UL);
			for (within = 0; within < 1UL << order; within++, index++) {
				struct layout_place at = layout_find(l, index);

				KUNIT_ASSERT_EQ(test, at.chunk, chunk);
				KUNIT_ASSERT_EQ(test, at.within, within);
				KUNIT_ASSERT_EQ(test, at.order, order);
			}
		}
	KUNIT_ASSERT_EQ(test, layout_pages(l), index);
	KUNIT_ASSERT_EQ(test, layout_chunks(l), chunk);
}

/* ---- find ---------------------------------------------------------------------------------------------------------- */

static void every_small_layout(struct kunit *test)
{
	unsigned long huge, middle, single;

	for (huge = 0; huge < 3; huge++)
		for (middle = 0; middle < 4; middle++)
			for (single = 0; single < 18; single++) {
				struct layout l = layout_of(huge, middle, single);

				expect_all(test, &l);
			}
}

static void all_of_one_kind(struct kunit *test)
{
	struct layout huge = layout_of(33, 0, 0), middle = layout_of(0, 100, 0), single = layout_of(0, 0, 1000);

	expect_all(test, &huge);
	expect_all(test, &middle);
	expect_all(test, &single);
}

static void tails_of_every_length(struct kunit *test)
{
	unsigned long nr;

	/* One huge chunk and each tail below a second one, as an allocation that is never refused lays it out. */
	for (nr = HUGE; nr < 2 * HUGE; nr++) {
		unsigned long left = nr - HUGE;
		struct layout l = layout_of(1, left / MIDDLE, left % MIDDLE);
		struct layout_place last = layout_find(&l, nr - 1);

		KUNIT_ASSERT_EQ(test, layout_pages(&l), nr);
		KUNIT_ASSERT_EQ(test, last.chunk, layout_chunks(&l) - 1);
		KUNIT_ASSERT_EQ(test, last.within, (1UL << last.order) - 1);
	}
}

static void the_largest_buffer(struct kunit *test)
{
	/* As many huge chunks as a table of INT_MAX bytes has entries: nothing may wrap. */
	unsigned long huge = INT_MAX / sizeof(void *);
	struct layout l = layout_of(huge, 0, 5);
	struct layout_place at = layout_find(&l, layout_pages(&l) - 1);

	KUNIT_EXPECT_EQ(test, layout_pages(&l), huge * HUGE + 5);
	KUNIT_EXPECT_EQ(test, at.chunk, huge + 4);
	KUNIT_EXPECT_EQ(test, at.order, 0U);
	at = layout_find(&l, huge * HUGE - 1);
	KUNIT_EXPECT_EQ(test, at.chunk, huge - 1);
	KUNIT_EXPECT_EQ(test, at.within, HUGE - 1);
}

static void nothing_has_no_pages(struct kunit *test)
{
	struct layout l = layout_of(0, 0, 0);

	KUNIT_EXPECT_EQ(test, layout_pages(&l), 0UL);
	KUNIT_EXPECT_EQ(test, layout_chunks(&l), 0UL);
}

/* ---- kind ---------------------------------------------------------------------------------------------------------- */

static void the_largest_kind_that_fits(struct kunit *test)
{
	unsigned long left;

	for (left = 1; left < 3 * HUGE; left++) {
		unsigned int fits = left >= HUGE ? 0 : left >= MIDDLE ? 1 : 2, from;

		/* Never larger than where it was already: orders only fall. */
		for (from = 0; from < LAYOUT_KINDS; from++)
			KUNIT_ASSERT_EQ(test, layout_kind(from, left), max(from, fits));
	}
}

static void orders_fall(struct kunit *test)
{
	unsigned int kind;

	KUNIT_EXPECT_EQ(test, PAGE_SIZE << layout_order(0), PMD_SIZE);
	for (kind = 1; kind < LAYOUT_KINDS; kind++)
		KUNIT_EXPECT_LT(test, layout_order(kind), layout_order(kind - 1));
	KUNIT_EXPECT_EQ(test, layout_order(LAYOUT_KINDS - 1), 0U);
}

/* An allocation of @nr pages in which the allocator refuses the attempts whose bits are set in @refuse. */
static struct layout filled(unsigned long nr, unsigned long refuse)
{
	struct layout l = { };
	unsigned int kind = 0;
	unsigned long done = 0;

	while (done < nr) {
		kind = layout_kind(kind, nr - done);
		if (kind < LAYOUT_KINDS - 1 && refuse & 1) {
			kind++;
		} else {
			l.chunks[kind]++;
			done += 1UL << layout_order(kind);
		}
		refuse >>= 1;
	}
	return l;
}

static void whatever_is_refused_stays_aligned(struct kunit *test)
{
	static const unsigned long sizes[] = { 1, MIDDLE - 1, MIDDLE, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE, 3 * HUGE + MIDDLE + 1 };
	unsigned long refuse;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		for (refuse = 0; refuse < 64; refuse++) {
			struct layout l = filled(sizes[i], refuse);

			KUNIT_ASSERT_EQ(test, layout_pages(&l), sizes[i]);
			expect_all(test, &l);
		}
}

static struct kunit_case cases[] = {
	KUNIT_CASE(every_small_layout),
	KUNIT_CASE(all_of_one_kind),
	KUNIT_CASE(tails_of_every_length),
	KUNIT_CASE(the_largest_buffer),
	KUNIT_CASE(nothing_has_no_pages),
	KUNIT_CASE(the_largest_kind_that_fits),
	KUNIT_CASE(orders_fall),
	KUNIT_CASE(whatever_is_refused_stays_aligned),
	{}
};

static struct kunit_suite suite = {
	.name = "layout",
	.test_cases = cases,
};

kunit_test_suite(suite);

MODULE_DESCRIPTION("KUnit tests of pinion's pure parts");
MODULE_LICENSE("GPL");
