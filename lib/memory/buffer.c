/* SPDX-License-Identifier: MIT */
#include "buffer.h"

#include "../context.h"
#include "../error.h"
#include "../provider/dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LABEL_MAX 200 /* the kernel takes 249 */

const char *buffer_hold_name(enum pinion_hold hold)
{
	switch (hold) {
	case PINION_HOLD_PINNED:
		return "pinned";
	case PINION_HOLD_REGISTERED:
		return "registered";
	case PINION_HOLD_LOCKED:
		return "locked";
	default:
		return "unlocked";
	}
}

/*
 * Every buffer of the process, so that a fork can wait for whoever holds one's lock: buffers may be used in the child, where
 * that thread is not there to give it back.
 */
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before a buffer's */
static struct pinion_buffer *live;

static void fork_prepare(void)
{
	pthread_mutex_lock(&live_lock);
	for (struct pinion_buffer *buf = live; buf; buf = buf->next)
		pthread_mutex_lock(&buf->lock);
}

static void fork_done(void)
{
	for (struct pinion_buffer *buf = live; buf; buf = buf->next)
		pthread_mutex_unlock(&buf->lock);
	pthread_mutex_unlock(&live_lock);
}

static void watch_forks(void)
{
	pthread_atfork(fork_prepare, fork_done, fork_done);
}

static void enlist(struct pinion_buffer *buf)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&live_lock);
	buf->next = live;
	if (live)
		live->prev = buf;
	live = buf;
	pthread_mutex_unlock(&live_lock);
}

static void delist(struct pinion_buffer *buf)
{
	pthread_mutex_lock(&live_lock);
	if (buf->next)
		buf->next->prev = buf->prev;
	if (buf->prev)
		buf->prev->next = buf->next;
	else
		live = buf->next;
	pthread_mutex_unlock(&live_lock);
}

int buffer_new(const struct pages *pages, void *writer, struct pinion_buffer **out)
{
	struct pinion_buffer *buf = calloc(1, sizeof(*buf));

	if (!buf)
		return fail(ENOMEM, "no memory for a buffer object");
	buf->refs = 1;
	buf->pages = *pages;
	/* What came from elsewhere with the right to write has a writer there. */
	buf->writer_out = !writer && !pages->sealed;
	buf->writer.addr = writer;
	pthread_mutex_init(&buf->lock, NULL);
	enlist(buf);
	*out = buf;
	return 0;
}

static int check_opts(size_t size, const struct pinion_buffer_opts *opts)
{
	if (!size)
		return fail(EINVAL, "a buffer has at least 1 byte");
	if (opts->pages > PINION_PAGES_1G)
		return fail(EINVAL, "pinion_buffer_opts.pages is %d, not one of enum pinion_pages", opts->pages);
	if (opts->label && strnlen(opts->label, LABEL_MAX + 1) > LABEL_MAX)
		return fail(EINVAL, "pinion_buffer_opts.label has more than %d bytes", LABEL_MAX);
	if (opts->hold > PINION_HOLD_PINNED)
		return fail(EINVAL, "pinion_buffer_opts.hold is %d, not one of enum pinion_hold", opts->hold);
	if (opts->numa > PINION_NUMA_STRICT)
		return fail(EINVAL, "pinion_buffer_opts.numa is %d, not one of enum pinion_numa", opts->numa);
	if (!opts->numa && opts->node)
		return fail(EINVAL, "pinion_buffer_opts.node is %u and numa says any; say PREFERRED or STRICT", opts->node);
	if (opts->node > INT32_MAX)
		return fail(EINVAL, "there is no NUMA node %u", opts->node);
	return 0;
}

PINION_API int pinion_buffer_alloc(struct pinion_context *ctx, size_t size, const struct pinion_buffer_opts *opts,
				   struct pinion_buffer **out)
{
	struct pinion_buffer_opts own = { .size = sizeof(own) };
	struct pages_request req;
	struct pages pages;
	void *addr;
	int ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&own, sizeof(own), opts, "pinion_buffer_opts");
	if (!ret)
		ret = check_opts(size, &own);
	if (ret)
		return ret;
	req = (struct pages_request){ .bytes = size,
				      .pages = own.pages,
				      .prefer = own.prefer_pages,
				      .hold = own.hold,
				      .numa = own.numa,
				      .node = own.node,
				      .label = own.label ? own.label : "pinion",
				      .progress = own.progress,
				      .progress_arg = own.progress_arg,
				      .device = ctx->device };
	ret = ctx->provider->pages_alloc(&req, &pages, &addr);
	if (ret)
		return ret;
	ret = buffer_new(&pages, addr, out);
	if (ret) {
		munmap(addr, pages.bytes);
		pages.ops->pages_close(&pages);
	}
	return ret;
}

PINION_API struct pinion_buffer *pinion_buffer_ref(struct pinion_buffer *buf)
{
	__atomic_add_fetch(&buf->refs, 1, __ATOMIC_RELAXED);
	return buf;
}

PINION_API void pinion_buffer_unref(struct pinion_buffer *buf)
{
	if (!buf || __atomic_sub_fetch(&buf->refs, 1, __ATOMIC_ACQ_REL))
		return;
	delist(buf);
	if (buf->reader.addr)
		munmap(buf->reader.addr, buf->pages.bytes);
	if (buf->writer.addr)
		munmap(buf->writer.addr, buf->pages.bytes);
	buf->pages.ops->pages_close(&buf->pages);
	pthread_mutex_destroy(&buf->lock);
	free(buf);
}

PINION_API uint64_t pinion_buffer_size(const struct pinion_buffer *buf)
{
	return buf->pages.bytes;
}

/* Under buf->lock. Another holder may have done it. */
static bool is_sealed(struct pinion_buffer *buf)
{
	if (!buf->pages.sealed)
		buf->pages.sealed = buf->pages.ops->pages_sealed(&buf->pages);
	return buf->pages.sealed;
}

bool buffer_is_sealed(struct pinion_buffer *buf)
{
	bool sealed;

	pthread_mutex_lock(&buf->lock);
	sealed = is_sealed(buf);
	pthread_mutex_unlock(&buf->lock);
	return sealed;
}

static struct buffer_map *map_of(struct pinion_buffer *buf, uint32_t prot)
{
	return prot & PINION_WRITE ? &buf->writer : &buf->reader;
}

static int check_prot(uint32_t prot)
{
	if (prot != PINION_READ && prot != (PINION_READ | PINION_WRITE))
		return fail(EINVAL, "a mapping is PINION_READ or PINION_READ | PINION_WRITE, not 0x%x", prot);
	return 0;
}

/* Under buf->lock. */
static int make_map(struct pinion_buffer *buf, uint32_t prot)
{
	struct buffer_map *map = map_of(buf, prot);

	if (map->addr)
		return 0;
	if ((prot & PINION_WRITE) && buf->pages.reader)
		return fail(EPERM, "this slice was made for reading only");
	if ((prot & PINION_WRITE) && buf->pages.sealed)
		return fail(EPERM, "the buffer is sealed: nobody can make a writable mapping of it any more");
	return buf->pages.ops->pages_map(&buf->pages, prot, &map->addr);
}

PINION_API int pinion_buffer_map(struct pinion_buffer *buf, uint32_t prot, void **addr)
{
	int ret = check_prot(prot);

	if (ret)
		return ret;
	pthread_mutex_lock(&buf->lock);
	if ((prot & PINION_WRITE) && !buf->writer.uses && !buf->pages.reader && is_sealed(buf))
		ret = fail(EPERM, "the buffer is sealed: nobody can make a writable mapping of it any more");
	else
		ret = make_map(buf, prot);
	if (!ret) {
		map_of(buf, prot)->uses++;
		*addr = map_of(buf, prot)->addr;
	}
	pthread_mutex_unlock(&buf->lock);
	return ret;
}

/* Under buf->lock: a mapping that carries the lock of the pages is kept until the last reference goes. */
static void drop_map(struct pinion_buffer *buf, struct buffer_map *map)
{
	if (!map->addr || map->uses || buf->pages.hold == PINION_HOLD_LOCKED)
		return;
	munmap(map->addr, buf->pages.bytes);
	map->addr = NULL;
}

PINION_API int pinion_buffer_unmap(struct pinion_buffer *buf, uint32_t prot)
{
	struct buffer_map *map = map_of(buf, prot);
	int ret = check_prot(prot);

	if (ret)
		return ret;
	pthread_mutex_lock(&buf->lock);
	if (map->uses == 0)
		ret = fail(EINVAL, "the buffer is not mapped that way");
	else if (--map->uses == 0)
		drop_map(buf, map);
	pthread_mutex_unlock(&buf->lock);
	return ret;
}

void buffer_drop_mappings(struct pinion_buffer *buf)
{
	pthread_mutex_lock(&buf->lock);
	drop_map(buf, &buf->reader);
	drop_map(buf, &buf->writer);
	pthread_mutex_unlock(&buf->lock);
}

int buffer_lock_mapping(struct pinion_buffer *buf, uint32_t prot)
{
	void *addr;
	int ret;

	pthread_mutex_lock(&buf->lock);
	addr = map_of(buf, prot)->addr;
	ret = addr ? -pages_lock(&buf->pages, addr) : -EINVAL;
	pthread_mutex_unlock(&buf->lock);
	return ret;
}

/* Under buf->lock: an unused writer must not outlive the seal, but the lock it carries must. */
static int replace_writer(struct pinion_buffer *buf)
{
	int ret, err = 0;

	if (!buf->writer.addr || buf->writer.uses)
		return 0;
	if (buf->pages.hold == PINION_HOLD_LOCKED) {
		ret = make_map(buf, PINION_READ);
		if (ret)
			return ret;
		/* RLIMIT_MEMLOCK counts both mappings: with both at once there may be room for one only. */
		err = pages_lock(&buf->pages, buf->reader.addr);
	}
	munmap(buf->writer.addr, buf->pages.bytes);
	buf->writer.addr = NULL;
	if (err)
		err = pages_lock(&buf->pages, buf->reader.addr);
	if (err) {
		buf->pages.hold = PINION_HOLD_NONE;
		snprintf(buf->pages.hold_why, sizeof(buf->pages.hold_why), "mlock of the sealed mapping: %s",
			 strerrordesc_np(err));
	}
	return 0;
}

/* Under buf->lock. */
static int seal(struct pinion_buffer *buf)
{
	int ret;

	if (!is_sealed(buf) && buf->pages.window)
		return fail(EOPNOTSUPP, "this is a slice of a memfd, which is sealed as a whole: seal the buffer that it is of");
	if (!is_sealed(buf) && buf->pages.ops->has_rights && buf->writer_out)
		return fail(EOPNOTSUPP,
			    "a descriptor that may write was handed out, and the kernel module takes no right back; hand out "
			    "PINION_READ only, or seal before");
	ret = buf->pages.sealed ? 0 : buf->pages.ops->pages_seal(&buf->pages);
	return ret ? ret : replace_writer(buf);
}

PINION_API int pinion_buffer_seal(struct pinion_buffer *buf)
{
	int ret;

	pthread_mutex_lock(&buf->lock);
	ret = seal(buf);
	pthread_mutex_unlock(&buf->lock);
	return ret;
}

/* Under buf->lock. */
static int slice(struct pinion_buffer *buf, uint64_t offset, uint64_t bytes, uint32_t rights, struct pages *out)
{
	int ret = buf->pages.ops->pages_slice(&buf->pages, offset, bytes, rights, out);

	if (!ret && (rights & PINION_WRITE))
		buf->writer_out = true;
	return ret;
}

/* Under buf->lock. */
static int duplicate(struct pinion_buffer *buf)
{
	int fd;

	if (buf->pages.window)
		return fail(EOPNOTSUPP, "this is a slice of memory whose descriptor is a right to all of it; hand out the whole "
					"and slice it there, "
					"or use the kernel module, whose slices are descriptors");
	fd = fcntl(buf->pages.fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return fail_errno(errno, "duplicating the buffer's descriptor");
	if (is_sealed(buf))
		return fd;
	buf->writer_out = true;
	/* fallocate() makes holes in a memfd; what the module hands out knows no such call. */
	if (buf->pages.ops == &provider_memfd)
		pin_let_out(buf->pages.pin);
	return fd;
}

PINION_API int pinion_buffer_export(struct pinion_buffer *buf)
{
	int fd;

	pthread_mutex_lock(&buf->lock);
	fd = duplicate(buf);
	pthread_mutex_unlock(&buf->lock);
	return fd;
}

/* Under buf->lock. */
static int hand_out_reader(struct pinion_buffer *buf)
{
	struct pages reader;
	int fd, ret;

	if (is_sealed(buf) || !buf->pages.ops->has_rights) {
		ret = seal(buf);
		return ret ? ret : duplicate(buf);
	}
	ret = slice(buf, 0, buf->pages.bytes, PINION_READ, &reader);
	if (ret)
		return ret;
	fd = fcntl(reader.fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		fd = fail_errno(errno, "duplicating the buffer's descriptor");
	reader.ops->pages_close(&reader);
	return fd;
}

int buffer_hand_out(struct pinion_buffer *buf, uint32_t rights)
{
	int fd;

	pthread_mutex_lock(&buf->lock);
	if (buf->pages.ops->is_foreign)
		fd = fail(EOPNOTSUPP, "this is a dma-buf of another driver, whose memory we cannot vouch for; send what "
				      "pinion_buffer_export() gives yourself, to be imported there");
	else if (rights == PINION_READ)
		fd = hand_out_reader(buf);
	else if (buf->pages.ops == &provider_memfd && pages_of_pool(&buf->pages))
		fd = fail(EOPNOTSUPP,
			  "the buffer is of a pool of huge pages, and a writer could take pages away under the others; "
			  "hand out PINION_READ");
	else if (!is_sealed(buf))
		fd = duplicate(buf);
	else if (buf->pages.ops->has_rights)
		fd = fail(EOPNOTSUPP, "the buffer is read-only here, so there is no writer to hand out");
	else
		fd = fail(EOPNOTSUPP,
			  "the buffer was handed out read-only, which seals it for everyone here; a writer beside readers needs "
			  "the kernel module");
	pthread_mutex_unlock(&buf->lock);
	return fd;
}

static int check_slice(const struct pinion_buffer *buf, uint64_t offset, uint64_t bytes, uint32_t rights)
{
	uint64_t page = sysconf(_SC_PAGESIZE);

	if (rights != PINION_READ && rights != (PINION_READ | PINION_WRITE))
		return fail(EINVAL, "rights are PINION_READ or PINION_READ | PINION_WRITE, not 0x%x", rights);
	if (!bytes || offset % page || bytes % page || offset >= buf->pages.bytes || bytes > buf->pages.bytes - offset)
		return fail(EINVAL, "a slice of %llu bytes at %llu is not whole pages inside a buffer of %llu",
			    (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)buf->pages.bytes);
	return 0;
}

PINION_API int pinion_buffer_slice(struct pinion_buffer *buf, uint64_t offset, uint64_t bytes, uint32_t rights,
				   struct pinion_buffer **out)
{
	struct pages pages;
	int ret = check_slice(buf, offset, bytes, rights);

	if (ret)
		return ret;
	pthread_mutex_lock(&buf->lock);
	is_sealed(buf);
	if ((rights & PINION_WRITE) && buf->pages.reader)
		ret = fail(EPERM, "a slice for reading only has none with the right to write");
	else if ((rights & PINION_WRITE) && is_sealed(buf))
		ret = fail(EPERM, "the buffer is sealed: a slice of it cannot have the right to write");
	else
		ret = slice(buf, offset, bytes, rights, &pages);
	pthread_mutex_unlock(&buf->lock);
	if (ret)
		return ret;
	ret = buffer_new(&pages, NULL, out);
	if (ret)
		pages.ops->pages_close(&pages);
	return ret;
}

PINION_API int pinion_buffer_export_dmabuf(struct pinion_buffer *buf)
{
	int fd;

	pthread_mutex_lock(&buf->lock);
	fd = buf->pages.ops == &provider_memfd ? dmabuf_of_memfd(&buf->pages) : duplicate(buf);
	pthread_mutex_unlock(&buf->lock);
	return fd;
}

/* Whatever stands behind it: memory of a memfd is the CPU's at all times. */
static int cpu_access(struct pinion_buffer *buf, uint32_t rights, bool begin)
{
	int ret = check_prot(rights);

	if (ret || buf->pages.ops == &provider_memfd)
		return ret;
	pthread_mutex_lock(&buf->lock);
	if ((rights & PINION_WRITE) && (buf->pages.reader || is_sealed(buf)))
		ret = fail(EPERM, "the buffer cannot be written here");
	pthread_mutex_unlock(&buf->lock);
	return ret ? ret : dmabuf_sync(buf->pages.fd, rights, begin);
}

PINION_API int pinion_buffer_cpu_begin(struct pinion_buffer *buf, uint32_t rights)
{
	return cpu_access(buf, rights, true);
}

PINION_API int pinion_buffer_cpu_end(struct pinion_buffer *buf, uint32_t rights)
{
	return cpu_access(buf, rights, false);
}

PINION_API int pinion_buffer_info(struct pinion_buffer *buf, struct pinion_buffer_info *info)
{
	struct pinion_buffer_info own = { .size = sizeof(own) };

	pthread_mutex_lock(&buf->lock);
	own.bytes = buf->pages.bytes;
	own.huge_bytes = buf->pages.huge_bytes;
	own.page_size = buf->pages.page_size;
	own.rights = is_sealed(buf) || buf->pages.reader ? PINION_READ : PINION_READ | PINION_WRITE;
	own.hold = buf->pages.hold;
	own.hold_why = buf->pages.hold_why;
	own.pages = buf->pages.got;
	own.pages_why = buf->pages.pages_why;
	own.node_bytes = buf->pages.node_bytes;
	pthread_mutex_unlock(&buf->lock);
	return opts_out(info, &own, sizeof(own), "pinion_buffer_info");
}
