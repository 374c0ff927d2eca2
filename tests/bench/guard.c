/* SPDX-License-Identifier: MIT */
#include "guard.h"

#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the rows may change. */
static struct setting {
	const char *path;
	char was[64];
} settings[] = {
	{ SHMEM_THP, "" },
	{ HUGETLB_PAGES, "" },
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

void setting_read(const char *path, char *value, size_t room)
{
	char text[256], *open_at, *close_at;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	open_at = strchr(text, '[');
	close_at = open_at ? strchr(open_at, ']') : NULL;
	if (close_at)
		*close_at = 0;
	snprintf(value, room, "%s", close_at ? open_at + 1 : text);
}

int setting_write(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, value, strlen(value)) < 0)
		err = errno;
	close(fd);
	return -err;
}

static void put_back(void)
{
	char now[64];

	for (unsigned int i = 0; i < SETTINGS; i++) {
		setting_read(settings[i].path, now, sizeof(now));
		if (!*settings[i].was || !strcmp(now, settings[i].was))
			continue;
		if (setting_write(settings[i].path, settings[i].was))
			fprintf(stderr, "pinion-bench: could not put %s back to '%s'\n", settings[i].path,
				settings[i].was);
	}
}

/* Everything in the directory, which has no directories of its own, and the directory. */
static void remove_dir(const char *path)
{
	struct dirent *e;
	DIR *d = *path ? opendir(path) : NULL;

	if (!d)
		return;
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	rmdir(path);
}

static bool in_memory(const char *path)
{
	struct statfs fs;

	return !statfs(path, &fs) &&
	       (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC);
}

static bool make_dir(char *path, const char *parent)
{
	if (snprintf(path, PATH_MAX, "%s/pinion-bench.XXXXXX", parent) < PATH_MAX && mkdtemp(path))
		return true;
	*path = 0;
	return false;
}

static int make_dirs(struct guard *g)
{
	const char *tmp = getenv("TMPDIR");
	const char *choice[] = { tmp && *tmp ? tmp : "/var/tmp", "/var/tmp" };

	g->files[0] = g->files_why[0] = 0;
	for (unsigned int i = 0; i < 2 && !*g->files; i++) {
		if (in_memory(choice[i]))
			snprintf(g->files_why, sizeof(g->files_why),
				 "%s is in memory, not on a disk; name another in TMPDIR", choice[i]);
		else if (!make_dir(g->files, choice[i]))
			snprintf(g->files_why, sizeof(g->files_why), "no directory in %s: %s", choice[i],
				 strerror(errno));
	}
	if (in_memory("/dev/shm") && make_dir(g->run, "/dev/shm"))
		return 0;
	if (make_dir(g->run, "/tmp"))
		return 0;
	return broke(errno, "no runtime directory in /tmp: %s", strerror(errno));
}

static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

static void wait_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGCHLD);
	for (unsigned int i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaddset(set, ends[i]);
}

/*
 * Ends the child's whole group while the child is not reaped yet, so that the group's number is nobody else's, and
 * waits until all of it is gone, so that nothing holds what is put back.
 */
static int reap(pid_t child)
{
	siginfo_t info;
	int status = 0;

	while (waitid(P_PID, child, &info, WEXITED | WNOWAIT) && errno == EINTR)
		;
	kill(-child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	while (waitpid(-1, NULL, 0) >= 0 || errno == EINTR)
		;
	return status;
}

/* Waits for the child, or for a signal that ends both. */
static int watch(pid_t child, const sigset_t *set)
{
	siginfo_t info;
	int sig, status;

	for (;;) {
		sig = sigwaitinfo(set, NULL);
		if (sig < 0)
			continue;
		if (sig != SIGCHLD)
			break;
		info.si_pid = 0;
		if (!waitid(P_PID, child, &info, WEXITED | WNOWAIT | WNOHANG) && info.si_pid == child)
			break;
	}
	if (sig != SIGCHLD) {
		kill(-child, SIGKILL);
		reap(child);
		return 128 + sig;
	}
	status = reap(child);
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "pinion-bench: the rows ended by signal %d (%s)\n", WTERMSIG(status),
		strsignal(WTERMSIG(status)));
	return 1;
}

static void child_main(const struct guard *g, pid_t parent, int (*work)(const struct guard *g, void *arg), void *arg,
		       const sigset_t *old)
{
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	sigprocmask(SIG_SETMASK, old, NULL);
	setenv("PINION_DIR", g->run, 1);
	exit(work(g, arg));
}

int guard_run(int (*work)(const struct guard *g, void *arg), void *arg)
{
	struct guard g = { .run = "" };
	pid_t child, parent = getpid();
	sigset_t set, old;
	int ret;

	for (unsigned int i = 0; i < SETTINGS; i++)
		setting_read(settings[i].path, settings[i].was, sizeof(settings[i].was));
	signal(SIGCHLD, SIG_DFL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	wait_set(&set);
	sigprocmask(SIG_BLOCK, &set, &old);
	ret = make_dirs(&g);
	if (ret) {
		fprintf(stderr, "pinion-bench: %s\n", broke_why());
		remove_dir(g.files);
		return 1;
	}
	fflush(NULL);
	child = fork();
	if (child == 0)
		child_main(&g, parent, work, arg, &old);
	if (child > 0) {
		/* Both sides, so that the group exists whoever is first. */
		setpgid(child, child);
		ret = watch(child, &set);
	} else {
		fprintf(stderr, "pinion-bench: fork: %s\n", strerror(errno));
		ret = 1;
	}
	put_back();
	remove_dir(g.files);
	remove_dir(g.run);
	return ret;
}
