/* SPDX-License-Identifier: MIT */
/*
 * The memfd ground's pages: a memfd that cannot change its size, every page present before anyone sees it, pinned by an
 * io_uring registration where the kernel and RLIMIT_MEMLOCK allow it, else locked, else neither, and it says which.
 */
#include "provider.h"

#include "../advice.h"
#include "../error.h"
#include "../machine/filesize.h"
#include "../machine/mapping.h"
#include "../machine/memfile.h"
#include "../machine/room.h"
#include "hugetlb.h"
#include "node.h"
#include "populate.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/context.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define THP_DIR "/sys/kernel/mm/transparent_hugepage/"

/* The word in brackets of a sysfs file that lists its choices; "" when it cannot be read. */
static void read_choice(const char *path, char choice[32])
{
	char text[128], *open_at, *close_at;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	open_at = strchr(text, '[');
	close_at = open_at ? strchr(open_at, ']') : NULL;
	snprintf(choice, 32, "%.*s", close_at ? (int)(close_at - open_at - 1) : 0, close_at ? open_at + 1 : "");
}

static bool choice_gives(const char *choice)
{
	return !strcmp(choice, "always") || !strcmp(choice, "within_size") || !strcmp(choice, "advise") ||
	       !strcmp(choice, "force");
}

static uint32_t memfd_huge_size(const struct kmod_device *dev, const char **why)
{
	char choice[32], sized[32], path[128], text[32];
	int fd = open(THP_DIR "hpage_pmd_size", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	uint32_t bytes;

	(void)dev;
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	bytes = strtoul(text, NULL, 10);
	if (!bytes) {
		*why = "this kernel has no transparent huge pages";
		return 0;
	}
	read_choice(THP_DIR "shmem_enabled", choice);
	snprintf(path, sizeof(path), THP_DIR "hugepages-%ukB/shmem_enabled", bytes / 1024);
	read_choice(path, sized);
	if (!strcmp(choice, "deny") || (!choice_gives(choice) && !choice_gives(sized))) {
		*why = THP_DIR "shmem_enabled gives none to shared memory";
		return 0;
	}
	*why = THP_DIR "shmem_enabled gives them to shared memory";
	return bytes;
}

/* ---- making -------------------------------------------------------------------------------------------------------- */

/* One kind of page that may do. */
struct choice {
	enum pinion_pages kind;
	uint64_t size;
	bool all;     /* less than all of it in such pages is a failure */
	bool by_file; /* the file makes them itself: it does not know whether its mapping wants huge pages */
};

#define CHOICES_MAX 4

static bool from_pool(const struct choice *c)
{
	return c->kind == PINION_PAGES_2M || c->kind == PINION_PAGES_1G;
}

/* What may do, the best first. */
static unsigned int choose(const struct pages_request *req, struct choice choice[CHOICES_MAX])
{
	const char *why;
	uint64_t huge = memfd_huge_size(NULL, &why), small = sysconf(_SC_PAGESIZE);
	bool open = req->prefer || req->pages == PINION_PAGES_AUTO;
	unsigned int n = 0;

	if (req->pages == PINION_PAGES_1G)
		choice[n++] = (struct choice){ .kind = PINION_PAGES_1G, .size = HUGETLB_1G, .all = true };
	if (req->pages == PINION_PAGES_2M || req->pages == PINION_PAGES_HUGE || (n && open))
		choice[n++] = (struct choice){ .kind = PINION_PAGES_2M, .size = HUGETLB_2M, .all = true };
	if (!open && (req->pages == PINION_PAGES_HUGE || req->pages == PINION_PAGES_THP))
		choice[n++] = (struct choice){ .kind = PINION_PAGES_THP, .size = huge, .all = true };
	if (open && req->pages != PINION_PAGES_SMALL && huge && req->bytes >= huge)
		choice[n++] = (struct choice){ .kind = PINION_PAGES_THP, .size = huge };
	else if (open || req->pages == PINION_PAGES_SMALL)
		choice[n++] = (struct choice){ .kind = PINION_PAGES_SMALL, .size = small, .by_file = !huge };
	return n;
}

static int room_anywhere(const struct populate *p, uint64_t need)
{
	int ret = room_check(need, "the buffer");

	return ret || p->node < 0 ? ret : node_room_check(need, p->node);
}

/* Whether it can be had at all; no more than a look, so it comes before anything is made. */
static int check_room(const struct choice *c, const struct pages *pages, int node)
{
	struct populate p = { .node = node };
	const char *why;

	if (from_pool(c))
		return hugetlb_check(pages->bytes, c->size, node);
	if (!c->size) {
		memfd_huge_size(NULL, &why);
		return fail_advise(EOPNOTSUPP, PINION_ADVICE_SHMEM_THP_OFF, NULL, "huge pages were asked for: %s", why);
	}
	return room_anywhere(&p, pages->bytes);
}

static int make_file(const struct pages_request *req, const struct choice *c, struct pages *pages)
{
	unsigned int pool = from_pool(c) ? hugetlb_memfd_flags(c->size) : 0;
	int ret = filesize_check("the buffer", pages->bytes);

	if (ret)
		return ret;
	pages->fd = memfile_create(req->label, pool);
	if (pages->fd < 0)
		return fail_errno(-pages->fd, "memfd_create");
	ret = ftruncate(pages->fd, pages->bytes) ?
		      fail_errno(errno, "sizing a memfd to %llu bytes", (unsigned long long)pages->bytes) :
		      0;
	if (!ret && fcntl(pages->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		ret = fail_errno(errno, "sealing a memfd's size");
	if (ret)
		close(pages->fd);
	return ret;
}

uint64_t memfd_missing(const struct pages *pages)
{
	struct stat st;
	uint64_t have = fstat(pages->fd, &st) ? 0 : (uint64_t)st.st_blocks * 512;

	return have < pages->bytes ? pages->bytes - have : 0;
}

/*
 * Of a pool somebody took what was free a moment ago, or a control group allows fewer: the sentence is to name it. Pages are
 * reserved by the mapping, and come, or not, when they are touched.
 */
static int map_failed(int ret, const struct pages *pages, int node)
{
	if (ret == -ENOMEM && pages_of_pool(pages))
		hugetlb_check(memfd_missing(pages), pages->page_size, node);
	return ret;
}

static int coming_failed(int ret, const struct pages *pages, int node)
{
	if (ret == -ENOMEM && pages_of_pool(pages))
		hugetlb_check_reserved(memfd_missing(pages), pages->page_size, node);
	return ret;
}

/* Where the pages are to be, what kind they are, and that they are there. */
static int fill(const struct pages_request *req, const struct choice *c, struct pages *pages, char *addr)
{
	struct populate p = {
		.addr = addr,
		.bytes = pages->bytes,
		.file = c->by_file ? pages->fd : 0,
		.missing = pages->bytes,
		.room = from_pool(c) ? NULL : room_anywhere,
		.node = req->numa == PINION_NUMA_STRICT ? (int)req->node : -1,
		.progress = req->progress,
		.progress_arg = req->progress_arg,
	};
	int ret = req->numa ? node_bind(addr, pages->bytes, req->numa, req->node) : 0;

	if (ret)
		return ret;
	if (!from_pool(c))
		madvise(addr, pages->bytes, c->kind == PINION_PAGES_THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return coming_failed(populate(&p), pages, p.node);
}

/* What came of it, and whether it is what must be. */
static int look_at_pages(const struct pages_request *req, const struct choice *c, struct pages *pages, void *addr)
{
	uint64_t step = from_pool(c) ? c->size : (uint64_t)sysconf(_SC_PAGESIZE);
	int ret = 0;

	if (c->kind != PINION_PAGES_SMALL)
		pages->huge_bytes = from_pool(c) ? pages->bytes : mapping_huge_bytes(addr, pages->bytes);
	if (c->all && pages->huge_bytes < pages->bytes)
		return fail_advise(ENOMEM, PINION_ADVICE_HUGE_SHORT, NULL, "the kernel gave %llu of %llu bytes in huge pages",
				   (unsigned long long)pages->huge_bytes, (unsigned long long)pages->bytes);
	if (req->numa)
		ret = node_count(addr, pages->bytes, step, req->node, &pages->node_bytes);
	if (!ret && req->numa == PINION_NUMA_STRICT && pages->node_bytes < pages->bytes)
		ret = fail_advise(ENOMEM, PINION_ADVICE_MEMORY, NULL, "of %llu bytes NUMA node %u gave %llu",
				  (unsigned long long)pages->bytes, req->node, (unsigned long long)pages->node_bytes);
	return ret;
}

static int make(const struct pages_request *req, const struct choice *c, struct pages *pages, void **addr)
{
	int node = req->numa == PINION_NUMA_STRICT ? (int)req->node : -1, ret;

	*pages = (struct pages){ .ops = &provider_memfd, .fd = -1, .page_size = c->size, .got = c->kind };
	ret = pages_round(req->bytes, c->size ? c->size : 1, &pages->bytes);
	if (!ret)
		ret = check_room(c, pages, node);
	if (!ret)
		ret = make_file(req, c, pages);
	if (ret)
		return ret;
	ret = map_failed(pages_map_aligned(pages->fd, pages->bytes, 0, c->size, 0, PROT_READ | PROT_WRITE, 0, addr), pages, node);
	if (ret)
		goto err_close;
	ret = fill(req, c, pages, *addr);
	if (!ret)
		ret = look_at_pages(req, c, pages, *addr);
	if (!ret)
		ret = pages_hold(pages, req->hold, *addr);
	if (!ret)
		return 0;
	munmap(*addr, pages->bytes);
err_close:
	close(pages->fd);
	return ret;
}

/* Another kind of page may do better only where this one is short or not to be had. */
static bool worth_another(int ret)
{
	return ret == -ENOMEM || ret == -EOPNOTSUPP;
}

/* The present sentence and, of an earlier failure, @first, whole, so that what is said ends in what to type. */
static int fail_both(int err, const char *first)
{
	char second[SENTENCE_MAX];
	size_t taken = strlen("; and ") + strlen(first);

	if (taken + SENTENCE_LEAST / 2 >= SENTENCE_MAX)
		return fail(err, "%s", first);
	sentence_fit(second, SENTENCE_MAX - taken, pinion_error());
	return fail(err, "%s; and %s", second, first);
}

static int memfd_pages_alloc(const struct pages_request *req, struct pages *pages, void **addr)
{
	struct choice choice[CHOICES_MAX];
	unsigned int n, i = 0;
	char why[SENTENCE_MAX] = "";
	int ret, first = 0;

	if (req->hold == PINION_HOLD_PINNED)
		return pages_need_module();
	ret = req->numa ? node_check(req->node) : 0;
	if (ret)
		return ret;
	n = choose(req, choice);
	for (ret = make(req, &choice[0], pages, addr); worth_another(ret) && ++i < n; ret = make(req, &choice[i], pages, addr))
		if (i == 1) {
			first = ret;
			sentence_get(why);
		}
	if (!ret)
		sentence_fit(pages->pages_why, sizeof(pages->pages_why), why);
	else if (*why && !req->prefer)
		return fail_both(first == -ENOMEM ? ENOMEM : -ret, why);
	return ret;
}

/* ---- adopting ------------------------------------------------------------------------------------------------------ */

int memfd_adopt(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages)
{
	int seals = fcntl(fd, F_GET_SEALS), ret;
	uint64_t pool = hugetlb_page_of(fd);
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return fail(EPROTO,
			    "the descriptor received is neither a memfd whose size is sealed nor the module's, so it could "
			    "shrink under us");
	if (pool && pool != page_size)
		return fail(EPROTO, "the buffer received is said to have pages of %u bytes and has pages of %llu", page_size,
			    (unsigned long long)pool);
	if (pool && !(seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)))
		return fail(EPROTO,
			    "the buffer received is of a pool of huge pages and its writers could take pages away under us; it "
			    "is to be handed out with PINION_READ");
	ret = pages_check_said(bytes, fstat(fd, &st) || st.st_size < 0 ? 0 : st.st_size, page_size);
	if (ret)
		return ret;
	*pages = (struct pages){
		.ops = &provider_memfd,
		.fd = fd,
		.bytes = bytes,
		.page_size = page_size,
		.huge_bytes = pool ? bytes : 0,
		.got = pool == HUGETLB_2M ? PINION_PAGES_2M :
		       pool == HUGETLB_1G ? PINION_PAGES_1G :
					    PINION_PAGES_AUTO,
		.sealed = seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE),
		.hold = PINION_HOLD_NONE,
		.hold_why = "held, if at all, by the process it came from",
	};
	return 0;
}

/* ---- the ops ------------------------------------------------------------------------------------------------------- */

static bool memfd_pages_sealed(const struct pages *pages)
{
	int seals = fcntl(pages->fd, F_GET_SEALS);

	return seals >= 0 && (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE));
}

static int memfd_pages_seal(struct pages *pages)
{
	if (!memfd_pages_sealed(pages) && fcntl(pages->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)) {
		if (errno == EPERM && (fcntl(pages->fd, F_GET_SEALS) & F_SEAL_SEAL))
			return fail(EOPNOTSUPP,
				    "the memfd takes no more seals: it was exported as a dma-buf, which may be written "
				    "whatever they say, or made so; seal before");
		return fail_errno(errno, "sealing the buffer against new writers (F_SEAL_FUTURE_WRITE, Linux 5.1)");
	}
	pages->sealed = true;
	return 0;
}

static int memfd_pages_map(const struct pages *pages, uint32_t prot, void **addr)
{
	uint64_t phase = pages->offset % pages->page_size;
	char path[64];
	int fd, ret;

	if (prot & PINION_WRITE)
		return pages_map_aligned(pages->fd, pages->bytes, pages->offset, pages->page_size, phase, PROT_READ | PROT_WRITE,
					 0, addr);
	/* Through a descriptor that cannot write, so that mprotect() cannot make a writer of the mapping, sealed or not yet. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pages->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ret = pages_map_aligned(fd < 0 ? pages->fd : fd, pages->bytes, pages->offset, pages->page_size, phase, PROT_READ, 0,
				addr);
	if (fd >= 0)
		close(fd);
	return ret;
}

static void memfd_pages_close(struct pages *pages)
{
	pin_unref(pages->pin);
	close(pages->fd);
}

/* ---- importing ----------------------------------------------------------------------------------------------------- */

/* No access may ever be a bus fault, so the size is sealed; and no reader may find that he could have been a writer. */
int memfd_check_import(int fd)
{
	uint64_t pool = hugetlb_page_of(fd), page = pool ? pool : (uint64_t)sysconf(_SC_PAGESIZE);
	int seals = fcntl(fd, F_GET_SEALS), mode = fcntl(fd, F_GETFL);
	bool sealed = seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE);
	struct stat st;

	if (seals < 0 || mode < 0 || fstat(fd, &st))
		return fail_errno(errno, "asking what descriptor %d is", fd);
	if (!(seals & F_SEAL_SHRINK))
		return fail(EINVAL, "the file could shrink under us, which makes an access a bus fault: %s",
			    seals & F_SEAL_SEAL ? "and it takes no seals; make it by memfd_create() with MFD_ALLOW_SEALING" :
						  "fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) first");
	if (pool && !sealed)
		return fail(
			EINVAL,
			"the file is of a pool of huge pages, and who may write it could take pages away under us, which makes "
			"an access a bus fault: fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) first");
	if (!sealed && (mode & O_ACCMODE) != O_RDWR)
		return fail(EACCES,
			    "the descriptor is not open for reading and writing, and the file not sealed against writing: "
			    "open it O_RDWR, or F_SEAL_FUTURE_WRITE first");
	if (!st.st_size || st.st_size % page)
		return fail(EINVAL,
			    "the file has %llu bytes, not one or more pages of %llu: ftruncate() it before its size is sealed",
			    (unsigned long long)st.st_size, (unsigned long long)page);
	return 0;
}

/* What is not there yet comes now: a hole is found short of memory here, not at an access. */
static int fill_holes(const struct pages *pages, void *addr)
{
	struct populate p = { .addr = addr,
			      .bytes = pages->bytes,
			      .for_reading = pages->sealed,
			      .missing = memfd_missing(pages),
			      .room = pages_of_pool(pages) ? NULL : room_anywhere,
			      .node = -1 };
	int ret;

	if (!p.missing)
		return 0;
	ret = p.room ? p.room(&p, p.missing) : hugetlb_check_reserved(p.missing, pages->page_size, -1);
	return ret ? ret : coming_failed(populate(&p), pages, -1);
}

int memfd_import(int fd, enum pinion_hold hold, struct pages *pages, void **addr)
{
	uint64_t pool = hugetlb_page_of(fd), page = pool ? pool : (uint64_t)sysconf(_SC_PAGESIZE);
	struct stat st;
	void *map;
	int ret = memfd_check_import(fd);

	if (!ret && fstat(fd, &st))
		ret = fail_errno(errno, "asking for the size of a memfd");
	if (!ret)
		ret = memfd_adopt(fd, st.st_size, page, pages);
	if (!ret)
		ret = map_failed(memfd_pages_map(pages, pages->sealed ? PINION_READ : PINION_READ | PINION_WRITE, &map), pages,
				 -1);
	if (ret)
		return ret;
	ret = fill_holes(pages, map);
	if (!ret)
		ret = pages_hold(pages, hold, map);
	/* The program has its descriptor still. */
	if (!ret && !pages->sealed)
		pin_let_out(pages->pin);
	if (ret || pages->hold != PINION_HOLD_LOCKED)
		munmap(map, pages->bytes);
	if (!ret)
		*addr = pages->hold == PINION_HOLD_LOCKED ? map : NULL;
	return ret;
}

const struct provider_ops provider_memfd = {
	.name = "memfd",
	.huge_size = memfd_huge_size,
	.pages_alloc = memfd_pages_alloc,
	.pages_close = memfd_pages_close,
	.pages_map = memfd_pages_map,
	.pages_seal = memfd_pages_seal,
	.pages_sealed = memfd_pages_sealed,
	.pages_slice = pages_window,
};
