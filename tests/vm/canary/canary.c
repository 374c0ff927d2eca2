// SPDX-License-Identifier: GPL-2.0-only
/* Plants one bug at load, to prove that the rule over the kernel's log fails a test for it (plan.py, CANARIES). Does nothing
 * else. */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/workqueue.h>

static char *bug = "";
module_param(bug, charp, 0444);
MODULE_PARM_DESC(bug, "warn, badpage, leak, uaf, locks, atomic, shift or race");

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static DEFINE_SPINLOCK(spin);
/* The compiler may not see what is wrong. */
static void *volatile hidden;
static volatile int shift_by = 40;

static int plant_warn(void)
{
	WARN(1, "planted by the canary\n");
	return 0;
}

/* A real one needs a page of the allocator to be spoilt; the rule sees only the words. */
static int plant_badpage(void)
{
	pr_alert("BUG: Bad page state in process canary  pfn:00000\n");
	return 0;
}

/* Several: one that some stale word seems to point to is not reported. */
static int plant_leak(void)
{
	int i;

	for (i = 0; i < 16; i++)
		hidden = kmalloc(200, GFP_KERNEL);
	hidden = NULL;
	return 0;
}

static int plant_uaf(void)
{
	char *p = kmalloc(64, GFP_KERNEL);

	if (!p)
		return -ENOMEM;
	hidden = p;
	kfree(p);
	p = hidden;
	return READ_ONCE(p[8]) == 1 ? 1 : 0;
}

static int plant_locks(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
	return 0;
}

static int plant_atomic(void)
{
	spin_lock(&spin);
	might_sleep();
	spin_unlock(&spin);
	return 0;
}

static int plant_shift(void)
{
	int one = 1;

	shift_by = one << shift_by;
	return 0;
}

static unsigned long raced; /* two write it at once and tell nobody */
static bool race_over;

static void race_on(struct work_struct *work)
{
	while (!READ_ONCE(race_over)) {
		raced++;
		cond_resched();
	}
}
static DECLARE_WORK(racer, race_on);

static int plant_race(void)
{
	unsigned long end = jiffies + 5 * HZ;

	queue_work(system_unbound_wq, &racer);
	while (time_before(jiffies, end)) {
		raced++;
		cond_resched();
	}
	WRITE_ONCE(race_over, true);
	flush_work(&racer);
	return 0;
}

static const struct {
	const char *name;
	int (*plant)(void);
} bugs[] = {
	{ "warn", plant_warn },	  { "badpage", plant_badpage }, { "leak", plant_leak },	  { "uaf", plant_uaf },
	{ "locks", plant_locks }, { "atomic", plant_atomic },	{ "shift", plant_shift }, { "race", plant_race },
};

static int __init canary_init(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bugs); i++)
		if (!strcmp(bug, bugs[i].name))
			return bugs[i].plant();
	return -EINVAL;
}

static void __exit canary_exit(void)
{
}

module_init(canary_init);
module_exit(canary_exit);
MODULE_DESCRIPTION("A planted bug, for tests of the tests");
MODULE_LICENSE("GPL");
