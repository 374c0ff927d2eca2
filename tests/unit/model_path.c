/* SPDX-License-Identifier: MIT */
#include "model_path.h"

#include <stdio.h>
#include <stdlib.h>

#define LENGTH_MAX 1024

static struct {
	struct move move;
	struct op op;
	__u8 call;
} path[LENGTH_MAX];
static unsigned int length;

void path_clear(void)
{
	length = 0;
}

void path_push(const struct state *s, const struct move *move)
{
	const struct thread *th = &s->thread[move->thread];

	if (length == LENGTH_MAX)
		abort();
	path[length].move = *move;
	path[length].call = th->call;
	path[length].op = move->kind == MOVE_DRAIN ? th->buffer[move->unit] : th->next;
	if (path[length].op.kind == OP_LOAD)
		path[length].op.raw = s->mem[th->next.word];
	length++;
}

void path_pop(void)
{
	length--;
}

unsigned int path_length(void)
{
	return length;
}

static const char *word_name(unsigned int word, char *out, size_t size)
{
	static const char *const single[] = { "roster seq", "owner word", "roster lanes", "hand-over", "held" };

	if (counts(word))
		snprintf(out, size, "lane %u %s[%u].%s", word / LANE_WORDS,
			 (word & WORD_COMPLETED) ? "completed" : "submitted", (word & WORD_PARITY) != 0,
			 (word & WORD_COST) ? "cost" : "ops");
	else if (word < WORD_SEQ)
		snprintf(out, size, "lane %u %s", word & 1, word < WORD_ARMED ? "epoch" : "armed");
	else
		snprintf(out, size, "%s", single[word - WORD_SEQ]);
	return out;
}

/* Values are above the first one; the owner word is 0 first owner, 1 dead, 2 second owner. */
static void print_access(const char *call, const char *verb, const struct op *op)
{
	char name[64];

	printf("%s%s %s %s +%u\n", call, verb, word_name(op->word, name, sizeof(name)),
	       op->kind == OP_LOAD ? "is" : "=", op->raw);
}

static void print_move(unsigned int i)
{
	static const char *const actor[] = { "A", "B", "flusher", "taker", "reader" };
	static const char *const call[] = { "",	      "begin: ", "end: ",    "start: ", "drain: ", "flip: ", "arm: ",
					    "read: ", "bump: ",	 "retire: ", "own: ",	"grow: ",  "look: ",
					    "show: ", "lock: ",	 "unbind: ", "hold: ",	"unlock: ", "" };
	const struct move *move = &path[i].move;

	printf("  %3u %-8s", i + 1, actor[move->thread]);
	switch (move->kind) {
	case MOVE_STEP:
		print_access(call[path[i].call], path[i].op.kind == OP_LOAD ? "load" : "store", &path[i].op);
		break;
	case MOVE_DRAIN:
		print_access("", "buffered store reaches memory:", &path[i].op);
		break;
	case MOVE_BEGIN:
	case MOVE_END:
		printf("%ss unit %u (first access)\n", move->kind == MOVE_BEGIN ? "begin" : "end", move->unit);
		break;
	case MOVE_FLUSH:
		printf("starts a flush\n");
		break;
	case MOVE_LOCK:
		printf("takes the lock\n");
		break;
	case MOVE_DIE:
		printf("dies\n");
		break;
	case MOVE_KILL:
		printf("sees that the owner is killed and the owner word marked\n");
		break;
	}
}

void path_print(void)
{
	unsigned int i;

	for (i = 0; i < length; i++)
		print_move(i);
}

const char *property_name(enum property p)
{
	static const char *const name[PROPERTIES] = {
		[HOLDS] = "holds",
		[HIGH_BELOW] = "high is below the truth",
		[HIGH_ABOVE] = "high counts a unit that did not pend",
		[LOW_ABOVE] = "low is above the truth",
		[LOW_BELOW] = "low misses a unit that pended all the while",
		[COST_BELOW] = "cost_high is below the truth",
		[COST_ABOVE] = "cost_high counts a unit that did not pend",
		[INEXACT] = "not exact when nothing moves",
		[WENT_DOWN] = "a word went down",
		[TWO_WRITERS] = "a word has two writers",
		[FLUSH_EARLY] = "a flush returned over a pending unit",
		[FLUSH_STUCK] = "a flush does not end",
		[WAKE_LOST] = "a sleeper is not woken",
		[READ_STUCK] = "a reading does not end",
		[WRITER_STUCK] = "a writer does not end",
		[ENDLESS] = "a schedule without end",
	};

	return name[p];
}
