/* SPDX-License-Identifier: MIT */
/* publish: gives a loaded model to the holder of a name, with its index beside it. */
#ifndef PINION_LIB_PUBLISH_H
#define PINION_LIB_PUBLISH_H

#include <stdbool.h>

struct pinion_holder;
struct pinion_model;

/* pinion_holder_publish(); @keep: the model's own mapping stays, for a process that computes with it. */
int model_publish(struct pinion_holder *h, struct pinion_model *m, bool keep);

#endif
