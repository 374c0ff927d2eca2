/* SPDX-License-Identifier: MIT */
#include "doctor.h"
#include "format.h"
#include "json.h"
#include "pinion.h"

#include <fcntl.h>
#include <pinion/pinion.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct wish {
	struct doctor *doctor;
	bool json;
};

static const struct argp_option options[] = {
	{ .name = "for", .key = 'f', .arg = "SIZE", .doc = "Say too whether SIZE more can be held" },
	{ .name = "json", .key = 'j', .doc = "Print an array with an object for each line" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wish *wish = state->input;

	switch (key) {
	case 'f':
		if (size_parse(arg, &wish->doctor->need) || !wish->doctor->need)
			argp_error(state, "'%s' is no size; 512MiB is one", arg);
		return 0;
	case 'j':
		wish->json = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

void doctor_say(struct doctor *d, enum finding finding, const char *what, const char *fmt, ...)
{
	struct doctor_line *line = &d->line[d->lines];
	va_list ap;

	if (d->lines == sizeof(d->line) / sizeof(d->line[0]))
		return;
	d->lines++;
	line->finding = finding;
	line->what = what;
	va_start(ap, fmt);
	vsnprintf(line->text, sizeof(line->text), fmt, ap);
	va_end(ap);
	text_clean(line->text);
}

bool doctor_read(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	return n >= 0;
}

static const char *finding_name(enum finding finding)
{
	return finding == FINDING_OK ? "ok" : finding == FINDING_WARN ? "warn" : "FAIL";
}

static void print_lines(const struct doctor *d)
{
	for (size_t i = 0; i < d->lines; i++)
		printf("%-4s  %-17s  %s\n", finding_name(d->line[i].finding), d->line[i].what, d->line[i].text);
}

static void print_json(const struct doctor *d)
{
	json_t *array = json_new_array(), *object;

	for (size_t i = 0; i < d->lines; i++) {
		object = json_new_object();
		json_set_text(object, "finding", finding_name(d->line[i].finding));
		json_set_text(object, "what", d->line[i].what);
		json_set_text(object, "text", d->line[i].text);
		json_add(array, object);
	}
	json_print(array);
}

/* Where counts are, and what that is good for. */
static void look_at_counts(struct doctor *d, const struct pinion_context_info *info)
{
	if (!strcmp(info->counts, "kmod"))
		doctor_say(d, FINDING_OK, "counts",
			   "kmod: of every user and container; who is killed is out before it can be waited for, flushes and claims "
			   "are the kernel's; a device lives as long as somebody refers to it");
	else
		doctor_say(d, FINDING_OK, "counts",
			   "memfd: of this user's processes that use this runtime directory; a device stays until it is removed");
	if (info->apart)
		doctor_say(d, FINDING_WARN, "counts apart",
			   "%u living contexts of this directory count on %s: they and those on %s do not see each other's devices, units and "
			   "claims; start all with one PINION_GROUND, and let all open /dev/pinion or none",
			   info->apart, strcmp(info->counts, "kmod") ? "the module" : "memfd", info->counts);
}

/* The ground that a context gets; NULL when there is none to be had. */
static struct pinion_context *look_at_ground(struct doctor *d)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	struct pinion_context *ctx = NULL;

	if (pinion_open(NULL, &ctx)) {
		doctor_say(d, FINDING_FAIL, "ground", "%s", pinion_error());
		return NULL;
	}
	if (pinion_context_info(ctx, &info))
		doctor_say(d, FINDING_FAIL, "ground", "%s", pinion_error());
	else if (*info.ground_why)
		doctor_say(d, FINDING_OK, "ground",
			   "%s: one user's processes, pages held as well as this machine lets them; the module adds "
			   "memory for every device, readers beside writers",
			   info.ground);
	else
		doctor_say(d, FINDING_OK, "ground", "%s: buffers are pinned for every device", info.ground);
	if (info.counts)
		look_at_counts(d, &info);
	doctor_say(d, FINDING_OK, "runtime directory", "%s", info.dir ? info.dir : "");
	return ctx;
}

static int exit_of(const struct doctor *d)
{
	int code = EXIT_OK;

	for (size_t i = 0; i < d->lines; i++) {
		if (d->line[i].finding == FINDING_FAIL)
			return EXIT_PROBLEM;
		if (d->line[i].finding == FINDING_NO_ROOM)
			code = EXIT_NO_ROOM;
	}
	return code;
}

int cmd_doctor(const struct command *cmd, int argc, char **argv)
{
	struct doctor doctor = { 0 };
	struct wish wish = { .doctor = &doctor };
	struct pinion_context *ctx;

	command_parse(cmd, argc, argv, options, parse, &wish);
	ctx = look_at_ground(&doctor);
	doctor_module(&doctor);
	doctor_system(&doctor, ctx);
	pinion_close(ctx);
	if (wish.json)
		print_json(&doctor);
	else
		print_lines(&doctor);
	return exit_of(&doctor);
}
