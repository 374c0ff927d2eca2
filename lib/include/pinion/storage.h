/* SPDX-License-Identifier: MIT */
/*
 * storage: elements of one dtype in memory, whatever is behind it: the process's own memory, a read-only file, a pinned
 * buffer, memory shared with other processes by a path or by a name, or the memory of a device.
 */
#ifndef PINION_STORAGE_H
#define PINION_STORAGE_H

#include <pinion/buffer.h>
#include <pinion/caps.h>
#include <pinion/dtype.h>
#include <pinion/view.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_context;
struct pinion_mapping;
struct pinion_storage;

enum pinion_storage_kind {
	PINION_STORAGE_OWNED = 1, /* the process's own memory */
	PINION_STORAGE_MMAPPED,	  /* a part of a read-only mapping of a file */
	PINION_STORAGE_PINNED,	  /* a buffer, or a part of one */
	PINION_STORAGE_SHARED,	  /* a file that other processes map by its path */
	PINION_STORAGE_NAMED,	  /* a buffer that other processes find by its name; its size is sealed */
	PINION_STORAGE_REMOTE,	  /* on another machine; not built */
	PINION_STORAGE_DEVICE,	  /* a device's memory, of an array: pinion_array_storage() */
};

struct pinion_storage_opts {
	size_t size;
	uint32_t rights; /* opening: PINION_READ, which the memory enforces, or with PINION_WRITE; 0: both */
	uint32_t rank;	 /* 0: one axis of all elements; opening with a header: its shape, else what must be its shape */
	uint64_t shape[PINION_RANK_MAX]; /* its product is the number of elements */
	bool header;	/* by path: 4096 bytes in front say what the array is, with a sequence; by name: always */
	bool replace;	/* creating by path: a new file takes the place of one that is there */
	uint32_t mode;	/* creating by path: permissions of a new file, whatever the umask is; 0: 0600 */
	int64_t deadline_ns; /* opening by name: how long to wait for one that is still being made; 0: -EBUSY */
	const struct pinion_buffer_opts *buffer; /* creating by name: pages, hold and label; NULL: defaults */
};

struct pinion_storage_info {
	size_t size; /* set by the caller */
	enum pinion_storage_kind kind;
	enum pinion_dtype dtype;
	uint32_t rights; /* PINION_READ, or with PINION_WRITE */
	uint32_t rank;
	uint64_t shape[PINION_RANK_MAX];
	uint64_t elements;
	uint64_t bytes; /* of the elements */
	bool header;
	uint64_t generation; /* with a header: one more each time it is created anew in the same memory; else 0 */
	uint64_t sequence;   /* with a header: two more for each write, odd during one; else 0 */
	bool unlinked;	     /* by path: the path does not lead here any more, it was removed, renamed or replaced */
	enum pinion_hold hold; /* of a buffer; PINION_HOLD_NONE elsewhere */
	const char *hold_why;  /* why the hold is no better; borrowed from the storage */
	struct pinion_location location; /* where the memory is: the CPU's, but for a device's */
	const char *device; /* the key of the device that made it; NULL: none did. Borrowed as long as the process */
};

/*
 * Making storages. Each checks, in this order and before anything is touched: the dtype (-EINVAL not one; -EOPNOTSUPP
 * "dtype has zero size"), the bytes of @n elements (-EOVERFLOW "elem_count overflow"), and for what is shared that @n
 * is not 0 (-EINVAL "zero-length"). The caller owns *@out (pinion_storage_free()). In these errors and those below, the
 * words in quotation marks are in the sentence.
 */

/* @n zeroed elements at an address that is a multiple of 64. @n may be 0. -ENOMEM. */
int pinion_storage_owned(enum pinion_dtype dtype, uint64_t n, struct pinion_storage **out);

/*
 * Takes over @data, which has room for @n elements and becomes the storage's on success; it is given back by
 * @release(@arg, @data), or by free() when @release is NULL. -EINVAL @data is "not aligned to" an element, or NULL for
 * more than 0 elements.
 */
int pinion_storage_adopt(void *data, enum pinion_dtype dtype, uint64_t n, void (*release)(void *arg, void *data),
			 void *arg, struct pinion_storage **out);

/*
 * A read-only mapping of a whole regular file, which may be empty. The file must not shrink while it is mapped: reading
 * what is gone is a bus fault, which the library cannot prevent. Links are followed. -EINVAL a directory, a FIFO or a
 * device; the open's errno. The caller owns *@out (pinion_mapping_unref()).
 */
int pinion_mapping_open(const char *path, struct pinion_mapping **out);
/* The same of an open file. @fd stays the caller's and may be closed. */
int pinion_mapping_open_fd(int fd, struct pinion_mapping **out);

/* References; safe from any thread. A storage over the mapping has one of its own. ref returns @map. */
struct pinion_mapping *pinion_mapping_ref(struct pinion_mapping *map);
void pinion_mapping_unref(struct pinion_mapping *map);

uint64_t pinion_mapping_bytes(const struct pinion_mapping *map);

/*
 * @n elements from byte @offset of @map on, without a copy; any number of storages on one mapping. @n may be 0. After
 * the dtype: -EINVAL @offset is "not aligned to" an element; -EOVERFLOW; -EINVAL "out of bounds".
 */
int pinion_storage_mmapped(struct pinion_mapping *map, enum pinion_dtype dtype, uint64_t offset, uint64_t n,
			   struct pinion_storage **out);

/*
 * @n zeroed elements in a buffer of their own, made as pinion_buffer_alloc() makes it, with its errors. @n may be 0,
 * and then there is no buffer. @opts may be NULL.
 */
int pinion_storage_pinned(struct pinion_context *ctx, enum pinion_dtype dtype, uint64_t n,
			  const struct pinion_buffer_opts *opts, struct pinion_storage **out);

/*
 * @n elements from byte @offset of @buf on, as they are, mapped with @rights. The storage has a reference to @buf. @n
 * may be 0. Errors as of pinion_storage_mmapped(), and those of pinion_buffer_map().
 */
int pinion_storage_over(struct pinion_buffer *buf, uint32_t rights, enum pinion_dtype dtype, uint64_t offset,
			uint64_t n, struct pinion_storage **out);

/*
 * Shared by path. Put the file where files are memory (/dev/shm, another tmpfs): elsewhere the kernel writes it back to
 * the disk.
 *
 * Create makes a file of exactly the bytes it takes, zeroed and with every block present, so that a full file system is
 * -ENOSPC here, before anything is taken, and not a bus fault later, and gives it its name when it is whole. A file
 * that is there is never cut or grown, because others may have it mapped:
 *   - of this user, the same size, and the same header or none: it is used, its mode kept, and zeroed in place, which
 *     those who have it mapped see as a write (-ETIMEDOUT another process is inside one for more than 1 s);
 *   - anything else: -EEXIST, or -EPERM when it is another user's, and the file is as it was;
 *   - with opts.replace: a new file takes its place, and those who have the old one mapped keep it.
 *
 * Open maps the first elements of a file that is there; it may be longer. Without a header the dtype is the caller's
 * claim. With one, dtype, number and, if it was said, shape must be the header's. -ENOENT; -EBADMSG the file is "too
 * small", its header is none, contradicts itself or is of another version, or says something else than was asked for,
 * and the sentence names both; or there is a header and opts.header does not say so.
 *
 * Both: a last component that is a link is -ELOOP; a directory, FIFO, socket or device is -EINVAL; the open's errno,
 * -EACCES and -EROFS among them; -ENOSPC. What is refused is left as it was. The file outlives the storage; remove it
 * with unlink(), which those who have it mapped do not notice. A peer that makes the file shorter takes the memory away
 * under everyone: the next access is a bus fault. Share by name where peers are not to be trusted with that.
 */
int pinion_storage_create(const char *path, enum pinion_dtype dtype, uint64_t n, const struct pinion_storage_opts *opts,
			  struct pinion_storage **out);
int pinion_storage_open(const char *path, enum pinion_dtype dtype, uint64_t n, const struct pinion_storage_opts *opts,
			struct pinion_storage **out);

/*
 * Shared by name, among the processes of the user that use the same runtime directory: a buffer whose size is sealed,
 * so that no peer can shrink it, with a header. Names are those of holders (holder.h): pinion ls shows them, and a dead
 * creator's name is free. The creator serves the name from a thread until the storage is freed or the name is removed;
 * whoever opened it by then keeps the memory. @ctx must outlive a storage that was created with it.
 *
 * Create: -EINVAL the name; -EEXIST it is held by a living process; errors of pinion_buffer_alloc().
 * Open: -ENOENT; -EBUSY or -ETIMEDOUT it is still being made; -EAGAIN as pinion_model_attach(); -EPIPE the creator died
 * meanwhile; -EBADMSG as above; -EPROTO what has the name is a model, or no storage; -EPERM it was sealed,
 * and rights have PINION_WRITE.
 */
int pinion_storage_create_named(struct pinion_context *ctx, const char *name, enum pinion_dtype dtype, uint64_t n,
				const struct pinion_storage_opts *opts, struct pinion_storage **out);
int pinion_storage_open_named(struct pinion_context *ctx, const char *name, enum pinion_dtype dtype, uint64_t n,
			      const struct pinion_storage_opts *opts, struct pinion_storage **out);

/* Memory of another machine. -EOPNOTSUPP "not built". */
int pinion_storage_remote(struct pinion_context *ctx, const char *address, enum pinion_dtype dtype, uint64_t n,
			  struct pinion_storage **out);

/*
 * Unmaps, then closes; a device's memory goes with the last array or storage object that has it. Files, and memory that
 * others have, stay. Views of the storage are worth nothing from now on.
 */
void pinion_storage_free(struct pinion_storage *st);

/* What a storage is. These and pinion_storage_view() may be called from any thread. */
enum pinion_storage_kind pinion_storage_kind(const struct pinion_storage *st);
enum pinion_dtype pinion_storage_dtype(const struct pinion_storage *st);
uint64_t pinion_storage_elements(const struct pinion_storage *st);
uint64_t pinion_storage_len_bytes(const struct pinion_storage *st);
int pinion_storage_info(const struct pinion_storage *st, struct pinion_storage_info *info);

/*
 * Writes "shared f32[2,3] 24 bytes, read and write, header generation 1, at /dev/shm/kv", cut to @size bytes with the
 * final 0, and returns its full length as snprintf() does.
 */
int pinion_storage_describe(const struct pinion_storage *st, char *buf, size_t size);

/* The buffer of a pinned or named storage and the byte of it where the elements begin; borrowed. -EOPNOTSUPP none. */
int pinion_storage_buffer(const struct pinion_storage *st, struct pinion_buffer **buf, uint64_t *offset);

/*
 * The elements, without a copy, good as long as the storage. @rights PINION_READ: to be read only, which the memory
 * enforces where the storage cannot be written. PINION_READ | PINION_WRITE: -EPERM the storage is read-only.
 * -EOPNOTSUPP f8e6m2, which can be stored and has no encoding to view it by; a device's memory that the host cannot
 * follow.
 */
int pinion_storage_view(const struct pinion_storage *st, uint32_t rights, struct pinion_view *view);

/*
 * Makes an owned storage of @st, which is gone on success and the caller's as before on an error. An owned one is *@out
 * itself and nothing is copied; the others are copied, those with a header by pinion_storage_load(), for up to 1 s,
 * those of a device that the host cannot follow by the device. Errors of pinion_storage_view() and pinion_storage_load(); -ENOMEM.
 */
int pinion_storage_into_owned(struct pinion_storage *st, struct pinion_storage **out);

/*
 * The sequence of a header, so that readers see whole writes without a lock. -EOPNOTSUPP there is no header.
 *
 * A writer changes the elements between begin and end. There is one at a time, of all processes: begin waits for
 * another to end, -ETIMEDOUT. When the one before died inside, or freed its storage there, the elements are part old,
 * part new: begin says so in *@torn (may be NULL), and the caller writes them all. Begin and end are of one process and
 * one storage object, used so by one thread at a time. -EPERM read-only; -EBUSY begin inside; -EINVAL end outside;
 * -EOWNERDEAD a forked child ends what its parent began.
 */
int pinion_storage_write_begin(struct pinion_storage *st, int64_t deadline_ns, bool *torn);
int pinion_storage_write_end(struct pinion_storage *st);

/*
 * A reader reads between begin and retry, and when retry is true does not use what it read, but begins again. From any
 * thread. Begin waits for a write to end: -ETIMEDOUT; -EOWNERDEAD its writer is dead, and there is nothing whole to
 * read until another has written. A writer of another pid namespace is never known to be dead.
 */
int pinion_storage_read_begin(const struct pinion_storage *st, int64_t deadline_ns, uint64_t *sequence);
bool pinion_storage_read_retry(const struct pinion_storage *st, uint64_t sequence);

/*
 * The same with copies by atomic accesses, where reading and writing in place at once is a data race in the words of
 * C11: @bytes from byte @offset of the elements on. Store: inside a write, -EINVAL outside. Load: from any thread, a
 * snapshot between two writes, tried again until @deadline_ns; what is in @dst after an error is undefined. -EINVAL
 * "out of bounds".
 */
int pinion_storage_store(struct pinion_storage *st, uint64_t offset, const void *src, uint64_t bytes);
int pinion_storage_load(const struct pinion_storage *st, uint64_t offset, void *dst, uint64_t bytes,
			int64_t deadline_ns);

#ifdef __cplusplus
}
#endif
#endif
