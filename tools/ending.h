/* SPDX-License-Identifier: MIT */
/*
 * ending: the signals that ask a process to end. In one that holds a name a thread waits for them: before the name is
 * served the process ends as if killed; afterwards it gives the name up and ends well. As the first process of a container
 * it would not hear them otherwise.
 */
#ifndef PINION_TOOLS_ENDING_H
#define PINION_TOOLS_ENDING_H

#include <signal.h>

struct pinion_holder;

/*
 * Blocks SIGINT, SIGTERM and SIGHUP, but for those that this process was told to ignore, as nohup does, and makes a descriptor
 * that they are read from (signalfd). @old: NULL, or what was blocked before. Complains itself; -errno.
 */
int ending_fd(sigset_t *old);

/* Blocks the signals in the calling thread, and in those it starts, and begins to wait for them. 0 or -errno. */
int ending_start(void);

/* From now on the process serves @holder, which lives until ending_stop(). */
void ending_serves(struct pinion_holder *holder);

/* Ends this process as @sig would have if it were not blocked. */
void end_by(int sig) __attribute__((noreturn));

/* The process ends by itself: signals are not waited for any more. */
void ending_stop(void);

#endif
