/* SPDX-License-Identifier: MIT */
#include "fuzz_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	return fuzz_index(data, size, gguf_parse);
}
