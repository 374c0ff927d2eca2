/* SPDX-License-Identifier: MIT */
/* Every call with arguments that work, for the programs that spoil them one by one. */
#ifndef PINION_VM_CALLS_H
#define PINION_VM_CALLS_H

#include "state.h"

#include <stddef.h>

union args {
	uint32_t size;
	struct pinion_info info;
	struct pinion_alloc alloc;
	struct pinion_slice slice;
	struct pinion_pin pin;
	struct pinion_bufinfo bufinfo;
	struct pinion_list list;
	unsigned char byte[192];
};

/* What the arguments speak of: a buffer of two pages, two pages of memory, and a memfd of two pages that cannot shrink. */
static struct {
	int dev, read_only, buffer, memfd;
	void *range;
	uint64_t nodes[64];
	struct pinion_list_buffer rows[8];
} given;

static void make_info(union args *a)
{
	a->info = (struct pinion_info){ .size = sizeof(a->info) };
}

static void make_alloc(union args *a)
{
	a->alloc = (struct pinion_alloc){ .size = sizeof(a->alloc), .bytes = 2 * PAGE, .node = PINION_NODE_ANY, .name = "abi" };
}

static void make_shmem(union args *a)
{
	make_alloc(a);
	a->alloc.flags = PINION_ALLOC_SHMEM;
}

static void make_slice(union args *a)
{
	a->slice = (struct pinion_slice){
		.size = sizeof(a->slice), .fd = given.buffer, .rights = PINION_RIGHT_READ, .offset = PAGE, .length = PAGE
	};
}

static void make_pin(union args *a)
{
	a->pin = (struct pinion_pin){
		.size = sizeof(a->pin), .addr = (uintptr_t)given.range, .bytes = 2 * PAGE, .fd = -1, .name = "range"
	};
}

static void make_pin_fd(union args *a)
{
	a->pin = (struct pinion_pin){
		.size = sizeof(a->pin), .flags = PINION_PIN_FD, .bytes = 2 * PAGE, .fd = given.memfd, .name = "memfd"
	};
}

static void make_bufinfo(union args *a)
{
	a->bufinfo = (struct pinion_bufinfo){
		.size = sizeof(a->bufinfo), .fd = given.buffer, .nr_nodes = 64, .nodes = (uintptr_t)given.nodes, .node_size = 8
	};
}

static void make_list(union args *a)
{
	a->list = (struct pinion_list){ .size = sizeof(a->list),
					.kind = PINION_LIST_BUFFERS,
					.rows = (uintptr_t)given.rows,
					.count = 8,
					.row_size = sizeof(given.rows[0]) };
}

static const struct call {
	const char *name;
	unsigned int cmd;
	size_t size;
	void (*make)(union args *a);
	size_t fd;	    /* where the new descriptor is; 0: a call that changes nothing */
	uint32_t flags;	    /* the known ones; what is there in LIST is a kind */
	size_t reserved[2]; /* 0: no more */
} calls[] = {
	{ "INFO", PINION_IOC_INFO, sizeof(struct pinion_info), make_info, 0, 0, { offsetof(struct pinion_info, reserved) } },
	{ "ALLOC",
	  PINION_IOC_ALLOC,
	  sizeof(struct pinion_alloc),
	  make_alloc,
	  offsetof(struct pinion_alloc, fd),
	  PINION_ALLOC_FLAGS,
	  { offsetof(struct pinion_alloc, reserved), offsetof(struct pinion_alloc, reserved_out) } },
	{ "ALLOC of SHMEM",
	  PINION_IOC_ALLOC,
	  sizeof(struct pinion_alloc),
	  make_shmem,
	  offsetof(struct pinion_alloc, fd),
	  PINION_ALLOC_FLAGS,
	  { offsetof(struct pinion_alloc, reserved), offsetof(struct pinion_alloc, reserved_out) } },
	{ "SLICE",
	  PINION_IOC_SLICE,
	  sizeof(struct pinion_slice),
	  make_slice,
	  offsetof(struct pinion_slice, out_fd),
	  0,
	  { offsetof(struct pinion_slice, reserved) } },
	{ "PIN",
	  PINION_IOC_PIN,
	  sizeof(struct pinion_pin),
	  make_pin,
	  offsetof(struct pinion_pin, out_fd),
	  PINION_PIN_FLAGS,
	  { offsetof(struct pinion_pin, reserved) } },
	{ "PIN of a memfd",
	  PINION_IOC_PIN,
	  sizeof(struct pinion_pin),
	  make_pin_fd,
	  offsetof(struct pinion_pin, out_fd),
	  PINION_PIN_FLAGS,
	  { offsetof(struct pinion_pin, reserved) } },
	{ "BUFINFO", PINION_IOC_BUFINFO, sizeof(struct pinion_bufinfo), make_bufinfo, 0, 0, { 0 } },
	{ "LIST", PINION_IOC_LIST, sizeof(struct pinion_list), make_list, 0, ~0U, { offsetof(struct pinion_list, reserved) } },
};

#define EACH_CALL(c) (const struct call *c = calls; c < calls + sizeof(calls) / sizeof(calls[0]); c++)

/* The size of its first version. */
STATE size_t call_least(const struct call *c)
{
	return c->cmd == PINION_IOC_INFO ? offsetof(struct pinion_info, max_user_devices) : c->size;
}

/* Whether this kernel has it. */
STATE bool call_exists(const struct call *c)
{
	struct pinion_info info;

	return c->make != make_shmem || (!dev_info(given.dev, &info) && info.features & PINION_FEATURE_SHMEM);
}

/* The descriptor that a call at @arg made is there, closes on exec, and is closed. */
STATE void call_undo(const struct call *c, const void *arg)
{
	int32_t fd;

	if (!c->fd)
		return;
	memcpy(&fd, (const char *)arg + c->fd, sizeof(fd));
	if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC))
		wrong("%s: descriptor %d does not close on exec", c->name, fd);
	close(fd);
}

STATE int given_memfd(unsigned int seals)
{
	int fd = memfd_create("pinion-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, 2 * PAGE) || fcntl(fd, F_ADD_SEALS, seals))
		wrong("memfd: %s", strerror(errno));
	return fd;
}

/* False after a point that failed. */
static bool given_open(void)
{
	given.dev = dev_open(O_RDWR);
	given.read_only = dev_open(O_RDONLY);
	given.buffer = dev_alloc(given.dev, 2 * PAGE, 0);
	given.memfd = given_memfd(F_SEAL_SHRINK);
	given.range = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (given.dev < 0 || given.read_only < 0 || given.buffer < 0 || given.range == MAP_FAILED)
		wrong("device %d, read-only %d, buffer %d, range %p", given.dev, given.read_only, given.buffer, given.range);
	return point("start", "devices, a buffer, a memfd and a range");
}

/* Ends what given_open() made; INFO is what it was. */
static void given_close(const struct state *start)
{
	close(given.buffer);
	close(given.memfd);
	munmap(given.range, 2 * PAGE);
	close(given.read_only);
	if (start)
		state_same(given.dev, start);
	point("end", "bytes, buffers and descriptors are what they were");
	close(given.dev);
}

#endif
