/* SPDX-License-Identifier: MIT */
#include "dmabuf.h"

#include "../advice.h"
#include "../error.h"
#include "../machine/cgroup.h"
#include "provider.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define UDMABUF	    "/dev/udmabuf"
#define LIMIT_BYTES "/sys/module/udmabuf/parameters/size_limit_mb"

/* ---- of other drivers ---------------------------------------------------------------------------------------------- */

/* Who made it, as the kernel names him; "?" where /proc does not show it. */
static void exporter(int fd, char name[32])
{
	char path[64], line[128];
	FILE *f;

	snprintf(name, 32, "?");
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "exp_name: %31s", name) == 1)
			break;
	fclose(f);
}

int dmabuf_adopt(int fd, struct pages *pages)
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	off_t bytes = lseek(fd, 0, SEEK_END);
	int mode = fcntl(fd, F_GETFL);
	char name[32];
	void *try;

	exporter(fd, name);
	if (bytes <= 0 || bytes % page || mode < 0)
		return fail(EINVAL, "a dma-buf of '%s' with %lld bytes, not one or more pages", name, (long long)bytes);
	try = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
	if (try == MAP_FAILED)
		return fail(EOPNOTSUPP, "the dma-buf's exporter '%s' lets nobody map it: %s", name, strerrordesc_np(errno));
	munmap(try, page);
	*pages = (struct pages){
		.ops = &provider_dmabuf,
		.fd = fd,
		.bytes = bytes,
		.page_size = page,
		.sealed = (mode & O_ACCMODE) != O_RDWR,
		.hold = PINION_HOLD_NONE,
	};
	snprintf(pages->hold_why, sizeof(pages->hold_why), "held by its exporter, '%s', as that sees fit", name);
	return 0;
}

static int foreign_pages_map(const struct pages *pages, uint32_t prot, void **addr)
{
	return pages_map_aligned(pages->fd, pages->bytes, pages->offset, pages->page_size, 0,
				 prot & PINION_WRITE ? PROT_READ | PROT_WRITE : PROT_READ, 0, addr);
}

static int foreign_pages_seal(struct pages *pages)
{
	(void)pages;
	return fail(EOPNOTSUPP, "a dma-buf of another driver cannot be sealed");
}

static bool foreign_pages_sealed(const struct pages *pages)
{
	return pages->sealed;
}

static void foreign_pages_close(struct pages *pages)
{
	close(pages->fd);
}

const struct provider_ops provider_dmabuf = {
	.name = "dma-buf",
	.is_foreign = true,
	.pages_close = foreign_pages_close,
	.pages_map = foreign_pages_map,
	.pages_seal = foreign_pages_seal,
	.pages_sealed = foreign_pages_sealed,
	.pages_slice = pages_window,
};

int dmabuf_sync(int fd, uint32_t rights, bool begin)
{
	struct dma_buf_sync sync = { .flags = begin ? DMA_BUF_SYNC_START : DMA_BUF_SYNC_END };
	int ret;

	sync.flags |= DMA_BUF_SYNC_READ | (rights & PINION_WRITE ? DMA_BUF_SYNC_WRITE : 0);
	do {
		ret = ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
	} while (ret && (errno == EINTR || errno == EAGAIN));
	return ret ? fail_errno(errno, "%s the CPU's access to a dma-buf", begin ? "beginning" : "ending") : 0;
}

/* ---- of our memory ------------------------------------------------------------------------------------------------- */

static int open_failed(int err)
{
	if (err == ENOENT || err == ENODEV || err == ENXIO)
		return fail_advise(EOPNOTSUPP, PINION_ADVICE_UDMABUF_ABSENT, NULL,
				   "there is no " UDMABUF ", which makes a dma-buf of a memfd: this kernel was built without "
				   "CONFIG_UDMABUF, or its module is not loaded; the kernel module of pinion needs none");
	if (err == EACCES || err == EPERM)
		return fail_advise(EACCES, PINION_ADVICE_UDMABUF_ACCESS, NULL,
				   "this user may not open " UDMABUF ", whose group ls -l " UDMABUF " shows");
	return fail_errno(err, "opening " UDMABUF);
}

static int create_failed(uint64_t bytes, int err)
{
	char enough[24];
	uint64_t limit;

	if (err != EINVAL || !cgroup_read_number(LIMIT_BYTES, &limit) || bytes >> 20 <= limit)
		return fail_errno(err, "making a dma-buf of %llu bytes of a memfd (udmabuf)", (unsigned long long)bytes);
	snprintf(enough, sizeof(enough), "%llu", (unsigned long long)((bytes + 0xfffff) >> 20));
	return fail_advise(EINVAL, PINION_ADVICE_UDMABUF_LIMIT, enough,
			   "a dma-buf of %llu bytes is more than udmabuf's size_limit_mb, %llu MiB", (unsigned long long)bytes,
			   (unsigned long long)limit);
}

static int create(int device, const struct pages *pages)
{
	struct udmabuf_create args = {
		.memfd = pages->fd, .flags = UDMABUF_FLAGS_CLOEXEC, .offset = pages->offset, .size = pages->bytes
	};
	int fd = ioctl(device, UDMABUF_CREATE, &args), seals;

	if (fd < 0)
		return create_failed(pages->bytes, errno);
	/* Whoever sealed it meanwhile believes that nobody writes it any more. */
	seals = fcntl(pages->fd, F_GET_SEALS);
	if (!(seals & F_SEAL_SEAL))
		fcntl(pages->fd, F_ADD_SEALS, F_SEAL_SEAL);
	seals = fcntl(pages->fd, F_GET_SEALS);
	if (seals < 0 || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))) {
		close(fd);
		return fail(EPERM, "the buffer was sealed; a dma-buf of it could be written");
	}
	return fd;
}

int dmabuf_of_memfd(const struct pages *pages)
{
	int device, fd;

	if (pages->reader || pages->ops->pages_sealed(pages))
		return fail(EPERM, "the buffer is read-only, and a dma-buf of it could be written");
	device = open(UDMABUF, O_RDWR | O_CLOEXEC);
	if (device < 0)
		return open_failed(errno);
	fd = create(device, pages);
	close(device);
	return fd;
}
