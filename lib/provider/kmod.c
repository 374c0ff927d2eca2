/* SPDX-License-Identifier: MIT */
/*
 * The module's pages: pinned from the moment they are made until the last descriptor or mapping anywhere is gone, whoever made
 * them. A descriptor is a slice with rights of its own, so readers are handed out beside writers.
 *
 * Who asks for memory that is merely locked, or not held at all, gets a memfd: the module has no such pages.
 */
#include "kmod.h"

#include "../advice.h"
#include "../error.h"
#include "../machine/room.h"
#include "node.h"
#include "provider.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142
#endif

#define HUGE_ALIGN (UINT64_C(2) << 20) /* where a huge page begins, on machines with pages of 4 KiB */
#define PARAMETERS "/sys/module/pinion/parameters/"

/* ---- the device ---------------------------------------------------------------------------------------------------- */

static int call(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) ? -errno : 0;
}

int kmod_info(int fd, struct pinion_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return call(fd, PINION_IOC_INFO, info);
}

static int open_failed(int err)
{
	if (err == ENOENT || err == ENXIO || err == ENODEV)
		return fail_advise(ENODEV, PINION_ADVICE_MODULE_UNLOADED, NULL,
				   "the kernel module is not loaded: there is no " PINION_DEVICE);
	if (err == EACCES || err == EPERM)
		return fail_advise(EACCES, PINION_ADVICE_MODULE_ACCESS, NULL,
				   "the kernel module is loaded, but this user may not open " PINION_DEVICE);
	return fail_errno(err, "opening " PINION_DEVICE);
}

static int check_abi(int fd, struct kmod_device *dev)
{
	struct pinion_info info;
	int ret = kmod_info(fd, &info);

	if (ret == -ENOTTY || ret == -EINVAL || ret == -E2BIG || (!ret && info.abi != PINION_ABI))
		return fail_advise(EPROTO, PINION_ADVICE_MODULE_ABI, NULL,
				   "the loaded kernel module speaks another ABI (%u) than this library (%u)", ret ? 0 : info.abi,
				   PINION_ABI);
	if (ret)
		return fail_errno(-ret, "asking the kernel module what it can do");
	dev->huge_size = info.huge_size;
	dev->features = info.features;
	return 0;
}

int kmod_open(int access, struct kmod_device **out)
{
	struct kmod_device *dev = calloc(1, sizeof(*dev));
	int ret;

	if (!dev)
		return fail(ENOMEM, "no memory for an open of " PINION_DEVICE);
	dev->refs = 1;
	dev->fd = open(PINION_DEVICE, access | O_CLOEXEC);
	ret = dev->fd < 0 ? open_failed(errno) : check_abi(dev->fd, dev);
	if (ret)
		kmod_close(dev);
	else
		*out = dev;
	return ret;
}

struct kmod_device *kmod_ref(struct kmod_device *dev)
{
	if (dev)
		__atomic_add_fetch(&dev->refs, 1, __ATOMIC_RELAXED);
	return dev;
}

void kmod_close(struct kmod_device *dev)
{
	if (!dev || __atomic_sub_fetch(&dev->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (dev->fd >= 0)
		close(dev->fd);
	free(dev);
}

static uint32_t kmod_huge_size(const struct kmod_device *dev, const char **why)
{
	*why = "the kernel module gives them as long as there are";
	return dev->huge_size;
}

/* ---- what is short ------------------------------------------------------------------------------------------------- */

static int limit_hit(enum pinion_advice advice, const char *name, uint64_t limit, uint64_t use, uint64_t need)
{
	char enough[24];

	snprintf(enough, sizeof(enough), "%llu", (unsigned long long)(use + need));
	return fail_advise(ENOMEM, advice, enough,
			   "the buffer needs %llu bytes; the module's %s is %llu, of which %llu are in use",
			   (unsigned long long)need, name, (unsigned long long)limit, (unsigned long long)use);
}

static bool is_short(uint64_t limit, uint64_t use, uint64_t need)
{
	return need > limit || use > limit - need;
}

/* Why there was no memory. Others may have given theirs back since: then it is what it may have been. */
static int explain_memory(int fd, uint64_t need, const struct pinion_alloc *args)
{
	struct pinion_info info;

	if (!kmod_info(fd, &info)) {
		if (need > info.max_buffer_bytes)
			return fail_advise(ENOMEM, PINION_ADVICE_MODULE_BUFFER_BYTES, NULL,
					   "a buffer has at most %llu bytes on the module, %llu are asked for",
					   (unsigned long long)info.max_buffer_bytes, (unsigned long long)need);
		if (is_short(info.max_user_bytes, info.user_bytes, need))
			return limit_hit(PINION_ADVICE_MODULE_USER_BYTES, "max_user_bytes", info.max_user_bytes, info.user_bytes,
					 need);
		if (is_short(info.max_bytes, info.bytes, need))
			return limit_hit(PINION_ADVICE_MODULE_BYTES, "max_bytes", info.max_bytes, info.bytes, need);
		if (need > info.memlock_bytes)
			return fail_advise(ENOMEM, PINION_ADVICE_MODULE_MEMLOCK, NULL,
					   "the buffer needs %llu bytes, RLIMIT_MEMLOCK is %llu and the module charges it",
					   (unsigned long long)need, (unsigned long long)info.memlock_bytes);
	}
	if (room_check(need, "the buffer"))
		return -ENOMEM;
	if ((args->flags & PINION_ALLOC_NODE_STRICT) && node_room_check(need, args->node))
		return -ENOMEM;
	if (args->flags & PINION_ALLOC_HUGE_REQUIRE)
		return fail_advise(ENOMEM, PINION_ADVICE_HUGE_SHORT, NULL, "the kernel found no %llu bytes in huge pages",
				   (unsigned long long)need);
	return fail_advise(ENOMEM, PINION_ADVICE_MEMORY, NULL, "the kernel found no %llu bytes that can be pinned",
			   (unsigned long long)need);
}

static int too_many(void)
{
	return fail_advise(ENOSPC, PINION_ADVICE_MODULE_USER_LIMIT, "max_user_buffers",
			   "this user has as many buffers and slices as the module allows");
}

static int alloc_failed(int fd, const struct pinion_alloc *args, int err)
{
	struct pinion_info info;

	/* Above what the module takes in one buffer it says EINVAL. */
	if (err == ENOMEM || (err == EINVAL && !kmod_info(fd, &info) && args->bytes > info.max_buffer_bytes))
		return explain_memory(fd, args->bytes, args);
	if (err == ENOSPC)
		return too_many();
	return fail_errno(err, "allocating %llu bytes from the kernel module", (unsigned long long)args->bytes);
}

/* ---- making -------------------------------------------------------------------------------------------------------- */

/* What the module shows of a buffer's name is printable and short. */
static void copy_name(char name[PINION_NAME_BYTES], const char *label)
{
	snprintf(name, PINION_NAME_BYTES, "%s", label);
	for (char *c = name; *c; c++)
		if (!isascii((unsigned char)*c) || !isprint((unsigned char)*c))
			*c = '?';
}

/* All of it, or an error: left to itself the module gives as many as there are. */
static bool wants_huge(const struct pages_request *req)
{
	return (req->pages == PINION_PAGES_HUGE || req->pages == PINION_PAGES_2M) && !req->prefer;
}

/* Kinds of hold and of pages that the module does not have. */
static bool is_for_memfd(const struct pages_request *req)
{
	return req->hold == PINION_HOLD_NONE || req->hold == PINION_HOLD_LOCKED || req->pages == PINION_PAGES_THP ||
	       req->pages == PINION_PAGES_1G;
}

static int fill_request(const struct pages_request *req, struct pinion_alloc *args, uint32_t *page_size)
{
	uint64_t bytes = 0;
	int ret;

	*page_size = sysconf(_SC_PAGESIZE);
	if (req->pages == PINION_PAGES_SMALL)
		args->flags |= PINION_ALLOC_HUGE_NEVER;
	if (wants_huge(req)) {
		args->flags |= PINION_ALLOC_HUGE_REQUIRE;
		*page_size = req->device->huge_size;
	}
	if (req->numa)
		args->node = req->node;
	if (req->numa == PINION_NUMA_STRICT)
		args->flags |= PINION_ALLOC_NODE_STRICT;
	/* Before 6.5 io_uring registers mappings of shared memory files only. */
	if (req->hold == PINION_HOLD_REGISTERED && (req->device->features & PINION_FEATURE_SHMEM)) {
		if (wants_huge(req))
			return fail(
				EOPNOTSUPP,
				"huge pages were asked for: io_uring of this kernel registers small ones only (Linux 6.5 both); "
				"leave the hold AUTO, which pins them too");
		args->flags |= PINION_ALLOC_SHMEM;
	}
	ret = pages_round(req->bytes, *page_size, &bytes);
	args->bytes = bytes;
	return ret;
}

/* The part of the pages' huge ones, which come first, that a slice shows. */
static uint64_t huge_in_slice(uint64_t offset, uint64_t bytes, uint64_t huge_end)
{
	uint64_t have = huge_end > offset ? huge_end - offset : 0;

	return have < bytes ? have : bytes;
}

static int map_pages(int fd, const struct pages *pages, int prot, int flags, void **addr)
{
	/* Where address and place in the pages agree, a huge page maps as one. */
	uint64_t align = pages->huge_bytes ? HUGE_ALIGN : (uint64_t)sysconf(_SC_PAGESIZE);

	return pages_map_aligned(fd, pages->bytes, 0, align, pages->offset % align, prot, flags, addr);
}

/* Bytes of the buffer @fd on a node. */
static uint64_t bytes_on(int device, int fd, unsigned int node)
{
	struct pinion_bufinfo info = { .size = sizeof(info), .fd = fd, .nr_nodes = node + 1, .node_size = sizeof(uint64_t) };
	uint64_t *nodes = calloc(node + 1, sizeof(*nodes)), bytes = 0;

	info.nodes = (uintptr_t)nodes;
	if (nodes && !call(device, PINION_IOC_BUFINFO, &info))
		bytes = nodes[node];
	free(nodes);
	return bytes;
}

static int kmod_pages_alloc(const struct pages_request *req, struct pages *pages, void **addr)
{
	struct pinion_alloc args = { .size = sizeof(args), .node = PINION_NODE_ANY };
	uint32_t page_size;
	int ret;

	if (is_for_memfd(req))
		return provider_memfd.pages_alloc(req, pages, addr);
	ret = req->numa ? node_check(req->node) : 0;
	if (ret)
		return ret;
	ret = fill_request(req, &args, &page_size);
	if (ret)
		return ret;
	copy_name(args.name, req->label);
	ret = call(req->device->fd, PINION_IOC_ALLOC, &args);
	if (ret)
		return alloc_failed(req->device->fd, &args, -ret);
	*pages = (struct pages){
		.ops = &provider_kmod,
		.fd = args.fd,
		.bytes = args.out_bytes,
		.page_size = page_size,
		.huge_bytes = args.out_huge_bytes,
		.got = args.out_huge_bytes ? PINION_PAGES_HUGE : PINION_PAGES_SMALL,
		.node_bytes = req->numa ? bytes_on(req->device->fd, args.fd, req->node) : 0,
		.hold = PINION_HOLD_PINNED,
		.huge_end = args.out_huge_bytes,
	};
	if (req->prefer && req->pages >= PINION_PAGES_HUGE && pages->huge_bytes < pages->bytes)
		snprintf(pages->pages_why, sizeof(pages->pages_why), "the module found no more huge pages");
	if (req->progress && req->progress(req->progress_arg, pages->bytes, pages->bytes)) {
		close(args.fd);
		return fail(ECANCELED, "the program called it off");
	}
	ret = map_pages(args.fd, pages, PROT_READ | PROT_WRITE, MAP_POPULATE, addr);
	if (!ret && req->hold == PINION_HOLD_REGISTERED) {
		ret = pages_hold(pages, PINION_HOLD_REGISTERED, *addr);
		if (ret)
			munmap(*addr, pages->bytes);
	}
	if (ret)
		close(args.fd);
	else
		pages->device = kmod_ref(req->device);
	return ret;
}

/* ---- adopting ------------------------------------------------------------------------------------------------------ */

bool kmod_may_be(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == DMA_BUF_MAGIC;
}

/* The kernel names the exporter ahead of all that a user can write into a dma-buf. */
bool kmod_exported(int fd)
{
	char path[64], line[128];
	bool ours = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "exp_name:", 9))
			continue;
		ours = !strcmp(line, "exp_name:\tpinion\n");
		break;
	}
	fclose(f);
	return ours;
}

/* For who may not open the device: the descriptor is the capability, and the kernel shows what must be known of it. */
static int look_from_outside(int fd, struct pinion_bufinfo *info)
{
	struct stat st;
	int mode = fcntl(fd, F_GETFL);

	if (mode < 0 || fstat(fd, &st) || !kmod_exported(fd))
		return -EINVAL;
	info->kind = PINION_KIND_PAGES;
	info->bytes = st.st_size;
	info->rights = PINION_RIGHT_READ | ((mode & O_ACCMODE) == O_RDWR ? PINION_RIGHT_WRITE : 0);
	return 0;
}

static int look(int fd, struct pinion_bufinfo *info)
{
	struct kmod_device *dev;
	int ret = kmod_open(O_RDONLY, &dev);

	*info = (struct pinion_bufinfo){ .size = sizeof(*info), .fd = fd };
	if (ret)
		return look_from_outside(fd, info);
	ret = call(dev->fd, PINION_IOC_BUFINFO, info);
	kmod_close(dev);
	return ret;
}

int kmod_adopt(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages)
{
	struct pinion_bufinfo info;

	if (look(fd, &info))
		return fail(EPROTO, "the descriptor received is a dma-buf, but not one of the kernel module's");
	if (info.kind == PINION_KIND_RANGE)
		return fail(EPROTO, "the buffer received is for devices only and cannot be mapped");
	if (pages_check_said(bytes, info.bytes, page_size))
		return -EPROTO;
	*pages = (struct pages){
		.ops = &provider_kmod,
		.fd = fd,
		.bytes = bytes,
		.page_size = page_size,
		.huge_bytes = huge_in_slice(info.offset, bytes, info.huge_bytes),
		.sealed = !(info.rights & PINION_RIGHT_WRITE),
		.hold = PINION_HOLD_PINNED,
		.offset = info.offset,
		.huge_end = info.huge_bytes,
	};
	return 0;
}

/* ---- importing ----------------------------------------------------------------------------------------------------- */

static int pin_failed(int fd, uint64_t bytes, int err)
{
	struct pinion_alloc args = { .bytes = bytes };

	if (err == ENOMEM)
		return explain_memory(fd, bytes, &args);
	if (err == ENOSPC)
		return too_many();
	if (err == EPERM)
		return fail(
			EPERM,
			"the module pins no memory that is sealed against writing; import it before that, or with another hold");
	return fail_errno(err, "pinning %llu bytes of a memfd by the kernel module", (unsigned long long)bytes);
}

int kmod_pin(struct kmod_device *dev, int memfd, struct pages *pages)
{
	struct pinion_pin args = { .size = sizeof(args), .flags = PINION_PIN_FD, .fd = memfd, .name = "imported" };
	struct stat st;
	int ret;

	if (fstat(memfd, &st))
		return fail_errno(errno, "asking for the size of descriptor %d", memfd);
	args.bytes = st.st_size;
	ret = call(dev->fd, PINION_IOC_PIN, &args);
	if (ret)
		return pin_failed(dev->fd, args.bytes, -ret);
	*pages = (struct pages){
		.ops = &provider_kmod,
		.fd = args.out_fd,
		.bytes = args.bytes,
		.page_size = sysconf(_SC_PAGESIZE),
		.sealed = !(args.out_rights & PINION_RIGHT_WRITE),
		.hold = PINION_HOLD_PINNED,
		.device = kmod_ref(dev),
	};
	return 0;
}

/* ---- slices -------------------------------------------------------------------------------------------------------- */

/* A new descriptor of part of the pages. */
static int slice(const struct pages *pages, uint64_t offset, uint64_t bytes, uint32_t rights)
{
	struct pinion_slice args = {
		.size = sizeof(args), .fd = pages->fd, .rights = PINION_RIGHT_READ, .offset = offset, .length = bytes
	};
	struct kmod_device *dev = kmod_ref(pages->device);
	int ret = dev ? 0 : kmod_open(O_RDWR, &dev);

	if (ret)
		return ret;
	if (rights & PINION_WRITE)
		args.rights |= PINION_RIGHT_WRITE | PINION_RIGHT_DMA_RW;
	ret = call(dev->fd, PINION_IOC_SLICE, &args);
	kmod_close(dev);
	if (ret == -ENOSPC)
		return too_many();
	if (ret)
		return fail_errno(-ret, "making a slice of a buffer");
	return args.out_fd;
}

static int kmod_pages_slice(const struct pages *pages, uint64_t offset, uint64_t bytes, uint32_t rights, struct pages *out)
{
	int fd = slice(pages, offset, bytes, rights);

	if (fd < 0)
		return fd;
	*out = *pages;
	out->fd = fd;
	out->bytes = bytes;
	out->offset += offset;
	out->huge_bytes = huge_in_slice(out->offset, bytes, pages->huge_end);
	if (pages->got != PINION_PAGES_AUTO)
		out->got = out->huge_bytes ? PINION_PAGES_HUGE : PINION_PAGES_SMALL;
	out->node_bytes = pages->node_bytes == pages->bytes ? bytes : 0;
	if (bytes % out->page_size)
		out->page_size = sysconf(_SC_PAGESIZE);
	out->sealed = !(rights & PINION_WRITE);
	out->hold = PINION_HOLD_PINNED;
	out->hold_why[0] = 0;
	out->pin = NULL;
	kmod_ref(out->device);
	return 0;
}

/* Our descriptor becomes that of a reader. The number stays, so that whoever is just sending it sends one or the other. */
static int kmod_pages_seal(struct pages *pages)
{
	int fd = slice(pages, 0, pages->bytes, PINION_READ);

	if (fd < 0)
		return fd;
	if (dup3(fd, pages->fd, O_CLOEXEC) < 0) {
		int err = errno;

		close(fd);
		return fail_errno(err, "replacing the buffer's descriptor by a reader's");
	}
	close(fd);
	pages->sealed = true;
	return 0;
}

static bool kmod_pages_sealed(const struct pages *pages)
{
	return pages->sealed;
}

static int kmod_pages_map(const struct pages *pages, uint32_t prot, void **addr)
{
	int fd, ret;

	if (prot & PINION_WRITE)
		return map_pages(pages->fd, pages, PROT_READ | PROT_WRITE, 0, addr);
	/* Through a reader's slice, so that mprotect() cannot make a writer of the mapping, sealed or not yet. */
	fd = pages->sealed ? -1 : slice(pages, 0, pages->bytes, PINION_READ);
	ret = map_pages(fd < 0 ? pages->fd : fd, pages, PROT_READ, 0, addr);
	if (fd >= 0)
		close(fd);
	return ret;
}

static void kmod_pages_close(struct pages *pages)
{
	pin_unref(pages->pin);
	close(pages->fd);
	kmod_close(pages->device);
}

const struct provider_ops provider_kmod = {
	.name = "kmod",
	.has_rights = true,
	.huge_size = kmod_huge_size,
	.pages_alloc = kmod_pages_alloc,
	.pages_close = kmod_pages_close,
	.pages_map = kmod_pages_map,
	.pages_seal = kmod_pages_seal,
	.pages_sealed = kmod_pages_sealed,
	.pages_slice = kmod_pages_slice,
};
