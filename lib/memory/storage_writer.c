/* SPDX-License-Identifier: MIT */
#include "storage_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PID_BITS 22
#define SPACE_BITS 20
#define PID_MASK ((UINT64_C(1) << PID_BITS) - 1)
#define SPACE_MASK ((UINT64_C(1) << SPACE_BITS) - 1)

/* A line of /proc; false when there is none. */
static bool read_line(const char *path, char *line, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, line, room - 1);

	if (fd >= 0)
		close(fd);
	line[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* Members of /proc/PID/stat, counted as in proc(5). They stand behind a name in brackets that may hold anything. */
static bool read_stat(int32_t pid, char *state, uint64_t *threads, uint64_t *start)
{
	char path[64], line[1024], *at;
	int member = 3;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (!read_line(path, line, sizeof(line)))
		return false;
	at = strrchr(line, ')');
	if (!at || at[1] != ' ')
		return false;
	at += 2;
	*state = *at;
	*threads = *start = 0;
	for (; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL, member++) {
		if (member == 20)
			*threads = strtoull(at, NULL, 10);
		if (member == 22)
			*start = strtoull(at, NULL, 10);
	}
	return true;
}

/* A file may outlive a boot, and ticks begin anew with each. */
static uint64_t boot_number(void)
{
	uint64_t hash = UINT64_C(14695981039346656037);
	char id[64];

	read_line("/proc/sys/kernel/random/boot_id", id, sizeof(id));
	for (const char *c = id; *c; c++)
		hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
	return hash;
}

static uint64_t own_space(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino & SPACE_MASK;
}

static uint64_t word_of(int32_t pid, uint64_t space, uint64_t start)
{
	return ((uint64_t)pid & PID_MASK) | space << PID_BITS | (start + boot_number()) << (PID_BITS + SPACE_BITS);
}

uint64_t writer_self(void)
{
	uint64_t threads, start;
	int32_t pid = getpid();
	char state;

	if (!read_stat(pid, &state, &threads, &start))
		start = 0;
	return word_of(pid, own_space(), start);
}

int32_t writer_pid(uint64_t word)
{
	return word & PID_MASK;
}

bool writer_is_dead(uint64_t word)
{
	int32_t pid = writer_pid(word);
	uint64_t threads, start;
	char state;

	if ((word >> PID_BITS & SPACE_MASK) != own_space())
		return false;
	if (!pid || (kill(pid, 0) && errno == ESRCH))
		return true;
	/* Another user's process may be hidden. */
	if (!read_stat(pid, &state, &threads, &start))
		return false;
	/* Dead and not yet waited for. While other threads run, only its first thread has ended. */
	if ((state == 'Z' || state == 'X') && threads <= 1)
		return true;
	return word_of(pid, own_space(), start) != word;
}
