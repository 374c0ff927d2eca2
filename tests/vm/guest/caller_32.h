/* SPDX-License-Identifier: MIT */
/* The device's calls as a 32-bit program makes them. Arguments lie below 4 GiB. */
#ifndef PINION_VM_CALLER_32_H
#define PINION_VM_CALLER_32_H

#include "state.h"

#include <linux/pinion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((unused)) static bool user_mode(void)
{
	char *cpu = file_get("/proc/cpuinfo");
	bool is = strstr(cpu, "User Mode Linux");

	free(cpu);
	return is;
}

#ifdef __x86_64__
/* The layouts are the same for both: every number lies at a multiple of its size (the module asserts the sizes). */
static int call_32(int fd, unsigned int cmd, void *arg)
{
	long ret;

	__asm__ volatile("int $0x80"
			 : "=a"(ret)
			 : "a"(54L), "b"((long)fd), "c"((long)cmd), "d"(arg)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)ret;
}

/* A kernel without 32-bit programs kills whoever calls like one. After a fork() the range would not be writable any more. */
static bool has_32(void)
{
	pid_t pid;
	int status = 0;

	if (user_mode())
		return false;
	pid = vfork();
	if (!pid) {
		call_32(-1, PINION_IOC_INFO, NULL);
		_exit(0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status);
}
#endif

#endif
