/* SPDX-License-Identifier: MIT */
#include "format.h"
#include "models.h"
#include "pinion.h"
#include "table.h"

#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct check {
	const char *file;
	bool tensors, json;
};

/* What the tensors of one type add up to. */
struct type_sum {
	uint32_t type;
	uint64_t tensors;
	uint64_t bytes;
};

static const struct argp_option options[] = {
	{ .name = "tensors", .key = 't', .doc = "List each tensor: name, type, shape, offset in the file, bytes" },
	{ .name = "json", .key = 'j', .doc = "Print an object" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct check *check = state->input;

	if (key == 't') {
		check->tensors = true;
		return 0;
	}
	if (key == 'j') {
		check->json = true;
		return 0;
	}
	return command_argument(key, arg, state, "FILE", &check->file);
}

static const char *type_name(uint32_t type)
{
	const struct pinion_type_info *info = pinion_type_info(type);

	return info ? info->name : "?";
}

static void print_head(const struct pinion_index_info *info)
{
	char text[512];

	printf("format: %s", info->format);
	if (info->version)
		printf(" %" PRIu32 ", aligned to %" PRIu32, info->version, info->alignment);
	printf("\nfile bytes: %s\n", bytes_text(info->file_bytes).s);
	if (*info->architecture)
		printf("architecture: %s\n", text_copy(text, sizeof(text), info->architecture));
	if (*info->name)
		printf("name: %s\n", text_copy(text, sizeof(text), info->name));
	if (info->shards > 1)
		printf("files: %" PRIu64 "\n", info->shards);
	printf("tensors: %" PRIu64 "\n", info->tensors);
	printf("tensor bytes: %s\n", bytes_text(info->tensor_bytes).s);
	if (info->claimed_bytes && info->claimed_bytes != info->tensor_bytes)
		printf("tensor bytes by metadata.total_size: %s, which is wrong\n", bytes_text(info->claimed_bytes).s);
	printf("bytes needed for a load: %s, rounded up to a page\n", bytes_text(info->buffer_bytes).s);
	printf("bytes a load must move: %s\n", bytes_text(info->moved_bytes).s);
}

/* A link to another folder is followed, and said. */
static void print_shards(const struct pinion_index *ix)
{
	struct pinion_shard shard = { .size = sizeof(shard) };
	struct table table = { 0 };
	char name[512];

	table_add(&table, "FILE\t>TENSORS\t>BYTES\t");
	for (uint64_t i = 0; !pinion_index_shard_at(ix, i, &shard); i++)
		table_add(&table, "%s\t%" PRIu64 "\t%" PRIu64 "\t%s", text_copy(name, sizeof(name), shard.file), shard.tensors,
			  shard.file_bytes, shard.outside ? "(in another folder, by a symbolic link)" : "");
	putchar('\n');
	table_print(&table, stdout);
}

/* The entry of @type, made when there is none yet. */
static struct type_sum *sum_of(struct type_sum **sums, size_t *n, uint32_t type)
{
	for (size_t i = 0; i < *n; i++)
		if ((*sums)[i].type == type)
			return &(*sums)[i];
	*sums = reallocarray(*sums, *n + 1, sizeof(**sums));
	if (!*sums)
		no_memory();
	(*sums)[*n] = (struct type_sum){ .type = type };
	return &(*sums)[(*n)++];
}

/* One entry for each type there is; *@sums is to be freed. Returns how many. */
static size_t sum_types(const struct pinion_index *ix, struct type_sum **sums)
{
	struct pinion_tensor tensor;
	struct type_sum *sum;
	size_t n = 0;

	*sums = NULL;
	for (uint64_t i = 0; !pinion_index_tensor_at(ix, i, &tensor); i++) {
		sum = sum_of(sums, &n, tensor.type);
		sum->tensors++;
		sum->bytes += tensor.bytes;
	}
	return n;
}

static void print_types(const struct pinion_index *ix)
{
	struct table table = { 0 };
	struct type_sum *sums;
	size_t n = sum_types(ix, &sums);

	if (n) {
		table_add(&table, "TYPE\t>TENSORS\t>BYTES");
		for (size_t i = 0; i < n; i++)
			table_add(&table, "%s\t%" PRIu64 "\t%" PRIu64, type_name(sums[i].type), sums[i].tensors, sums[i].bytes);
		putchar('\n');
		table_print(&table, stdout);
	}
	free(sums);
}

/* "480x256" in the order the file has it. */
static const char *shape_text(const struct pinion_tensor *tensor, char out[PINION_RANK_MAX * 21 + 1])
{
	char *at = out;

	if (!tensor->rank)
		return "scalar";
	for (uint32_t i = 0; i < tensor->rank; i++)
		at += sprintf(at, "%s%" PRIu64, i ? "x" : "", tensor->shape[i]);
	return out;
}

static void print_tensors(const struct pinion_index *ix)
{
	char name[1024], shape[PINION_RANK_MAX * 21 + 1];
	struct pinion_tensor tensor;
	struct table table = { 0 };

	table_add(&table, "NAME\tTYPE\tSHAPE\t>OFFSET\t>BYTES");
	for (uint64_t i = 0; !pinion_index_tensor_at(ix, i, &tensor); i++)
		table_add(&table, "%s\t%s\t%s\t%" PRIu64 "\t%" PRIu64, text_copy(name, sizeof(name), tensor.name),
			  type_name(tensor.type), shape_text(&tensor, shape), tensor.file_offset, tensor.bytes);
	putchar('\n');
	table_print(&table, stdout);
}

static void print_text(const struct pinion_index *ix, const struct pinion_index_info *info, bool tensors)
{
	print_head(info);
	if (info->shards > 1)
		print_shards(ix);
	print_types(ix);
	if (tensors)
		print_tensors(ix);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static json_t *shards_of(const struct pinion_index *ix)
{
	struct pinion_shard shard = { .size = sizeof(shard) };
	json_t *array = json_new_array();

	for (uint64_t i = 0; !pinion_index_shard_at(ix, i, &shard); i++)
		json_add(array, shard_object(&shard));
	return array;
}

static json_t *types_of(const struct pinion_index *ix)
{
	json_t *array = json_new_array();
	struct type_sum *sums;
	size_t n = sum_types(ix, &sums);

	for (size_t i = 0; i < n; i++) {
		json_t *object = json_new_object();

		json_set_text(object, "type", type_name(sums[i].type));
		json_set_number(object, "tensors", sums[i].tensors);
		json_set_number(object, "bytes", sums[i].bytes);
		json_add(array, object);
	}
	free(sums);
	return array;
}

static json_t *tensors_of(const struct pinion_index *ix)
{
	json_t *array = json_new_array();
	struct pinion_tensor tensor;

	for (uint64_t i = 0; !pinion_index_tensor_at(ix, i, &tensor); i++) {
		json_t *object = json_new_object(), *shape = json_new_array();

		for (uint32_t k = 0; k < tensor.rank; k++)
			json_add(shape, json_integer((json_int_t)tensor.shape[k]));
		json_set_text(object, "name", tensor.name);
		json_set_text(object, "type", type_name(tensor.type));
		json_set(object, "shape", shape);
		json_set_number(object, "shard", tensor.shard);
		json_set_number(object, "file_offset", tensor.file_offset);
		json_set_number(object, "bytes", tensor.bytes);
		json_add(array, object);
	}
	return array;
}

static void print_object(const struct pinion_index *ix, const struct pinion_index_info *info, const struct check *check)
{
	json_t *object = json_new_object();

	json_set_text(object, "path", check->file);
	json_set_text(object, "format", info->format);
	json_set_number(object, "version", info->version);
	json_set_number(object, "alignment", info->alignment);
	json_set_text(object, "architecture", info->architecture);
	json_set_text(object, "model", info->name);
	json_set_number(object, "file_bytes", info->file_bytes);
	json_set_number(object, "tensors", info->tensors);
	json_set_number(object, "tensor_bytes", info->tensor_bytes);
	json_set_number(object, "claimed_bytes", info->claimed_bytes);
	json_set_number(object, "buffer_bytes", info->buffer_bytes);
	json_set_number(object, "moved_bytes", info->moved_bytes);
	json_set(object, "shards", shards_of(ix));
	json_set(object, "types", types_of(ix));
	json_set(object, "tensor_list", check->tensors ? tensors_of(ix) : json_null());
	json_print(object);
}

int cmd_check(const struct command *cmd, int argc, char **argv)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	struct check check = { 0 };
	struct pinion_index *ix;
	int ret;

	command_parse(cmd, argc, argv, options, parse, &check);
	ret = pinion_index_open(check.file, &ix);
	if (ret)
		return refused(ret);
	ret = pinion_index_info(ix, &info);
	if (!ret && check.json)
		print_object(ix, &info, &check);
	else if (!ret)
		print_text(ix, &info, check.tensors);
	pinion_index_free(ix);
	return ret ? refused(ret) : EXIT_OK;
}
