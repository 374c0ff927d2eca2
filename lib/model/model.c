/* SPDX-License-Identifier: MIT */
#include "model.h"

#include "../error.h"
#include "../memory/buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int model_new(struct index_block *block, bool block_mapped, struct pinion_buffer *buf, struct pinion_model **out)
{
	struct pinion_model *m = calloc(1, sizeof(*m));
	void *data;
	int ret;

	if (!m)
		return fail(ENOMEM, "no memory for a model");
	ret = pinion_buffer_map(buf, PINION_READ, &data);
	if (ret) {
		free(m);
		return ret;
	}
	m->block = block;
	m->block_mapped = block_mapped;
	m->buf = buf;
	m->data = data;
	m->sock = -1;
	*out = m;
	return 0;
}

void model_unmap(struct pinion_model *m)
{
	if (!m->data || m->buf->pages.hold == PINION_HOLD_LOCKED)
		return;
	pinion_buffer_unmap(m->buf, PINION_READ);
	buffer_drop_mappings(m->buf);
	m->data = NULL;
}

PINION_API void pinion_model_free(struct pinion_model *m)
{
	if (!m)
		return;
	if (m->data)
		pinion_buffer_unmap(m->buf, PINION_READ);
	pinion_buffer_unref(m->buf);
	if (m->block_mapped)
		munmap(m->block, m->block->bytes);
	else
		free(m->block);
	if (m->sock >= 0)
		close(m->sock);
	free(m);
}

static void describe(const struct pinion_model *m, uint64_t i, struct pinion_tensor *out)
{
	index_describe(m->block, i, out);
	out->data = m->data ? m->data + out->offset : NULL;
}

PINION_API int pinion_model_tensor(const struct pinion_model *m, const char *name, struct pinion_tensor *out)
{
	int64_t i = name ? index_find(m->block, name) : -1;

	if (i < 0)
		return fail(ENOENT, "the model has no tensor '%s'", name ? name : "");
	describe(m, i, out);
	return 0;
}

PINION_API int pinion_model_tensor_at(const struct pinion_model *m, uint64_t i, struct pinion_tensor *out)
{
	if (i >= m->block->tensor_count)
		return fail(ENOENT, "the model has %llu tensors", (unsigned long long)m->block->tensor_count);
	describe(m, i, out);
	return 0;
}

PINION_API int pinion_model_info(const struct pinion_model *m, struct pinion_index_info *info)
{
	struct pinion_index_info own;

	index_describe_file(m->block, &own);
	return opts_out(info, &own, sizeof(own), "pinion_index_info");
}

PINION_API int pinion_model_shard_at(const struct pinion_model *m, uint64_t i, struct pinion_shard *out)
{
	return index_shard_out(m->block, i, out);
}

PINION_API int pinion_model_load_stats(const struct pinion_model *m, struct pinion_load_stats *stats)
{
	if (!m->loaded)
		return fail(ENODATA, "the model was attached, not loaded, here");
	return opts_out(stats, &m->stats, sizeof(m->stats), "pinion_load_stats");
}

PINION_API struct pinion_buffer *pinion_model_buffer(const struct pinion_model *m)
{
	return m->buf;
}
