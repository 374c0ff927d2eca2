/* SPDX-License-Identifier: MIT */
/* The conformance of the library's own backends, or of those that $PINION_CONFORM_DEVICES names. */
#include "conform.h"

static Suite *conform_suite(void)
{
	Suite *s = suite_create("conform");

	suite_add_tcase(s, conform_case());
	return s;
}

PINION_TEST_MAIN(conform_suite)
