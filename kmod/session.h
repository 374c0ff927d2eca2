/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * session: one open file of /dev/pinion, and its counter page if it has one. It owns nothing that outlives it but by
 * reference: buffers and claims do.
 *
 * Lifetime: with the file. Its counts end with the mapping of its counter page (the mm is gone before a killed process can be
 * waited for, whoever else has the file), or with the file where that was never mapped.
 *
 * Locking: session->lock, a mutex, guards what stands below it; it is taken with mmap_lock held when the mapping goes, so nothing
 * that faults is done under it. It is outside of queues_lock and queue->lock.
 */
#ifndef PINION_SESSION_H
#define PINION_SESSION_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/pinion.h>
#include <linux/pinion_counters.h>
#include <linux/sched.h>

#include "payer.h"

struct lane;
struct queue;

/* Units of one lane. */
#define SESSION_INFLIGHT_MAX (1U << 20)

enum session_state {
	SESSION_UNMAPPED,
	SESSION_MAPPED,
	SESSION_ENDED,
};

struct session {
	struct payer *payer;
	u64 id; /* of the open file: never used again */

	struct mutex lock;
	enum session_state state;
	unsigned int maps;	  /* VMAs over the page: two for a moment while one is moved, which is then refused */
	struct page *page;	  /* with the first lane or mapping; NULL: none yet */
	bool shown;		  /* the page stays: others may map it */
	struct pid *pid;	  /* who mapped it, else who attached first */
	struct pid *former;	  /* who attached before it was mapped: somebody may be looking at it */
	char comm[TASK_COMM_LEN];
	u64 since_ns;		  /* CLOCK_BOOTTIME */
	u32 serial;		  /* of handles */
	struct lane *lane[PINION_LANES];
	struct list_head adds;	  /* queue.c */
};

int session_open(struct inode *inode, struct file *file);
int session_release(struct inode *inode, struct file *file);
int session_mmap(struct file *file, struct vm_area_struct *vma);

/* The counter page as the kernel sees it; there is one. */
static inline struct pinion_counter_page *session_counters(const struct session *session)
{
	return page_address(session->page);
}

/* Under session->lock: it has a page from now on; and the same undone. */
int session_need(struct session *session);
void session_unneed(struct session *session);

#endif
