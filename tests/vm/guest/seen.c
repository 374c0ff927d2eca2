// SPDX-License-Identifier: MIT
/* What can be seen from outside: fdinfo, sysfs, debugfs, tracepoints. */
#define _GNU_SOURCE
#include "calls.h"
#include "vgem.h"

#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOBODY	65534
#define SYSFS	"/sys/class/misc/pinion/"
#define DEBUGFS "/sys/kernel/debug/pinion/buffers"
#define TRACEFS "/sys/kernel/tracing/"
#define MANY	300

static bool has(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool has(const char *text, const char *format, ...)
{
	char want[256];
	va_list args;
	bool found;

	va_start(args, format);
	vsnprintf(want, sizeof(want), format, args);
	va_end(args);
	found = strstr(text, want);
	if (!found)
		wrong("no '%s' in '%.120s'", want, text);
	return found;
}

static char *fdinfo(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	return file_get(path);
}

static void of_descriptors(void)
{
	struct pinion_alloc a = { .size = sizeof(a), .bytes = 3 * PAGE, .node = PINION_NODE_ANY };
	char *text = fdinfo(given.dev);
	struct pinion_info info;
	int fd;

	expect(dev_info(given.dev, &info), 0, "INFO");
	has(text, "pinion-abi:\t1\n");
	has(text, "pinion-user-bytes:\t%llu\n", info.user_bytes);
	has(text, "pinion-user-buffers:\t%llu\n", info.user_buffers);
	free(text);
	point("fdinfo", "of the device");

	fd = dev_alloc(given.dev, 5 * PAGE, 0);
	text = fdinfo(fd);
	has(text, "size:\t%lu\n", 5 * PAGE);
	has(text, "exp_name:\tpinion\n");
	has(text, "name:\ttest\n");
	free(text);
	close(fd);
	memset(a.name, 'n', PINION_NAME_BYTES - 1);
	expect(dev_call(given.dev, PINION_IOC_ALLOC, &a), 0, "ALLOC");
	text = fdinfo(a.fd);
	has(text, "\nname:\t%s\n", a.name);
	free(text);
	fd = dev_slice(given.dev, a.fd, PAGE, PAGE, 0);
	close(a.fd);
	text = fdinfo(fd);
	has(text, "size:\t%lu\n", PAGE);
	has(text, "\nname:\t%s\n", a.name);
	free(text);
	close(fd);
	memset(a.name, 0, sizeof(a.name));
	expect(dev_call(given.dev, PINION_IOC_ALLOC, &a), 0, "ALLOC");
	text = fdinfo(a.fd);
	if (strstr(text, "\nname:"))
		wrong("a buffer without a name has one");
	free(text);
	close(a.fd);
	point("fdinfo", "of a buffer");
}

static void of_sysfs(void)
{
	static const char *const names[] = { "bytes",	       "buffers",      "max_bytes", "max_user_bytes", "max_user_buffers",
					     "poisoned_bytes", "unwiped_bytes" };
	int fd = dev_alloc(given.dev, 7 * PAGE, 0);
	struct pinion_info info;

	expect(dev_info(given.dev, &info), 0, "INFO");
	for (unsigned int i = 0; i < 7; i++) {
		const uint64_t want[] = { info.bytes,	       info.buffers,	      info.max_bytes,
					  info.max_user_bytes, info.max_user_buffers, info.poisoned_bytes,
					  info.unwiped_bytes };
		struct stat st = { 0 };
		char path[128];

		snprintf(path, sizeof(path), SYSFS "%s", names[i]);
		if (stat(path, &st) || (st.st_mode & 07777) != 0444)
			wrong("%s: mode %o", path, st.st_mode);
		if (file_number(path) != want[i])
			wrong("%s is %lu, INFO says %lu", path, file_number(path), want[i]);
	}
	close(fd);
	point("sysfs", "totals and limits are those of INFO");
}

static unsigned int lines(const char *text)
{
	unsigned int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void of_debugfs(void)
{
	struct pinion_bufinfo info;
	struct pinion_info all;
	struct stat st = { 0 };
	int fds[MANY], status;
	char *text;
	pid_t pid;

	for (int i = 0; i < MANY; i++)
		fds[i] = dev_slice(given.dev, given.buffer, PAGE * (i % 2), PAGE, i % 3 ? 0 : PINION_RIGHT_WRITE);
	expect(dev_info(given.dev, &all), 0, "INFO");
	text = file_get(DEBUGFS);
	if (lines(text) != all.buffers)
		wrong("%u lines of %llu buffers", lines(text), all.buffers);
	for (int i = 0; i < MANY; i += 7) {
		expect(dev_bufinfo(given.dev, fds[i], &info), 0, "BUFINFO");
		has(text,
		    "%llu pages=%llu offset=%llu bytes=%llu of=%llu huge=%llu kind=%u rights=%x uid=0 pid=%d attachments=0 "
		    "name=%s\n",
		    info.id, info.pages_id, info.offset, info.bytes, info.pages_bytes, info.huge_bytes, info.kind, info.rights,
		    getpid(), info.name);
	}
	free(text);
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
	text = file_get(DEBUGFS);
	if (lines(text) != all.buffers - MANY)
		wrong("%u lines when the buffers are gone", lines(text));
	free(text);
	if (stat(DEBUGFS, &st) || (st.st_mode & 0777) != 0400)
		wrong(DEBUGFS ": mode %o", st.st_mode);
	pid = fork();
	if (!pid)
		_exit(setresuid(NOBODY, NOBODY, NOBODY) || open(DEBUGFS, O_RDONLY) >= 0);
	if (waitpid(pid, &status, 0) != pid || status)
		wrong("nobody can read " DEBUGFS);
	point("debugfs", "a line for each buffer, for root");
}

/* What was traced since the last time. */
static char *traced(void)
{
	char *text = file_get(TRACEFS "trace");
	int fd = open(TRACEFS "trace", O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (fd < 0 || close(fd))
		wrong(TRACEFS "trace cannot be cleared");
	return text;
}

static void of_tracefs(void)
{
	static const char *const events[] = { "pinion_pages_alloc", "pinion_pages_free", "pinion_slice_new",
					      "pinion_slice_free",  "pinion_slice_map",	 "pinion_slice_unmap" };
	int vgem = vgem_open(), fd, part;
	struct pinion_bufinfo whole = { 0 }, info = { 0 };
	uint32_t handle = 0;
	char *text, path[128];

	for (unsigned int i = 0; i < 6; i++) {
		snprintf(path, sizeof(path), TRACEFS "events/pinion/%s/format", events[i]);
		if (access(path, R_OK))
			wrong("no %s", path);
	}
	expect(file_put(TRACEFS "events/pinion/enable", "1"), 0, "enable");
	free(traced());
	fd = dev_alloc(given.dev, 3 * PAGE, 0);
	part = dev_slice(given.dev, fd, PAGE, PAGE, PINION_RIGHT_WRITE);
	expect(dev_bufinfo(given.dev, fd, &whole), 0, "BUFINFO");
	expect(dev_bufinfo(given.dev, part, &info), 0, "BUFINFO");
	if (vgem >= 0)
		expect(vgem_import(vgem, fd, &handle), 0, "import");
	text = traced();
	has(text, "pinion_pages_alloc: pages=%llu bytes=%lu huge=0 kind=%d\n", whole.pages_id, 3 * PAGE, PINION_KIND_PAGES);
	has(text, "pinion_slice_new: slice=%llu pages=%llu offset=0 bytes=%lu rights=%x\n", whole.id, whole.pages_id, 3 * PAGE,
	    PINION_RIGHTS);
	has(text, "pinion_slice_new: slice=%llu pages=%llu offset=%lu bytes=%lu rights=%x\n", info.id, info.pages_id, PAGE, PAGE,
	    PINION_RIGHT_READ | PINION_RIGHT_WRITE);
	if (vgem >= 0)
		has(text, "pinion_slice_map: slice=%llu entries=", whole.id);
	free(text);
	if (vgem >= 0)
		expect(vgem_drop(vgem, handle), 0, "drop");
	close(part);
	close(fd);
	text = traced();
	if (vgem >= 0)
		has(text, "pinion_slice_unmap: slice=%llu entries=", whole.id);
	has(text, "pinion_slice_free: slice=%llu ", info.id);
	has(text, "pinion_slice_free: slice=%llu ", whole.id);
	has(text, "pinion_pages_free: pages=%llu bytes=%lu ", whole.pages_id, 3 * PAGE);
	free(text);
	expect(file_put(TRACEFS "events/pinion/enable", "0"), 0, "disable");
	fd = dev_alloc(given.dev, PAGE, 0);
	close(fd);
	text = traced();
	if (strstr(text, "pinion_"))
		wrong("an event that is off: %.100s", strstr(text, "pinion_"));
	free(text);
	if (vgem >= 0)
		close(vgem);
	point("tracepoints", "fire with what happened");
}

/* ---- listeners ------------------------------------------------------------------------------------------------------ */

static int perf_listen(const char *event)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr), .sample_type = PERF_SAMPLE_RAW };
	char path[128];

	attr.sample_period = 1;
	snprintf(path, sizeof(path), TRACEFS "events/pinion/%s/id", event);
	attr.config = file_number(path);
	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* A program that does nothing. */
static int bpf_listen(const char *event)
{
	static const struct bpf_insn code[] = { { .code = BPF_ALU64 | BPF_MOV | BPF_K }, { .code = BPF_JMP | BPF_EXIT } };
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT, .insn_cnt = 2, .insns = (uintptr_t)code, .license = (uintptr_t) "GPL"
	};
	union bpf_attr listen = { .raw_tracepoint.name = (uintptr_t)event };
	int prog = syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof(load)), fd;

	if (prog < 0)
		return prog;
	listen.raw_tracepoint.prog_fd = prog;
	fd = syscall(SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, &listen, sizeof(listen));
	close(prog);
	return fd;
}

/* A buffer of each kind comes and goes; returns how many. */
static unsigned int of_each_kind(void)
{
	/* A child's copy has made the range read-only. */
	int populated = madvise(given.range, 2 * PAGE, MADV_POPULATE_WRITE);
	int fds[] = { dev_alloc(given.dev, 3 * PAGE, 0), dev_pin(given.dev, given.range, 2 * PAGE),
		      dev_pin_fd(given.dev, given.memfd, 0, PAGE, NULL), dev_alloc(given.dev, PAGE, PINION_ALLOC_SHMEM) };
	struct pinion_info info;
	unsigned int nr = 0;

	expect(populated, 0, "MADV_POPULATE_WRITE");
	for (unsigned int i = 0; i < 4; i++)
		if (fds[i] >= 0)
			nr += !close(fds[i]);
	expect(dev_info(given.dev, &info), 0, "INFO");
	if (nr != (info.features & PINION_FEATURE_SHMEM ? 4 : 3))
		wrong("%u kinds", nr);
	return nr;
}

static void of_kinds(void)
{
	char *text, *at;
	unsigned int want, lines_of = 0;

	expect(file_put(TRACEFS "events/pinion/enable", "1"), 0, "enable");
	/* A trigger makes the event look twice. */
	expect(file_put(TRACEFS "events/pinion/pinion_pages_alloc/trigger", "traceon"), 0, "trigger");
	free(traced());
	want = of_each_kind();
	text = traced();
	for (at = text; (at = strstr(at, "pinion_pages_alloc: ")); at++)
		lines_of++;
	if (lines_of != want)
		wrong("%u of %u allocations", lines_of, want);
	has(text, " bytes=%lu huge=0 kind=%d\n", 2 * PAGE, PINION_KIND_RANGE);
	has(text, " bytes=%lu huge=0 kind=%d\n", PAGE, PINION_KIND_MEMFD);
	free(text);
	expect(file_put(TRACEFS "events/pinion/pinion_pages_alloc/trigger", "!traceon"), 0, "no trigger");
	expect(file_put(TRACEFS "events/pinion/enable", "0"), 0, "disable");
	point("tracepoints", "of every kind of buffer, with a trigger");
}

/* All that can listen does, at once. */
static void of_listeners(void)
{
	static const char *const events[] = { "pinion_pages_alloc", "pinion_pages_free", "pinion_slice_new",
					      "pinion_slice_free",  "pinion_slice_map",	 "pinion_slice_unmap" };
	int perf[6], bpf[6], vgem = vgem_open(), fd;
	uint64_t count, want;
	uint32_t handle = 0;

	expect(file_put(TRACEFS "events/pinion/enable", "1"), 0, "enable");
	for (unsigned int i = 0; i < 6; i++) {
		perf[i] = perf_listen(events[i]);
		bpf[i] = bpf_listen(events[i]);
	}
	want = of_each_kind();
	fd = vgem < 0 ? -1 : dev_alloc(given.dev, PAGE, 0);
	if (fd >= 0) {
		expect(vgem_import(vgem, fd, &handle), 0, "import");
		expect(vgem_drop(vgem, handle), 0, "drop");
		close(fd);
		want++;
	}
	for (unsigned int i = 0; i < 6; i++) {
		if (perf[i] < 0)
			continue;
		if (i > 3)
			want = vgem >= 0;
		if (read(perf[i], &count, 8) != 8 || count != want)
			wrong("perf counts %lu of %lu %s", count, want, events[i]);
		close(perf[i]);
	}
	for (unsigned int i = 0; i < 6; i++)
		if (bpf[i] >= 0)
			close(bpf[i]);
	expect(file_put(TRACEFS "events/pinion/enable", "0"), 0, "disable");
	free(traced());
	if (vgem >= 0)
		close(vgem);
	if (perf[0] < 0 && bpf[0] < 0)
		tap_skip("tracepoints: perf and BPF", "this kernel has neither");
	else
		point("tracepoints", "perf and BPF beside the buffer");
}

int main(void)
{
	struct state start;
	int dev = dev_open(O_RDWR);

	if (!tap_ok(dev >= 0, "open", "%s", strerror(-dev)))
		return tap_end();
	start = state_now(dev);
	close(dev);
	if (!given_open())
		return tap_end();
	of_descriptors();
	of_sysfs();
	of_debugfs();
	of_tracefs();
	of_kinds();
	of_listeners();
	given_close(&start);
	return tap_end();
}
