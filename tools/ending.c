/* SPDX-License-Identifier: MIT */
#include "ending.h"

#include "pinion.h"
#include "report.h"

#include <errno.h>
#include <pinion/holder.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Ends the thread, when this process means it. */
#define STOP_SIGNAL SIGUSR1

static pthread_t thread;
static atomic_bool stopping;
static sigset_t signals;
static _Atomic(struct pinion_holder *) served;

static void *wait_for_signal(void *arg)
{
	struct pinion_holder *holder;
	int sig;

	(void)arg;
	do
		if (sigwait(&signals, &sig))
			return NULL;
	while (sig == STOP_SIGNAL && !atomic_load(&stopping));
	if (sig == STOP_SIGNAL)
		return NULL;
	holder = atomic_load(&served);
	if (!holder)
		end_by(sig);
	/* Its wait ends and main goes on; processes that are attached keep what they have. */
	pinion_holder_stop(holder);
	return NULL;
}

void end_by(int sig)
{
	sigset_t set;

	report_clear();
	signal(sig, SIG_DFL);
	raise(sig);
	sigemptyset(&set);
	sigaddset(&set, sig);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	/* The kernel spares the first process of a container. */
	_exit(128 + sig);
}

/* Those that this process was not told to ignore. */
static void ending_signals(sigset_t *set)
{
	static const int sig[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction now;

	sigemptyset(set);
	/* One that is blocked is kept for whoever asks, ignored or not. */
	for (size_t i = 0; i < sizeof(sig) / sizeof(sig[0]); i++)
		if (!sigaction(sig[i], NULL, &now) && now.sa_handler != SIG_IGN)
			sigaddset(set, sig[i]);
}

int ending_fd(sigset_t *old)
{
	sigset_t set;
	int fd, err;

	ending_signals(&set);
	sigprocmask(SIG_BLOCK, &set, old);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd >= 0)
		return fd;
	err = errno;
	complain("making a signalfd: %s", strerror(err));
	return -err;
}

int ending_start(void)
{
	ending_signals(&signals);
	sigaddset(&signals, STOP_SIGNAL);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	return -pthread_create(&thread, NULL, wait_for_signal, NULL);
}

void ending_serves(struct pinion_holder *holder)
{
	atomic_store(&served, holder);
}

void ending_stop(void)
{
	atomic_store(&stopping, true);
	pthread_kill(thread, STOP_SIGNAL);
	pthread_join(thread, NULL);
}
