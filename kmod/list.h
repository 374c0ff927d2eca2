/* SPDX-License-Identifier: GPL-2.0-only */
/* list: LIST, of every kind. */
#ifndef PINION_LIST_H
#define PINION_LIST_H

struct call;

int list_call(struct call *call);

#endif
