/* SPDX-License-Identifier: MIT */
#include "ending.h"

#include "pinion.h"
#include "report.h"

#include <pinion/holder.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static pthread_t thread;
static sigset_t signals;
static const char *served_name;
static _Atomic(struct pinion_context *) served_ctx;

static void *wait_for_signal(void *arg)
{
	struct pinion_context *ctx;
	int sig, state;

	(void)arg;
	if (sigwait(&signals, &sig))
		return NULL;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	ctx = atomic_load(&served_ctx);
	if (!ctx)
		end_by(sig);
	/* The holder's wait ends and main goes on. While processes are attached it is refused: they keep what they have. */
	if (pinion_name_remove(ctx, served_name))
		_exit(EXIT_OK);
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

void ending_signals(sigset_t *set)
{
	static const int sig[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction now;

	sigemptyset(set);
	/* One that is blocked is kept for whoever asks, ignored or not. */
	for (size_t i = 0; i < sizeof(sig) / sizeof(sig[0]); i++)
		if (!sigaction(sig[i], NULL, &now) && now.sa_handler != SIG_IGN)
			sigaddset(set, sig[i]);
}

int ending_start(void)
{
	ending_signals(&signals);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	return -pthread_create(&thread, NULL, wait_for_signal, NULL);
}

void ending_serves(struct pinion_context *ctx, const char *name)
{
	served_name = name;
	atomic_store(&served_ctx, ctx);
}

void ending_stop(void)
{
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}
