/* SPDX-License-Identifier: MIT */
#include "fence.h"

#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fence {
	struct fence *next; /* of those on one stream, under its lock */
	uint64_t seq;
	uint32_t refs;		      /* atomic */
	pthread_mutex_t lock;	      /* all below; before that of the stream that waits, after that of the other */
	struct pinion_stream *waiter; /* NULL: it needs it no more */
	bool passed;
	int err;
	char sentence[SENTENCE_MAX];
};

static void unref(struct fence *f)
{
	if (__atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL))
		return;
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* Under of->lock: how the operation ended. The calling thread's own sentence is left as it was. */
static void take_result(struct pinion_stream *of, struct fence *f)
{
	char own[SENTENCE_MAX];

	sentence_get(own);
	f->err = stream_result(of, f->seq);
	if (f->err)
		sentence_get(f->sentence);
	sentence_set(own);
}

int fence_new(struct pinion_stream *of, uint64_t seq, struct pinion_stream *waiter, struct fence **out)
{
	struct fence *f = calloc(1, sizeof(*f));
	int ret = 0;

	if (!f)
		return fail(ENOMEM, "no memory for a fence");
	pthread_mutex_init(&f->lock, NULL);
	f->seq = seq;
	f->waiter = waiter;
	f->refs = 1;
	pthread_mutex_lock(&of->lock);
	if (seq == 0 || seq > of->submitted) {
		ret = fail(EINVAL, "operation %llu of the stream to wait for was never submitted, the last one is %llu",
			   (unsigned long long)seq, (unsigned long long)of->submitted);
	} else if (of->done >= seq) {
		f->passed = true;
		take_result(of, f);
	} else {
		f->refs++;
		f->next = of->fences;
		of->fences = f;
	}
	pthread_mutex_unlock(&of->lock);
	if (ret)
		unref(f);
	else
		*out = f;
	return ret;
}

bool fence_passed(struct fence *f, int *err, char sentence[SENTENCE_MAX])
{
	bool passed;

	pthread_mutex_lock(&f->lock);
	passed = f->passed;
	if (passed && f->err) {
		*err = f->err;
		memcpy(sentence, f->sentence, SENTENCE_MAX);
	}
	pthread_mutex_unlock(&f->lock);
	return passed;
}

void fence_leave(struct fence *f)
{
	pthread_mutex_lock(&f->lock);
	f->waiter = NULL;
	pthread_mutex_unlock(&f->lock);
	unref(f);
}

struct fence *fence_due(struct pinion_stream *of)
{
	struct fence **at = &of->fences, *due = NULL, *f;

	while ((f = *at)) {
		if (f->seq > of->done) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		f->next = due;
		due = f;
		take_result(of, f);
	}
	return due;
}

void fence_tell(struct fence *list)
{
	while (list) {
		struct fence *f = list;

		list = f->next;
		pthread_mutex_lock(&f->lock);
		f->passed = true;
		if (f->waiter) {
			pthread_mutex_lock(&f->waiter->lock);
			stream_event(f->waiter);
			pthread_mutex_unlock(&f->waiter->lock);
		}
		pthread_mutex_unlock(&f->lock);
		unref(f);
	}
}
