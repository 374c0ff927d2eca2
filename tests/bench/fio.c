/* SPDX-License-Identifier: MIT */
#include "fio.h"

#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL_PAGES 16 /* four buffers of 4 MiB, and room for fio to align them */
#define POOL_FREE  "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"

extern char **environ;

/* Its output to @log, or nowhere; the status as of waitpid(). */
static int run(char *const argv[], const char *log)
{
	posix_spawn_file_actions_t actions;
	int err, status;
	pid_t child;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, log ? log : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	err = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (err)
		return -err;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status;
}

bool fio_here(void)
{
	char *argv[] = { "fio", "--version", NULL };

	return run(argv, NULL) == 0;
}

static long pool_value(const char *path)
{
	char text[64];

	setting_read(path, text, sizeof(text));
	return strtol(text, NULL, 10);
}

bool fio_pool(void)
{
	long missing = POOL_PAGES - pool_value(POOL_FREE);
	char text[32];

	if (missing <= 0)
		return true;
	snprintf(text, sizeof(text), "%ld", pool_value(HUGETLB_PAGES) + missing);
	return !setting_write(HUGETLB_PAGES, text) && pool_value(POOL_FREE) >= POOL_PAGES;
}

static int read_log(const char *log, double *ns_per_gib)
{
	json_error_t error;
	json_t *whole = json_load_file(log, JSON_DISABLE_EOF_CHECK, &error), *job = NULL, *got = NULL;
	double bytes, ms;
	int ret = 0;

	if (whole)
		job = json_array_get(json_object_get(whole, "jobs"), 0);
	got = json_object_get(job, "read");
	bytes = json_number_value(json_object_get(got, "io_bytes"));
	ms = json_number_value(json_object_get(got, "runtime"));
	if (!got || bytes <= 0 || ms <= 0 || json_integer_value(json_object_get(job, "error")))
		ret = broke(EPROTO, "fio read nothing, or what it found cannot be read");
	else
		*ns_per_gib = ms * 1e6 / bytes * (1 << 30);
	json_decref(whole);
	return ret;
}

int fio_way(void *arg, struct sample *out)
{
	const struct fio *fio = arg;
	char name[PATH_MAX + 16];
	char *memory = fio->huge ? "--mem=mmaphuge" : "--mem=mmap";
	char *argv[] = { "fio", "--name=bench", name, memory, "--readonly", "--rw=read", "--ioengine=io_uring",
			 "--direct=1", "--bs=4M", "--iodepth=4", "--thread", "--eta=never", "--disk_util=0",
			 "--output-format=json", NULL };
	int status;

	if (model_file_cool(fio->file))
		return -EBUSY;
	snprintf(name, sizeof(name), "--filename=%s", fio->file->path);
	status = run(argv, fio->log);
	if (status)
		return status < 0 ? broke(-status, "running fio: %s", strerror(-status)) :
				    broke(EPROTO, "fio ended with status 0x%x", status);
	return read_log(fio->log, &out->of[TIME]);
}
