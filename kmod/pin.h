/* SPDX-License-Identifier: GPL-2.0-only */
/* pin: pages over memory that exists, a range of the caller's (pin.c) or a memfd (memfd.c). */
#ifndef PINION_PIN_H
#define PINION_PIN_H

#include <linux/pinion.h>

#include "pages.h"

/* The arguments are checked but for what they point at. */
struct pages *pin_range(struct payer *payer, const struct pinion_pin *args);
/* @rights: those that the descriptor allows. */
struct pages *pin_memfd(struct payer *payer, const struct pinion_pin *args, u32 *rights);

#endif
