/* SPDX-License-Identifier: MIT */
#include "hold.h"

#include "ending.h"
#include "held.h"
#include "loaded.h"
#include "notify.h"
#include "pinion.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* How often a name is asked for whose holder is just going. */
#define TAKE_TRIES 20
#define TAKE_PAUSE_US 10000

/* What a load in progress needs to say how far it is. */
struct progress {
	const struct hold *hold;
	struct pinion_holder *holder;
};

static int tell(const struct hold *h, const struct report *report)
{
	if (h->report_fd >= 0)
		return report_send(h->report_fd, report);
	report_show(h->name, report);
	return 0;
}

/* Returns the exit code. */
static int tell_failure(const struct hold *h, int ret, const char *sentence)
{
	struct report report = { .kind = REPORT_FAILED, .err = -ret };

	snprintf(report.text, sizeof(report.text), "%s", sentence);
	tell(h, &report);
	return exit_code_of(ret);
}

static int tell_no_thread(const struct hold *h, int ret)
{
	char sentence[1024];

	snprintf(sentence, sizeof(sentence), "starting a thread that waits for signals: %s", strerror(-ret));
	sentence_advise(sentence, sizeof(sentence), process_advice(-ret), NULL);
	return tell_failure(h, ret, sentence);
}

static int tell_result(const struct hold *h, const char *text)
{
	if (h->report_fd >= 0)
		return report_result(h->report_fd, REPORT_READY, text);
	report_clear();
	puts(text);
	/* A holder prints this long before it ends. */
	flush_stdout();
	return 0;
}

int hold_tell_progress(const struct hold *h, uint64_t done, uint64_t total)
{
	return tell(h, &(struct report){ .kind = REPORT_PROGRESS, .done = done, .total = total });
}

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
	const struct progress *p = arg;

	pinion_holder_progress(p->holder, done, total);
	return hold_tell_progress(p->hold, done, total);
}

/* ---- the process --------------------------------------------------------------------------------------------------- */

void hold_close_inherited(struct hold *h)
{
	int last = STDERR_FILENO;

	if (h->report_fd >= 0 && h->report_fd != ++last) {
		dup3(h->report_fd, last, O_CLOEXEC);
		h->report_fd = last;
	}
	closefrom(last + 1);
	umask(077);
}

/* Each process that attaches takes a descriptor here, and the usual limit of 1024 is only the soft one. */
static void raise_descriptors(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur == lim.rlim_max)
		return;
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
}

void hold_detach(const struct hold *h)
{
	int fd;

	if (chdir("/"))
		complain("chdir /: %s", strerror(errno));
	if (h->report_fd < 0)
		return;
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = STDIN_FILENO; i <= STDERR_FILENO && fd >= 0; i++)
		dup2(fd, i);
	if (fd >= 0)
		close(fd);
}

/* Whoever waits for the command may go on from here. -errno: nobody does any more. */
static int tell_ready(struct hold *h, const char *text)
{
	int ret;

	hold_detach(h);
	/* Before the command is told, because it ends then. */
	prctl(PR_SET_PDEATHSIG, 0);
	ret = tell_result(h, text);
	if (h->report_fd >= 0)
		close(h->report_fd);
	else
		notify_ready();
	return ret;
}

/* Nothing is left to be done. Behind a command alone, whose own result it is. Frees @text. */
static int tell_held(const struct hold *h, char *text, struct pinion_holder **out)
{
	report_result(h->report_fd, REPORT_HELD, text);
	free(text);
	*out = NULL;
	return EXIT_OK;
}

/* Returns the exit code. No holder: the name is another's, who has the same file. */
static int take_name(const struct hold *h, struct pinion_context *ctx, struct pinion_holder **out)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	char sentence[1024] = "", *text = NULL;
	int ret, same;

	for (unsigned int i = 0; i < TAKE_TRIES; i++) {
		ret = pinion_holder_open(ctx, h->name, h->shown, out);
		if (!ret)
			return EXIT_OK;
		snprintf(sentence, sizeof(sentence), "%s", pinion_error());
		if (ret != -EEXIST)
			break;
		if (!pinion_name_show(ctx, h->name, &info, NULL, 0, NULL)) {
			/* Who stays in the foreground wants to be the holder. */
			same = h->report_fd >= 0 ? held_is_same(h, ctx, info.pid, sentence, sizeof(sentence), &text) : -EEXIST;
			if (!same)
				return tell_held(h, text, out);
			if (same != -ENOENT && same != -EPIPE)
				break;
		}
		/* It went between the two, and the name is free; or nobody can reach it, and its record is right. */
		usleep(TAKE_PAUSE_US);
	}
	return tell_failure(h, ret, sentence);
}

/* With the name taken: loads and publishes. Returns the exit code. */
static int load(struct hold *h, struct pinion_context *ctx, struct pinion_holder *holder, struct pinion_model **m, char **ready)
{
	struct progress progress = { .hold = h, .holder = holder };
	int ret;

	h->opts.progress = on_progress;
	h->opts.progress_arg = &progress;
	ret = pinion_model_load(ctx, h->path, &h->opts, m);
	if (!ret)
		ret = loaded_here(h, *m, ready);
	if (!ret)
		ret = pinion_holder_publish(holder, *m);
	return ret ? tell_failure(h, ret, pinion_error()) : EXIT_OK;
}

static int serve(struct hold *h, struct pinion_holder *holder, const char *ready)
{
	int ret;

	ending_serves(holder);
	ret = tell_ready(h, ready);
	if (!ret)
		ret = pinion_holder_wait(holder, PINION_FOREVER);
	return exit_code_of(ret);
}

int hold_run(struct hold *h)
{
	struct pinion_holder *holder;
	struct pinion_model *m = NULL;
	struct pinion_context *ctx;
	char *ready = NULL;
	int code, ret;

	hold_close_inherited(h);
	raise_descriptors();
	ret = ending_start();
	if (ret)
		return tell_no_thread(h, ret);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return tell_failure(h, ret, pinion_error());
	code = take_name(h, ctx, &holder);
	if (code || !holder)
		goto close;
	code = load(h, ctx, holder, &m, &ready);
	if (!code)
		code = serve(h, holder, ready);
	free(ready);
	ending_stop();
	pinion_holder_free(holder);
	pinion_model_free(m);
close:
	pinion_close(ctx);
	return code;
}
