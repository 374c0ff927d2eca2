// SPDX-License-Identifier: GPL-2.0-only
#include "pages.h"

#include <linux/atomic.h>
#include <linux/cpuset.h>
#include <linux/freezer.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/nospec.h>
#include <linux/overflow.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "compat.h"
#include "fault.h"
#include "trace.h"

static atomic64_t next_id = ATOMIC64_INIT(0);
static atomic64_t poisoned_bytes = ATOMIC64_INIT(0);
static atomic64_t unwiped_bytes = ATOMIC64_INIT(0);

u64 pages_poisoned_bytes(void)
{
	return atomic64_read(&poisoned_bytes);
}

u64 pages_unwiped_bytes(void)
{
	return atomic64_read(&unwiped_bytes);
}

/* ---- life ---------------------------------------------------------------------------------------------------------- */

struct pages *pages_new(struct payer *payer, const struct pages_ops *ops, u64 bytes, unsigned long chunks, const char *name)
{
	struct pages *pages = fault_here() ? NULL : kzalloc(sizeof(*pages), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	int ret;

	if (!pages)
		return ERR_PTR(-ENOMEM);
	/* Before the first page is taken, and the array, which may be large too: what is refused disturbs nobody. */
	ret = payer_charge(payer, bytes, &pages->charge);
	if (ret)
		goto err_free;
	pages->chunk = fault_here() ? NULL : kvmalloc_array(chunks, sizeof(*pages->chunk), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	if (!pages->chunk) {
		ret = -ENOMEM;
		goto err_charge;
	}
	kref_init(&pages->refs);
	pages->ops = ops;
	pages->room = chunks;
	pages->id = atomic64_inc_return(&next_id);
	strscpy(pages->name, name, sizeof(pages->name));
	mutex_init(&pages->lock);
	INIT_LIST_HEAD(&pages->mappings);
	dma_resv_init(&pages->resv);
	return pages;

err_charge:
	payer_uncharge(&pages->charge);
err_free:
	kfree(pages);
	return ERR_PTR(ret);
}

static void pages_free(struct kref *refs)
{
	struct pages *pages = container_of(refs, struct pages, refs);

	WARN_ON_ONCE(!list_empty(&pages->mappings));
	trace_pinion_pages_free(pages);
	pages->ops->release(pages);
	payer_uncharge(&pages->charge);
	dma_resv_fini(&pages->resv);
	mutex_destroy(&pages->lock);
	kvfree(pages->chunk);
	kfree(pages);
}

struct pages *pages_get(struct pages *pages)
{
	kref_get(&pages->refs);
	return pages;
}

void pages_put(struct pages *pages)
{
	might_sleep();
	kref_put(&pages->refs, pages_free);
}

/* Room for @more chunks. The array is sized for the largest pages at first: 8 bytes for 2 MiB, not for 4 KiB. */
static int grow(struct pages *pages, unsigned long more)
{
	unsigned long used = layout_chunks(&pages->layout), room;
	struct page **chunk;

	if (check_add_overflow(used, more, &room))
		return -ENOMEM;
	chunk = fault_here() ? NULL : kvmalloc_array(room, sizeof(*chunk), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	if (!chunk)
		return -ENOMEM;
	memcpy(chunk, pages->chunk, used * sizeof(*chunk));
	kvfree(pages->chunk);
	pages->chunk = chunk;
	pages->room = room;
	return 0;
}

int pages_add(struct pages *pages, struct page *page, unsigned int kind)
{
	unsigned long used = layout_chunks(&pages->layout);

	if (WARN_ON_ONCE(used >= pages->room))
		return -EINVAL;
	pages->chunk[used] = page;
	pages->layout.chunks[kind]++;
	return 0;
}

int pages_pause(void)
{
	if (fatal_signal_pending(current))
		return -EINTR;
	cond_resched();
	try_to_freeze();
	return 0;
}

/* ---- allocation ---------------------------------------------------------------------------------------------------- */

static struct page *chunk_alloc(const struct pinion_alloc *args, unsigned int kind)
{
	gfp_t gfp = GFP_USER | __GFP_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
	unsigned int order = layout_order(kind);
	struct page *page;

	/* A smaller page will do unless the caller says no; the last resort tries hard and still never calls the killer. */
	if (!order || (args->flags & PINION_ALLOC_HUGE_REQUIRE))
		gfp |= __GFP_RETRY_MAYFAIL;
	else
		gfp |= __GFP_NORETRY;
	if (order)
		gfp |= __GFP_COMP;
	if (args->flags & PINION_ALLOC_NODE_STRICT)
		gfp |= __GFP_THISNODE;
	if (fault_here())
		return NULL;
	page = args->node == PINION_NODE_ANY ? alloc_pages(gfp, order) : alloc_pages_node(args->node, gfp, order);
	/* Whatever was there before; the fault path takes it for the place of the huge page in its file. */
	if (page)
		page->index = 0;
	return page;
}

static int fill(struct pages *pages, const struct pinion_alloc *args, unsigned long nr)
{
	unsigned int kind = args->flags & PINION_ALLOC_HUGE_NEVER ? 1 : 0;
	unsigned long done = 0;
	struct page *page;
	int ret;

	while (done < nr) {
		ret = pages_pause();
		if (ret)
			return ret;
		kind = layout_kind(kind, nr - done);
		if (layout_chunks(&pages->layout) == pages->room) {
			/* All that is left in this kind, and a tail of smaller ones. */
			ret = grow(pages, ((nr - done) >> layout_order(kind)) + 64);
			if (ret)
				return ret;
		}
		page = chunk_alloc(args, kind);
		if (!page) {
			if (kind == LAYOUT_KINDS - 1 || (kind == 0 && args->flags & PINION_ALLOC_HUGE_REQUIRE))
				return -ENOMEM;
			kind++;
			continue;
		}
		pages_add(pages, page, kind);
		done += 1UL << layout_order(kind);
	}
	return 0;
}

/* ---- release ------------------------------------------------------------------------------------------------------- */

static bool chunk_poisoned(struct page *page, unsigned int order)
{
	unsigned long i;

	for (i = 0; i < 1UL << order; i++)
		if (PageHWPoison(page + i))
			return true;
	return false;
}

static void chunk_wipe(struct page *page, unsigned int order)
{
	unsigned long i;

	/* Whoever else holds the page (a pin of io_uring, a pipe) may still read or write it. */
	if (page_count(page) != 1) {
		atomic64_add(PAGE_SIZE << order, &unwiped_bytes);
		return;
	}
	for (i = 0; i < 1UL << order; i++)
		clear_highpage(page + i);
}

static void chunks_release(struct pages *pages)
{
	unsigned long i = 0, n;
	unsigned int kind;

	for (kind = 0; kind < LAYOUT_KINDS; kind++) {
		unsigned int order = layout_order(kind);

		for (n = pages->layout.chunks[kind]; n; n--, i++) {
			struct page *page = pages->chunk[i];

			/* The reference stays: what has a broken part is never given out again, nor touched to wipe it. */
			if (unlikely(chunk_poisoned(page, order))) {
				atomic64_add(PAGE_SIZE << order, &poisoned_bytes);
				continue;
			}
			if (pages->flags & PINION_ALLOC_WIPE_ON_FREE)
				chunk_wipe(page, order);
			put_page(page);
			cond_resched();
		}
	}
}

static const struct pages_ops pages_own_ops = {
	.kind = PINION_KIND_PAGES,
	.release = chunks_release,
	.mappable = true,
};

/* ---- making -------------------------------------------------------------------------------------------------------- */

static int check_node(const struct pinion_alloc *args)
{
	int node;

	if (args->node == PINION_NODE_ANY)
		return args->flags & PINION_ALLOC_NODE_STRICT ? -EINVAL : 0;
	if (args->node < 0 || args->node >= MAX_NUMNODES)
		return -EINVAL;
	node = array_index_nospec(args->node, MAX_NUMNODES);
	if (!node_state(node, N_MEMORY))
		return -EINVAL;
	return node_isset(node, cpuset_current_mems_allowed) ? 0 : -EPERM;
}

static int check_alloc(const struct pinion_alloc *args, u64 *bytes)
{
	u64 huge = PAGE_SIZE << LAYOUT_HUGE_ORDER;
	int ret;

	if (args->flags & ~PINION_ALLOC_FLAGS || args->reserved || !args->bytes)
		return -EINVAL;
	if (args->flags & PINION_ALLOC_HUGE_REQUIRE && (args->flags & PINION_ALLOC_HUGE_NEVER || args->bytes % huge))
		return -EINVAL;
	if (args->flags & PINION_ALLOC_SHMEM && args->flags & (PINION_ALLOC_HUGE_REQUIRE | PINION_ALLOC_WIPE_ON_FREE))
		return -EINVAL;
	if (args->bytes > PINION_MAX_BUFFER_BYTES)
		return -EINVAL;
	*bytes = PAGE_ALIGN(args->bytes);
	ret = check_node(args);
	if (ret)
		return ret;
	/* The policy of a shmem file follows the task's; a node cannot be told it. */
	if (args->flags & PINION_ALLOC_SHMEM && (!COMPAT_NEEDS_SHMEM || args->node != PINION_NODE_ANY))
		return -EOPNOTSUPP;
	/* Where the limits were lifted: the machine need not be emptied to find that out. */
	return *bytes >> PAGE_SHIFT > totalram_pages() ? -ENOMEM : 0;
}

struct pages *pages_alloc(struct payer *payer, const struct pinion_alloc *args)
{
	struct pages *pages;
	u64 bytes;
	int ret;

	ret = check_alloc(args, &bytes);
	if (ret)
		return ERR_PTR(ret);
	if (args->flags & PINION_ALLOC_SHMEM)
		return pages_alloc_shmem(payer, args, bytes);
	pages = pages_new(payer, &pages_own_ops, bytes, (bytes >> (PAGE_SHIFT + LAYOUT_HUGE_ORDER)) + 64, args->name);
	if (IS_ERR(pages))
		return pages;
	pages->flags = args->flags;
	ret = fill(pages, args, bytes >> PAGE_SHIFT);
	if (ret) {
		pages_put(pages);
		return ERR_PTR(ret);
	}
	trace_pinion_pages_alloc(pages);
	return pages;
}

/* ---- looking ------------------------------------------------------------------------------------------------------- */

struct page *pages_page(const struct pages *pages, unsigned long index)
{
	struct layout_place at = layout_find(&pages->layout, index);

	return pages->chunk[at.chunk] + at.within;
}

u64 pages_huge_bytes(const struct pages *pages)
{
	return (u64)pages->layout.chunks[0] << (PAGE_SHIFT + LAYOUT_HUGE_ORDER);
}

void pages_nodes(const struct pages *pages, u64 *bytes, unsigned int nr)
{
	unsigned long i = 0, n;
	unsigned int kind;

	for (kind = 0; kind < LAYOUT_KINDS; kind++)
		for (n = pages->layout.chunks[kind]; n; n--, i++) {
			unsigned int node = page_to_nid(pages->chunk[i]);

			if (node < nr)
				bytes[node] += PAGE_SIZE << layout_order(kind);
			if (!(i & 4095))
				cond_resched();
		}
}

unsigned long pages_run(const struct pages *pages, unsigned long index, unsigned long end, unsigned long most,
			struct page **first)
{
	struct layout_place at = layout_find(&pages->layout, index);
	unsigned long run;

	most = min(most, end - index);
	*first = pages->chunk[at.chunk] + at.within;
	run = min((1UL << at.order) - at.within, most);
	/* Small chunks that happen to lie behind one another are one run. */
	if (at.order == LAYOUT_HUGE_ORDER)
		return run;
	while (run < most && pages_page(pages, index + run) == *first + run &&
	       page_to_pfn(pages_page(pages, index + run)) == page_to_pfn(*first) + run)
		run++;
	return run;
}
