/* SPDX-License-Identifier: MIT */
/* table: every backend there is. A new one is a line here and a directory beside. */
#include "dispatch/backend.h"

extern const struct pinion_backend backend_cpu, backend_hostio, backend_reference;

const struct pinion_backend *const backend_table[] = {
	&backend_cpu,
	&backend_hostio,
	&backend_reference,
	NULL,
};
