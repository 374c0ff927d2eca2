/* SPDX-License-Identifier: MIT */
#include "process.h"

#include "advice.h"
#include "error.h"
#include "fork.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static pthread_mutex_t page_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *page; /* under page_lock; never unmapped, contexts point into it */

DEFINE_WATCH_FORKS(page_lock)

static int page_make(void)
{
	size_t bytes = sysconf(_SC_PAGESIZE);
	void *p;

	if (page)
		return 0;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return fail_errno(errno, "mapping the page that marks this process");
	if (madvise(p, bytes, MADV_WIPEONFORK)) {
		int err = errno;

		munmap(p, bytes);
		return err == EINVAL ? fail_advise(EOPNOTSUPP, PINION_ADVICE_KERNEL_OLD, NULL, "MADV_WIPEONFORK is not there") :
				       fail_errno(err, "MADV_WIPEONFORK");
	}
	page = p;
	return 0;
}

int process_mark(struct process_mark *mark)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int ret;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&page_lock);
	ret = page_make();
	while (!ret && !*page)
		if (getrandom(page, sizeof(*page), 0) != sizeof(*page))
			ret = fail_errno(errno, "getrandom");
	if (!ret) {
		mark->now = page;
		mark->made = *page;
	}
	pthread_mutex_unlock(&page_lock);
	return ret;
}

int process_fail(const char *what)
{
	return fail_advise(EOWNERDEAD, PINION_ADVICE_FORK, NULL,
			   "this %s was made by another process and does not survive fork()", what);
}
