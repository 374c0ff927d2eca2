/* SPDX-License-Identifier: MIT */
/* fork: locks that a forked child finds as they should be. */
#ifndef PINION_LIB_FORK_H
#define PINION_LIB_FORK_H

#include <pthread.h>

/*
 * Defines watch_forks(), to be called once before @lock, a static mutex of the file, is taken: without it, a fork while another
 * thread has the lock would leave it locked in the child for ever. What the lock guards is at rest in the child, where @renew(),
 * a function of the file, makes anew what is the parent's alone.
 */
#define DEFINE_WATCH_FORKS_AND(lock, renew)                            \
	static void fork_prepare(void)                                 \
	{                                                              \
		pthread_mutex_lock(&(lock));                           \
	}                                                              \
	static void fork_parent(void)                                  \
	{                                                              \
		pthread_mutex_unlock(&(lock));                         \
	}                                                              \
	static void fork_child(void)                                   \
	{                                                              \
		renew();                                               \
		pthread_mutex_unlock(&(lock));                         \
	}                                                              \
	static void watch_forks(void)                                  \
	{                                                              \
		pthread_atfork(fork_prepare, fork_parent, fork_child); \
	}

/* The same where nothing is. */
#define DEFINE_WATCH_FORKS(lock)        \
	static void renew_nothing(void) \
	{                               \
	}                               \
	DEFINE_WATCH_FORKS_AND(lock, renew_nothing)

#endif
