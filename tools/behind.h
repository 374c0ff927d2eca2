/* SPDX-License-Identifier: MIT */
/*
 * behind: a process that goes on holding something when the command that started it is over. Until what it holds is there the two
 * end together: it is killed with the command, and the command ends with its sentence.
 */
#ifndef PINION_TOOLS_BEHIND_H
#define PINION_TOOLS_BEHIND_H

#include "hold.h"

/*
 * Starts a process, a session of its own, that becomes @keep(@arg), whose result is its exit code, and shows what it reports over
 * h->report_fd until it is ready, has failed or is dead. From ready on it ends with the command no more, for which @keep sees
 * (PR_SET_PDEATHSIG). Returns the exit code.
 */
int behind_run(struct hold *h, int (*keep)(void *arg), void *arg);

#endif
