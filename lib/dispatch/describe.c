/* SPDX-License-Identifier: MIT */
#include "../error.h"
#include "select.h"

#include <inttypes.h>
#include <pinion/device.h>
#include <stdarg.h>
#include <stdio.h>

/* What was written so far, or would have been with more room. */
struct line {
	char *buf;
	size_t size;
	size_t length;
};

static void add(struct line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *line, const char *fmt, ...)
{
	bool room = line->length < line->size;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(room ? line->buf + line->length : NULL, room ? line->size - line->length : 0, fmt, ap);
	va_end(ap);
	if (n > 0)
		line->length += (size_t)n;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static void add_memory(struct line *line, struct pinion_device *dev, const struct pinion_device_info *info)
{
	uint64_t available, total;

	if (info->budget)
		add(line, "; %" PRIu64 " of %" PRIu64 " bytes of its budget are claimed", info->reserved, info->budget);
	else if (!pinion_device_available(dev, &available) && !pinion_device_total(dev, &total))
		add(line, "; %" PRIu64 " of %" PRIu64 " bytes are available", available, total);
	else
		add(line, "; its memory is not known");
}

static void add_queue(struct line *line, struct pinion_device *dev, const struct pinion_device_info *info)
{
	uint32_t capacity;

	if (pinion_device_capacity(dev, &capacity)) {
		add(line, "; synchronous");
		return;
	}
	add(line, "; %" PRIu64 " in flight", info->pending_high);
	if (capacity)
		add(line, " of %" PRIu32, capacity);
	if (info->reserved_units)
		add(line, ", %" PRIu32 " units are claimed", info->reserved_units);
}

PINION_API int pinion_device_describe(struct pinion_device *dev, char *buf, size_t size)
{
	struct pinion_device_info info = { .size = sizeof(info) };
	struct line line = { .buf = buf, .size = size };
	char before[SENTENCE_MAX];

	/* What has no figure is no failure of this call: it leaves no sentence. */
	sentence_get(before);
	if (pinion_device_info(dev, &info)) {
		add(&line, "a device that is gone");
	} else {
		add(&line, "device '%s'", info.key);
		add_memory(&line, dev, &info);
		add_queue(&line, dev, &info);
	}
	sentence_set(before);
	return (int)line.length;
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

static void add_task(struct line *line, const struct pinion_task *task)
{
	const char *op = pinion_op_name(task->op), *dtype = pinion_dtype_name(task->dtype);

	add(line, " for %s of %s, size class %" PRIu32, op ? op : "?", dtype ? dtype : "?", task->size_class);
}

static void add_entry(struct line *line, const struct entry *e)
{
	const struct pinion_candidate *c = &e->candidate;

	add(line, "%s", pinion_backend_name(c->backend));
	if (c->device.kind != PINION_BACKEND_CPU)
		add(line, ":%" PRIu32, c->device.index);
	if (*c->kernel_source)
		add(line, " by %s", c->kernel_source);
	add(line, " %" PRIu64 " ns", e->time_ns);
}

PINION_API int pinion_set_describe(const struct pinion_set *set, char *buf, size_t size)
{
	struct line line = { .buf = buf, .size = size };

	add(&line, "%zu candidate%s", set->size, set->size == 1 ? "" : "s");
	if (set->has_task)
		add_task(&line, &set->task);
	for (size_t i = 0; i < set->size; i++) {
		add(&line, i ? ", " : ": ");
		add_entry(&line, &set->entries[i]);
	}
	return (int)line.length;
}

/* ---- selectors --------------------------------------------------------------------------------------------------- */

PINION_API int pinion_selector_describe(const struct pinion_selector *selector, char *buf, size_t size)
{
	const struct pinion_selector_opts *opts = &selector->opts;
	struct line line = { .buf = buf, .size = size };

	add(&line, "%s {", selector->name);
	if (selector->legs & (LEG_FIT | LEG_LOAD))
		add(&line, " lookup: %s,", opts->lookup ? "<callback>" : "none");
	if (selector->legs & LEG_FIT)
		add(&line, " estimate: %s,", opts->estimate ? "<callback>" : "<default>");
	if (selector->legs & LEG_NS && opts->judge)
		add(&line, " judge: %zu measured,", pinion_judge_size(opts->judge));
	else if (selector->legs & LEG_NS)
		add(&line, " judge: none,");
	add(&line, " ties: %s }", selector->legs && opts->rotate ? "in turn" : "the first");
	return (int)line.length;
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

PINION_API const char *pinion_reason_name(enum pinion_reason reason)
{
	static const char *const names[] = {
		[PINION_REASON_CHOSEN] = "chosen",	  [PINION_REASON_NO_FIT] = "does not fit",
		[PINION_REASON_TIGHT] = "tight",	  [PINION_REASON_LOADED] = "loaded",
		[PINION_REASON_SLOWER] = "slower",	  [PINION_REASON_TIED] = "tied",
		[PINION_REASON_UNSEEN] = "not looked at",
	};

	return (unsigned int)reason < sizeof(names) / sizeof(names[0]) ? names[reason] : NULL;
}

PINION_API int pinion_verdict_describe(const struct pinion_verdict *v, char *buf, size_t size)
{
	struct line line = { .buf = buf, .size = size };
	const char *reason = pinion_reason_name(v->reason);

	add(&line, "%s", reason ? reason : "?");
	if (v->reason == PINION_REASON_UNSEEN)
		return (int)line.length;
	if (v->need || v->has_available)
		add(&line, "; needs %" PRIu64 " bytes", v->need);
	if (v->has_available)
		add(&line, ", %" PRIu64 " are available", v->available);
	if (v->fit)
		add(&line, " (%s)", pinion_fit_name(v->fit));
	if (v->has_load)
		add(&line, "; %" PRIu32 " in flight of %" PRIu32, v->pending, v->capacity);
	if (v->ns)
		add(&line, "; %" PRIu64 " ns%s", v->ns, v->measured ? " measured" : "");
	if (!v->has_handle)
		add(&line, v->looked_up ? "; its device has no handle" : "; not looked up");
	return (int)line.length;
}
