/* SPDX-License-Identifier: MIT */
/* model: a loaded or attached file. Immutable once made, so any thread may read it. */
#ifndef PINION_LIB_MODEL_H
#define PINION_LIB_MODEL_H

#include <pinion/model.h>
#include <stdbool.h>

#include "../context.h"
#include "index.h"

struct pinion_model {
	struct index_block *block;
	bool block_mapped; /* a mapping of a peer's memfd, else from malloc */
	struct pinion_buffer *buf;
	const char *data; /* the readable mapping; NULL once model_unmap() gave it up */
	bool loaded;	  /* here, so that stats mean something */
	struct pinion_load_stats stats;
	int sock; /* to the holder it is attached to, -1: none; open for as long as the model */
};

/* A model over @block and @buf, which become its own on success, with a readable mapping. */
int model_new(struct index_block *block, bool block_mapped, struct pinion_buffer *buf, struct pinion_model **out);

/* pinion_model_match(); @cancel ends the reading of the contents with -ECANCELED once it is set; NULL: nobody will. */
int model_match(const struct pinion_model *m, const char *path, bool contents, const bool *cancel);

/* Gives the mapping up where the pages do not need it to stay in RAM. */
void model_unmap(struct pinion_model *m);

#endif
