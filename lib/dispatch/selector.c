/* SPDX-License-Identifier: MIT */
#include "../error.h"
#include "select.h"

#include <errno.h>
#include <stdlib.h>

static int selector_new(const char *name, unsigned int legs, const struct pinion_selector_opts *opts,
			struct pinion_selector **out)
{
	struct pinion_selector_opts own = { .size = sizeof(own) };
	struct pinion_selector *selector;
	int ret = opts_in(&own, sizeof(own), opts, "pinion_selector_opts");

	if (ret)
		return ret;
	selector = calloc(1, sizeof(*selector));
	if (!selector)
		return fail(ENOMEM, "no memory for a selector: %zu bytes", sizeof(*selector));
	selector->name = name;
	selector->legs = legs;
	selector->opts = own;
	/* Which is a load where it is not called. */
	if (own.estimate == pinion_estimate_default)
		selector->opts.estimate = NULL;
	atomic_init(&selector->refs, 1);
	*out = selector;
	return 0;
}

PINION_API int pinion_selector_winner(const struct pinion_selector_opts *opts, struct pinion_selector **out)
{
	return selector_new("WinnerSelector", 0, opts, out);
}

PINION_API int pinion_selector_vram_pressure(const struct pinion_selector_opts *opts, struct pinion_selector **out)
{
	return selector_new("VramPressureSelector", LEG_FIT, opts, out);
}

PINION_API int pinion_selector_device_load(const struct pinion_selector_opts *opts, struct pinion_selector **out)
{
	return selector_new("DeviceLoadSelector", LEG_LOAD, opts, out);
}

PINION_API int pinion_selector_judge_aware(const struct pinion_selector_opts *opts, struct pinion_selector **out)
{
	return selector_new("JudgeAwareSelector", LEG_NS, opts, out);
}

PINION_API int pinion_selector_chained(const struct pinion_selector_opts *opts, struct pinion_selector **out)
{
	return selector_new("ChainedSelector", LEG_ALL, opts, out);
}

PINION_API struct pinion_selector *pinion_selector_ref(struct pinion_selector *selector)
{
	atomic_fetch_add_explicit(&selector->refs, 1, memory_order_relaxed);
	return selector;
}

/* What other threads did with it comes before it is freed. */
PINION_API void pinion_selector_unref(struct pinion_selector *selector)
{
	if (selector && atomic_fetch_sub_explicit(&selector->refs, 1, memory_order_acq_rel) == 1)
		free(selector);
}
