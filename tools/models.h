/* SPDX-License-Identifier: MIT */
/* models: what the commands that read a model's files say of them in JSON. */
#ifndef PINION_TOOLS_MODELS_H
#define PINION_TOOLS_MODELS_H

#include "json.h"

#include <pinion/index.h>

/* An object of one file: file, file_bytes, tensors, outside, sha256. */
json_t *shard_object(const struct pinion_shard *shard);

#endif
