/* SPDX-License-Identifier: MIT */
#include "registry.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pinion/type.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct backend_list {
	struct backend_list *next;
	struct backend_device dev;
};

/* A backend without devices, and what it said about that. */
struct absence {
	struct absence *next;
	const char *name;
	int err;
	char why[SENTENCE_MAX];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct backend_list head; /* its device is none; the others follow, made once and never changed or freed */
static struct absence *absent;
static const struct pinion_backend *asked; /* while the backends are asked, the one whose turn it is */

static const char *const reserved[] = { "metal" };

/* ---- what a description must not say ------------------------------------------------------------------------------
 */

static int refuse(const struct backend_desc *desc, const char *what)
{
	return fail(EINVAL, "backend '%s', device '%s': %s", asked->name, desc->key ? desc->key : "?", what);
}

static bool is_rate(double rate)
{
	return isfinite(rate) && rate > 0;
}

/* What pinion_device_add() takes; another could never be found. */
static bool is_key(const char *key)
{
	if (!key || !*key || strlen(key) > PINION_KEY_MAX || registry_reserved(key))
		return false;
	while (*key && isgraph((unsigned char)*key))
		key++;
	return !*key;
}

static int caps_check(const struct backend_desc *desc)
{
	const struct pinion_caps *caps = &desc->caps;

	if (!is_key(desc->key))
		return refuse(desc, "a key has 1 to 63 printable characters without space, and is not reserved");
	if (!pinion_backend_name(caps->backend) || caps->location.kind != caps->backend)
		return refuse(desc, "its location is of another kind than its backend");
	if (caps->substrate < PINION_SUBSTRATE_HOST || caps->substrate > PINION_SUBSTRATE_METAL)
		return refuse(desc, "the substrate is none");
	if (!caps->alignment || caps->alignment & (caps->alignment - 1))
		return refuse(desc, "the alignment is not a power of two");
	if (!caps->granularity_bits || !caps->rank_max || caps->rank_max > PINION_RANK_MAX || !caps->extent_max)
		return refuse(desc, "a limit is 0, or a rank over PINION_RANK_MAX");
	if (!is_rate(caps->flops_per_ns) || !is_rate(caps->bytes_per_ns))
		return refuse(desc, "a rate is not a number over 0");
	return 0;
}

static bool has_copy(const struct backend_desc *desc, enum pinion_dtype dtype)
{
	for (size_t i = 0; i < desc->kernel_count; i++)
		if (desc->kernels[i].op == PINION_OP_COPY && desc->kernels[i].dtype == dtype)
			return true;
	return false;
}

/* Whether a result can be put where the caller wants it, whatever its layout is: array.c. */
static bool can_place(const struct backend_desc *desc, const struct backend_ops *ops, const struct backend_kernel *k)
{
	if (k->op == PINION_OP_COPY || k->op == PINION_OP_CAST || has_copy(desc, k->dtype) ||
	    desc->caps.substrate == PINION_SUBSTRATE_HOST)
		return true;
	return ops->upload != backend_defaults.upload && ops->download != backend_defaults.download;
}

static int quant_kernels_check(const struct backend_desc *desc)
{
	for (size_t i = 0; i < desc->quant_kernel_count; i++) {
		const struct backend_quant_kernel *k = &desc->quant_kernels[i];
		uint64_t bytes;

		if (!pinion_op_name(k->op) || !k->run || pinion_type_bytes(k->type, 0, &bytes))
			return refuse(desc, "a quantized kernel without an op, a block format or a function");
		for (size_t j = 0; j < i; j++)
			if (desc->quant_kernels[j].op == k->op && desc->quant_kernels[j].type == k->type)
				return refuse(desc, "two quantized kernels for one op and block format");
	}
	return 0;
}

/* What has no address, or no encoding, cannot be the result of anything. */
static int kernels_check(const struct backend_desc *desc, const struct backend_ops *ops)
{
	for (size_t i = 0; i < desc->kernel_count; i++) {
		const struct backend_kernel *k = &desc->kernels[i];

		if (!pinion_op_name(k->op) || !pinion_dtype_bytes(k->dtype) || k->dtype == PINION_DTYPE_F8E6M2 || !k->run)
			return refuse(desc, "a kernel without an op, a dtype that an array can have, or a function");
		if (!can_place(desc, ops, k))
			return refuse(desc, "a kernel without copy for its dtype, and no upload and download instead");
		for (size_t j = 0; j < i; j++)
			if (desc->kernels[j].op == k->op && desc->kernels[j].dtype == k->dtype)
				return refuse(desc, "two kernels for one op and dtype");
	}
	return quant_kernels_check(desc);
}

/* A path over which nothing could go would be found out by the copy only. */
static int transfers_check(const struct backend_desc *desc, const struct backend_ops *ops)
{
	if (desc->caps.transfer_count > BACKEND_TRANSFERS)
		return refuse(desc, "more transfer paths than BACKEND_TRANSFERS");
	for (size_t i = 0; i < desc->caps.transfer_count; i++) {
		const struct pinion_transfer *t = &desc->caps.transfers[i];

		if (!pinion_path_name(t->path) || !pinion_backend_name(t->to.kind))
			return refuse(desc, "a transfer without a path or a destination");
		if (t->path != PINION_PATH_SAME && t->path != PINION_PATH_STAGED &&
		    ops->copy_to == backend_defaults.copy_to)
			return refuse(desc, "a transfer path that needs copy_to, which it does not have");
		if (t->path == PINION_PATH_SAME && !pinion_location_equal(t->to, desc->caps.location))
			return refuse(desc, "another location that is the same device");
		if (t->measured && t->path != PINION_PATH_SAME && !is_rate(t->bytes_per_ns))
			return refuse(desc, "a measured bandwidth that is not a number over 0");
	}
	return 0;
}

/* ---- finding ------------------------------------------------------------------------------------------------------
 */

static const struct backend_device *find(const char *key)
{
	for (const struct backend_list *l = head.next; l; l = l->next)
		if (!strcmp(l->dev.desc.key, key))
			return &l->dev;
	return NULL;
}

/* Figures that nobody measured are those of the path's kind. */
static void transfers_fill(struct backend_device *dev)
{
	for (size_t i = 0; i < dev->desc.caps.transfer_count; i++) {
		struct pinion_transfer t = dev->desc.caps.transfers[i];

		if (!t.measured || t.path == PINION_PATH_SAME) {
			t = pinion_path_fallback(t.path);
			t.to = dev->desc.caps.transfers[i].to;
		}
		dev->transfers[i] = t;
	}
	dev->desc.caps.transfers = dev->transfers;
}

int backend_found(struct backend_list *list, const struct backend_desc *desc)
{
	struct backend_ops ops = backend_ops_complete(asked->ops);
	struct backend_list *node;
	int ret = caps_check(desc);

	if (!ret)
		ret = kernels_check(desc, &ops);
	if (!ret)
		ret = transfers_check(desc, &ops);
	if (!ret && find(desc->key))
		ret = refuse(desc, "there is a device with this key already");
	if (ret)
		return ret;
	node = calloc(1, sizeof(*node));
	if (!node)
		return fail(ENOMEM, "no memory for device '%s'", desc->key);
	node->dev = (struct backend_device){ .backend = asked, .desc = *desc, .ops = ops };
	transfers_fill(&node->dev);
	while (list->next)
		list = list->next;
	list->next = node;
	return 0;
}

/* Without memory to keep it, the reason is lost and the device is as absent as before. */
static void remember(const char *name, int err)
{
	struct absence *a = calloc(1, sizeof(*a));

	if (!a)
		return;
	a->name = name;
	a->err = err;
	sentence_get(a->why);
	a->next = absent;
	absent = a;
}

static int ask(const struct pinion_backend *backend)
{
	if (backend->abi != BACKEND_ABI)
		return fail(EINVAL, "backend '%s' is made for contract %" PRIu32 ", this one is %d", backend->name,
			    backend->abi, BACKEND_ABI);
	asked = backend;
	return backend->enumerate(&head);
}

static void ask_all(void)
{
	char before[SENTENCE_MAX];

	/* The caller's own last failure is not what the backends had to say. */
	sentence_get(before);
	for (size_t i = 0; backend_table[i]; i++) {
		int ret = ask(backend_table[i]);

		if (ret)
			remember(backend_table[i]->name, -ret);
	}
	sentence_set(before);
}

const struct backend_device *registry_find(const char *key)
{
	pthread_once(&once, ask_all);
	return find(key);
}

const struct backend_device *registry_at(size_t i)
{
	const struct backend_list *l;

	pthread_once(&once, ask_all);
	for (l = head.next; l && i; i--)
		l = l->next;
	return l ? &l->dev : NULL;
}

int registry_reserved(const char *name)
{
	for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved); i++)
		if (!strcmp(reserved[i], name))
			return fail(EOPNOTSUPP,
				    "'%s' is a reserved name: this library has no %s backend, and Metal is not "
				    "on Linux",
				    name, name);
	return 0;
}

int registry_why_not(const char *name)
{
	size_t len = strcspn(name, ":");

	pthread_once(&once, ask_all);
	for (const struct absence *a = absent; a; a = a->next)
		if (!strncmp(a->name, name, len) && !a->name[len])
			return fail(a->err, "%s", a->why);
	return registry_reserved(name);
}
