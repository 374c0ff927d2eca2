/* SPDX-License-Identifier: MIT */
/* buffer: shared memory whose pages all exist before anyone sees it, held in RAM, handed over by file descriptor. */
#ifndef PINION_BUFFER_H
#define PINION_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_context;
struct pinion_buffer;

#define PINION_READ 1u	/* rights and protections */
#define PINION_WRITE 2u

enum pinion_pages {
	PINION_PAGES_AUTO,  /* huge pages where the kernel gives them to shared memory and the size fills one, else small */
	PINION_PAGES_SMALL, /* small pages */
	PINION_PAGES_HUGE,  /* huge pages, of the pool of 2 MiB or transparent */
	PINION_PAGES_THP,   /* transparent huge pages */
	PINION_PAGES_2M,    /* pages of 2 MiB that an administrator set aside (hugetlb); of the module its own */
	PINION_PAGES_1G,    /* the same of 1 GiB */
};

enum pinion_hold {
	PINION_HOLD_AUTO,	/* the best that can be had, reported by pinion_buffer_info() */
	PINION_HOLD_NONE,	/* the pages may be swapped or migrated */
	PINION_HOLD_LOCKED,	/* mlock: never swapped, but may be migrated; ends with this process's mapping */
	PINION_HOLD_REGISTERED, /* pinned by an io_uring registration: never swapped, never migrated */
	PINION_HOLD_PINNED,	/* pinned by the module while anybody has it: never swapped, never migrated, for any device */
};

enum pinion_numa {
	PINION_NUMA_ANY,       /* as the thread's memory policy says */
	PINION_NUMA_PREFERRED, /* of that node, or of others when it has no more */
	PINION_NUMA_STRICT,    /* all of it of that node, or an error */
};

/* Called from the calling thread after each part of the work; a non-zero result ends it with -ECANCELED. */
typedef int (*pinion_progress_fn)(void *arg, uint64_t done, uint64_t total);

struct pinion_buffer_opts {
	size_t size;
	enum pinion_pages pages; /* other than AUTO: all of it in those, or an error */
	enum pinion_hold hold;	 /* other than AUTO: that, or an error */
	const char *label;	 /* shown in /proc/PID/maps, at most 200 bytes; NULL: "pinion" */
	bool prefer_pages;	 /* pages is a wish: the next best will do, which pinion_buffer_info() tells */
	enum pinion_numa numa;
	uint32_t node;		     /* with numa, the number that the kernel gives the node */
	pinion_progress_fn progress; /* told of bytes made present, every 64 MiB; of the module's memory once, at the end */
	void *progress_arg;
};

struct pinion_buffer_info {
	size_t size;	     /* set by the caller */
	uint64_t bytes;	     /* size in bytes, a multiple of page_size */
	uint64_t huge_bytes; /* of them in huge pages, as the kernel showed it when the buffer was made; 0 if made elsewhere */
	uint32_t page_size;  /* bytes of the page the size was rounded to */
	uint32_t rights;     /* PINION_READ, or with PINION_WRITE while writable mappings can still be made */
	enum pinion_hold hold;
	const char *hold_why; /* why the hold is no better; "" when it is REGISTERED or PINNED; borrowed from the buffer */
	enum pinion_pages pages; /* which they are: SMALL, THP, 2M, 1G, or HUGE of the module; AUTO: made elsewhere, not known */
	const char *pages_why;	 /* why not those that were wished for; "" when they are; borrowed from the buffer */
	uint64_t node_bytes;	 /* of bytes, on the node that was asked for, when it was made; 0 where none was */
};

/*
 * Makes a buffer of at least @size bytes, zeroed, every page present. The caller owns *@out (pinion_buffer_unref()).
 * Errors: -EINVAL size 0, options, or a node that has no memory; -EOVERFLOW; -ENOMEM free memory, that of the node, a pool of
 * huge pages, a cgroup or RLIMIT_MEMLOCK is short (the sentence names it, its value and the need; nothing stays allocated);
 * -ENOSPC the module's limit of buffers; -EFBIG a memfd of that size would pass RLIMIT_FSIZE; -EOPNOTSUPP huge pages or a hold
 * asked for that cannot be had here; -ECANCELED.
 * In a context on the module AUTO and PINNED give its pages, and so does REGISTERED, registered besides; NONE and LOCKED are
 * asked of memory that is not the module's, and give a memfd, and so do THP and pages of 1 GiB.
 */
int pinion_buffer_alloc(struct pinion_context *ctx, size_t size, const struct pinion_buffer_opts *opts, struct pinion_buffer **out);

/* Another reference to the same object; returns @buf. */
struct pinion_buffer *pinion_buffer_ref(struct pinion_buffer *buf);

/* Gives a reference back; the last one unmaps and closes. Memory lives on while another process holds it. */
void pinion_buffer_unref(struct pinion_buffer *buf);

/* Size in bytes: the request rounded up to the page in use. */
uint64_t pinion_buffer_size(const struct pinion_buffer *buf);

/* Fills *@info; safe from any thread. */
int pinion_buffer_info(struct pinion_buffer *buf, struct pinion_buffer_info *info);

/*
 * Maps the whole buffer with @prot (PINION_READ, or PINION_READ | PINION_WRITE). Calls nest: one mapping per protection,
 * given up by as many pinion_buffer_unmap(). Safe from any thread. Errors: -EPERM writable and sealed; -ENOMEM.
 */
int pinion_buffer_map(struct pinion_buffer *buf, uint32_t prot, void **addr);
int pinion_buffer_unmap(struct pinion_buffer *buf, uint32_t prot);

/*
 * From now on nobody can make a new writable mapping or write through a descriptor, in any process, ever. Writable mappings
 * that exist stay. Cannot be undone. mmap is EPERM, mprotect EACCES, write EPERM; of the module's memory mmap is EACCES.
 * -EOPNOTSUPP: of the module's memory, once a descriptor that may write was sent, exported or received, because its rights
 * are its own; of a memfd that was exported as a dma-buf; of a slice of a memfd, or a dma-buf of another driver. What a child
 * inherited by fork() is not seen: seal first.
 */
int pinion_buffer_seal(struct pinion_buffer *buf);

/* A new descriptor of the memory, close-on-exec, the caller's. -EOPNOTSUPP: a slice of a memfd or of another driver's dma-buf. */
int pinion_buffer_export(struct pinion_buffer *buf);

/*
 * A new dma-buf of the memory, close-on-exec, the caller's, which any driver that takes them may use. Of the module's memory
 * that is what it is. Of a memfd, or a slice of one, it is made by /dev/udmabuf, and from then on the memfd cannot be sealed.
 * -EOPNOTSUPP there is no /dev/udmabuf; -EACCES this user may not open it; -EPERM the buffer is sealed, or for reading; -EINVAL
 * udmabuf's limit.
 */
int pinion_buffer_export_dmabuf(struct pinion_buffer *buf);

/*
 * Part of the buffer as a buffer of its own with no more than @rights: the same memory, which lives as long as either.
 * @offset and @bytes are multiples of a small page inside it, of a pool's pages where it is made of those. The caller owns
 * *@out. Safe from any thread. Of the module's memory a slice is a descriptor with these rights, and is handed out as any buffer.
 * Of a memfd, whose descriptor is a right to all of it, it is a window of this process's own: its mappings obey the rights,
 * and it cannot be sent or exported (-EOPNOTSUPP), unless it is all of the buffer with all the rights there are.
 * Errors: -EINVAL; -EPERM a writer of a sealed buffer or of a reader; -ENOSPC the module's limit of buffers; -EMFILE, -ENOMEM.
 */
int pinion_buffer_slice(struct pinion_buffer *buf, uint64_t offset, uint64_t bytes, uint32_t rights, struct pinion_buffer **out);

struct pinion_import_opts {
	size_t size;
	enum pinion_hold hold; /* of a memfd, other than AUTO: that, or an error; on the module AUTO is pinned if it can be */
};

/*
 * A buffer over memory that there is: all of a memfd, or of a dma-buf of any driver. @fd stays the caller's and may be closed.
 * The caller owns *@out. @opts may be NULL.
 * A memfd must be sealed with F_SEAL_SHRINK, so that no access is ever a bus fault; one of a pool of huge pages with
 * F_SEAL_FUTURE_WRITE as well, as its writers could take pages away; and be open for reading and writing unless it is sealed
 * against writing. Pages that are missing are made present. Who else may write it can still change it, or make holes, which
 * read as zeros.
 * A dma-buf that our module did not make is mapped by its exporter's grace, and no more is promised than that: bracket each
 * use by the CPU with pinion_buffer_cpu_begin() and _end().
 * Errors: -EINVAL not such a descriptor, or one that could shrink (the sentence says what to do), or not whole pages; -EACCES;
 * -EOPNOTSUPP the exporter lets nobody map it, or a hold that cannot be had; -ENOMEM holes that cannot be filled, or the hold.
 */
int pinion_buffer_import(struct pinion_context *ctx, int fd, const struct pinion_import_opts *opts, struct pinion_buffer **out);

/*
 * Begins and ends the CPU's use of a mapping of memory that devices use as well, for reading, or with PINION_WRITE: waits for
 * what devices do with it, and moves caches where a machine needs that (DMA_BUF_IOCTL_SYNC). Of a memfd both do nothing. Safe
 * from any thread; they nest. -EPERM it cannot be written here; what the exporter answers.
 */
int pinion_buffer_cpu_begin(struct pinion_buffer *buf, uint32_t rights);
int pinion_buffer_cpu_end(struct pinion_buffer *buf, uint32_t rights);

/*
 * Sends the buffer over a connected Unix socket. @rights PINION_READ hands over a reader: of the module's memory one beside
 * writers; a memfd is sealed first. PINION_READ | PINION_WRITE hands over a writer and is -EOPNOTSUPP once the buffer is
 * sealed (a second writer beside readers needs the module), and of a pool of huge pages. -EOPNOTSUPP too of what cannot be
 * handed out: a slice of a memfd, a dma-buf of another driver.
 */
int pinion_buffer_send(struct pinion_buffer *buf, int sock, uint32_t rights);

/*
 * Receives one buffer, which may stand on another ground than @ctx; the caller owns *@out. The module's memory is taken
 * without access to its device too, as the descriptor is the right. Errors: -EPROTO the message is not a buffer, or its
 * descriptor could shrink under us; -ECONNRESET the peer closed.
 */
int pinion_buffer_recv(struct pinion_context *ctx, int sock, struct pinion_buffer **out);

#ifdef __cplusplus
}
#endif
#endif
