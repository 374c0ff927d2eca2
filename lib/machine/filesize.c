/* SPDX-License-Identifier: MIT */
#include "filesize.h"

#include "../advice.h"
#include "../error.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

int filesize_check(const char *what, uint64_t bytes)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_FSIZE, &lim) || lim.rlim_cur == RLIM_INFINITY || bytes <= lim.rlim_cur)
		return 0;
	return fail_advise(EFBIG, PINION_ADVICE_FILE_SIZE, NULL, "%s needs a file of %llu bytes, RLIMIT_FSIZE is %llu: %s", what,
			   (unsigned long long)bytes, (unsigned long long)lim.rlim_cur, strerrordesc_np(EFBIG));
}
