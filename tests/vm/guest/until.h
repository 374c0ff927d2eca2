/* SPDX-License-Identifier: MIT */
/* To wait for a state, and not for a time in which it has come more often than not. */
#ifndef PINION_VM_UNTIL_H
#define PINION_VM_UNTIL_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define UNTIL __attribute__((unused)) static

/* What takes milliseconds comes within this on an emulated machine that has a tenth of a processor, or it does not come. */
#define PATIENCE_S  30
#define PATIENCE_MS (PATIENCE_S * 1000)

UNTIL double until_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Looks until it holds, or patience is at its end. Whether it holds. */
#define eventually(holds)                                                  \
	({                                                                 \
		double late_ = until_clock() + PATIENCE_S;                 \
		bool holds_;                                               \
                                                                           \
		while (!(holds_ = (holds)) && until_clock() < late_)       \
			nanosleep(&(struct timespec){ 0, 1000000 }, NULL); \
		holds_;                                                    \
	})

/* The letter of /proc for a process or a thread, by its number; Z when it is gone. */
UNTIL char task_state(pid_t pid)
{
	char path[64], text[512] = "", *end;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 'Z';
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	end = strrchr(text, ')');
	return end && end[1] ? end[2] : 'Z';
}

/* It sleeps as one does who waits for an event, or it has ended. A call that sleeps for locks alone before does not show here. */
UNTIL bool until_asleep(pid_t pid)
{
	return eventually(task_state(pid) == 'S' || task_state(pid) == 'Z');
}

#endif
