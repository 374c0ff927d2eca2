// SPDX-License-Identifier: MIT
/*
 * fuzz [SECONDS [SEED]]: processes of several threads do at random whatever a user of the device can do, with arguments that are
 * right, nearly right and wrong, while limits fall, steps fail and processes are killed. What must hold all the while:
 *
 * - A word of a buffer is zero or the stamp of its own pages; so nobody ever sees what is another's, or was.
 * - Rows of LIST and BUFINFO make sense, use stays below limits, nobody has more rights than were given.
 * - Every process ends when it is asked to, and INFO is then what it was.
 * - The fuzzer knows what is mapped where: else a word of another buffer would be its own doing.
 *
 * A seed gives the same dice again; what threads and processes make of them differs.
 */
#define _GNU_SOURCE
#include "fuzz.h"
#include "fail.h"
#include "import.h"

#include <linux/dma-buf.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define PROCESSES 3
#define THREADS	  3
#define NOBODY	  65534
#define MEMFDS	  5
#define IMPORTS	  8
#define ROWS_MOST 32

/* Limits are at most this, so that use may be held against it at any time. */
#define MOST_BYTES	(160UL << 20)
#define MOST_USER_BYTES (112UL << 20)
#define MOST_BUFFERS	400

#define ARENA_PAGES	128

/* Both of two users, to write and to look. */
static int devs[4];
static int mail[2];

static char *arena; /* half of it private, half shared */
static int memfds[MEMFDS];
static _Atomic int fence;
static _Atomic uint64_t wild[16]; /* a struct that all threads write to */

static __thread int kernel_fails; /* makes a step inside the kernel fail, where it can */

static int dev_some(void)
{
	return devs[roll(8) ? roll(2) * 2 : roll(4)];
}

static bool dev_writes(int dev)
{
	return dev == devs[0] || dev == devs[2];
}

/* A call; now and then with a failure of the kernel's own on its way. */
static int call(int dev, unsigned int cmd, void *arg)
{
	int ret;

	if (kernel_fails < 0 || !one_in(4) || !fail_arm(kernel_fails, 1 + roll(40)))
		return dev_call(dev, cmd, arg);
	ret = dev_call(dev, cmd, arg);
	atomic_fetch_add(&shared->kernel_failed, !fail_end(kernel_fails));
	return ret;
}

static void name_some(char *name)
{
	switch (roll(4)) {
	case 0:
		memset(name, 'a' + roll(26), roll(PINION_NAME_BYTES + 1));
		break;
	case 1:
		name[roll(PINION_NAME_BYTES)] = roll(256);
		break;
	default:
		strcpy(name, "fuzz");
	}
}

static uint32_t rights_some(void)
{
	return one_in(16) ? roll(~0U) : roll(PINION_RIGHTS + 1);
}

/* ---- making buffers ------------------------------------------------------------------------------------------------ */

/* A new buffer: nothing in it, stamped before anybody is told of it. */
static void buffer_new(int fd)
{
	struct held h = { .fd = fd };
	char *at;

	if (!held_know(&h, devs[0]))
		return;
	at = dev_map(fd, h.pages * PAGE, PROT_READ | PROT_WRITE);
	if (at == MAP_FAILED)
		return;
	if (pages_use(at, &h, h.first, h.pages, true, h.pages < 64))
		bad(CONTENT, "a new buffer cannot be touched");
	munmap(at, h.pages * PAGE);
}

static bool op_alloc(void)
{
	static const uint32_t flags[] = { PINION_ALLOC_HUGE_REQUIRE, PINION_ALLOC_HUGE_NEVER, PINION_ALLOC_NODE_STRICT,
					  PINION_ALLOC_SHMEM, PINION_ALLOC_WIPE_ON_FREE };
	struct pinion_alloc a = { .size = sizeof(a), .bytes = some_bytes(), .node = PINION_NODE_ANY };
	int dev = dev_some();

	name_some(a.name);
	if (one_in(2))
		a.flags = PICK(flags);
	if (one_in(8))
		a.flags |= PICK(flags);
	if (one_in(8))
		a.node = (int)roll(4) - 2;
	if (one_in(64))
		a.flags = roll(~0U);
	if (call(dev, PINION_IOC_ALLOC, &a))
		return false;
	if (!dev_writes(dev))
		bad(RIGHTS, "ALLOC by a read-only open");
	if (a.out_bytes != ((a.bytes + PAGE - 1) & ~(PAGE - 1)) || a.out_huge_bytes > a.out_bytes)
		bad(ROWS, "ALLOC of %llu bytes says %llu, %llu in huge pages", a.bytes, a.out_bytes, a.out_huge_bytes);
	buffer_new(a.fd);
	pool_put(a.fd);
	return true;
}

static bool op_slice(void)
{
	struct pinion_slice s = { .size = sizeof(s), .rights = rights_some() };
	struct held of, made;
	int dev = dev_some();

	if (!hold(&of, dev))
		return false;
	s.fd = of.fd;
	s.offset = roll(of.pages + one_in(8)) * PAGE;
	s.length = (1 + roll(of.pages - s.offset / PAGE + 1)) * PAGE;
	if (one_in(16))
		s.length = some_bytes();
	if (one_in(2))
		s.rights &= of.rights;
	if (!call(dev, PINION_IOC_SLICE, &s)) {
		made.fd = s.out_fd;
		if (s.rights & ~of.rights & ~PINION_RIGHT_READ || !dev_writes(dev))
			bad(RIGHTS, "SLICE gives rights %x of %x", s.rights, of.rights);
		if (s.offset + s.length > of.pages * PAGE)
			bad(ROWS, "SLICE of %llu + %llu of %llu pages", s.offset, s.length, (unsigned long long)of.pages);
		/* Nobody knows its number yet. */
		if (held_know(&made, dev) &&
		    (made.pages_id != of.pages_id || made.first != of.first + s.offset / PAGE || made.pages != s.length / PAGE))
			bad(ROWS, "a slice is of other pages than was asked for");
		pool_put(s.out_fd);
	} else {
		s.out_fd = -1;
	}
	close(of.fd);
	return s.out_fd >= 0;
}

static bool op_pin(void)
{
	struct pinion_pin p = { .size = sizeof(p), .fd = -1 };
	uint64_t first = roll(2 * ARENA_PAGES), pages = 1 + roll(2 * ARENA_PAGES - first);
	struct map *m;

	name_some(p.name);
	p.addr = (uintptr_t)(arena + first * PAGE);
	p.bytes = pages * PAGE;
	if (one_in(16))
		p.bytes = some_bytes();
	if (one_in(16))
		p.addr = bad_address();
	m = one_in(16) ? map_take(MAP_READY) : NULL;
	if (m)
		p.addr = (uintptr_t)m->at;
	if (one_in(2))
		madvise(arena + first * PAGE, pages * PAGE, MADV_POPULATE_WRITE);
	if (one_in(64))
		p.flags = roll(~0U);
	if (call(dev_some(), PINION_IOC_PIN, &p))
		p.out_fd = -1;
	else if (m && m->of.kind != PINION_KIND_MEMFD && m->of.kind != PINION_KIND_SHMEM)
		bad(RIGHTS, "PIN of a mapping of a buffer of kind %u", m->of.kind);
	if (m)
		map_put(m);
	/* A range over a mapping of shared memory has stamps of another kind. */
	if (m && p.out_fd >= 0)
		close(p.out_fd);
	else
		pool_put(p.out_fd);
	return p.out_fd >= 0;
}

static bool op_pin_fd(void)
{
	struct pinion_pin p = { .size = sizeof(p), .flags = PINION_PIN_FD, .fd = PICK(memfds) };

	name_some(p.name);
	p.addr = roll(64) * PAGE;
	p.bytes = (1 + roll(64)) * PAGE;
	if (one_in(8))
		p.bytes = some_bytes();
	if (one_in(16))
		p.fd = pool_look();
	if (call(dev_some(), PINION_IOC_PIN, &p))
		return false;
	pool_put(p.out_fd);
	return true;
}

/* ---- looking ------------------------------------------------------------------------------------------------------- */

static bool op_info(void)
{
	struct pinion_info i;

	memset(&i, 0, sizeof(i));
	i.size = sizeof(i);
	if (call(dev_some(), PINION_IOC_INFO, &i))
		return false;
	if (i.bytes > MOST_BYTES || i.user_bytes > MOST_USER_BYTES || i.user_buffers > MOST_BUFFERS || i.user_bytes > i.bytes ||
	    i.user_buffers > i.buffers || i.bytes % PAGE || i.user_bytes % PAGE)
		bad(USE, "INFO: %llu bytes, %llu of the user, %llu buffers, %llu of the user", i.bytes, i.user_bytes, i.buffers,
		    i.user_buffers);
	return true;
}

static bool op_bufinfo(void)
{
	struct pinion_bufinfo b = { .size = sizeof(b), .fd = pool_look(), .node_size = 8 };
	uint64_t nodes[64], sum = 0;

	b.nr_nodes = one_in(4) ? roll(~0U) : roll(64);
	b.nodes = b.nr_nodes > 64 || one_in(8) ? bad_address() : (uintptr_t)nodes;
	memset(nodes, 0, sizeof(nodes));
	if (call(dev_some(), PINION_IOC_BUFINFO, &b))
		return false;
	for (int i = 0; i < 64; i++)
		sum += nodes[i];
	if (sum && sum != b.pages_bytes)
		bad(ROWS, "BUFINFO: %llu bytes on all nodes of %llu", (unsigned long long)sum, b.pages_bytes);
	return true;
}

static void row_check(const struct pinion_list_buffer *row, uint64_t after, bool last)
{
	bool others = last && !row->id && row->uid == PINION_UID_OTHERS;

	if (others ? !row->buffers && !row->bytes : row->id <= after || !row->pages_id)
		bad(ROWS, "a row with id %llu after %llu", row->id, (unsigned long long)after);
	if (others)
		return;
	if ((row->offset | row->bytes | row->pages_bytes | row->huge_bytes) % PAGE || !row->bytes ||
	    row->offset + row->bytes > row->pages_bytes || row->huge_bytes > row->pages_bytes)
		bad(ROWS, "row %llu: %llu + %llu of %llu, huge %llu", row->id, row->offset, row->bytes, row->pages_bytes,
		    row->huge_bytes);
	if (row->kind < PINION_KIND_PAGES || row->kind > PINION_KIND_MEMFD || !(row->rights & PINION_RIGHT_READ) ||
	    row->rights & ~PINION_RIGHTS || row->buffers != 1 || row->attachments > PROCESSES * IMPORTS * 8 || row->pid < 1 ||
	    (row->uid && row->uid != NOBODY) || strnlen(row->name, PINION_NAME_BYTES) == PINION_NAME_BYTES)
		bad(ROWS, "row %llu: kind %u rights %x buffers %u attachments %u pid %d uid %u", row->id, row->kind, row->rights,
		    row->buffers, row->attachments, row->pid, row->uid);
}

static bool op_list(void)
{
	struct pinion_list_buffer rows[ROWS_MOST];
	struct pinion_list l = {
		.size = sizeof(l), .kind = PINION_LIST_BUFFERS, .rows = (uintptr_t)rows, .row_size = sizeof(rows[0])
	};
	int dev = devs[roll(4)];
	bool some = false;

	l.cursor = one_in(4) ? roll(1000) : one_in(8) ? ~roll(2) : 0;
	for (int i = 0; i < 40; i++) {
		uint64_t after = l.cursor;

		l.count = 1 + roll(ROWS_MOST);
		l.rows = one_in(16) ? bad_address() : (uintptr_t)rows;
		if (call(dev, PINION_IOC_LIST, &l))
			return some;
		some = true;
		for (unsigned int k = 0; k < l.out_count && k < ROWS_MOST; k++) {
			row_check(&rows[k], after, k + 1 == l.out_count);
			after = rows[k].id;
		}
		if (l.out_count > l.count || l.cursor < after)
			bad(ROWS, "LIST: %u rows of %u, cursor %llu after id %llu", l.out_count, l.count, l.cursor,
			    (unsigned long long)after);
		if (l.out_count < l.count)
			break;
	}
	return some;
}

/* A struct that other threads write to meanwhile. What it makes goes with the process: its number may be overwritten. */
static bool op_wild(void)
{
	static const unsigned int cmds[] = { PINION_IOC_INFO, PINION_IOC_ALLOC,	  PINION_IOC_SLICE,
					     PINION_IOC_PIN,  PINION_IOC_BUFINFO, PINION_IOC_LIST };
	static const uint32_t sizes[] = { 40, 72, 80, 120, 128, 4096, 4097, 0, ~0U };
	static const uint64_t words[] = { 0, 1, 2, 3, PAGE, 2 * PAGE, ~0ULL, 8, 112, (uint64_t)PAGE << 32 };
	_Atomic uint32_t *size = (_Atomic uint32_t *)wild;
	bool made;

	switch (roll(4)) {
	case 0:
		return call(dev_some(), PICK(cmds), (void *)bad_address()) == 0;
	case 1:
		atomic_store(&wild[1 + roll(15)], one_in(3) ? (uint64_t)(uint32_t)pool_look() : PICK(words));
		return true;
	case 2:
		/* No address that is right: what is written through it would be nobody's stamp. */
		atomic_store(&wild[1 + roll(15)], PICK(words) | (one_in(2) ? (uint64_t)(uint32_t)pool_look() << 32 : 0));
		return true;
	}
	atomic_store(size, PICK(sizes));
	made = !call(dev_some(), PICK(cmds), (void *)wild);
	return made;
}

/* ---- mappings ------------------------------------------------------------------------------------------------------ */

static void *place_some(void)
{
	/* Where index and address agree, and where they do not. */
	return one_in(2) ? NULL : (void *)(0x2040000000UL + roll(512) * HUGE + (one_in(4) ? roll(512) * PAGE : 0));
}

/* What was mapped may be mapped, as it is. */
static void map_made(const struct map *m, uint64_t index, int flags)
{
	const struct held *of = &m->of;

	if (of->kind == PINION_KIND_RANGE || flags == MAP_PRIVATE || m->prot & PROT_EXEC)
		bad(RIGHTS, "a mapping of kind %u, flags %x, prot %x", of->kind, flags, m->prot);
	if (m->prot & PROT_WRITE && !(of->rights & PINION_RIGHT_WRITE))
		bad(RIGHTS, "a writable mapping of rights %x", of->rights);
	if (index + m->pages > of->pages)
		bad(RIGHTS, "a mapping past the end");
}

static uint64_t inode_of(int fd)
{
	struct stat s = { 0 };

	return fstat(fd, &s) ? 0 : s.st_ino;
}

static bool op_map(void)
{
	struct map *m = map_take(MAP_FREE);
	int flags = one_in(16) ? MAP_PRIVATE : MAP_SHARED;
	uint64_t index;

	if (!m)
		return false;
	m->pages = 0;
	if (hold(&m->of, devs[0])) {
		index = roll(m->of.pages);
		m->pages = 1 + roll(m->of.pages - index);
		if (one_in(2))
			m->pages = m->of.pages - index;
		if (one_in(16))
			m->pages += roll(8);
		m->prot = one_in(16) ? roll(8) : PROT_READ | (one_in(2) ? PROT_WRITE : 0);
		m->first = m->of.first + index;
		m->at = mmap(place_some(), m->pages * PAGE, m->prot, flags | (one_in(8) ? MAP_POPULATE : 0), m->of.fd,
			     index * PAGE);
		if (m->at == MAP_FAILED)
			m->pages = 0;
		else
			map_made(m, index, flags);
		m->inode = inode_of(m->of.fd);
		close(m->of.fd);
	}
	index = m->pages;
	map_put(m);
	return index;
}

/* Reads and writes; memory that is ours gives no signal. */
static bool op_touch(void)
{
	struct map *m = map_take(MAP_READY);
	uint64_t index, pages;
	int sig = 1;

	if (!m)
		return false;
	if (one_in(16))
		map_check(m);
	index = roll(m->pages);
	pages = 1 + roll(m->pages - index < 32 ? m->pages - index : 32);
	if (m->prot & PROT_READ) {
		sig = pages_use(m->at + index * PAGE, &m->of, m->first + index, pages, m->prot & PROT_WRITE, one_in(16));
		if (sig && m->of.kind != PINION_KIND_MEMFD)
			bad(CONTENT, "signal %d from page %llu of a mapping of %llu, kind %u, prot %x", sig,
			    (unsigned long long)index, (unsigned long long)m->pages, m->of.kind, m->prot);
	}
	map_put(m);
	return !sig;
}

static bool op_unmap(void)
{
	struct map *m = map_take(MAP_READY);
	uint64_t cut;
	bool done = true;

	if (!m)
		return false;
	cut = one_in(2) ? m->pages : 1 + roll(m->pages);
	if (one_in(2)) {
		done = !munmap(m->at + (m->pages - cut) * PAGE, cut * PAGE);
	} else {
		done = !munmap(m->at, cut * PAGE);
		m->at += done ? cut * PAGE : 0;
		m->first += done ? cut : 0;
	}
	if (done)
		m->pages -= cut;
	map_put(m);
	return done;
}

/* All of a mapping, or a part of it. */
static uint64_t map_part(const struct map *m, char **at)
{
	uint64_t index = one_in(2) ? 0 : roll(m->pages);

	*at = m->at + index * PAGE;
	return index ? 1 + roll(m->pages - index) : m->pages;
}

static bool op_protect(void)
{
	struct map *m = map_take(MAP_READY);
	int prot = one_in(16) ? roll(8) : one_in(8) ? 0 : PROT_READ | (one_in(2) ? PROT_WRITE : 0);
	uint64_t pages;
	bool done;
	char *at;

	if (!m)
		return false;
	pages = map_part(m, &at);
	done = !mprotect(at, pages * PAGE, prot);
	if (done && (prot & PROT_EXEC || (prot & PROT_WRITE && !(m->of.rights & PINION_RIGHT_WRITE))))
		bad(RIGHTS, "mprotect gives %x to a mapping of rights %x", prot, m->of.rights);
	m->prot = done && pages == m->pages ? prot : m->prot & prot;
	map_put(m);
	return done;
}

static bool op_advise(void)
{
	static const int advice[] = { MADV_NORMAL,	  MADV_RANDOM,	      MADV_WILLNEED, MADV_DONTNEED, MADV_FREE,
				      MADV_REMOVE,	  MADV_DOFORK,	      MADV_DODUMP,   MADV_DONTDUMP, MADV_HUGEPAGE,
				      MADV_NOHUGEPAGE,	  MADV_MERGEABLE,     MADV_COLD,     MADV_PAGEOUT,  25,
				      MADV_POPULATE_READ, MADV_POPULATE_WRITE };
	struct map *m = map_take(MAP_READY);
	uint64_t pages;
	bool done;
	char *at;

	if (!m)
		return false;
	pages = map_part(m, &at);
	done = !madvise(at, pages * PAGE, PICK(advice));
	map_put(m);
	return done;
}

/*
 * One of four places that are only this mapping's: below the end of the smallest address space, user-mode Linux's, and where no
 * word of op_wild() points, which are small in their lower half.
 */
static void *own_place(const struct map *m)
{
	return (void *)(0x1040000000UL + (m - maps) * 64 * HUGE + roll(4) * 16 * HUGE);
}

/* What shrinks and moves; nothing grows. */
static bool op_move(void)
{
	struct map *m = map_take(MAP_READY);
	uint64_t pages;
	void *to;

	if (!m)
		return false;
	pages = one_in(2) ? m->pages : one_in(2) ? 1 + roll(m->pages) : m->pages + 1 + roll(8);
	if (one_in(2))
		to = mremap(m->at, m->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
	else
		to = mremap(m->at, m->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, own_place(m));
	if (to != MAP_FAILED) {
		if (pages > m->pages)
			bad(RIGHTS, "a mapping of %llu pages grew to %llu", (unsigned long long)m->pages,
			    (unsigned long long)pages);
		m->at = to;
		m->pages = pages;
	} else if (pages < m->pages) {
		/* What failed may have cut off the end before, and what is there now be another's; if not, it stays. */
		m->pages = pages;
	}
	map_put(m);
	return to != MAP_FAILED;
}

static bool op_lock(void)
{
	struct map *m = map_take(MAP_READY);
	unsigned char seen[64];
	uint64_t pages;
	bool done;
	char *at;

	if (!m)
		return false;
	pages = map_part(m, &at);
	switch (roll(4)) {
	case 0:
		done = !mlock(at, pages * PAGE);
		break;
	case 1:
		done = !munlock(at, pages * PAGE);
		break;
	case 2:
		done = !msync(at, pages * PAGE, one_in(2) ? MS_SYNC : MS_ASYNC | MS_INVALIDATE);
		break;
	default:
		done = !mincore(at, (pages < 64 ? pages : 64) * PAGE, seen);
	}
	map_put(m);
	return done;
}

/* ---- descriptors --------------------------------------------------------------------------------------------------- */

static bool op_close(void)
{
	int fd = pool_take();

	return fd >= 0 && !close(fd);
}

static bool op_dup(void)
{
	int fd = pool_look(), copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);

	pool_put(copy);
	return copy >= 0;
}

static bool op_send(void)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	char byte = 0;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	int fd = pool_look();

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return fd >= 0 && sendmsg(mail[0], &message, MSG_DONTWAIT) == 1;
}

/* A descriptor of a message, which may be from another process; -1: none. */
static int mail_receive(void)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(mail[1], &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) == 1 && message.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

static bool op_receive(void)
{
	int fd = mail_receive();

	pool_put(fd);
	return fd >= 0;
}

static bool op_sync(void)
{
	struct dma_buf_sync sync = { .flags = one_in(8) ? roll(~0U) : roll(8) };
	int fd = pool_look();

	return fd >= 0 && !ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
}

static bool op_name(void)
{
	static const char *const names[] = { "", "a", "a name that is longer than a name may be, by far" };
	int fd = pool_look();
	uint64_t name = one_in(4) ? bad_address() : (uintptr_t)PICK(names);

	return fd >= 0 && !ioctl(fd, one_in(2) ? DMA_BUF_SET_NAME_A : DMA_BUF_SET_NAME_B, name);
}

/* Fences out of one buffer and into another. */
static bool op_fence(void)
{
	struct dma_buf_export_sync_file out = { .flags = one_in(8) ? roll(16) : 1 + roll(3), .fd = -1 };
	struct dma_buf_import_sync_file in = { .flags = one_in(8) ? roll(16) : 1 + roll(3) };
	int fd = pool_look(), old;

	if (fd < 0)
		return false;
	if (one_in(2)) {
		if (ioctl(fd, DMA_BUF_IOCTL_EXPORT_SYNC_FILE, &out))
			return false;
		old = atomic_exchange(&fence, out.fd);
		if (old > 0)
			close(old);
		return true;
	}
	in.fd = atomic_load(&fence);
	return !ioctl(fd, DMA_BUF_IOCTL_IMPORT_SYNC_FILE, &in);
}

/* What a dma-buf is not for. */
static bool op_odd(void)
{
	struct pollfd p = { .fd = pool_look(), .events = roll(32) };
	char byte[8] = { 0 };

	if (p.fd < 0)
		return false;
	switch (roll(8)) {
	case 0:
		return poll(&p, 1, 0) > 0;
	case 1:
		return lseek(p.fd, roll(64) * PAGE, roll(5)) >= 0;
	case 2:
		return read(p.fd, byte, 8) + write(p.fd, byte, 8) == -2;
	case 3:
		return ftruncate(p.fd, roll(8) * PAGE) && fallocate(p.fd, roll(4), 0, PAGE);
	case 4:
		return ioctl(p.fd, _IO('b', roll(8)), bad_address());
	case 5:
		return fcntl(p.fd, F_ADD_SEALS, roll(32)) < 0 || fcntl(p.fd, F_SETFL, roll(2) ? O_APPEND : 0);
	case 6:
		return ioctl(p.fd, PINION_IOC_INFO, byte);
	default:
		return ioctl(dev_some(), one_in(2) ? PINION_IOC(roll(256)) : roll(~0U), bad_address());
	}
}

static bool look(const char *path)
{
	char text[512];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool some = false;

	for (int i = 0; fd >= 0 && i < 64 && read(fd, text, sizeof(text)) > 0; i++)
		some = true;
	if (fd >= 0)
		close(fd);
	return some;
}

static bool op_seen(void)
{
	static const char *const paths[] = { "/sys/kernel/debug/pinion/buffers", "/sys/class/misc/pinion/bytes",
					     "/proc/self/smaps", "/sys/class/misc/pinion/buffers",
					     "/sys/kernel/debug/dma_buf/bufinfo" };
	char path[64];
	int fd = pool_look();

	if (one_in(2))
		return look(PICK(paths));
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", one_in(2) ? fd : dev_some());
	return look(path);
}

static bool op_open(void)
{
	int dev = dev_open(one_in(2) ? O_RDWR : O_RDONLY), fd;

	if (dev < 0)
		return false;
	fd = dev_alloc(dev, PAGE, 0);
	close(dev);
	if (fd < 0)
		return true;
	buffer_new(fd);
	pool_put(fd);
	return true;
}

/* ---- devices ------------------------------------------------------------------------------------------------------- */

static struct import_slot {
	_Atomic int state;
	int fd;
	bool to_device;
	struct held of;
} imports[IMPORTS];

static bool import_new(struct import_slot *slot)
{
	uint32_t direction = 1 + roll(3), flags = roll(4);

	slot->fd = -1;
	slot->to_device = direction == IMPORTER_TO_DEVICE;
	if (!hold(&slot->of, devs[0]))
		return false;
	slot->fd = import_by(roll(2), slot->of.fd, direction, flags);
	if (slot->fd >= 0 && !slot->to_device && !(slot->of.rights & PINION_RIGHT_DMA_RW) &&
	    (!(flags & IMPORTER_LAZY) || !import_call(slot->fd, IMPORTER_MAP)))
		bad(RIGHTS, "a device may write to a slice of rights %x", slot->of.rights);
	close(slot->of.fd);
	return slot->fd >= 0;
}

/* A device reads a page, or writes what belongs there. */
static bool import_use(const struct import_slot *slot)
{
	uint64_t index = roll(slot->of.pages), page[PAGE / 8], word = stamp(&slot->of, slot->of.first + index);

	switch (roll(6)) {
	case 0:
		return !import_call(slot->fd, IMPORTER_MAP);
	case 1:
		return !import_call(slot->fd, IMPORTER_UNMAP);
	case 2:
		return import_call(slot->fd, IMPORTER_VMAP);
	case 3:
		return !slot->to_device && !import_write(slot->fd, index * PAGE + roll(512) * 8, &word, 8);
	default:
		if (import_read(slot->fd, index * PAGE, page, PAGE))
			return false;
		page_check((char *)page, &slot->of, slot->of.first + index, true);
		return true;
	}
}

/* @slot, the caller's alone from now on, or NULL where its state is another. */
static struct import_slot *import_take(struct import_slot *slot, int state)
{
	return atomic_compare_exchange_strong(&slot->state, &state, MAP_TAKEN) ? slot : NULL;
}

static bool op_import(void)
{
	struct import_slot *slot = &imports[roll(IMPORTS)];
	bool done;

	if (import_take(slot, MAP_FREE)) {
		done = import_new(slot);
		atomic_store(&slot->state, done ? MAP_READY : MAP_FREE);
		return done;
	}
	if (!import_take(slot, MAP_READY))
		return false;
	if (one_in(8)) {
		close(slot->fd);
		atomic_store(&slot->state, MAP_FREE);
		return true;
	}
	done = import_use(slot);
	atomic_store(&slot->state, MAP_READY);
	return done;
}

/* ---- what is around ------------------------------------------------------------------------------------------------ */

/* The owner of memory that is pinned does with it what it likes. */
static bool op_arena(void)
{
	static const int advice[] = {
		MADV_DONTNEED, MADV_POPULATE_WRITE, MADV_POPULATE_READ, MADV_PAGEOUT, MADV_COLD, MADV_FREE
	};
	const struct held own = { .kind = PINION_KIND_RANGE };
	uint64_t first = roll(2 * ARENA_PAGES), pages = 1 + roll(2 * ARENA_PAGES - first);
	char *at = arena + first * PAGE;

	switch (roll(4)) {
	case 0:
		return !madvise(at, pages * PAGE, PICK(advice));
	case 1:
		return !mprotect(at, pages * PAGE, one_in(4) ? PROT_READ : PROT_READ | PROT_WRITE);
	case 2:
		return first < ARENA_PAGES &&
		       mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
	default:
		return !pages_use(at, &own, first, pages < 16 ? pages : 16, true, false);
	}
}

static bool op_memfd(void)
{
	static const int seals[] = { F_SEAL_WRITE, F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_SEAL };
	const struct held own = { .kind = PINION_KIND_MEMFD };
	uint64_t word = stamp(&own, 0);
	int fd = PICK(memfds);

	switch (roll(16)) {
	case 0:
		return !fcntl(fd, F_ADD_SEALS, PICK(seals));
	case 1:
	case 2:
	case 3:
	case 4:
		return !fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, roll(64) * PAGE, (1 + roll(16)) * PAGE);
	case 5:
		return !ftruncate(fd, 64 * PAGE);
	default:
		return pwrite(fd, &word, 8, roll(64) * PAGE + roll(512) * 8) == 8;
	}
}

static const struct {
	const char *name;
	uint64_t most;
} limits[] = { { "max_bytes", MOST_BYTES }, { "max_user_bytes", MOST_USER_BYTES }, { "max_user_buffers", MOST_BUFFERS } };

static bool limit_set(unsigned int i, uint64_t value)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), PARAMETER "%s", limits[i].name);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return !file_put(path, text);
}

/* A limit falls, for a moment. 0 is no limit but one of them, and would be none at all. */
static bool op_limit(void)
{
	unsigned int i = roll(3);
	bool done = limit_set(i, 1 + roll(limits[i].most));

	mem_sleep(roll(3000));
	return limit_set(i, limits[i].most) && done;
}

static bool op_fail(void)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", 1 + (unsigned int)roll(one_in(2) ? 8 : 200));
	return !file_put(PARAMETER "fail_nth", text);
}

static void op_some(bool forks);

/*
 * A child gets the descriptors of one moment and the memory of a later one, when another thread may have made an attachment anew
 * with the number of the last: what is known of it is true of one that the forking thread has taken, and of no other.
 */
static void imports_keep(const struct import_slot *kept)
{
	for (int i = 0; i < IMPORTS; i++)
		if (&imports[i] != kept)
			import_take(&imports[i], MAP_READY);
}

/* A child that does a little and ends one way or another. Its like is not waited for. */
static bool op_fork(void)
{
	struct import_slot *kept = import_take(&imports[roll(IMPORTS)], MAP_READY);
	pid_t pid = fork();

	if (kept)
		atomic_store(&kept->state, MAP_READY);
	if (pid)
		return pid > 0;
	dice = mix(dice ^ getpid());
	/* It is the parent's. */
	kernel_fails = -1;
	imports_keep(kept);
	if (kept)
		import_use(kept);
	for (int i = roll(16); i; i--)
		op_some(false);
	if (one_in(4))
		execl("/proc/self/exe", "fuzz", "nothing", NULL);
	if (one_in(4))
		kill(getpid(), SIGKILL);
	_exit(0);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------- */

static const struct op {
	const char *name;
	bool (*run)(void);
	unsigned int weight;
	bool always; /* works at least once on every kernel */
} ops[] = {
	{ "alloc", op_alloc, 12, true },    { "slice", op_slice, 12, true },	{ "pin", op_pin, 8, true },
	{ "pin_fd", op_pin_fd, 8, true },   { "info", op_info, 4, true },	{ "bufinfo", op_bufinfo, 6, true },
	{ "list", op_list, 4, true },	    { "wild", op_wild, 20, true },	{ "map", op_map, 20, true },
	{ "touch", op_touch, 30, true },    { "unmap", op_unmap, 8, true },	{ "protect", op_protect, 6, true },
	{ "advise", op_advise, 12, true },  { "move", op_move, 6, true },	{ "lock", op_lock, 6, true },
	{ "close", op_close, 10, true },    { "dup", op_dup, 4, true },		{ "send", op_send, 4, true },
	{ "receive", op_receive, 4, true }, { "sync", op_sync, 6, true },	{ "name", op_name, 4, true },
	{ "fence", op_fence, 4, false },    { "odd", op_odd, 6, true },		{ "seen", op_seen, 1, true },
	{ "open", op_open, 4, true },	    { "import", op_import, 20, false }, { "arena", op_arena, 6, true },
	{ "memfd", op_memfd, 6, true },	    { "limit", op_limit, 1, true },	{ "fail", op_fail, 6, true },
	{ "fork", op_fork, 1, true },
};
#define OPS (sizeof(ops) / sizeof(ops[0]))

static bool must_work(unsigned int i)
{
	return ops[i].always || (ops[i].run == op_import && import_is_there());
}

static bool all_worked(void)
{
	for (unsigned int i = 0; i < OPS; i++)
		if (!shared->worked[i] && must_work(i))
			return false;
	return true;
}

static void op_some(bool forks)
{
	unsigned int all = 0, i;
	uint64_t at;

	for (i = 0; i < OPS; i++)
		all += ops[i].weight;
	at = roll(all);
	for (i = 0; at >= ops[i].weight; i++)
		at -= ops[i].weight;
	if (ops[i].run == op_fork && !forks)
		return;
	atomic_fetch_add(&shared->tried[i], 1);
	if (ops[i].run())
		atomic_fetch_add(&shared->worked[i], 1);
}

static double life_ends;

static void *thread(void *seed)
{
	dice = (uintptr_t)seed;
	kernel_fails = fail_open();
	while (!atomic_load(&shared->stop) && mem_clock() < life_ends)
		op_some(true);
	return NULL;
}

static int memfd_some(unsigned int flags, uint64_t bytes, unsigned int seals, bool read_only)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags), copy;
	char path[64];

	if (fd < 0 || ftruncate(fd, bytes) || fcntl(fd, F_ADD_SEALS, seals) || !read_only)
		return fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	copy = open(path, O_RDONLY | O_CLOEXEC);
	close(fd);
	return copy;
}

static void process_prepare(void)
{
	const struct sigaction act = { .sa_sigaction = guard_caught, .sa_flags = SA_SIGINFO };
	const struct rlimit files = { 4096, 4096 }, core = { 0, 0 };
	const size_t half = ARENA_PAGES * PAGE;

	sigaction(SIGSEGV, &act, NULL);
	sigaction(SIGBUS, &act, NULL);
	signal(SIGCHLD, SIG_IGN);
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_CORE, &core);
	/* Behind it is nothing, so that no range goes on into what is not stamped. */
	arena = mmap(NULL, 2 * half + 8 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(arena, half, PROT_READ | PROT_WRITE);
	mmap(arena + half, half, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memfds[0] = memfd_some(0, 64 * PAGE, F_SEAL_SHRINK, false);
	memfds[1] = memfd_some(0, 64 * PAGE, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, false);
	memfds[2] = memfd_some(0, 64 * PAGE, 0, false);
	memfds[3] = memfd_some(0, 64 * PAGE, F_SEAL_SHRINK, true);
	memfds[4] = memfd_some(MFD_HUGETLB, 2 * HUGE, F_SEAL_SHRINK, false);
}

static _Noreturn void process(uint64_t seed, bool nobody)
{
	pthread_t threads[THREADS];

	dice = seed;
	life_ends = mem_clock() + 2 + roll(8);
	if (nobody && setresuid(NOBODY, NOBODY, NOBODY))
		_exit(2);
	process_prepare();
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, thread, (void *)mix(seed + 1 + i)))
			_exit(3);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

/* ---- processes ----------------------------------------------------------------------------------------------------- */

static pid_t processes[PROCESSES];

/* Ends are those that were meant. Whether anybody is left. */
static bool reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (!(WIFEXITED(status) && !WEXITSTATUS(status)) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
			bad(LIFE, "process %d ended with %x", pid, status);
		for (int i = 0; i < PROCESSES; i++)
			if (processes[i] == pid)
				processes[i] = 0;
	}
	return !pid || errno != ECHILD;
}

/* For so long, and on a slow machine until every operation has worked. */
static void run(double seconds, uint64_t seed)
{
	double end = mem_clock() + seconds, late = end + 3 * PATIENCE_S;

	dice = seed;
	while (mem_clock() < end || (!all_worked() && mem_clock() < late)) {
		reap();
		for (int i = 0; i < PROCESSES; i++)
			if (!processes[i]) {
				uint64_t its = roll(~0ULL);

				processes[i] = fork();
				if (!processes[i])
					process(its, i == 1);
			}
		mem_sleep(50000);
		if (one_in(40)) {
			pid_t victim = processes[roll(PROCESSES)];

			if (victim > 0)
				kill(victim, SIGKILL);
		}
	}
}

/* Waits for all, also for those whose parents are gone: they are ours then. */
static void end(void)
{
	double late = mem_clock() + 60;
	int fd;

	atomic_store(&shared->stop, 1);
	while (reap()) {
		if (mem_clock() > late) {
			bad(LIFE, "a process does not end");
			break;
		}
		mem_sleep(20000);
	}
	while ((fd = mail_receive()) >= 0)
		close(fd);
}

static void said(int what, const char *name)
{
	if (shared->said[what])
		wrong("%s", shared->why[what]);
	point("fuzz", name);
}

/* Everything was tried and worked; how often. */
static void counts(void)
{
	uint64_t all = 0;

	for (unsigned int i = 0; i < OPS; i++) {
		printf("# %s %lu of %lu\n", ops[i].name, shared->worked[i], shared->tried[i]);
		all += shared->tried[i];
		if (!shared->worked[i] && must_work(i))
			wrong("%s never worked in %lu times", ops[i].name, shared->tried[i]);
	}
	printf("# %lu in all; on the way of %lu of the calls a step of the kernel failed\n", all, shared->kernel_failed);
	point("fuzz", "every operation worked");
}

/* As @uid for the kernel to look at, root again after. */
static int open_as(uid_t uid, int flags)
{
	int fd;

	if (setresuid(uid, uid, 0))
		wrong("setresuid: %s", strerror(errno));
	fd = dev_open(flags);
	if (setresuid(0, 0, 0))
		wrong("setresuid: %s", strerror(errno));
	return expect(fd, 0, "open") ? fd : -1;
}

static bool prepare(void)
{
	fail_prepare();
	file_put("/proc/sys/vm/nr_hugepages", "4");
	for (unsigned int i = 0; i < 3; i++)
		if (!limit_set(i, limits[i].most))
			wrong("%s cannot be set", limits[i].name);
	for (int i = 0; i < 4; i++)
		devs[i] = open_as(i < 2 ? 0 : NOBODY, i % 2 ? O_RDONLY : O_RDWR);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, mail) || prctl(PR_SET_CHILD_SUBREAPER, 1))
		wrong("%s", strerror(errno));
	return point("fuzz", "devices of two users, and limits");
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 20;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)(mem_clock() * 1e9) ^ (uint64_t)time(NULL) << 32;
	struct pinion_info before, after;
	int dev = dev_open(O_RDWR);

	if (argc > 1 && !strcmp(argv[1], "nothing"))
		return 0;
	if (!tap_ok(dev >= 0 && !dev_info(dev, &before), "open", "%d", dev))
		return tap_end();
	printf("# fuzz %g 0x%lx\n", seconds, seed);
	if (!prepare())
		return tap_end();
	run(seconds, seed);
	end();
	parameter_set("fail_nth", 0);
	said(CONTENT, "no buffer shows what is not its own");
	said(ROWS, "rows make sense");
	said(USE, "use is below the limits");
	said(RIGHTS, "nobody has more rights than were given");
	said(LIFE, "every process ends, and as it was meant to");
	said(BOOK, "mappings are where they are thought to be");
	counts();
	for (int i = 0; i < 4; i++)
		close(devs[i]);
	close(mail[0]);
	close(mail[1]);
	if (!mem_bytes_again(dev, before.bytes, before.buffers) || dev_info(dev, &after))
		wrong("%llu bytes and %llu buffers are left", dev_bytes(dev) - before.bytes, dev_buffers(dev) - before.buffers);
	else if (after.poisoned_bytes != before.poisoned_bytes)
		wrong("poisoned bytes");
	parameter_set("max_bytes", 0);
	parameter_set("max_user_bytes", 0);
	parameter_set("max_user_buffers", before.max_user_buffers);
	file_put("/proc/sys/vm/nr_hugepages", "0");
	point("fuzz", "bytes and buffers are what they were");
	return tap_end();
}
