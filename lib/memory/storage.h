/* SPDX-License-Identifier: MIT */
/* storage: what the kinds of storage share. Each kind is a struct that begins with struct pinion_storage. */
#ifndef PINION_LIB_STORAGE_H
#define PINION_LIB_STORAGE_H

#include <limits.h>
#include <pinion/storage.h>
#include <stdbool.h>
#include <stdint.h>

#include "../process.h"

/* How long a call without a deadline waits for a writer. */
#define STORAGE_PATIENCE_NS (INT64_C(1) * 1000000000)

#define STORAGE_SHAPE_TEXT 256		    /* room for "f32[2,3]", however many digits */
#define STORAGE_WHERE_TEXT (PATH_MAX + 128) /* room for what a kind adds to its description */

struct storage_header;

/* An array, and the memory it takes. */
struct storage_layout {
	enum pinion_dtype dtype;
	uint32_t rank; /* 0: not said, any that has as many elements */
	uint64_t shape[PINION_RANK_MAX];
	uint64_t elements;
	uint64_t bytes;	 /* of the elements */
	uint64_t offset; /* of the first element: 0, or behind the header */
	uint64_t total;	 /* header and elements */
};

struct storage_ops {
	const char *name;
	/* Gives up what is behind the storage, and frees the struct. */
	void (*close)(struct pinion_storage *st);
	/* ", at PATH" or the like. */
	void (*where)(const struct pinion_storage *st, char text[STORAGE_WHERE_TEXT]);
	/* The buffer behind it, NULL for none, and the byte of it where the elements begin; may be NULL. */
	struct pinion_buffer *(*buffer)(const struct pinion_storage *st, uint64_t *offset);
	/* Whether the path leads elsewhere by now; may be NULL. */
	bool (*unlinked)(const struct pinion_storage *st);
	/* The key of the device whose memory it is, and where that is; NULL: the host's, and no device's. */
	const char *(*device)(const struct pinion_storage *st, struct pinion_location *location);
	/* Copies all bytes to @dst, which has room for them; NULL: the host follows the address itself. */
	int (*download)(const struct pinion_storage *st, void *dst);
};

/* This object's part in writing. */
struct storage_writer {
	uint64_t self;		  /* what stands in the header while it writes */
	uint64_t sequence;	  /* the odd one of the write it is in */
	struct process_mark mark; /* of the process that self names */
	bool known;		  /* self and mark are set */
	bool inside;
};

struct pinion_storage {
	const struct storage_ops *ops;
	enum pinion_storage_kind kind;
	uint32_t rights;
	struct storage_layout layout;
	char *data;		       /* the first element, where its device has it; NULL when there is none */
	void *handle;		       /* of a device's: what its backend keeps there */
	struct storage_header *header; /* NULL: none */
	uint32_t sharers;	       /* who has it besides the first; the last one's free closes it */
	struct storage_writer writer;
};

/* Checks dtype, overflow and, unless @empty_ok, zero length, in this order; then the shape. -errno with a sentence. */
int storage_layout(struct storage_layout *layout, enum pinion_dtype dtype, uint64_t n, bool empty_ok);

/* Gives the layout the shape of @opts, and a header. */
int storage_layout_shape(struct storage_layout *layout, const struct pinion_storage_opts *opts);
int storage_layout_header(struct storage_layout *layout);

/* "f32[2,3]" */
void storage_shape_text(const struct storage_layout *layout, char text[STORAGE_SHAPE_TEXT]);

/* Copies and checks the caller's options. */
int storage_opts(struct pinion_storage_opts *own, const struct pinion_storage_opts *user);

/* The layout of @n elements from byte @offset on in @room bytes of memory. The errors of pinion_storage_mmapped(). */
int storage_window(struct storage_layout *layout, enum pinion_dtype dtype, uint64_t offset, uint64_t n, uint64_t room);

/* Fills the common part. @base is where the layout begins. */
void storage_init(struct pinion_storage *st, const struct storage_ops *ops, enum pinion_storage_kind kind,
		  const struct storage_layout *layout, uint32_t rights, void *base);

/* One more who has it, and gives it back with pinion_storage_free(). Any thread. */
struct pinion_storage *storage_ref(struct pinion_storage *st);

/* storage_owned.c: an owned storage of that layout, its elements not yet set. */
int storage_owned_new(const struct storage_layout *layout, struct pinion_storage **out);

#endif
