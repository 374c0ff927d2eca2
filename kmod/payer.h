/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * payer: what each uid holds, and the limits. The memory cgroup charges the pages themselves; this is the bound on what one
 * user, and all of them, may pin.
 *
 * Locking: payer_lock, a spinlock, guards the tree of payers, every count in them and the module's totals. It is innermost:
 * nothing is called under it.
 */
#ifndef PINION_PAYER_H
#define PINION_PAYER_H

#include <linux/cred.h>
#include <linux/types.h>
#include <linux/uidgid.h>

struct payer;

/* What a storage was charged: given back exactly, by whoever drops it last. */
struct charge {
	struct payer *payer;
	struct user_struct *locked; /* whose locked_vm, NULL: memlock=0; lives as long as the payer */
	u64 bytes;
};

/* What is counted a piece. */
enum payer_object {
	PAYER_BUFFERS,
	PAYER_DEVICES,
	PAYER_SESSIONS,
	PAYER_CLAIMS,
	PAYER_WATCHES,
	PAYER_OBJECTS,
};

struct payer_use {
	u64 max_bytes, bytes, max_user_bytes, user_bytes;
	u32 max_user[PAYER_OBJECTS], user[PAYER_OBJECTS], all[PAYER_OBJECTS];
};

/* The user of @cred's uid, with a reference. NULL: no memory. */
struct payer *payer_get(const struct cred *cred);
struct payer *payer_ref(struct payer *payer);
void payer_put(struct payer *payer);
kuid_t payer_uid(const struct payer *payer);

/* Charges @bytes; -ENOMEM over a limit. @charge takes a reference on the user. */
int payer_charge(struct payer *payer, u64 bytes, struct charge *charge);
void payer_uncharge(struct charge *charge);

/* One more object of the user; -ENOSPC over the limit. */
int payer_add(struct payer *payer, enum payer_object kind);
void payer_remove(struct payer *payer, enum payer_object kind);

/* Limits and use of @payer, or with NULL of the module alone. */
void payer_use(struct payer *payer, struct payer_use *use);
/* RLIMIT_MEMLOCK of the caller where it is charged, else all ones. */
u64 payer_memlock(void);
bool payer_memlock_charged(void);

#endif
