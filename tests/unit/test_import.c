/* SPDX-License-Identifier: MIT */
/* Buffers over memory that a program has already, and dma-bufs of buffers. */
#include "ground.h"
#include "harness.h"
#include "setting.h"

#include <linux/udmabuf.h>
#include <pinion/pinion.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define MIB	      (UINT64_C(1) << 20)
#define BOTH	      (PINION_READ | PINION_WRITE)
#define POOL	      "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
#define UDMABUF	      "/dev/udmabuf"
#define UDMABUF_LIMIT "/sys/module/udmabuf/parameters/size_limit_mb"

static struct pinion_context *ctx;
static struct setting set;
static unsigned int fds_before;

static void setup(void)
{
	set = (struct setting){ .alive = -1, .lock = -1 };
	ck_ok(pinion_open(NULL, &ctx));
	fds_before = fds_open();
}

static void teardown(void)
{
	setting_end(&set);
	ck_assert_uint_eq(fds_open(), fds_before);
	pinion_close(ctx);
}

static int memory(uint64_t bytes, int seals)
{
	int fd = memfd_create("theirs", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	if (seals)
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int import(int fd, enum pinion_hold hold, struct pinion_buffer **buf)
{
	struct pinion_import_opts opts = { .size = sizeof(opts), .hold = hold };

	return pinion_buffer_import(ctx, fd, &opts, buf);
}

static struct pinion_buffer_info info_of(struct pinion_buffer *buf)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };

	ck_ok(pinion_buffer_info(buf, &info));
	return info;
}

static void refused(int fd, int err, const char *word)
{
	struct pinion_buffer *buf = (void *)1;

	ck_assert_int_eq(pinion_buffer_import(ctx, fd, NULL, &buf), -err);
	ck_assert_ptr_eq(buf, (void *)1);
	ck_assert_msg(strstr(pinion_error(), word) != NULL, "%s", pinion_error());
}

static void expect_bytes(int fd, uint64_t at, const char *text)
{
	char got[32] = "";

	ck_assert_int_eq(pread(fd, got, strlen(text), at), strlen(text));
	ck_assert_str_eq(got, text);
}

/* ---- memfds ------------------------------------------------------------------------------------------------------ */

START_TEST(a_memfd_whose_size_is_sealed_is_a_buffer)
{
	int fd = memory(3 * MIB, F_SEAL_SHRINK);
	unsigned char there[3 * 256];
	struct pinion_buffer *buf = NULL;
	char *w, *r;

	ck_assert_int_eq(pwrite(fd, "before", 6, 2 * MIB), 6);
	ck_ok(pinion_buffer_import(ctx, fd, NULL, &buf));
	ck_assert_uint_eq(pinion_buffer_size(buf), 3 * MIB);
	ck_assert_uint_eq(info_of(buf).rights, BOTH);
	ck_assert_int_eq(info_of(buf).hold == PINION_HOLD_PINNED, on_module(ctx));
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&r));
	ck_assert_int_eq(memcmp(r + 2 * MIB, "before", 6), 0);
	memcpy(w + MIB, "after", 5);
	expect_bytes(fd, MIB, "after");
	/* What were holes is there. */
	ck_assert_int_eq(mincore(r, 3 * MIB, there), 0);
	for (unsigned int i = 0; i < sizeof(there); i++)
		ck_assert_msg(there[i] & 1, "page %u is not there", i);
	close(fd);
	ck_assert_int_eq(memcmp(r + MIB, "after", 5), 0);
	ck_ok(pinion_buffer_cpu_begin(buf, BOTH));
	ck_ok(pinion_buffer_cpu_end(buf, BOTH));
	pinion_buffer_unref(buf);
}
END_TEST

START_TEST(a_memfd_that_could_shrink_is_refused_with_what_to_do)
{
	int fd = memory(MIB, 0), unsealable = memfd_create("unsealable", MFD_CLOEXEC);
	struct pinion_buffer *buf = NULL;
	volatile char *r;

	refused(fd, EINVAL, "F_SEAL_SHRINK");
	ck_assert_int_eq(ftruncate(unsealable, MIB), 0);
	refused(unsealable, EINVAL, "MFD_ALLOW_SEALING");
	close(unsealable);
	/* What it says to do, done: nobody can take the memory away. */
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	ck_ok(pinion_buffer_import(ctx, fd, NULL, &buf));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&r));
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(pwrite(fd, "x", 1, MIB - 1), 1);
	ck_assert_int_eq(r[MIB - 1], 'x');
	/* A hole that is made later reads as zeros. */
	if (!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB))
		ck_assert_int_eq(r[MIB - 1], 0);
	/* It may grow, which changes nothing here. */
	ck_assert_int_eq(ftruncate(fd, 2 * MIB), 0);
	ck_assert_uint_eq(pinion_buffer_size(buf), MIB);
	pinion_buffer_unref(buf);
	close(fd);
}
END_TEST

START_TEST(what_is_no_memory_is_refused)
{
	char path[256];
	int fd, sock[2];

	snprintf(path, sizeof(path), "%s/file", test_tmp());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(ftruncate(fd, MIB), 0);
	refused(fd, EINVAL, "");
	close(fd);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock), 0);
	refused(sock[0], EINVAL, "neither");
	close(sock[0]);
	close(sock[1]);
	refused(-1, EBADF, "descriptor");
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	refused(fd, EINVAL, "neither");
	close(fd);
	fd = memory(0, F_SEAL_SHRINK);
	refused(fd, EINVAL, "ftruncate");
	close(fd);
	fd = memory(MIB + 100, F_SEAL_SHRINK);
	refused(fd, EINVAL, "ftruncate");
	close(fd);
	fd = memory(MIB, F_SEAL_SHRINK);
	ck_assert_int_eq(import(fd, PINION_HOLD_PINNED + 1, &(struct pinion_buffer *){ NULL }), -EINVAL);
	close(fd);
}
END_TEST

static int reopen(int fd, int flags)
{
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	ck_assert_int_ge(again, 0);
	return again;
}

START_TEST(rights_are_those_of_the_seals)
{
	int fd = memory(MIB, F_SEAL_SHRINK), reader = reopen(fd, O_RDONLY);
	struct pinion_buffer *buf = NULL;
	void *addr;

	ck_assert_int_eq(pwrite(fd, "sealed", 6, 0), 6);
	refused(reader, EACCES, "O_RDWR");
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	for (int i = 0; i < 2; i++) {
		ck_ok(pinion_buffer_import(ctx, i ? reader : fd, NULL, &buf));
		ck_assert_uint_eq(info_of(buf).rights, PINION_READ);
		ck_assert_int_eq(pinion_buffer_map(buf, BOTH, &addr), -EPERM);
		ck_ok(pinion_buffer_map(buf, PINION_READ, &addr));
		ck_assert_int_eq(memcmp(addr, "sealed", 6), 0);
		ck_ok(pinion_buffer_seal(buf));
		pinion_buffer_unref(buf);
	}
	close(reader);
	ck_assert_int_eq(import(fd, PINION_HOLD_REGISTERED, &(struct pinion_buffer *){ NULL }), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "sealed"));
	ck_ok(import(fd, PINION_HOLD_LOCKED, &buf));
	ck_assert_int_eq(info_of(buf).hold, PINION_HOLD_LOCKED);
	ck_ok(pinion_buffer_map(buf, PINION_READ, &addr));
	ck_ok(pinion_buffer_unmap(buf, PINION_READ));
	ck_assert_int_eq(info_of(buf).hold, PINION_HOLD_LOCKED);
	pinion_buffer_unref(buf);
	close(fd);
}
END_TEST

START_TEST(an_import_is_held_as_it_was_asked_for)
{
	for (enum pinion_hold hold = PINION_HOLD_NONE; hold <= PINION_HOLD_PINNED; hold++) {
		int fd = memory(MIB, F_SEAL_SHRINK), ret;
		struct pinion_buffer *buf = NULL;

		ret = import(fd, hold, &buf);
		close(fd);
		if (hold == PINION_HOLD_PINNED && !on_module(ctx)) {
			ck_assert_int_eq(ret, -EOPNOTSUPP);
			ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_MODULE_NEEDED);
			continue;
		}
		ck_ok(ret);
		ck_assert_int_eq(info_of(buf).hold, hold);
		pinion_buffer_unref(buf);
	}
}
END_TEST

START_TEST(an_import_is_handed_on_and_seen_by_all)
{
	int fd = memory(MIB, F_SEAL_SHRINK), sock[2];
	struct pinion_buffer *buf = NULL, *got = NULL;
	char *w, *r;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	ck_ok(import(fd, PINION_HOLD_NONE, &buf));
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	ck_ok(pinion_buffer_send(buf, sock[0], BOTH));
	ck_ok(pinion_buffer_recv(ctx, sock[1], &got));
	ck_ok(pinion_buffer_map(got, PINION_READ, (void **)&r));
	memcpy(w, "all", 3);
	ck_assert_int_eq(memcmp(r, "all", 3), 0);
	expect_bytes(fd, 0, "all");
	ck_ok(pinion_buffer_seal(buf));
	ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
	pinion_buffer_unref(got);
	pinion_buffer_unref(buf);
	close(fd);
	close(sock[0]);
	close(sock[1]);
}
END_TEST

START_TEST(what_a_buffer_exports_can_be_imported)
{
	struct pinion_buffer *buf = NULL, *twin = NULL;
	char *w, *r;
	int fd;

	ck_ok(pinion_buffer_alloc(ctx, MIB, NULL, &buf));
	fd = pinion_buffer_export(buf);
	ck_ok(pinion_buffer_import(ctx, fd, NULL, &twin));
	close(fd);
	ck_assert_int_eq(info_of(twin).hold == PINION_HOLD_PINNED, on_module(ctx));
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	ck_ok(pinion_buffer_map(twin, PINION_READ, (void **)&r));
	w[77] = 7;
	ck_assert_int_eq(r[77], 7);
	pinion_buffer_unref(twin);
	pinion_buffer_unref(buf);
}
END_TEST

START_TEST(memory_of_a_pool_must_be_sealed_against_its_writers)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .pages = PINION_PAGES_2M, .hold = PINION_HOLD_NONE };
	struct pinion_buffer *buf = NULL;
	char pages[32] = "";
	int fd, sock[2];
	void *addr;

	/* It has fewer than were written where memory is in pieces. */
	if (access(POOL, W_OK) || !setting_begin(&set, POOL, "4") || !setting_read(POOL, pages, sizeof(pages)) || strcmp(pages, "4")) {
		setting_end(&set);
		SKIP("the pool of huge pages cannot be made larger here");
	}
	fd = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | 21u << 26);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 4 * MIB), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	refused(fd, EINVAL, "F_SEAL_FUTURE_WRITE");
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	ck_ok(import(fd, PINION_HOLD_NONE, &buf));
	ck_assert_int_eq(info_of(buf).pages, PINION_PAGES_2M);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * MIB), -1);
	ck_ok(pinion_buffer_map(buf, PINION_READ, &addr));
	ck_assert_int_eq(((volatile char *)addr)[4 * MIB - 1], 0);
	pinion_buffer_unref(buf);
	close(fd);
	/* So one of our own goes to readers, and no slice of it is a part of a page. */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	opts.hold = PINION_HOLD_LOCKED;
	ck_ok(pinion_buffer_alloc(ctx, 4 * MIB, &opts, &buf));
	if (!on_module(ctx)) {
		struct pinion_buffer *part = NULL;

		ck_assert_int_eq(pinion_buffer_send(buf, sock[0], BOTH), -EOPNOTSUPP);
		ck_assert_int_eq(pinion_buffer_slice(buf, 4096, 4096, BOTH, &part), -EINVAL);
		ck_ok(pinion_buffer_slice(buf, 2 * MIB, 2 * MIB, BOTH, &part));
		ck_ok(pinion_buffer_map(part, BOTH, &addr));
		memset(addr, 1, 2 * MIB);
		pinion_buffer_unref(part);
	}
	pinion_buffer_unref(buf);
	close(sock[0]);
	close(sock[1]);
}
END_TEST

START_TEST(an_import_that_is_short_of_memory_is_refused)
{
	/* More than there is, and still an address for each byte, which is not so on every kernel. */
	int fd = memory(4 * (uint64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), F_SEAL_SHRINK);
	struct pinion_buffer *buf = NULL;

	ck_assert_int_eq(import(fd, PINION_HOLD_NONE, &buf), -ENOMEM);
	ck_assert_msg(strstr(pinion_error(), "MemAvailable") != NULL, "it says: %s", pinion_error());
	ck_assert_ptr_null(buf);
	close(fd);
}
END_TEST

/* ---- dma-bufs ---------------------------------------------------------------------------------------------------- */

/* A dma-buf of another driver over new memory, whose memfd comes back in *@memfd. -1: there is none here. */
static int foreign(uint64_t bytes, int *memfd)
{
	int device = open(UDMABUF, O_RDWR | O_CLOEXEC), fd;
	struct udmabuf_create args = { .flags = UDMABUF_FLAGS_CLOEXEC, .size = bytes };

	if (device < 0)
		return -1;
	*memfd = memory(bytes, F_SEAL_SHRINK);
	args.memfd = *memfd;
	fd = ioctl(device, UDMABUF_CREATE, &args);
	close(device);
	ck_assert_int_ge(fd, 0);
	return fd;
}

START_TEST(a_dma_buf_of_another_driver_is_a_buffer_and_goes_no_further)
{
	int memfd, fd = foreign(MIB, &memfd), sock[2];
	struct pinion_buffer *buf = NULL, *part = NULL;
	char *w, *r;

	if (fd < 0)
		SKIP("there is no " UDMABUF " to make one");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	ck_assert_int_eq(import(fd, PINION_HOLD_REGISTERED, &buf), -EOPNOTSUPP);
	ck_ok(pinion_buffer_import(ctx, fd, NULL, &buf));
	close(fd);
	ck_assert_uint_eq(pinion_buffer_size(buf), MIB);
	ck_assert_int_eq(info_of(buf).hold, PINION_HOLD_NONE);
	ck_assert_ptr_nonnull(strstr(info_of(buf).hold_why, "exporter"));
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	ck_ok(pinion_buffer_cpu_begin(buf, BOTH));
	memcpy(w + 8192, "device", 6);
	ck_ok(pinion_buffer_cpu_end(buf, BOTH));
	expect_bytes(memfd, 8192, "device");
	ck_ok(pinion_buffer_slice(buf, 8192, 4096, PINION_READ, &part));
	ck_ok(pinion_buffer_map(part, PINION_READ, (void **)&r));
	ck_ok(pinion_buffer_cpu_begin(part, PINION_READ));
	ck_assert_int_eq(memcmp(r, "device", 6), 0);
	ck_ok(pinion_buffer_cpu_end(part, PINION_READ));
	ck_assert_int_eq(pinion_buffer_cpu_begin(part, BOTH), -EPERM);
	ck_assert_int_eq(pinion_buffer_cpu_begin(buf, 8), -EINVAL);
	ck_assert_int_eq(pinion_buffer_seal(buf), -EOPNOTSUPP);
	ck_assert_int_eq(pinion_buffer_send(buf, sock[0], PINION_READ), -EOPNOTSUPP);
	pinion_buffer_unref(part);
	fd = pinion_buffer_export(buf);
	ck_assert_int_ge(fd, 0);
	pinion_buffer_unref(buf);
	buf = NULL;
	ck_ok(pinion_buffer_import(ctx, fd, NULL, &buf));
	pinion_buffer_unref(buf);
	close(fd);
	close(memfd);
	close(sock[0]);
	close(sock[1]);
}
END_TEST

START_TEST(a_buffer_is_exported_as_a_dma_buf_or_it_is_said_what_is_missing)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_NONE };
	struct pinion_buffer *buf = NULL, *part = NULL, *got = NULL;
	char *w, *r;
	int fd;

	ck_ok(pinion_buffer_alloc(ctx, MIB, &opts, &buf));
	ck_ok(pinion_buffer_slice(buf, 4096, 8192, BOTH, &part));
	fd = pinion_buffer_export_dmabuf(part);
	if (access(UDMABUF, F_OK)) {
		ck_assert_int_eq(fd, -EOPNOTSUPP);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "CONFIG_UDMABUF"));
		ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_UDMABUF_ABSENT);
		pinion_buffer_unref(part);
		pinion_buffer_unref(buf);
		SKIP("there is no " UDMABUF);
	}
	ck_assert_msg(fd >= 0, "%s", pinion_error());
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	/* Of the part and no more. */
	ck_assert_int_eq(lseek(fd, 0, SEEK_END), 8192);
	ck_ok(pinion_buffer_import(ctx, fd, NULL, &got));
	close(fd);
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	ck_ok(pinion_buffer_map(got, PINION_READ, (void **)&r));
	memcpy(w + 4096, "shown", 5);
	ck_ok(pinion_buffer_cpu_begin(got, PINION_READ));
	ck_assert_int_eq(memcmp(r, "shown", 5), 0);
	ck_ok(pinion_buffer_cpu_end(got, PINION_READ));
	/* Somebody may write it now, whatever a seal says, so there is none. */
	ck_assert_int_eq(pinion_buffer_seal(buf), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "dma-buf"));
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	pinion_buffer_unref(got);
	pinion_buffer_unref(part);
	pinion_buffer_unref(buf);
	ck_ok(pinion_buffer_alloc(ctx, MIB, &opts, &buf));
	ck_ok(pinion_buffer_seal(buf));
	ck_assert_int_eq(pinion_buffer_export_dmabuf(buf), -EPERM);
	pinion_buffer_unref(buf);
}
END_TEST

START_TEST(the_limit_of_dma_bufs_is_named)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_NONE };
	struct pinion_buffer *buf = NULL;

	if (access(UDMABUF, F_OK))
		SKIP("there is no " UDMABUF);
	if (!getenv("PINION_TEST_OWN_MACHINE") || !setting_begin(&set, UDMABUF_LIMIT, "1"))
		SKIP("the limit is not ours to set");
	ck_ok(pinion_buffer_alloc(ctx, 4 * MIB, &opts, &buf));
	ck_assert_int_eq(pinion_buffer_export_dmabuf(buf), -EINVAL);
	ck_assert_msg(strstr(pinion_error(), "echo 4 > " UDMABUF_LIMIT) != NULL, "%s", pinion_error());
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_UDMABUF_LIMIT);
	pinion_buffer_unref(buf);
}
END_TEST

START_TEST(memory_of_the_module_is_a_dma_buf)
{
	struct pinion_buffer *buf = NULL, *twin = NULL;
	int fd;

	if (!on_module(ctx))
		SKIP("the context stands on memfd");
	ck_ok(pinion_buffer_alloc(ctx, MIB, NULL, &buf));
	ck_ok(pinion_buffer_cpu_begin(buf, BOTH));
	ck_ok(pinion_buffer_cpu_end(buf, BOTH));
	fd = pinion_buffer_export_dmabuf(buf);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(import(fd, PINION_HOLD_LOCKED, &twin), -EOPNOTSUPP);
	ck_ok(import(fd, PINION_HOLD_PINNED, &twin));
	close(fd);
	pinion_buffer_unref(twin);
	pinion_buffer_unref(buf);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("import");
	TCase *memfds = tcase_create("memfds"), *dmabufs = tcase_create("dma-bufs");

	tcase_add_checked_fixture(memfds, setup, teardown);
	tcase_set_timeout(memfds, 30);
	tcase_add_test(memfds, a_memfd_whose_size_is_sealed_is_a_buffer);
	tcase_add_test(memfds, a_memfd_that_could_shrink_is_refused_with_what_to_do);
	tcase_add_test(memfds, what_is_no_memory_is_refused);
	tcase_add_test(memfds, rights_are_those_of_the_seals);
	tcase_add_test(memfds, an_import_is_held_as_it_was_asked_for);
	tcase_add_test(memfds, an_import_is_handed_on_and_seen_by_all);
	tcase_add_test(memfds, what_a_buffer_exports_can_be_imported);
	tcase_add_test(memfds, memory_of_a_pool_must_be_sealed_against_its_writers);
	tcase_add_test(memfds, an_import_that_is_short_of_memory_is_refused);
	suite_add_tcase(s, memfds);
	tcase_add_checked_fixture(dmabufs, setup, teardown);
	tcase_set_timeout(dmabufs, 30);
	tcase_add_test(dmabufs, a_dma_buf_of_another_driver_is_a_buffer_and_goes_no_further);
	tcase_add_test(dmabufs, a_buffer_is_exported_as_a_dma_buf_or_it_is_said_what_is_missing);
	tcase_add_test(dmabufs, the_limit_of_dma_bufs_is_named);
	tcase_add_test(dmabufs, memory_of_the_module_is_a_dma_buf);
	suite_add_tcase(s, dmabufs);
	return s;
}

PINION_TEST_MAIN(suite)
