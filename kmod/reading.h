/* SPDX-License-Identifier: GPL-2.0-only */
/* reading: READ, by the call and by io_uring. */
#ifndef PINION_READING_H
#define PINION_READING_H

#include <linux/pinion.h>

struct call;
struct session;

int reading_call(struct call *call);
/* Fills the row of the device that its index and generation name; @session, or NULL, has a share of its own. */
void reading_row(const struct session *session, struct pinion_reading *row);
int reading_rows(struct session *session, const struct pinion_read *args);

#endif
