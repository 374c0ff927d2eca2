/* SPDX-License-Identifier: MIT */
/*
 * kmod counts roster: the lanes of the module's devices as this user may see them. A device is in it when every session that
 * counts on it is the user's own and shows all it counts in its page; any other is left to a call (ROSTER_OVERFLOW).
 *
 * Pages of other sessions are mapped into places of one range of addresses, which is there for as long as the context is. A
 * thread may read by a roster that was just rebuilt under it: so a page that is no longer listed gives way to zeroes in one step,
 * its place is never empty.
 */
#include "kmod_counts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "counter_roster.h"
#include "kmod.h"

#define WINDOWS 1024u
#define PROBES	16u /* places that a session's page may be at, from its number's on */
/* Of all contexts of this process, two of the mappings each that it may have (vm.max_map_count); beyond them there are calls. */
#define WINDOWS_IN_ALL 4096u
#define WINDOW_BYTES   sizeof(struct pinion_counter_page)

struct kmod_windows {
	struct pinion_counter_page *page; /* of each place */
	uint64_t session[WINDOWS];	  /* 0: none */
	uint32_t seen[WINDOWS];		  /* the rebuilding that needed it last */
	uint32_t rebuilding;
};

static uint32_t windows_in_all;

/* ---- windows ------------------------------------------------------------------------------------------------------- */

static bool fill_with_zeroes(void *at, size_t bytes, int flags, void **out)
{
	void *p = mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

	if (p == MAP_FAILED)
		return false;
	madvise(p, bytes, MADV_DONTFORK);
	if (out)
		*out = p;
	return true;
}

static bool take_window(void)
{
	if (__atomic_add_fetch(&windows_in_all, 1, __ATOMIC_RELAXED) <= WINDOWS_IN_ALL)
		return true;
	__atomic_sub_fetch(&windows_in_all, 1, __ATOMIC_RELAXED);
	return false;
}

static void give_window(void)
{
	__atomic_sub_fetch(&windows_in_all, 1, __ATOMIC_RELAXED);
}

/* Without room for them everything is read by calls. */
void kmod_windows_open(struct kmod_counts *k)
{
	struct kmod_windows *w = calloc(1, sizeof(*w));
	void *pages;

	/* Pages of the counters' size are what every place is. */
	if (!w || sysconf(_SC_PAGESIZE) != WINDOW_BYTES || !fill_with_zeroes(NULL, WINDOWS * WINDOW_BYTES, 0, &pages)) {
		free(w);
		return;
	}
	w->page = pages;
	k->windows = w;
}

void kmod_windows_close(struct kmod_counts *k, bool is_maker)
{
	for (uint32_t p = 0; k->windows && p < WINDOWS; p++)
		if (k->windows->session[p])
			give_window();
	if (k->windows && is_maker)
		munmap(k->windows->page, WINDOWS * WINDOW_BYTES);
	free(k->windows);
}

/* Two steps, since what is at a place would be gone when the first one fails, which it does when the session has ended. */
static bool map_window(const struct kmod_counts *k, uint64_t session, uint32_t place)
{
	struct pinion_counter_page *at = &k->windows->page[place];
	void *fresh = mmap(NULL, WINDOW_BYTES, PROT_READ, MAP_SHARED, k->device->fd, PINION_MMAP_WINDOW + session * WINDOW_BYTES);

	if (fresh == MAP_FAILED)
		return false;
	madvise(fresh, WINDOW_BYTES, MADV_DONTFORK);
	if (mremap(fresh, WINDOW_BYTES, WINDOW_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
		munmap(fresh, WINDOW_BYTES);
		fill_with_zeroes(at, WINDOW_BYTES, MAP_FIXED, NULL);
		return false;
	}
	return true;
}

/* The session's page; NULL: it cannot be seen. */
static const struct pinion_counter_page *window_of(const struct kmod_counts *k, uint64_t session)
{
	struct kmod_windows *w = k->windows;
	uint32_t place = WINDOWS;

	for (uint32_t i = 0; i < PROBES; i++) {
		uint32_t p = (session + i) % WINDOWS;

		if (w->session[p] == session) {
			w->seen[p] = w->rebuilding;
			return &w->page[p];
		}
		if (!w->session[p] && place == WINDOWS)
			place = p;
	}
	if (place == WINDOWS || !take_window())
		return NULL;
	if (!map_window(k, session, place)) {
		give_window();
		return NULL;
	}
	w->session[place] = session;
	w->seen[place] = w->rebuilding;
	return &w->page[place];
}

static void drop_unseen(struct kmod_windows *w)
{
	for (uint32_t p = 0; p < WINDOWS; p++)
		if (w->session[p] && w->seen[p] != w->rebuilding &&
		    fill_with_zeroes(&w->page[p], WINDOW_BYTES, MAP_FIXED, NULL)) {
			w->session[p] = 0;
			give_window();
		}
}

/* ---- the list ------------------------------------------------------------------------------------------------------ */

/* A session on a device. */
struct member {
	uint64_t lanes;
	const struct pinion_counter_page *page;
	uint32_t index;
};

struct listing {
	const struct counts *c;
	struct member *member;
	size_t n, room;
	uid_t uid;
	bool short_of_memory;
	uint64_t generation[ROSTER_DEVICES]; /* 0: none, or one without a queue */
	bool by_call[ROSTER_DEVICES];
	uint32_t lanes[ROSTER_DEVICES]; /* how many */
};

static const struct pinion_counter_page *page_of(const struct listing *l, const struct pinion_list_session *row)
{
	if (row->flags & (PINION_SESSION_HELD | PINION_SESSION_DMA))
		return NULL;
	if (row->flags & PINION_SESSION_MINE)
		return l->c->page;
	/* Where everybody may see everybody's, what others' say is still not theirs alone to say: the module bounds it. */
	return row->uid == l->uid ? window_of(l->c->kmod, row->session) : NULL;
}

static bool make_room(struct listing *l)
{
	size_t room = l->room ? 2 * l->room : 64;
	struct member *more = l->n < l->room ? l->member : realloc(l->member, room * sizeof(*more));

	if (!more)
		return false;
	if (l->n == l->room)
		l->room = room;
	l->member = more;
	return true;
}

static void note_session(void *arg, const void *data)
{
	const struct pinion_list_session *row = data;
	const struct pinion_counter_page *page;
	struct listing *l = arg;

	/* Sessions have lanes of devices that are gone, too. */
	if (row->index >= ROSTER_DEVICES || l->by_call[row->index] || row->generation != l->generation[row->index])
		return;
	page = page_of(l, row);
	if (!page) {
		l->by_call[row->index] = true;
		return;
	}
	if (!make_room(l)) {
		l->short_of_memory = true;
		return;
	}
	l->member[l->n++] = (struct member){ .lanes = row->lanes & COUNTER_LANE_MASK, .page = page, .index = row->index };
}

/* ---- the roster ---------------------------------------------------------------------------------------------------- */

static uint64_t generation_at(const struct kmod_counts *k, uint32_t index)
{
	const struct pinion_info_device *line = kmod_line(k, index);
	uint64_t generation = pinion_load_acquire(&line->generation);

	return pinion_load(&line->flags) & PINION_DEV_SYNC ? 0 : generation;
}

/* Where each device's lanes go; *@first comes back as filled so far. */
static void lay_out(const struct kmod_counts *k, struct counter_roster *r, struct listing *l, uint32_t first[ROSTER_DEVICES])
{
	uint32_t at = 0;

	for (size_t i = 0; i < l->n; i++)
		l->lanes[l->member[i].index] += __builtin_popcountll(l->member[i].lanes);
	for (uint32_t d = 0; d < k->info->devices; d++) {
		__atomic_store_n(&r->head[d].generation, l->generation[d], __ATOMIC_RELAXED);
		if (l->lanes[d] > ROSTER_LANES - at)
			l->by_call[d] = true;
		first[d] = at;
		if (!l->by_call[d])
			at += l->lanes[d];
	}
}

static void fill(struct counter_roster *r, const struct listing *l, const uint32_t first[ROSTER_DEVICES])
{
	uint32_t at[ROSTER_DEVICES];

	memcpy(at, first, sizeof(at));
	for (size_t i = 0; i < l->n; i++) {
		const struct member *m = &l->member[i];

		if (l->by_call[m->index])
			continue;
		for (uint64_t mask = m->lanes; mask; mask &= mask - 1)
			__atomic_store_n(&r->lane[at[m->index]++], &m->page->lane[__builtin_ctzll(mask)], __ATOMIC_RELAXED);
	}
}

static uint64_t lanes_of(const struct counter_roster *r, const struct listing *l, uint32_t d, uint32_t first)
{
	if (l->by_call[d])
		return ROSTER_OVERFLOW;
	return l->lanes[d] == 1 ? (uintptr_t)r->lane[first] : roster_part(first, l->lanes[d]);
}

static void build(const struct counts *c, struct counter_roster *r, struct listing *l)
{
	struct kmod_counts *k = c->kmod;
	uint32_t first[ROSTER_DEVICES];

	for (uint32_t d = 0; d < k->info->devices; d++)
		l->generation[d] = generation_at(k, d);
	if (k->windows)
		k->windows->rebuilding++;
	if (!k->windows || kmod_list(c, PINION_LIST_SESSIONS, sizeof(struct pinion_list_session), note_session, l) ||
	    l->short_of_memory) {
		memset(l->by_call, true, sizeof(l->by_call));
		l->n = 0;
	}
	lay_out(k, r, l, first);
	fill(r, l, first);
	for (uint32_t d = 0; d < k->info->devices; d++)
		__atomic_store_n(&r->head[d].lanes, lanes_of(r, l, d, first[d]), __ATOMIC_RELEASE);
}

void kmod_roster_rebuild(const struct counts *c)
{
	struct counter_roster *r = c->roster;
	struct listing l = { .c = c, .uid = geteuid() };
	uint64_t seq = pinion_load_acquire(r->seq_now);

	__atomic_store_n(&r->version, r->version + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	build(c, r, &l);
	/* A change while it was built leaves it with the old number, so that the next look finds it untrue. */
	__atomic_store_n(&r->seq, seq, __ATOMIC_RELAXED);
	__atomic_store_n(&r->version, r->version + 1, __ATOMIC_RELEASE);
	if (c->kmod->windows)
		drop_unseen(c->kmod->windows);
	free(l.member);
}
