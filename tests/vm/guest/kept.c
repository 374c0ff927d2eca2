// SPDX-License-Identifier: MIT
/*
 * The kernel that the library's tests are to run on keeps from a child what its parent keeps from it: memory that is not to be
 * inherited (MADV_DONTFORK) is not there in the child, and what the child maps in its place is what the child reads. User-mode
 * Linux has to be told so (images.sh); the library's counters are read this way.
 */
#define _GNU_SOURCE
#include "tap.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 4096

static const char theirs[] = "the parent's", own[] = "the child's", file_says[] = "the file's";

/* A page of a file, with TEXT in it; with AT, there, where nothing may be. */
static char *page_of(const char *text, void *at, int *fd)
{
	char *page;

	*fd = memfd_create("page", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, BYTES) || pwrite(*fd, text, strlen(text), 0) < 0)
		return NULL;
	page = mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED_NOREPLACE : 0), *fd, 0);
	return page == MAP_FAILED ? NULL : page;
}

enum { MAPPED = 1, READ = 2, WRITTEN = 4, INHERITED = 8 };

/* What held in the child, a bit each. */
static int in_child(char *kept, const char *inherited)
{
	char text[sizeof(own)] = "";
	int fd, held = 0;
	char *page = page_of(file_says, kept, &fd);

	if (page != kept)
		return 0;
	held |= MAPPED;
	if (!strcmp(page, file_says))
		held |= READ;
	strcpy(page, own);
	if (pread(fd, text, sizeof(text), 0) == sizeof(text) && !strcmp(text, own))
		held |= WRITTEN;
	if (!strcmp(inherited, theirs))
		held |= INHERITED;
	return held;
}

/* How a child ended that ran in_child() or, without @inherited, only reads what was kept from it. */
static int child(char *kept, const char *inherited)
{
	pid_t pid = fork();
	int status = -1;

	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		_exit(inherited ? in_child(kept, inherited) : *(volatile char *)kept);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

int main(void)
{
	int fd, status;
	char *kept = page_of(theirs, NULL, &fd);
	char *inherited = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!tap_ok(kept && inherited != MAP_FAILED && !madvise(kept, BYTES, MADV_DONTFORK), "a page that is kept from children",
		    "%s", strerror(errno)))
		return tap_end();
	strcpy(inherited, theirs);
	/* Looked at, so that it is there in more than name. */
	tap_ok(!strcmp(kept, theirs), "the parent reads it", "it says %.12s", kept);

	status = child(kept, NULL);
	tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "a child that reads there ends by SIGSEGV", "status %#x",
	       status);
	status = child(kept, inherited);
	if (!tap_ok(WIFEXITED(status) && WEXITSTATUS(status) & MAPPED, "a child maps a file there", "status %#x", status))
		return tap_end();
	status = WEXITSTATUS(status);
	tap_ok(status & READ, "and reads what the file says", "it read something else");
	tap_ok(status & WRITTEN, "and writes to the file", "the file has something else");
	tap_ok(status & INHERITED, "what is not kept from it is inherited", "it read something else");
	tap_ok(!strcmp(kept, theirs), "the parent's page is as it was", "it says %.12s", kept);
	return tap_end();
}
