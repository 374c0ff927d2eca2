/* SPDX-License-Identifier: MIT */
#include "conform.h"

#include "conform_device.h"

TCase *conform_case(void)
{
	TCase *c = tcase_create("conform");

	read_keys();
	tcase_set_timeout(c, 60);
	conform_caps(c);
	conform_memory(c);
	conform_copy(c);
	conform_transfer(c);
	conform_cast(c);
	conform_matmul(c);
	conform_signal(c);
	return c;
}
