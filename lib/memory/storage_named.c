/* SPDX-License-Identifier: MIT */
/* named: an array in a buffer that other processes find by its name; they cannot shrink it. */
#include "../context.h"
#include "../error.h"
#include "buffer.h"
#include "holder.h"
#include "name.h"
#include "share.h"
#include "storage.h"
#include "storage_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct named {
	struct pinion_storage st;
	struct pinion_buffer *buf;
	struct pinion_holder *holder; /* of the creator */
	int sock;		      /* of who opened it, to the holder, so that it is counted; -1: none */
	char name[PINION_NAME_MAX + 1];
};

/* Nobody is handed what is on its way out. */
static void named_close(struct pinion_storage *st)
{
	struct named *named = (struct named *)st;

	pinion_holder_free(named->holder);
	if (st->header)
		pinion_buffer_unmap(named->buf, st->rights);
	pinion_buffer_unref(named->buf);
	if (named->sock >= 0)
		close(named->sock);
	free(named);
}

static void named_where(const struct pinion_storage *st, char text[STORAGE_WHERE_TEXT])
{
	snprintf(text, STORAGE_WHERE_TEXT, ", named '%s'", ((const struct named *)st)->name);
}

static struct pinion_buffer *named_buffer(const struct pinion_storage *st, uint64_t *offset)
{
	*offset = st->layout.offset;
	return ((const struct named *)st)->buf;
}

static const struct storage_ops named_ops = {
	.name = "named",
	.close = named_close,
	.where = named_where,
	.buffer = named_buffer,
};

/* An object without memory yet, which pinion_storage_free() takes as it is at any stage. */
static struct named *named_new(const char *name)
{
	struct named *named = calloc(1, sizeof(*named));

	if (!named) {
		fail(ENOMEM, "no memory for a storage object");
		return NULL;
	}
	named->st.ops = &named_ops;
	named->sock = -1;
	snprintf(named->name, sizeof(named->name), "%s", name);
	return named;
}

/* Context, dtype, overflow, zero length, options and name, in this order. */
static int check_wish(struct pinion_context *ctx, const char *name, enum pinion_dtype dtype, uint64_t n,
		      const struct pinion_storage_opts *user, struct pinion_storage_opts *opts,
		      struct storage_layout *layout)
{
	int ret = context_check(ctx);

	if (!ret)
		ret = storage_layout(layout, dtype, n, false);
	if (!ret)
		ret = storage_opts(opts, user);
	if (!ret)
		ret = storage_layout_shape(layout, opts);
	if (!ret)
		ret = storage_layout_header(layout);
	if (!ret && (opts->replace || opts->mode))
		ret = fail(EINVAL, "pinion_storage_opts.%s is for storages with a path",
			   opts->replace ? "replace" : "mode");
	return ret ? ret : name_check(name);
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

static int create_memory(struct pinion_context *ctx, struct named *named, const struct pinion_buffer_opts *opts,
			 const struct storage_layout *layout)
{
	void *base;
	int ret = pinion_buffer_alloc(ctx, layout->total, opts, &named->buf);

	if (!ret)
		ret = pinion_buffer_map(named->buf, PINION_READ | PINION_WRITE, &base);
	if (ret)
		return ret;
	header_fill(base, layout);
	storage_init(&named->st, &named_ops, PINION_STORAGE_NAMED, layout, PINION_READ | PINION_WRITE, base);
	return 0;
}

/* The name is taken first: where it is held, no memory is made. */
static int create(struct pinion_context *ctx, struct named *named, const struct pinion_buffer_opts *opts,
		  const struct storage_layout *layout)
{
	struct holder_offer offer = { .format = "storage", .tensors = 1, .stays = true };
	char shape[STORAGE_SHAPE_TEXT];
	int ret;

	storage_shape_text(layout, shape);
	ret = pinion_holder_open(ctx, named->name, shape, &named->holder);
	if (!ret)
		ret = create_memory(ctx, named, opts, layout);
	offer.buf = named->buf;
	offer.index_fd = -1;
	offer.tensor_bytes = layout->bytes;
	return ret ? ret : holder_publish(named->holder, &offer);
}

PINION_API int pinion_storage_create_named(struct pinion_context *ctx, const char *name, enum pinion_dtype dtype,
					   uint64_t n, const struct pinion_storage_opts *opts,
					   struct pinion_storage **out)
{
	struct pinion_storage_opts own;
	struct storage_layout layout;
	struct named *named;
	int ret = check_wish(ctx, name, dtype, n, opts, &own, &layout);

	if (!ret && own.rights != (PINION_READ | PINION_WRITE))
		ret = fail(EINVAL, "creating a storage needs PINION_WRITE in pinion_storage_opts.rights");
	if (!ret && own.deadline_ns)
		ret = fail(EINVAL, "pinion_storage_opts.deadline_ns is for opening a storage");
	if (ret)
		return ret;
	named = named_new(name);
	if (!named)
		return -ENOMEM;
	ret = create(ctx, named, own.buffer, &layout);
	if (ret)
		pinion_storage_free(&named->st);
	else
		*out = &named->st;
	return ret;
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

/* The buffer of the answer. Consumes @fds. */
static int adopt(struct named *named, const struct name_answer *answer, const int *fds,
		 unsigned int nfds)
{
	struct pages pages;
	int ret;

	if (nfds != 1 || answer->index_bytes) {
		share_close(fds, nfds);
		return fail(EPROTO, "it is a model, not a storage; pinion_model_attach() attaches to it");
	}
	ret = pages_adopt(fds[0], answer->bytes, answer->page_size, &pages);
	if (!ret)
		ret = buffer_new(&pages, NULL, &named->buf);
	if (ret)
		close(fds[0]);
	return ret;
}

/* Believes nothing of the memory unchecked, and checks a copy, which nobody changes meanwhile. */
static int open_memory(struct named *named, uint32_t rights, struct storage_layout *layout)
{
	uint64_t bytes = pinion_buffer_size(named->buf);
	struct storage_header header;
	void *base;
	int ret;

	if (bytes < sizeof(header))
		return fail(EPROTO, "it has %" PRIu64 " bytes, which is no storage of this version", bytes);
	ret = pinion_buffer_map(named->buf, rights, &base);
	if (ret)
		return ret;
	memcpy(&header, base, sizeof(header));
	if (!header_is(&header))
		ret = fail(EPROTO, "it does not begin with the header of a storage");
	else
		ret = header_check(&header, layout);
	if (!ret && layout->total > bytes)
		ret = fail(EPROTO, "its header speaks of %" PRIu64 " bytes, the buffer has %" PRIu64, layout->total,
			   bytes);
	if (ret)
		pinion_buffer_unmap(named->buf, rights);
	else
		storage_init(&named->st, &named_ops, PINION_STORAGE_NAMED, layout, rights, base);
	return ret;
}

/* Where only the creator's mapping is locked, ours is too, and the holder hears of it. */
static void lock_as_held(const struct named *named, const struct name_answer *answer)
{
	struct name_request req = { .magic = NAME_MAGIC, .op = NAME_LOCKED };

	if (answer->hold == PINION_HOLD_LOCKED && !buffer_lock_mapping(named->buf, named->st.rights))
		share_send(named->sock, &req, sizeof(req), NULL, 0);
}

PINION_API int pinion_storage_open_named(struct pinion_context *ctx, const char *name, enum pinion_dtype dtype,
					 uint64_t n, const struct pinion_storage_opts *opts,
					 struct pinion_storage **out)
{
	struct pinion_storage_opts own;
	struct storage_layout layout;
	struct name_answer answer;
	struct named *named;
	unsigned int nfds;
	int fds[2], ret = check_wish(ctx, name, dtype, n, opts, &own, &layout);

	if (!ret && own.buffer)
		ret = fail(EINVAL, "pinion_storage_opts.buffer is for creating a storage");
	if (ret)
		return ret;
	named = named_new(name);
	if (!named)
		return -ENOMEM;
	ret = name_attach(ctx, name, own.deadline_ns, &answer, fds, &nfds, &named->sock);
	if (ret) {
		named->sock = -1;
		goto err_free;
	}
	ret = adopt(named, &answer, fds, nfds);
	if (!ret)
		ret = open_memory(named, own.rights, &layout);
	if (ret) {
		ret = fail(-ret, "'%s': %s", name, pinion_error());
		goto err_free;
	}
	lock_as_held(named, &answer);
	*out = &named->st;
	return 0;

err_free:
	pinion_storage_free(&named->st);
	return ret;
}
