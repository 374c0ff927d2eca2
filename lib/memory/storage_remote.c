/* SPDX-License-Identifier: MIT */
/* remote: the interface is fixed, the kind is refused by all that make it. */
#include "../context.h"
#include "../error.h"
#include "storage.h"

#include <errno.h>

PINION_API int pinion_storage_remote(struct pinion_context *ctx, const char *address, enum pinion_dtype dtype,
				     uint64_t n, struct pinion_storage **out)
{
	struct storage_layout layout;
	int ret = storage_layout(&layout, dtype, n, true);

	(void)out;
	if (!ret)
		ret = context_check(ctx);
	if (ret)
		return ret;
	return fail(EOPNOTSUPP, "'%s' is to be copied to this machine first: remote storages are not built",
		    address ? address : "");
}
