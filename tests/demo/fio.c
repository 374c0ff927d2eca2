/* SPDX-License-Identifier: MIT */
#include "fio.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_S 120

static void become_fio(const char *path, bool direct, int out)
{
	char *name;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	/* A colon separates file names for fio. */
	if (strchr(path, ':') || asprintf(&name, "--filename=%s", path) < 0)
		_exit(127);
	alarm(LIMIT_S);
	execlp("fio", "fio", "--name=demo", name, "--readonly", "--rw=read", "--ioengine=io_uring", "--bs=4m", "--iodepth=4",
	       direct ? "--direct=1" : "--direct=0", "--invalidate=0", "--mem=mmap", "--output-format=json", NULL);
	_exit(127);
}

/* Everything that comes from @fd, the caller's. */
static char *read_all(int fd)
{
	char *text = NULL, part[4096];
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	ssize_t n;

	while (out && ((n = read(fd, part, sizeof(part))) > 0 || (n < 0 && errno == EINTR)))
		fwrite(part, 1, n > 0 ? n : 0, out);
	return out && !fclose(out) ? text : NULL;
}

/* Notes may stand before the object. */
static bool take_figures(const char *text, struct figure *f)
{
	json_t *root = text && strchr(text, '{') ? json_loads(strchr(text, '{'), 0, NULL) : NULL;
	json_t *job = json_array_get(json_object_get(root, "jobs"), 0), *read = json_object_get(job, "read");
	double bytes = json_number_value(json_object_get(read, "io_bytes"));
	double rate = json_number_value(json_object_get(read, "bw_bytes"));
	double percent = json_number_value(json_object_get(job, "usr_cpu")) + json_number_value(json_object_get(job, "sys_cpu"));
	bool ok = bytes > 0 && rate > 0;

	if (ok) {
		struct lap lap = { .seconds = bytes / rate, .cpu = percent / 100 * bytes / rate };

		f->bytes = bytes;
		figure_add(f, &lap, lap.seconds);
	}
	json_decref(root);
	return ok;
}

bool fio_read(const char *path, bool direct, struct figure *f)
{
	int fd[2], status = 0;
	char *text;
	pid_t pid;
	bool ok;

	snprintf(f->note, sizeof(f->note), "fio did not run here");
	if (pipe2(fd, O_CLOEXEC))
		return false;
	fflush(stdout);
	pid = fork();
	if (!pid)
		become_fio(path, direct, fd[1]);
	close(fd[1]);
	text = pid > 0 ? read_all(fd[0]) : NULL;
	close(fd[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 127)
		snprintf(f->note, sizeof(f->note), "fio is not installed");
	ok = pid > 0 && !status && take_figures(text, f);
	if (ok)
		f->note[0] = 0;
	free(text);
	return ok;
}
