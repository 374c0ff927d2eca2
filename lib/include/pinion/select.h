/* SPDX-License-Identifier: MIT */
/*
 * select: which of several ways to do one thing. What is known beforehand ranks a set of candidates; what memory and
 * queues are like now decides between them. No selector waits, and what it knows of a device comes from its callbacks.
 */
#ifndef PINION_SELECT_H
#define PINION_SELECT_H

#include <pinion/caps.h>
#include <pinion/dtype.h>
#include <pinion/op.h>
#include <pinion/signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_device;
struct pinion_storage;
struct pinion_view;

/* ---- what a kernel costs and how exact it is --------------------------------------------------------------------- */

struct pinion_cost {
	uint64_t flops;
	uint64_t bytes_moved; /* read, written, and in between */
	uint32_t overhead_ns; /* of starting it */
};

/*
 * Estimated ns: max(flops / @flops_per_ns, bytes_moved / @bytes_per_ns) + overhead_ns; each quotient is cut to a whole
 * number, and what is too large is UINT64_MAX. A rate that is not finite, or not above 0, is read as the CPU's.
 */
uint64_t pinion_cost_ns(const struct pinion_cost *cost, double flops_per_ns, double bytes_per_ns);

/* The same at a backend's default rates: 1 flop and 4 bytes per ns for the CPU, 30 and 40 for the others. */
uint64_t pinion_cost_ns_on(const struct pinion_cost *cost, enum pinion_backend_id backend);

/* What a kernel promises of its results. A bound counts when its has_ member is set. */
struct pinion_precision {
	bool bit_stable; /* same input and hardware, same bits */
	bool has_ulp;
	bool has_relative;
	bool has_absolute;
	uint32_t max_ulp;
	double max_relative;
	double max_absolute;
	const char *note; /* borrowed, may be NULL */
};

/* The reference: bit-stable, every bound 0. A plain CPU kernel: bit-stable, no bound. Nobody looked: no promise. */
struct pinion_precision pinion_precision_exact(void);
struct pinion_precision pinion_precision_deterministic(void);
struct pinion_precision pinion_precision_unaudited(void);

/* No promise, and why not. @reason is borrowed. */
struct pinion_precision pinion_precision_none(const char *reason);

/* Decimal digits promised, 0 to 18. Bit-stable without a bound is 9. */
uint32_t pinion_precision_digits(const struct pinion_precision *precision);

/* How results are rounded, the worst first. */
enum pinion_accuracy {
	PINION_ACCURACY_UNBOUNDED,
	PINION_ACCURACY_STABLE, /* bit-stable, no bound in ulp */
	PINION_ACCURACY_LOOSE,	/* more than 2 ulp */
	PINION_ACCURACY_TIGHT,	/* 1 or 2 ulp */
	PINION_ACCURACY_EXACT,	/* correctly rounded */
};

enum pinion_accuracy pinion_precision_accuracy(const struct pinion_precision *precision);

/*
 * Buckets of problem sizes: the same bucket, the same measurement. log2 of the elements; for a matmul log2 of m * n, m
 * and k; for attention log2 of heads * k_len * d, k_len and d: from bits 16, 8 and 0 on. log2 is cut to a whole number,
 * and that of 0 is 0; products stop at UINT64_MAX.
 */
uint32_t pinion_size_class(uint64_t elements);
uint32_t pinion_size_class_matmul(uint64_t m, uint64_t n, uint64_t k);
uint32_t pinion_size_class_attention(uint64_t heads, uint64_t k_len, uint64_t d);

/* ---- candidates and sets ----------------------------------------------------------------------------------------- */

/* What a kernel works on. It writes to the outputs it is given, allocates none, and does not abort. */
struct pinion_kernel_call {
	struct pinion_storage *const *in;
	size_t ins;
	struct pinion_storage *const *out;
	size_t outs;
	const struct pinion_view *layouts; /* of the inputs, then of the outputs */
	const void *params;		   /* of the op */
	size_t params_size;
};

enum pinion_kernel_flag {
	PINION_KERNEL_STRIDED = 1 << 0,	  /* takes inputs with strides */
	PINION_KERNEL_BROADCAST = 1 << 1, /* needs its inputs broadcast */
};

/* What something else adds to the estimate, or takes from it. */
struct pinion_coupling {
	const char *condition;
	int64_t delta_ns;
};

/* One way to do it: a kernel, where it runs, and what is known of it beforehand. Its pointers are borrowed. */
struct pinion_candidate {
	int (*kernel)(const struct pinion_kernel_call *call); /* 0 or -errno. NULL: it is not called from here */
	uint32_t flags;					      /* enum pinion_kernel_flag */
	enum pinion_backend_id backend;
	struct pinion_location device;
	struct pinion_precision precision;
	struct pinion_cost static_cost;
	uint64_t inbound_transfer_ns; /* to bring the inputs there */
	const void *op_params;
	size_t op_params_size;
	const struct pinion_coupling *coupling;
	size_t couplings;
	const char *kernel_source;     /* whose kernel: "portable-cpu", "mkl", "cublas", "slang"; NULL is read as "" */
	uint64_t kernel_revision_hash; /* 0: not known */
};

/* The axes by which candidates are compared. */
struct pinion_cost_vector {
	uint64_t time_ns;      /* pinion_cost_ns_on() and the inbound transfer, saturating */
	uint64_t host_bytes;   /* bytes moved where the device is the CPU */
	uint64_t device_bytes; /* and elsewhere */
	uint32_t digits;       /* higher is better, as is accuracy */
	enum pinion_accuracy accuracy;
};

void pinion_cost_vector_of(const struct pinion_candidate *candidate, struct pinion_cost_vector *out);

/* What the candidates of a set would do: the key of measurements. */
struct pinion_task {
	enum pinion_op op;
	enum pinion_dtype dtype; /* the principal one */
	uint32_t size_class;
};

/*
 * An ordered list of candidates, the one that is best by what is known beforehand first. It copies candidates; what
 * their pointers lead to has to stay as long as the set does. Any number of threads may read one set at once.
 */
struct pinion_set;

#define PINION_SET_MAX 4096 /* candidates of a set */

/*
 * A set without candidates, or with the @n of @list in their order. The caller owns *@out. Errors: -EINVAL a candidate
 * that pinion_set_push() refuses; -ENOSPC more than PINION_SET_MAX; -ENOMEM.
 */
int pinion_set_new(struct pinion_set **out);
int pinion_set_from(const struct pinion_candidate *list, size_t n, struct pinion_set **out);
void pinion_set_free(struct pinion_set *set);

/* Adds a candidate at the end. -EINVAL no such backend or kind of device, or a count without its pointer; -ENOSPC; -ENOMEM. */
int pinion_set_push(struct pinion_set *set, const struct pinion_candidate *candidate);

size_t pinion_set_size(const struct pinion_set *set);

/* Candidate @i, NULL past the end; the winner is candidate 0. Borrowed until the set is changed. */
const struct pinion_candidate *pinion_set_at(const struct pinion_set *set, size_t i);
const struct pinion_candidate *pinion_set_winner(const struct pinion_set *set);

/* What it is for, NULL: not said. Borrowed until it is set again; changes to the list leave it. */
const struct pinion_task *pinion_set_task(const struct pinion_set *set);
void pinion_set_set_task(struct pinion_set *set, const struct pinion_task *task);

/* Keeps the candidates at these @n indices, which ascend strictly. -EINVAL, and nothing changes. */
int pinion_set_keep(struct pinion_set *set, const size_t *index, size_t n);

/* Orders by time, then digits and accuracy, the best first, then bytes; equal candidates stay in their order. */
void pinion_set_rank(struct pinion_set *set);

#define PINION_PRUNE_CAP 32

/*
 * Drops candidates that another one on the same device is better than on some axis and not worse on any. Where a device
 * is left with more than @cap (0 is read as 1), those in the most crowded places of the axes go too. Candidate 0 stays,
 * and so does the last candidate of a backend on a device, even over the cap. What stays keeps its order. -ENOMEM, and
 * nothing changes.
 */
int pinion_set_prune(struct pinion_set *set, size_t cap);

/* Writes a line about the set, cut to @size bytes with the final 0, and returns its full length as snprintf() does. */
int pinion_set_describe(const struct pinion_set *set, char *buf, size_t size);

/* ---- what was measured ------------------------------------------------------------------------------------------- */

/* Measurements by task, backend and kernel source. Every call may be made from any thread at any time. */
struct pinion_judge;

struct pinion_measure {
	uint64_t ns;
	double error; /* largest relative error seen, 0: none */
};

/* The caller owns *@out. -ENOMEM. */
int pinion_judge_new(struct pinion_judge **out);
void pinion_judge_free(struct pinion_judge *judge);

/* Records a measurement in place of an earlier one of its key. -EINVAL no such backend, an error below 0 or not finite; -ENOMEM. */
int pinion_judge_put(struct pinion_judge *judge, const struct pinion_task *task, enum pinion_backend_id backend,
		     const char *kernel_source, const struct pinion_measure *measure);

/* -ENODATA: this was not measured. */
int pinion_judge_get(const struct pinion_judge *judge, const struct pinion_task *task, enum pinion_backend_id backend,
		     const char *kernel_source, struct pinion_measure *out);

/* Keys it has a measurement for. */
size_t pinion_judge_size(const struct pinion_judge *judge);

/* What one wants of measured kernels; the lowest score is the best. */
enum pinion_criterion {
	PINION_CRITERION_FASTEST,  /* ns */
	PINION_CRITERION_ACCURATE, /* error */
	PINION_CRITERION_BALANCED, /* ns * (1 + 100 * error) */
};

double pinion_criterion_score(enum pinion_criterion criterion, const struct pinion_measure *measure);

/*
 * The measured candidate with the best score, inbound transfer counted in; equal ones by ns, then the earlier. -ENODATA
 * none is measured, or the set has no task.
 */
int pinion_judge_best(const struct pinion_judge *judge, const struct pinion_set *set, enum pinion_criterion criterion,
		      size_t *index);

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/*
 * How a selector asks about one device. Whoever has devices of its own embeds this as its first member. The operations
 * may be called from any thread and answer well below a microsecond; those that return int write only on success. One
 * that is NULL is a signal that there is not.
 */
struct pinion_runtime {
	const struct pinion_runtime_ops *ops;
};

struct pinion_runtime_ops {
	int (*available)(struct pinion_runtime *rt, uint64_t *bytes); /* -ENODATA: cannot measure, which is not 0 */
	int (*total)(struct pinion_runtime *rt, uint64_t *bytes);     /* -ENODATA; never changes */
	enum pinion_fit (*would_fit)(struct pinion_runtime *rt, uint64_t bytes); /* NULL: pinion_fit_of() these two */

	/* The streams tier. All three NULL: a synchronous device, which has no queue. */
	int (*pending)(struct pinion_runtime *rt, uint32_t *n);	      /* -ENODATA: no signal, which is not idle */
	int (*capacity)(struct pinion_runtime *rt, uint32_t *n);      /* most units in flight; failing is read as 1 */
	int (*flush)(struct pinion_runtime *rt, int64_t deadline_ns); /* waits for all that was submitted before */

	void (*free)(struct pinion_runtime *rt); /* NULL: a lookup lends the handle, nobody frees it */
};

/* The operations, with holes filled: -ENODATA where the tier or the signal is missing. */
int pinion_runtime_available(struct pinion_runtime *rt, uint64_t *bytes);
int pinion_runtime_total(struct pinion_runtime *rt, uint64_t *bytes);
enum pinion_fit pinion_runtime_would_fit(struct pinion_runtime *rt, uint64_t bytes);
bool pinion_runtime_has_streams(const struct pinion_runtime *rt);
int pinion_runtime_pending(struct pinion_runtime *rt, uint32_t *n);
int pinion_runtime_capacity(struct pinion_runtime *rt, uint32_t *n);
int pinion_runtime_flush(struct pinion_runtime *rt, int64_t deadline_ns);
void pinion_runtime_free(struct pinion_runtime *rt);

/* A handle on one of pinion's devices. The caller makes room for it; nothing is allocated, there is nothing to free. */
struct pinion_device_runtime {
	struct pinion_runtime runtime;
	struct pinion_device *device;
	uint32_t capacity;
};

/*
 * Makes @room a handle on @device and returns it. It is good as long as the device is, for any number of lookups and
 * threads. Its signals are pinion_device_would_fit() and its like, pending that of every process. A device without a
 * queue has no streams tier. Errors of the device are "no signal". A selection reads what is pending
 * on the devices of several such handles at once, after their lookups: none of it is older than the call, except where the
 * signals say so.
 */
struct pinion_runtime *pinion_runtime_of_device(struct pinion_device *device, struct pinion_device_runtime *room);

enum pinion_load {
	PINION_LOAD_IDLE, /* or nothing is known */
	PINION_LOAD_MODERATE,
	PINION_LOAD_SATURATED,
};

/* Idle below a quarter of @capacity, saturated from all of it on, moderate in between. A capacity of 0 is read as 1. */
enum pinion_load pinion_load_tier(uint32_t pending, uint32_t capacity);

/* ---- selectors --------------------------------------------------------------------------------------------------- */

/*
 * A rule that takes one candidate of a set. Never changed once made: any number of threads may select with it at once,
 * and then its callbacks are called from them at once.
 */
struct pinion_selector;

/* A selector leaves alone what it has no use for. */
struct pinion_selector_opts {
	size_t size;

	/*
	 * The handle for a backend on a device, NULL: there is none, and nothing is known. Called once per candidate,
	 * or not at all. The selector frees the handle before it looks the next one up.
	 */
	struct pinion_runtime *(*lookup)(void *arg, enum pinion_backend_id backend, struct pinion_location device);
	void *lookup_arg;

	/* Bytes that a candidate is going to allocate. NULL: pinion_estimate_default(). */
	uint64_t (*estimate)(void *arg, const struct pinion_candidate *candidate);
	void *estimate_arg;

	const struct pinion_judge *judge; /* has to stay as long as the selector; NULL: estimates alone */

	/* Candidates that tie are taken in turn, each as often as the others. Otherwise it is always the first. */
	bool rotate;
};

/* The bytes the candidate moves: several times too much as a rule, so that it may be passed over though it fits. */
uint64_t pinion_estimate_default(void *arg, const struct pinion_candidate *candidate);

/*
 * The selectors. Each makes *@out with one reference, which is the caller's. Each orders candidates by a key and takes
 * the lowest; where keys tie it takes the first. -EINVAL, -E2BIG @opts; -ENOMEM.
 *
 * - winner: candidate 0. Does not rotate.
 * - vram_pressure: whether it fits: comfortably or unknown before tight. One that does not fit is not taken, unless
 *   none fits: then candidate 0 is, so that running out of memory has one place.
 * - device_load: the load tier. No signal counts as idle.
 * - judge_aware: ns: the judge's for the set's task, or else pinion_cost_ns_on(); either with the inbound transfer.
 * - chained: these three in that order. For production.
 */
int pinion_selector_winner(const struct pinion_selector_opts *opts, struct pinion_selector **out);
int pinion_selector_vram_pressure(const struct pinion_selector_opts *opts, struct pinion_selector **out);
int pinion_selector_device_load(const struct pinion_selector_opts *opts, struct pinion_selector **out);
int pinion_selector_judge_aware(const struct pinion_selector_opts *opts, struct pinion_selector **out);
int pinion_selector_chained(const struct pinion_selector_opts *opts, struct pinion_selector **out);

/* References; the last one frees the selector. From any thread. */
struct pinion_selector *pinion_selector_ref(struct pinion_selector *selector);
void pinion_selector_unref(struct pinion_selector *selector);

/* Takes a candidate: *@index is its place in @set. Allocates nothing. -ENOENT the set is empty, and only then. */
int pinion_select(struct pinion_selector *selector, const struct pinion_set *set, size_t *index);

/* What became of a candidate. */
enum pinion_reason {
	PINION_REASON_CHOSEN = 1,
	PINION_REASON_NO_FIT, /* it needs more memory than there is */
	PINION_REASON_TIGHT,  /* it fits, but the chosen one fits better */
	PINION_REASON_LOADED, /* its device is busier than the chosen one's */
	PINION_REASON_SLOWER,
	PINION_REASON_TIED,   /* as good as the chosen one, which comes first or whose turn it is */
	PINION_REASON_UNSEEN, /* the selector did not look at it */
};

struct pinion_verdict {
	enum pinion_reason reason;
	enum pinion_fit fit;
	enum pinion_load load;
	bool looked_up;
	bool has_handle;    /* the lookup had one */
	bool has_available; /* what is in available */
	bool has_load;	    /* what is in pending and capacity */
	bool measured;	    /* ns has the judge's figure in it */
	uint64_t need;	    /* estimated bytes */
	uint64_t available;
	uint32_t pending;
	uint32_t capacity;
	uint64_t ns;
};

/*
 * pinion_select(), and what became of each candidate: rows[i] is that of candidate i, for the first @n candidates.
 * Members that the selector does not look at are 0.
 */
int pinion_select_explain(struct pinion_selector *selector, const struct pinion_set *set, size_t *index,
			  struct pinion_verdict *rows, size_t n);

const char *pinion_reason_name(enum pinion_reason reason); /* "chosen", "does not fit"; NULL: none */

/* As pinion_set_describe(). Callbacks are named, never called. */
int pinion_selector_describe(const struct pinion_selector *selector, char *buf, size_t size);
int pinion_verdict_describe(const struct pinion_verdict *verdict, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
