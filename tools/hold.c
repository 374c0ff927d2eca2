/* SPDX-License-Identifier: MIT */
#include "hold.h"

#include "ending.h"
#include "format.h"
#include "notify.h"
#include "pinion.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
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

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
	const struct progress *p = arg;
	struct report report = { .kind = REPORT_PROGRESS, .done = done, .total = total };

	pinion_holder_progress(p->holder, done, total);
	return tell(p->hold, &report);
}

/* ---- the result line ----------------------------------------------------------------------------------------------- */

static void print_read(FILE *out, const struct pinion_load_stats *stats)
{
	if (!stats->bytes_read) {
		fprintf(out, "nothing to read");
		return;
	}
	fprintf(out, "read %s (direct %u %%", rate_text(stats->bytes_read, stats->read_ns).s,
		percent(stats->direct_bytes, stats->bytes_read));
	if (stats->buffered_bytes && *stats->buffered_why)
		fprintf(out, "; the rest: %s", stats->buffered_why);
	fprintf(out, "), moved %s", size_text(stats->moved_bytes).s);
}

static void print_buffer(FILE *out, const struct pinion_buffer_info *buf)
{
	if (buf->page_size > sysconf(_SC_PAGESIZE) || buf->huge_bytes)
		fprintf(out, ", huge pages %" PRIu64 " of %" PRIu64 " MiB", buf->huge_bytes / MIB, buf->bytes / MIB);
	else
		fprintf(out, ", pages of %s", size_text(buf->page_size).s);
	if (buf->hold == PINION_HOLD_REGISTERED || buf->hold == PINION_HOLD_PINNED)
		fprintf(out, ", %s", buf->hold == PINION_HOLD_PINNED ? "pinned" : "registered");
	else
		fprintf(out, ", %s (%s)", buf->hold == PINION_HOLD_LOCKED ? "locked" : "unlocked", buf->hold_why);
	fprintf(out, ", %s", buf->rights == PINION_READ ? "sealed read-only" : "writable");
}

/* Before the model is published, because then this process's mapping goes and huge pages show in it. */
static int describe(const struct hold *h, struct pinion_model *m, struct report *report)
{
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_buffer_info buf = { .size = sizeof(buf) };
	int ret = pinion_model_load_stats(m, &stats);
	FILE *out;

	if (!ret)
		ret = pinion_model_info(m, &info);
	if (!ret)
		ret = pinion_buffer_info(pinion_model_buffer(m), &buf);
	if (ret)
		return ret;
	out = fmemopen(report->text, sizeof(report->text), "w");
	if (!out)
		no_memory();
	fprintf(out, "%s: %s, %" PRIu64 " tensors, ", h->name, size_text(info.tensor_bytes).s, info.tensors);
	print_read(out, &stats);
	print_buffer(out, &buf);
	fprintf(out, ", ready in %s", seconds_text(pinion_deadline_in(0) - h->start_ns).s);
	fclose(out);
	return 0;
}

/* ---- the process --------------------------------------------------------------------------------------------------- */

static void close_inherited(struct hold *h)
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

/* From here on this process keeps nothing busy that it was started with. */
static void detach(const struct hold *h)
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
static int tell_ready(struct hold *h, const struct report *report)
{
	int ret;

	detach(h);
	/* Before the command is told, because it ends then. */
	prctl(PR_SET_PDEATHSIG, 0);
	ret = tell(h, report);
	if (h->report_fd >= 0)
		close(h->report_fd);
	else
		notify_ready();
	return ret;
}

/* Returns the exit code. */
static int take_name(const struct hold *h, struct pinion_context *ctx, struct pinion_holder **out)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	char sentence[512] = "";
	int ret;

	for (unsigned int i = 0; i < TAKE_TRIES; i++) {
		ret = pinion_holder_open(ctx, h->name, h->path, out);
		if (!ret)
			return EXIT_OK;
		snprintf(sentence, sizeof(sentence), "%s", pinion_error());
		if (ret != -EEXIST)
			break;
		if (!pinion_name_show(ctx, h->name, &info, NULL, 0, NULL)) {
			snprintf(sentence, sizeof(sentence), "%s is already held by pid %d", h->name, info.pid);
			break;
		}
		/* It went between the two, and the name is free; or nobody can reach it, and its record is right. */
		usleep(TAKE_PAUSE_US);
	}
	return tell_failure(h, ret, sentence);
}

/* With the name taken: loads and publishes. Returns the exit code. */
static int load(struct hold *h, struct pinion_context *ctx, struct pinion_holder *holder, struct pinion_model **m,
		struct report *ready)
{
	struct progress progress = { .hold = h, .holder = holder };
	int ret;

	h->opts.progress = on_progress;
	h->opts.progress_arg = &progress;
	ret = pinion_model_load(ctx, h->path, &h->opts, m);
	if (!ret)
		ret = describe(h, *m, ready);
	if (!ret)
		ret = pinion_holder_publish(holder, *m);
	return ret ? tell_failure(h, ret, pinion_error()) : EXIT_OK;
}

static int serve(struct hold *h, struct pinion_holder *holder, const struct report *ready)
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
	struct report ready = { .kind = REPORT_READY };
	struct pinion_holder *holder;
	struct pinion_model *m = NULL;
	struct pinion_context *ctx;
	int code, ret;

	close_inherited(h);
	raise_descriptors();
	ret = ending_start();
	if (ret)
		return tell_failure(h, ret, "no thread can be started to wait for signals");
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return tell_failure(h, ret, pinion_error());
	code = take_name(h, ctx, &holder);
	if (code)
		goto close;
	code = load(h, ctx, holder, &m, &ready);
	if (!code)
		code = serve(h, holder, &ready);
	ending_stop();
	pinion_holder_free(holder);
	pinion_model_free(m);
close:
	pinion_close(ctx);
	return code;
}
