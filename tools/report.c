/* SPDX-License-Identifier: MIT */
#include "report.h"

#include "format.h"
#include "pinion.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int report_send(int fd, const struct report *report)
{
	int flags = fcntl(fd, F_GETFL);
	ssize_t n;

	/* A command that is stopped must not stop the load. */
	if (flags < 0 || fcntl(fd, F_SETFL, report->kind == REPORT_PROGRESS ? flags | O_NONBLOCK : flags & ~O_NONBLOCK))
		return -errno;
	do
		n = write(fd, report, sizeof(*report));
	while (n < 0 && errno == EINTR);
	return n > 0 || errno == EAGAIN ? 0 : -errno;
}

int report_result(int fd, enum report_kind kind, const char *text)
{
	struct report report = { .kind = REPORT_PART };
	size_t most = sizeof(report.text) - 1;
	int ret = 0;

	for (; !ret && strlen(text) > most; text += most) {
		memcpy(report.text, text, most);
		ret = report_send(fd, &report);
	}
	if (ret)
		return ret;
	report = (struct report){ .kind = kind };
	strcpy(report.text, text);
	return report_send(fd, &report);
}

static bool line_is_shown;

void report_clear(void)
{
	if (line_is_shown)
		fputs("\r\033[K", stderr);
	line_is_shown = false;
}

/* The rate counts from the first report, so that making the buffer is not in it. */
static void show_progress(const char *name, const struct report *report)
{
	static uint64_t first;
	static int64_t since;
	int64_t now = pinion_deadline_in(0);
	char shown[PINION_NAME_MAX + 1];

	if (!isatty(STDERR_FILENO))
		return;
	name = text_copy(shown, sizeof(shown), name);
	if (!report->done) {
		fprintf(stderr, "\r%s: making the buffer\033[K", name);
	} else {
		if (!since) {
			since = now;
			first = report->done;
		}
		fprintf(stderr, "\r%s: %u %%, %s of %s, %s\033[K", name, percent(report->done, report->total),
			size_text(report->done).s, size_text(report->total).s, rate_text(report->done - first, now - since).s);
	}
	line_is_shown = true;
}

int report_show(const char *name, const struct report *report)
{
	switch (report->kind) {
	case REPORT_PROGRESS:
		show_progress(name, report);
		return EXIT_OK;
	case REPORT_PART:
		report_clear();
		fputs(report->text, stdout);
		return EXIT_OK;
	case REPORT_READY:
	case REPORT_HELD:
		report_clear();
		puts(report->text);
		/* A holder prints this long before it ends. */
		flush_stdout();
		return EXIT_OK;
	default:
		report_clear();
		complain("%s", report->text);
		return exit_code_of(-report->err);
	}
}
