/* SPDX-License-Identifier: MIT */
/* Patterns that say where in a buffer a byte belongs, faults that are outcomes, and what smaps says of a mapping. */
#ifndef PINION_VM_BYTES_H
#define PINION_VM_BYTES_H

#include "state.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#define BYTES __attribute__((unused)) static

/* Every word of page @page of a pattern is this. */
BYTES uint64_t word_of(uint64_t seed, uint64_t page)
{
	return (seed << 48 | page) * 0x9e3779b97f4a7c15ULL + 1;
}

BYTES void paint(void *at, uint64_t seed, uint64_t first, uint64_t pages)
{
	uint64_t *word = at;

	for (uint64_t i = 0; i < pages; i++)
		for (size_t k = 0; k < PAGE / sizeof(*word); k++)
			*word++ = word_of(seed, first + i);
}

/* Page 0 of @at is page @page of the pattern. */
BYTES bool is_page(const void *at, uint64_t seed, uint64_t page)
{
	const uint64_t *word = at;

	for (size_t k = 0; k < PAGE / sizeof(*word); k++)
		if (word[k] != word_of(seed, page))
			return false;
	return true;
}

BYTES bool is_painted(const void *at, uint64_t seed, uint64_t first, uint64_t pages, const char *what)
{
	for (uint64_t i = 0; i < pages; i++)
		if (!is_page((const char *)at + i * PAGE, seed, first + i)) {
			wrong("%s: page %llu is not page %llu of pattern %llu", what, (unsigned long long)i,
			      (unsigned long long)(first + i), (unsigned long long)seed);
			return false;
		}
	return true;
}

static sigjmp_buf touch_back;

static void touched(int sig)
{
	siglongjmp(touch_back, sig);
}

/* The signal that reading (or writing) a byte gives, 0: none. */
BYTES int touch(volatile void *at, bool write)
{
	struct sigaction act = { .sa_handler = touched }, segv, bus;
	volatile char *byte = at;
	int sig;

	sigaction(SIGSEGV, &act, &segv);
	sigaction(SIGBUS, &act, &bus);
	sig = sigsetjmp(touch_back, 1);
	if (!sig) {
		char was = *byte;

		if (write)
			*byte = was;
	}
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return sig;
}

/* The line of smaps about the mapping that begins at @at, "" without it; to be freed. */
BYTES char *smaps_line(const void *at, const char *field)
{
	char *text = file_get("/proc/self/smaps"), *line, *rest = text, *found = NULL, head[32];
	bool here = false;

	snprintf(head, sizeof(head), "%08lx-", (unsigned long)at);
	while (!found && (line = strsep(&rest, "\n"))) {
		if (strchr(line, '-') && strspn(line, "0123456789abcdef") == (size_t)(strchr(line, '-') - line))
			here = !strncmp(line, head, strlen(head));
		else if (here && !strncmp(line, field, strlen(field)) && line[strlen(field)] == ':')
			found = strdup(line + strlen(field) + 1);
	}
	free(text);
	return found ? found : calloc(1, 1);
}

/* Bytes; 0 without the line. */
BYTES uint64_t smaps_bytes(const void *at, const char *field)
{
	char *line = smaps_line(at, field);
	uint64_t bytes = strtoull(line, NULL, 10) << 10;

	free(line);
	return bytes;
}

/* The mapping's VmFlags have the two letters. */
BYTES bool smaps_flag(const void *at, const char *flag)
{
	char *line = smaps_line(at, "VmFlags"), *rest = line, *word;
	bool found = false;

	while (!found && (word = strsep(&rest, " ")))
		found = !strcmp(word, flag);
	free(line);
	return found;
}

/* Bytes of a line of /proc/meminfo. */
BYTES uint64_t meminfo(const char *field)
{
	char *text = file_get("/proc/meminfo"), *at = strstr(text, field);
	uint64_t bytes = at ? strtoull(at + strlen(field) + 1, NULL, 10) << 10 : 0;

	free(text);
	return bytes;
}

/* Runs in a child; whether it returned true and ended in peace. Its points are the parent's to make. */
BYTES bool child(bool (*run)(void *data), void *data)
{
	pid_t pid = fork();
	int status = -1;

	if (!pid)
		_exit(run(data) ? 0 : 1);
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

#endif
