/* SPDX-License-Identifier: MIT */
#include "format.h"
#include "pinion.h"
#include "table.h"

#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct check {
	const char *file;
	bool tensors;
};

/* What the tensors of one type add up to. */
struct type_sum {
	uint32_t type;
	uint64_t tensors;
	uint64_t bytes;
};

static const struct argp_option options[] = {
	{ .name = "tensors", .key = 't', .doc = "List each tensor: name, type, shape, offset in the file, bytes" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct check *check = state->input;

	if (key == 't') {
		check->tensors = true;
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
	printf("tensors: %" PRIu64 "\n", info->tensors);
	printf("tensor bytes: %s\n", bytes_text(info->tensor_bytes).s);
	printf("bytes needed for a load: %s, rounded up to a page\n", bytes_text(info->buffer_bytes).s);
	printf("bytes a load must move: %s\n", bytes_text(info->moved_bytes).s);
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

static void print_types(const struct pinion_index *ix)
{
	struct table table = { 0 };
	struct type_sum *sums = NULL, *sum;
	struct pinion_tensor tensor;
	size_t n = 0;

	for (uint64_t i = 0; !pinion_index_tensor_at(ix, i, &tensor); i++) {
		sum = sum_of(&sums, &n, tensor.type);
		sum->tensors++;
		sum->bytes += tensor.bytes;
	}
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
	if (!ret) {
		print_head(&info);
		print_types(ix);
		if (check.tensors)
			print_tensors(ix);
	}
	pinion_index_free(ix);
	return ret ? refused(ret) : EXIT_OK;
}
