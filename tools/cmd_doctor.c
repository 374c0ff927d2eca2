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
			usage_error(state, "'%s' is no size; 512MiB is one", arg);
		return 0;
	case 'j':
		wish->json = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static struct doctor_line *add_line(struct doctor *d, enum finding finding, const char *what, const char *fmt, va_list ap)
{
	static struct doctor_line spare;
	struct doctor_line *line = d->lines < DOCTOR_LINES ? &d->line[d->lines++] : &spare;

	*line = (struct doctor_line){ .finding = finding, .what = what };
	vsnprintf(line->text, sizeof(line->text), fmt, ap);
	text_clean(line->text);
	return line;
}

void doctor_say(struct doctor *d, enum finding finding, const char *what, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_line(d, finding, what, fmt, ap);
	va_end(ap);
}

void doctor_advise(struct doctor *d, enum finding finding, const char *what, enum pinion_advice advice, const char *value,
		   const char *fmt, ...)
{
	struct doctor_line *line;
	va_list ap;

	va_start(ap, fmt);
	line = add_line(d, finding, what, fmt, ap);
	va_end(ap);
	line->advice = advice;
	pinion_advice_line(advice, value, line->fix, sizeof(line->fix));
	text_clean(line->fix);
}

void doctor_say_error(struct doctor *d, enum finding finding, const char *what)
{
	const char *sentence = pinion_error(), *id = strrchr(sentence, '['), *fix = id;
	struct pinion_advice_info info = { .size = sizeof(info) };
	enum pinion_advice advice = pinion_error_advice();
	size_t same;

	if (!id || pinion_advice_info(advice, &info)) {
		doctor_say(d, finding, what, "%s", sentence);
		return;
	}
	/* The sentence ends in "; LINE [id]", in which the words in braces of LINE are put in: before the first they are equal.
	 */
	same = strcspn(info.line, "{");
	while (fix > sentence && (strncmp(fix, "; ", 2) || strncmp(fix + 2, info.line, same)))
		fix--;
	doctor_advise(d, finding, what, advice, NULL, "%.*s", (int)(fix - sentence), sentence);
	if (fix > sentence)
		snprintf(d->line[d->lines - 1].fix, sizeof(d->line[0].fix), "%.*s", (int)(id - 1 - (fix + 2)), fix + 2);
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

bool doctor_field(const char *path, const char *key, char *value, size_t room)
{
	char line[512];
	bool found = false;
	FILE *f = fopen(path, "re");

	while (f && !found && fgets(line, sizeof(line), f)) {
		found = !strncmp(line, key, strlen(key)) && line[strlen(key)] == ':';
		if (found)
			snprintf(value, room, "%s", line + strlen(key) + 1 + strspn(line + strlen(key) + 1, " \t"));
	}
	if (f)
		fclose(f);
	if (found)
		value[strcspn(value, "\n")] = 0;
	return found;
}

void doctor_choice(const char *path, char *choice, size_t room)
{
	char text[128], *at;

	*choice = 0;
	if (!doctor_read(path, text, sizeof(text)))
		return;
	at = strchr(text, '[');
	if (at)
		snprintf(choice, room, "%.*s", (int)strcspn(at + 1, "]"), at + 1);
}

bool doctor_is_filtered(void)
{
	char mode[8];

	return doctor_field("/proc/self/status", "Seccomp", mode, sizeof(mode)) && *mode == '2';
}

static const char *finding_name(enum finding finding)
{
	return finding == FINDING_OK ? "ok" : finding == FINDING_WARN ? "warn" : "FAIL";
}

static const char *advice_id(enum pinion_advice advice)
{
	struct pinion_advice_info info = { .size = sizeof(info) };

	return pinion_advice_info(advice, &info) ? "" : info.id;
}

static void print_lines(const struct doctor *d)
{
	for (size_t i = 0; i < d->lines; i++) {
		const struct doctor_line *line = &d->line[i];

		printf("%-4s  %-19s  %s", finding_name(line->finding), line->what, line->text);
		if (line->advice)
			printf("; %s [%s]", line->fix, advice_id(line->advice));
		putchar('\n');
	}
}

static void print_json(const struct doctor *d)
{
	json_t *array = json_new_array(), *object;

	for (size_t i = 0; i < d->lines; i++) {
		object = json_new_object();
		json_set_text(object, "finding", finding_name(d->line[i].finding));
		json_set_text(object, "what", d->line[i].what);
		json_set_text(object, "text", d->line[i].text);
		if (d->line[i].advice) {
			json_set_text(object, "fix", d->line[i].fix);
			json_set_text(object, "id", advice_id(d->line[i].advice));
		} else {
			json_set(object, "fix", json_null());
			json_set(object, "id", json_null());
		}
		json_add(array, object);
	}
	json_print(array);
}

/* Where counts are, and what that is good for. */
static void look_at_counts(struct doctor *d, const struct pinion_context_info *info)
{
	if (!strcmp(info->counts, "kmod"))
		doctor_say(
			d, FINDING_OK, "counts",
			"kmod: of every user and container; who is killed is out before it can be waited for, flushes and claims "
			"are the kernel's; a device lives as long as somebody refers to it");
	else
		doctor_say(d, FINDING_OK, "counts",
			   "memfd: of this user's processes that use this runtime directory, each of which could falsify them, "
			   "or end "
			   "the others by cutting the file; a device stays until it is removed");
	if (info->apart)
		doctor_advise(d, FINDING_WARN, "counts apart", PINION_ADVICE_COUNTS_APART, NULL,
			      "%u living contexts of this directory count on %s: they and those on %s do not see each other's "
			      "devices, units and "
			      "claims",
			      info->apart, strcmp(info->counts, "kmod") ? "the module" : "memfd", info->counts);
}

/* The ground that a context gets; NULL when there is none to be had. @info is filled where there is. */
static struct pinion_context *look_at_ground(struct doctor *d, struct pinion_context_info *info)
{
	struct pinion_context *ctx = NULL;

	if (pinion_open(NULL, &ctx)) {
		doctor_say_error(d, FINDING_FAIL, "ground");
		return NULL;
	}
	if (pinion_context_info(ctx, info))
		doctor_say_error(d, FINDING_FAIL, "ground");
	else if (*info->ground_why)
		doctor_say(d, FINDING_OK, "ground",
			   "%s: one user's processes, pages held as well as this machine lets them; the module adds "
			   "memory for every device, readers beside writers",
			   info->ground);
	else
		doctor_say(d, FINDING_OK, "ground", "%s: buffers are pinned for every device", info->ground);
	if (info->counts)
		look_at_counts(d, info);
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
	static struct doctor doctor;
	struct pinion_context_info info = { .size = sizeof(info) };
	struct wish wish = { .doctor = &doctor };
	struct pinion_context *ctx;

	command_parse(cmd, argc, argv, options, parse, &wish);
	ctx = look_at_ground(&doctor, &info);
	doctor_module(&doctor);
	doctor_memory(&doctor, ctx);
	doctor_uring(&doctor, info.engine, info.engine_why);
	doctor_place(&doctor, info.dir);
	pinion_close(ctx);
	if (wish.json)
		print_json(&doctor);
	else
		print_lines(&doctor);
	return exit_of(&doctor);
}
