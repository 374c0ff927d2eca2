/* SPDX-License-Identifier: MIT */
#include "quiet.h"

#include "bench.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PRIORITY   15
#define WARM_LOOPS 1000

bool quiet_begin(void)
{
	struct sched_param p = { .sched_priority = PRIORITY };

	return !sched_setscheduler(0, SCHED_FIFO, &p);
}

void quiet_end(void)
{
	struct sched_param p = { .sched_priority = 0 };

	sched_setscheduler(0, SCHED_OTHER, &p);
}

double loop_alone(loop_fn loop, void *arg, uint64_t n)
{
	double start = now_ns();

	loop(arg, n);
	return (now_ns() - start) / n;
}

/* ---- two threads --------------------------------------------------------------------------------------------- */

struct side {
	pthread_t thread;
	int cpu;
	loop_fn loop;
	void *arg;
	uint64_t n;
	uint32_t *ready; /* both sides' */
	double ns;
};

static bool two_cpus(int cpu[2])
{
	cpu_set_t set;
	int found = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		return false;
	for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
		if (CPU_ISSET(i, &set))
			cpu[found++] = i;
	return found == 2;
}

bool loop_can_pair(void)
{
	int cpu[2];

	return two_cpus(cpu);
}

static void *side_main(void *arg)
{
	struct side *side = arg;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(side->cpu, &set);
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
	side->loop(side->arg, WARM_LOOPS);
	__atomic_add_fetch(side->ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(side->ready, __ATOMIC_ACQUIRE) < 2)
		;
	side->ns = loop_alone(side->loop, side->arg, side->n);
	return NULL;
}

int loop_paired(loop_fn loop, void *arg, uint64_t n, double *ns)
{
	struct side side[2];
	uint32_t ready = 0;
	int cpu[2], err = 0;

	if (!two_cpus(cpu))
		return broke(EAGAIN, "two threads at once need two processors");
	for (unsigned int i = 0; i < 2; i++) {
		side[i] = (struct side){ .cpu = cpu[i], .loop = loop, .arg = arg, .n = n, .ready = &ready };
		err = pthread_create(&side[i].thread, NULL, side_main, &side[i]);
		if (err && i) {
			__atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
			pthread_join(side[0].thread, NULL);
		}
		if (err)
			return broke(err, "starting a thread: %s", strerror(err));
	}
	pthread_join(side[0].thread, NULL);
	pthread_join(side[1].thread, NULL);
	*ns = (side[0].ns + side[1].ns) / 2;
	return 0;
}

/* ---- no system call ------------------------------------------------------------------------------------------ */

struct silent {
	loop_fn loop;
	void *arg;
	uint64_t n;
	int err;
	bool done;
};

static void *silent_main(void *arg)
{
	struct silent *s = arg;

	/* What the first use of a lane needs of the kernel is not what is in question. */
	s->loop(s->arg, 1);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) {
		s->err = errno;
		return NULL;
	}
	s->loop(s->arg, s->n);
	__atomic_store_n(&s->done, true, __ATOMIC_RELEASE);
	/* The C library's own way out of a thread makes calls that are not allowed any more. */
	syscall(SYS_exit, 0);
	return NULL;
}

int loop_silent(loop_fn loop, void *arg, uint64_t n, bool *silent)
{
	struct silent s = { .loop = loop, .arg = arg, .n = n };
	pthread_t thread;
	int err = pthread_create(&thread, NULL, silent_main, &s);

	if (err)
		return broke(err, "starting a thread: %s", strerror(err));
	pthread_join(thread, NULL);
	if (s.err)
		return broke(s.err, "strict seccomp: %s", strerror(s.err));
	*silent = __atomic_load_n(&s.done, __ATOMIC_ACQUIRE);
	return 0;
}
