/* SPDX-License-Identifier: MIT */
#include "models.h"

json_t *shard_object(const struct pinion_shard *shard)
{
	json_t *object = json_new_object();

	json_set_text(object, "file", shard->file);
	json_set_number(object, "file_bytes", shard->file_bytes);
	json_set_number(object, "tensors", shard->tensors);
	json_set(object, "outside", json_boolean(shard->outside));
	json_set(object, "sha256", *shard->sha256 ? json_string(shard->sha256) : json_null());
	return object;
}
