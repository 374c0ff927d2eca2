/* SPDX-License-Identifier: MIT */
/* import: buffers over memory that a program has already, a memfd or a dma-buf. */
#include "../context.h"
#include "../error.h"
#include "../provider/dmabuf.h"
#include "../provider/kmod.h"
#include "buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* The module pins it where that was asked for, or where the context stands on it and it can be had. */
static int import_memfd(struct pinion_context *ctx, int fd, enum pinion_hold hold, struct pages *pages, void **addr)
{
	int ret;

	if (hold == PINION_HOLD_PINNED && !ctx->device)
		return pages_need_module();
	if (hold != PINION_HOLD_PINNED && (hold != PINION_HOLD_AUTO || !ctx->device))
		return memfd_import(fd, hold, pages, addr);
	ret = memfd_check_import(fd);
	if (!ret)
		ret = kmod_pin(ctx->device, fd, pages);
	if (!ret)
		close(fd);
	else if (hold == PINION_HOLD_AUTO)
		ret = memfd_import(fd, hold, pages, addr);
	return ret;
}

static int import_dmabuf(int fd, enum pinion_hold hold, struct pages *pages)
{
	bool ours = kmod_exported(fd);

	if (hold != PINION_HOLD_AUTO && hold != (ours ? PINION_HOLD_PINNED : PINION_HOLD_NONE))
		return fail(EOPNOTSUPP, "how a dma-buf is held is its exporter's choice: leave the hold AUTO");
	if (ours)
		return kmod_adopt(fd, lseek(fd, 0, SEEK_END), sysconf(_SC_PAGESIZE), pages);
	return dmabuf_adopt(fd, pages);
}

/* Takes over @fd. */
static int import(struct pinion_context *ctx, int fd, enum pinion_hold hold, struct pages *pages, void **addr)
{
	*addr = NULL;
	if (fcntl(fd, F_GET_SEALS) >= 0)
		return import_memfd(ctx, fd, hold, pages, addr);
	if (kmod_may_be(fd))
		return import_dmabuf(fd, hold, pages);
	return fail(EINVAL, "the descriptor is neither a memfd nor a dma-buf; other files can change their size under us");
}

PINION_API int pinion_buffer_import(struct pinion_context *ctx, int fd, const struct pinion_import_opts *opts,
				    struct pinion_buffer **out)
{
	struct pinion_import_opts own = { .size = sizeof(own) };
	struct pages pages;
	void *addr;
	int mine, ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&own, sizeof(own), opts, "pinion_import_opts");
	if (!ret && own.hold > PINION_HOLD_PINNED)
		ret = fail(EINVAL, "pinion_import_opts.hold is %d, not one of enum pinion_hold", own.hold);
	if (ret)
		return ret;
	mine = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (mine < 0)
		return fail_errno(errno, "duplicating descriptor %d", fd);
	ret = import(ctx, mine, own.hold, &pages, &addr);
	if (ret) {
		close(mine);
		return ret;
	}
	ret = buffer_new(&pages, NULL, out);
	if (!ret)
		*(pages.sealed ? &(*out)->reader.addr : &(*out)->writer.addr) = addr;
	else {
		if (addr)
			munmap(addr, pages.bytes);
		pages.ops->pages_close(&pages);
	}
	return ret;
}
