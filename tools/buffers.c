/* SPDX-License-Identifier: MIT */
#include "buffers.h"

#include "format.h"
#include "json.h"
#include "table.h"

#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdio.h>

struct wanted {
	struct table table;
	int32_t pid;
};

/* What others have, all of it in one row. */
static void add_others(struct table *table, const struct pinion_module_buffer *row)
{
	table_add(table, "-\t-\t-\t%s\t-\t-\t-\tothers\t-\t-\t%" PRIu32 " buffers", size_text(row->bytes).s, row->buffers);
}

static int add_row(void *arg, const struct pinion_module_buffer *row)
{
	struct wanted *wanted = arg;
	char name[sizeof(row->name)];

	if (wanted->pid && row->pid != wanted->pid)
		return 0;
	if (!wanted->table.rows)
		table_add(&wanted->table, ">ID\t>MEMORY\tKIND\t>SIZE\t>HUGE\tRIGHTS\t>DEVICES\t>UID\t>PID\t>AGE\tNAME");
	if (row->uid == UINT32_MAX)
		add_others(&wanted->table, row);
	else
		table_add(&wanted->table,
			  "%" PRIu64 "\t%" PRIu64 "\t%s\t%s\t%s\t%s\t%" PRIu32 "\t%" PRIu32 "\t%" PRId32 "\t%s\t%s", row->id,
			  row->pages_id, row->kind, size_text(row->bytes).s, size_text(row->huge_bytes).s,
			  row->rights & PINION_WRITE ? "rw" : "r", row->devices, row->uid, row->pid, age_text(row->age_ns).s,
			  *row->name ? text_copy(name, sizeof(name), row->name) : "-");
	return 0;
}

int buffers_print(int32_t pid)
{
	struct wanted wanted = { .pid = pid };
	int ret = pinion_module_buffers(add_row, &wanted);

	if (pid && wanted.table.rows)
		putchar('\n');
	table_print(&wanted.table, stdout);
	return ret;
}

static int add_object(void *arg, const struct pinion_module_buffer *row)
{
	json_t *object = json_new_object();

	json_set_number(object, "id", row->id);
	json_set_number(object, "memory", row->pages_id);
	json_set_text(object, "kind", row->kind);
	json_set_number(object, "offset", row->offset);
	json_set_number(object, "bytes", row->bytes);
	json_set_number(object, "memory_bytes", row->pages_bytes);
	json_set_number(object, "huge_bytes", row->huge_bytes);
	json_set_text(object, "rights", row->rights & PINION_WRITE ? "rw" : "r");
	json_set_number(object, "devices", row->devices);
	json_set_number(object, "buffers", row->buffers);
	json_set(object, "uid", row->uid == UINT32_MAX ? json_null() : json_integer(row->uid));
	json_set(object, "pid", json_integer(row->pid));
	json_set_number(object, "age_seconds", row->age_ns / 1000000000);
	json_set_text(object, "name", row->name);
	json_add(arg, object);
	return 0;
}

int buffers_print_json(void)
{
	json_t *array = json_new_array();
	int ret = pinion_module_buffers(add_object, array);

	/* Half a list would be taken for the whole. */
	if (ret)
		json_decref(array);
	else
		json_print(array);
	return ret;
}
