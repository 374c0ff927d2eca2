/* SPDX-License-Identifier: MIT */
/* In builds that count lines: _exit() does not run what writes the counts down, and most children of the tests end by it. */
#include <sys/syscall.h>
#include <unistd.h>

void __gcov_dump(void);

void _exit(int status)
{
	__gcov_dump();
	for (;;)
		syscall(SYS_exit_group, status);
}
