/* SPDX-License-Identifier: MIT */
#include "selftest.h"

#include "format.h"
#include "json.h"
#include "pinion.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* What takes longer than this does not work, on any machine. */
#define PATIENCE_MS 10000

/* ---- for the checks ------------------------------------------------------------------------------------------------ */

int selftest_fail(struct selftest *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->text, sizeof(t->text), fmt, ap);
	va_end(ap);
	return 1;
}

int selftest_refused(struct selftest *t, const char *what)
{
	return selftest_fail(t, "%s: %.400s", what, pinion_error());
}

static void run_child(const struct selftest *t, pid_t parent, int sock, int (*fn)(struct selftest *t, int sock))
{
	struct selftest own = *t;
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	own.ctx = NULL;
	own.text[0] = 0;
	ret = pinion_open(NULL, &own.ctx) ? selftest_refused(&own, "opening a context in a child") : fn(&own, sock);
	if (ret)
		send(sock, own.text, strlen(own.text), MSG_NOSIGNAL);
	/* Without what exit() does for the parent's streams. */
	_exit(ret);
}

int selftest_start(struct selftest *t, struct selftest_child *child, int (*fn)(struct selftest *t, int sock))
{
	pid_t parent = getpid();
	int sock[2];

	*child = (struct selftest_child){ -1, -1 };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock))
		return selftest_fail(t, "making a pair of sockets: %s", strerror(errno));
	fflush(NULL);
	child->pid = fork();
	if (child->pid < 0) {
		close(sock[0]);
		close(sock[1]);
		return selftest_fail(t, "starting a process: %s", strerror(errno));
	}
	if (!child->pid) {
		close(sock[0]);
		run_child(t, parent, sock[1], fn);
	}
	close(sock[1]);
	child->sock = sock[0];
	return 0;
}

int selftest_hear(struct selftest *t, struct selftest_child *child)
{
	struct pollfd p = { .fd = child->sock, .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, PATIENCE_MS) != 1)
		return selftest_fail(t, "a process said nothing for %d s", PATIENCE_MS / 1000);
	n = read(child->sock, t->text, sizeof(t->text) - 1);
	t->text[n > 0 ? n : 0] = 0;
	if (n <= 0)
		return selftest_fail(t, "a process ended without a word");
	if (n == 1 && *t->text == 'y') {
		t->text[0] = 0;
		return 0;
	}
	return 1;
}

void selftest_say(int sock)
{
	send(sock, "y", 1, MSG_NOSIGNAL);
}

void selftest_kill(struct selftest_child *child)
{
	if (child->pid > 0) {
		kill(child->pid, SIGKILL);
		while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (child->sock >= 0)
		close(child->sock);
	*child = (struct selftest_child){ -1, -1 };
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

static void show(const struct selftest_check *check, const char *result, const char *text, uint64_t ns, json_t *array)
{
	char shown[512];
	json_t *object;

	if (!array) {
		printf("%-4s  %-9s  %s: %s (%s)\n", result, check->name, check->promise, text_copy(shown, sizeof(shown), text),
		       seconds_text(ns).s);
		flush_stdout();
		return;
	}
	object = json_new_object();
	json_set_text(object, "result", result);
	json_set_text(object, "check", check->name);
	json_set_text(object, "promise", check->promise);
	json_set_text(object, "text", text);
	json_set_number(object, "ns", ns);
	json_add(array, object);
}

static void prepare(struct selftest *t)
{
	const char *folder = getenv("TMPDIR");
	struct pinion_device *dev;

	snprintf(t->key, sizeof(t->key), "selftest:%d", getpid());
	snprintf(t->name, sizeof(t->name), "selftest-%d", getpid());
	snprintf(t->folder, sizeof(t->folder), "%s", folder && *folder ? folder : "/tmp");
	/* One of the same pid that was killed may have left it. */
	if (!pinion_device_find(t->ctx, t->key, &dev))
		pinion_device_remove(dev);
}

static void clean_up(struct selftest *t)
{
	struct pinion_device *dev;

	if (!pinion_device_find(t->ctx, t->key, &dev))
		pinion_device_remove(dev);
}

int cmd_selftest(const struct command *cmd, int argc, char **argv)
{
	struct selftest t = { 0 };
	json_t *array = NULL;
	int code = EXIT_OK, ret;
	bool json;

	json = command_parse_json(cmd, argc, argv, "Print an array with an object for each promise");
	ret = pinion_open(NULL, &t.ctx);
	if (ret)
		return refused(ret);
	if (json)
		array = json_new_array();
	prepare(&t);
	for (size_t i = 0; i < selftest_count; i++) {
		int64_t start = pinion_deadline_in(0);

		t.text[0] = 0;
		ret = selftest_checks[i].fn(&t);
		show(&selftest_checks[i], ret ? "FAIL" : "ok", t.text, pinion_deadline_in(0) - start, array);
		if (ret)
			code = EXIT_PROBLEM;
	}
	clean_up(&t);
	pinion_close(t.ctx);
	if (array)
		json_print(array);
	return code;
}
