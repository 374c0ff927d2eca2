/* SPDX-License-Identifier: MIT */
/* buffer: shared memory whose pages all exist before anyone sees it, held in RAM, handed over by file descriptor. */
#ifndef PINION_BUFFER_H
#define PINION_BUFFER_H

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
	PINION_PAGES_HUGE,  /* huge pages or -EOPNOTSUPP */
};

enum pinion_hold {
	PINION_HOLD_AUTO,	/* the best that can be had, reported by pinion_buffer_info() */
	PINION_HOLD_NONE,	/* the pages may be swapped or migrated */
	PINION_HOLD_LOCKED,	/* mlock: never swapped, but may be migrated; ends with this process's mapping */
	PINION_HOLD_REGISTERED, /* pinned by an io_uring registration: never swapped, never migrated */
};

struct pinion_buffer_opts {
	size_t size;
	enum pinion_pages pages;
	enum pinion_hold hold; /* other than AUTO: that, or an error */
	const char *label;     /* shown in /proc/PID/maps, at most 200 bytes; NULL: "pinion" */
};

struct pinion_buffer_info {
	size_t size;	     /* set by the caller */
	uint64_t bytes;	     /* size in bytes, a multiple of page_size */
	uint64_t huge_bytes; /* of them in huge pages, as the kernel showed it when the buffer was made; 0 if made elsewhere */
	uint32_t page_size;  /* bytes of the page the size was rounded to */
	uint32_t rights;     /* PINION_READ, or with PINION_WRITE while writable mappings can still be made */
	enum pinion_hold hold;
	const char *hold_why; /* why the hold is no better; "" when it is REGISTERED; borrowed from the buffer */
};

/*
 * Makes a buffer of at least @size bytes, zeroed, every page present. The caller owns *@out (pinion_buffer_unref()).
 * Errors: -EINVAL size 0 or options; -EOVERFLOW; -ENOMEM free memory, a cgroup or RLIMIT_MEMLOCK is short (the sentence
 * names it, its value and the need; nothing stays allocated); -EOPNOTSUPP huge pages asked for and not to be had.
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
 * From now on nobody can make a new writable mapping or write through the descriptor, in any process, ever: mmap is
 * EPERM, mprotect EACCES, write EPERM. Writable mappings that exist stay. Cannot be undone.
 */
int pinion_buffer_seal(struct pinion_buffer *buf);

/* A new descriptor of the memory, close-on-exec, the caller's. */
int pinion_buffer_export(struct pinion_buffer *buf);

/*
 * Sends the buffer over a connected Unix socket. @rights PINION_READ seals it first; PINION_READ | PINION_WRITE hands
 * over a writer and is -EOPNOTSUPP once the buffer is sealed (a second writer beside readers needs the module).
 */
int pinion_buffer_send(struct pinion_buffer *buf, int sock, uint32_t rights);

/*
 * Receives one buffer; the caller owns *@out. Errors: -EPROTO the message is not a buffer, or its descriptor could shrink
 * under us; -ECONNRESET the peer closed.
 */
int pinion_buffer_recv(struct pinion_context *ctx, int sock, struct pinion_buffer **out);

#ifdef __cplusplus
}
#endif
#endif
