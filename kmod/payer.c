// SPDX-License-Identifier: GPL-2.0-only
#include "payer.h"

#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "fault.h"
#include "pages.h"

static unsigned long max_bytes;
module_param(max_bytes, ulong, 0644);
MODULE_PARM_DESC(max_bytes, "bytes that all users may pin together; 0: 75 % of RAM");

static unsigned long max_user_bytes;
module_param(max_user_bytes, ulong, 0644);
MODULE_PARM_DESC(max_user_bytes, "bytes that one user may pin; 0: 50 % of RAM");

/* By enum payer_object. */
static unsigned int max_user[PAYER_OBJECTS] = { 16384, 64, 1024, 1024, 1024 };
module_param_named(max_user_buffers, max_user[PAYER_BUFFERS], uint, 0644);
MODULE_PARM_DESC(max_user_buffers, "buffers and slices that one user may hold");
module_param_named(max_user_devices, max_user[PAYER_DEVICES], uint, 0644);
MODULE_PARM_DESC(max_user_devices, "devices that one user may have added");
module_param_named(max_user_sessions, max_user[PAYER_SESSIONS], uint, 0644);
MODULE_PARM_DESC(max_user_sessions, "open files with counters that one user may have");
module_param_named(max_user_claims, max_user[PAYER_CLAIMS], uint, 0644);
MODULE_PARM_DESC(max_user_claims, "claims that one user may have made");
module_param_named(max_user_watches, max_user[PAYER_WATCHES], uint, 0644);
MODULE_PARM_DESC(max_user_watches, "watches and waits that one user may have");

static bool memlock;
module_param(memlock, bool, 0444);
MODULE_PARM_DESC(memlock, "also charge RLIMIT_MEMLOCK (CAP_IPC_LOCK is exempt); default no: the device's group is the grant");

struct payer {
	struct rb_node node;
	refcount_t refs;
	kuid_t uid;
	struct user_struct *account; /* of the uid: the same whoever of the uid opened */
	u64 bytes;
	u32 objects[PAYER_OBJECTS];
};

/* Guards the tree, the counts of every user and the totals. */
static DEFINE_SPINLOCK(payer_lock);
static struct rb_root payers = RB_ROOT;
static u64 total_bytes;
static u32 total_objects[PAYER_OBJECTS];

static u64 ram_part(unsigned int percent)
{
	return ((u64)totalram_pages() << PAGE_SHIFT) / 100 * percent;
}

static u64 limit_bytes(void)
{
	return READ_ONCE(max_bytes) ?: ram_part(75);
}

static u64 limit_user_bytes(void)
{
	return READ_ONCE(max_user_bytes) ?: ram_part(50);
}

/* Finds the place of @uid; the user there with a reference, or NULL with @link ready for rb_link_node(). */
static struct payer *find(kuid_t uid, struct rb_node ***link, struct rb_node **parent)
{
	struct rb_node **at = &payers.rb_node;

	lockdep_assert_held(&payer_lock);
	*parent = NULL;
	while (*at) {
		struct payer *payer = rb_entry(*at, struct payer, node);

		*parent = *at;
		if (uid_eq(uid, payer->uid)) {
			refcount_inc(&payer->refs);
			return payer;
		}
		at = uid_lt(uid, payer->uid) ? &(*at)->rb_left : &(*at)->rb_right;
	}
	*link = at;
	return NULL;
}

struct payer *payer_get(const struct cred *cred)
{
	struct payer *fresh = fault_here() ? NULL : kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL), *payer;
	struct rb_node **link, *parent;

	if (!fresh)
		return NULL;
	refcount_set(&fresh->refs, 1);
	fresh->uid = cred->uid;
	fresh->account = get_uid(cred->user);
	spin_lock(&payer_lock);
	payer = find(cred->uid, &link, &parent);
	if (!payer) {
		rb_link_node(&fresh->node, parent, link);
		rb_insert_color(&fresh->node, &payers);
	}
	spin_unlock(&payer_lock);
	if (!payer)
		return fresh;
	free_uid(fresh->account);
	kfree(fresh);
	return payer;
}

struct payer *payer_ref(struct payer *payer)
{
	refcount_inc(&payer->refs);
	return payer;
}

void payer_put(struct payer *payer)
{
	bool last;

	/* Under the lock, so that find() cannot meet one on its way out. */
	spin_lock(&payer_lock);
	last = refcount_dec_and_test(&payer->refs);
	if (last)
		rb_erase(&payer->node, &payers);
	spin_unlock(&payer_lock);
	if (!last)
		return;
	WARN_ON_ONCE(payer->bytes || memchr_inv(payer->objects, 0, sizeof(payer->objects)));
	free_uid(payer->account);
	kfree(payer);
}

kuid_t payer_uid(const struct payer *payer)
{
	return payer->uid;
}

bool payer_memlock_charged(void)
{
	return memlock;
}

u64 payer_memlock(void)
{
	u64 limit = rlimit(RLIMIT_MEMLOCK);

	return !memlock || capable(CAP_IPC_LOCK) || limit == RLIM_INFINITY ? U64_MAX : limit;
}

/* locked_vm belongs to the payer, as io_uring counts it, so that handing the descriptor on does not lose the charge. */
static int charge_memlock(struct payer *payer, u64 bytes, struct charge *charge)
{
	unsigned long pages = bytes >> PAGE_SHIFT, limit, now, then;
	u64 limit_b = payer_memlock();
	struct user_struct *locked;

	charge->locked = NULL;
	if (!memlock)
		return 0;
	locked = payer->account;
	limit = limit_b == U64_MAX ? ULONG_MAX : limit_b >> PAGE_SHIFT;
	now = atomic_long_read(&locked->locked_vm);
	do {
		then = now + pages;
		if (then < now || then > limit)
			return -ENOMEM;
	} while (!atomic_long_try_cmpxchg(&locked->locked_vm, (long *)&now, then));
	charge->locked = locked;
	return 0;
}

static void uncharge_memlock(struct charge *charge)
{
	if (charge->locked)
		atomic_long_sub(charge->bytes >> PAGE_SHIFT, &charge->locked->locked_vm);
}

int payer_charge(struct payer *payer, u64 bytes, struct charge *charge)
{
	u64 most = limit_bytes(), most_user = limit_user_bytes();
	int ret;

	ret = fault_here() ? -ENOMEM : charge_memlock(payer, bytes, charge);
	if (ret)
		return ret;
	charge->bytes = bytes;
	spin_lock(&payer_lock);
	if (bytes > most || total_bytes > most - bytes || bytes > most_user || payer->bytes > most_user - bytes) {
		ret = -ENOMEM;
	} else {
		total_bytes += bytes;
		payer->bytes += bytes;
	}
	spin_unlock(&payer_lock);
	if (ret) {
		uncharge_memlock(charge);
		return ret;
	}
	charge->payer = payer_ref(payer);
	return 0;
}

void payer_uncharge(struct charge *charge)
{
	spin_lock(&payer_lock);
	total_bytes -= charge->bytes;
	charge->payer->bytes -= charge->bytes;
	spin_unlock(&payer_lock);
	uncharge_memlock(charge);
	payer_put(charge->payer);
}

int payer_add(struct payer *payer, enum payer_object kind)
{
	int ret = 0;

	spin_lock(&payer_lock);
	if (payer->objects[kind] >= READ_ONCE(max_user[kind])) {
		ret = -ENOSPC;
	} else {
		payer->objects[kind]++;
		total_objects[kind]++;
	}
	spin_unlock(&payer_lock);
	return ret;
}

void payer_remove(struct payer *payer, enum payer_object kind)
{
	spin_lock(&payer_lock);
	payer->objects[kind]--;
	total_objects[kind]--;
	spin_unlock(&payer_lock);
}

void payer_use(struct payer *payer, struct payer_use *use)
{
	int kind;

	spin_lock(&payer_lock);
	*use = (struct payer_use){
		.max_bytes = limit_bytes(),
		.bytes = total_bytes,
		.max_user_bytes = limit_user_bytes(),
		.user_bytes = payer ? payer->bytes : 0,
	};
	for (kind = 0; kind < PAYER_OBJECTS; kind++) {
		use->max_user[kind] = READ_ONCE(max_user[kind]);
		use->user[kind] = payer ? payer->objects[kind] : 0;
		use->all[kind] = total_objects[kind];
	}
	spin_unlock(&payer_lock);
}
