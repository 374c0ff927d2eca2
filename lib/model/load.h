/* SPDX-License-Identifier: MIT */
/*
 * load: what a load of a model's files goes through. load.c opens, reads one file after the other and reports; load_runs.c reads
 * tensors that stay where the layout puts them; load_moved.c those that are moved.
 */
#ifndef PINION_LIB_LOAD_H
#define PINION_LIB_LOAD_H

#include "cached.h"
#include "model.h"

#define LOAD_QUEUED 4 /* reads of runs in the streams at once */

/* Why bytes go through the page cache that were looked for there. */
#define LOAD_IS_THERE "the page cache holds it"

struct file_hash;
struct load;

/* What of the file is staged at one time. */
struct part {
	struct part *next; /* queued before */
	struct part *later;
	struct load *load;
	uint64_t from;
	uint64_t len;
	uint64_t first; /* the first tensor that has bytes in it */
	bool done;	/* its bytes are in place; atomic, the stage's thread says so */
};

struct load {
	struct pinion_context *ctx;
	struct pinion_load_opts opts;
	const char *path;
	struct index_block *block;
	uint32_t number; /* of the shard whose tensors are being read */
	const struct index_shard *shard;
	int fd;				 /* of it */
	struct stream_file *file;	 /* the same */
	struct cached cached;		 /* what of it the page cache holds */
	uint64_t looked_at, found;	 /* bytes of the files asked about, and of them those there */
	bool sampled;			 /* found is an estimate */
	struct pinion_buffer *buf;
	char *data; /* writable */
	struct pinion_stream *runs;
	struct pinion_stream *warm; /* through the page cache, beside the direct reads of runs; NULL until something is there */
	struct pinion_stream *stage; /* fills the staging buffer and empties it, in order */
	struct part *parts; /* all that were queued, the last first; freed when the streams are gone */
	struct part *oldest; /* that is staged and was not seen to be done */
	struct part *newest; /* that is staged */
	bool given_up;	    /* what is queued is not copied any more; atomic */
	struct pinion_buffer *staging; /* NULL until something is staged, and so is stage */
	char *staging_data;
	uint64_t queue[LOAD_QUEUED]; /* numbers of the reads under way */
	struct pinion_stream *queue_in[LOAD_QUEUED];
	uint64_t queue_from[LOAD_QUEUED]; /* where in the file they begin */
	uint32_t queued;
	uint64_t queued_to; /* the tensors' bytes before this were queued */
	struct file_hash *hash; /* of the shard; NULL: not wanted */
	uint64_t moved; /* bytes copied; atomic, the stage's thread adds */
	uint64_t vectored; /* bytes read many tensors at a time; atomic, as moved */
	const char *vectored_why; /* why these went through the page cache */
	uint64_t total;
	int64_t next_progress;
	bool cancelled; /* by the caller */
};

/* The first tensor that the shard does not have. */
static inline uint64_t load_shard_end(const struct load *load)
{
	return load->shard->first + load->shard->count;
}

static inline uint64_t load_round_down(uint64_t v)
{
	return v - v % INDEX_BLOCK;
}

/* To whole blocks, but not past the end of the file. */
static inline uint64_t load_round_up(const struct load *load, uint64_t v)
{
	uint64_t up = load_round_down(v + INDEX_BLOCK - 1);

	return up < load->shard->stamp.bytes ? up : load->shard->stamp.bytes;
}

/* Tells the caller how far it is and the hash what is in place; -ECANCELED. To be called again and again. */
int load_report(struct load *load);

/* How long one may wait before it: the hash follows what was seen to be done. */
int64_t load_tick_ns(const struct load *load);

int load_open_stream(struct load *load, enum pinion_io io, uint32_t depth, struct pinion_stream **out);

/* Waits until there is room in the queue, for an operation that is then put in by load_queue_take(). */
int load_queue_room(struct load *load);
void load_queue_take(struct load *load, struct pinion_stream *s, uint64_t file_offset);

/* Queues a read into the buffer; load_wait_queued() waits for all. */
int load_queue_read(struct load *load, struct pinion_stream *s, uint64_t offset, uint64_t file_offset, uint64_t len);
int load_wait_queued(struct load *load);

/* Whether the page cache holds most of the range, so that to copy it from there costs less; *@found: how much, added. */
bool load_is_warm(struct load *load, uint64_t from, uint64_t len, uint64_t *found);

/* The stream for what was found there; where nobody looked, the one there is. */
int load_warm_stream(struct load *load, struct pinion_stream **s);

/* Read what begins with tensor @i: a run of those that stay, or all up to the next such. *@next: the first tensor after it. */
int load_run(struct load *load, uint64_t i, uint64_t *next);
int load_moved(struct load *load, uint64_t i, uint64_t *next);

/* Waits for all moved tensors. */
int load_wait_moved(struct load *load);

#endif
