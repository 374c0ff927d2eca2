/* SPDX-License-Identifier: MIT */
/*
 * rounding: conversions by the CPU round as the thread is set to, and may take what is small for zero; between begin and
 * end they are IEEE 754's default, to the nearest with ties to even. A thread that is set so already, as nearly all
 * are, pays for a look and no more.
 */
#ifndef PINION_LIB_ROUNDING_H
#define PINION_LIB_ROUNDING_H

#include <fenv.h>
#include <stdbool.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

struct rounding {
	bool aside;
	fenv_t env; /* the thread's, when it is set aside */
};

static inline bool rounding_is_default(void)
{
#if defined(__SSE2__)
	/* Rounding control, flush to zero, denormals are zero. */
	return !(_mm_getcsr() & 0xe040);
#else
	return fegetround() == FE_TONEAREST;
#endif
}

static inline void rounding_begin(struct rounding *rounding)
{
	rounding->aside = !rounding_is_default() && !fegetenv(&rounding->env);
	if (rounding->aside)
		fesetenv(FE_DFL_ENV);
}

static inline void rounding_end(const struct rounding *rounding)
{
	if (rounding->aside)
		fesetenv(&rounding->env);
}

#endif
