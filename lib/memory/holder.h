/* SPDX-License-Identifier: MIT */
/* holder: what those in the library say who have a name serve something. */
#ifndef PINION_LIB_HOLDER_H
#define PINION_LIB_HOLDER_H

#include <pinion/buffer.h>
#include <pinion/holder.h>
#include <stdbool.h>
#include <stdint.h>

/* What a holder hands out, and what show says of it. */
struct holder_offer {
	struct pinion_buffer *buf; /* the caller's; the holder takes a descriptor of its own */
	int index_fd;		   /* -1: none; the holder's once it is published */
	uint64_t index_bytes;
	const char *format;
	uint64_t tensors;
	uint64_t tensor_bytes;
	bool stays; /* the memory stays with its maker when the name is removed */
};

/* Whether @h may publish: -EOWNERDEAD; -EINVAL it has. */
int holder_check(struct pinion_holder *h);

/* From now on whoever attaches gets @offer. Once, after holder_check(). */
int holder_publish(struct pinion_holder *h, const struct holder_offer *offer);

#endif
