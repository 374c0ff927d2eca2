/* SPDX-License-Identifier: MIT */
#include "storage_header.h"

#include "../error.h"

#include <errno.h>
#include <string.h>

void header_fill(struct storage_header *header, const struct storage_layout *layout)
{
	memset(header, 0, sizeof(*header));
	header->magic = STORAGE_MAGIC;
	header->version = STORAGE_VERSION;
	header->header_bytes = STORAGE_HEADER_BYTES;
	header->dtype = layout->dtype;
	header->rank = layout->rank ? layout->rank : 1;
	if (layout->rank)
		memcpy(header->shape, layout->shape, layout->rank * sizeof(header->shape[0]));
	else
		header->shape[0] = layout->elements;
	header->elements = layout->elements;
	header->bytes = layout->bytes;
	header->generation = 1;
}

bool header_is(const struct storage_header *header)
{
	return header->magic == STORAGE_MAGIC;
}

/* What a header says, if it agrees with itself. Anyone may have written it. */
static int header_layout(const struct storage_header *header, struct storage_layout *layout)
{
	struct pinion_storage_opts opts = { .rank = header->rank };

	if (!header_is(header))
		return fail(EBADMSG, "it does not begin with the header of a storage");
	if (header->version != STORAGE_VERSION || header->header_bytes != STORAGE_HEADER_BYTES)
		return fail(EBADMSG, "its header is version %u with %u bytes, this library knows version %u with %u",
			    header->version, header->header_bytes, STORAGE_VERSION, STORAGE_HEADER_BYTES);
	memcpy(opts.shape, header->shape, sizeof(opts.shape));
	if (!header->rank || storage_layout(layout, header->dtype, header->elements, false) ||
	    storage_layout_shape(layout, &opts) || storage_layout_header(layout) || layout->bytes != header->bytes)
		return fail(EBADMSG, "its header contradicts itself: dtype %u, rank %u, %llu elements, %llu bytes",
			    header->dtype, header->rank, (unsigned long long)header->elements,
			    (unsigned long long)header->bytes);
	return 0;
}

/* Whether @has is the shape that is asked for, if one is. */
static bool is_shape(const struct storage_layout *has, const struct storage_layout *want)
{
	if (!want->rank)
		return true;
	return has->rank == want->rank && !memcmp(has->shape, want->shape, has->rank * sizeof(has->shape[0]));
}

int header_check(const struct storage_header *header, struct storage_layout *want)
{
	char has[STORAGE_SHAPE_TEXT], wants[STORAGE_SHAPE_TEXT];
	struct storage_layout layout;
	int ret = header_layout(header, &layout);

	if (ret)
		return ret;
	if (layout.dtype == want->dtype && layout.elements == want->elements && is_shape(&layout, want)) {
		*want = layout;
		return 0;
	}
	storage_shape_text(&layout, has);
	storage_shape_text(want, wants);
	return fail(EBADMSG, "its header says %s, %s was asked for", has, wants);
}
