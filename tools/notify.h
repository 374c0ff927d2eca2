/* SPDX-License-Identifier: MIT */
/* notify: tells a service manager that listens at $NOTIFY_SOCKET that this process is ready. */
#ifndef PINION_TOOLS_NOTIFY_H
#define PINION_TOOLS_NOTIFY_H

/* Complains when the socket is named and cannot be told; does nothing when none is named. */
void notify_ready(void);

#endif
