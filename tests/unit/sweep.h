/* SPDX-License-Identifier: MIT */
/*
 * sweep: one walk over the public API, for tests that let each step of the system under it fail once, one after the other.
 * A walk that fails says where and why, takes down what it built, and leaves the process and the runtime directory as they were.
 */
#ifndef PINION_TEST_SWEEP_H
#define PINION_TEST_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

struct sweep_walk {
	const char *step; /* that failed; NULL: none did */
	int ret;	  /* -errno of it */
	bool wrote;	  /* it wrote an output all the same */
	char why[512];	  /* the library's sentence */
};

/* What a process has, and the runtime directory. */
struct sweep_tally {
	unsigned int fds, maps, files;
};

/* Makes the files the walk reads; once, in test_tmp(). */
void sweep_prepare(void);

/*
 * Opens a context, adds a device, makes, maps, seals and exports a buffer, reads a file by a stream, loads a GGUF model,
 * publishes it, attaches it, counts work, ranks candidates, claims and picks; reads, feeds and loads a model in several files;
 * measures, selects and prunes; makes an array and a storage, and looks for leaks; then closes all of it. 0 when every step did
 * what it should.
 */
int sweep_walk(struct sweep_walk *walk);

struct sweep_tally sweep_tally(void);

/* What a walk must not do whose step failed: NULL, or what is wrong with it. */
const char *sweep_judge(const struct sweep_walk *walk);

#endif
