/* SPDX-License-Identifier: MIT */
/* What a load does with what the page cache holds: warm parts are copied, cold ones read past it, small tensors many at a time. */
#include "index_files.h"
#include "model/cached.h"

#include <linux/magic.h>
#include <pinion/pinion.h>
#include <sys/vfs.h>

static struct pinion_context *ctx;
static const enum pinion_io all_io[] = { PINION_IO_AUTO, PINION_IO_BUFFERED, PINION_IO_DIRECT };

static void setup(void)
{
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

/* A safetensors file of U8 tensors whose data begins @skew bytes after a multiple of 64; each word of it says where it is. */
static const char *make_file(struct file *f, const struct part *parts, unsigned int count, unsigned int skew)
{
	f->bytes = f->sparse = 0;
	put_parts(f, parts, count, skew);
	while (f->bytes < f->sparse) {
		uint64_t word = f->bytes * UINT64_C(0x9e3779b97f4a7c15);

		put(f, &word, f->sparse - f->bytes < 8 ? f->sparse - f->bytes : 8);
	}
	return save(f);
}

static struct pinion_model *load(const char *path, enum pinion_io io, const struct file *f, struct pinion_load_stats *stats)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .io = io };
	struct pinion_model *m;
	struct pinion_tensor t;

	ck_ok(pinion_model_load(ctx, path, &opts, &m));
	for (uint64_t i = 0; !pinion_model_tensor_at(m, i, &t); i++)
		ck_assert_int_eq(memcmp(t.data, f->data + t.file_offset, t.bytes), 0);
	ck_ok(pinion_model_load_stats(m, stats));
	return m;
}

static void drop_cache(const char *path)
{
	int fd = open(path, O_RDONLY);

	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

#define STRIPE (UINT64_C(4) << 20)

/* Brings the stripes of @path whose bit is set into the page cache, and no others. False: direct I/O is not to be had here. */
static bool warm_up(const char *path, uint64_t bytes, unsigned int stripes)
{
	int fd = open(path, O_RDONLY | O_DIRECT);
	char *data = malloc(STRIPE);
	struct statfs fs;

	/* All of a tmpfs is page cache, which opens for direct I/O all the same. */
	if (fd < 0 || fstatfs(fd, &fs) || fs.f_type == TMPFS_MAGIC) {
		if (fd >= 0)
			close(fd);
		free(data);
		return false;
	}
	close(fd);
	drop_cache(path);
	fd = open(path, O_RDONLY);
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	for (uint64_t at = 0; at < bytes; at += STRIPE)
		if (stripes >> at / STRIPE & 1)
			ck_assert_int_gt(pread(fd, data, STRIPE, at), 0);
	close(fd);
	free(data);
	return true;
}

static uint64_t apart(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/*
 * The page cache is the machine's: what others do may take some of it away, or keep something there for a while. So what is found
 * there is judged by the best of some tries.
 */
#define TRIES 10

/* Which 4 MiB of eight are there; what is there is copied from there, the rest is read past it. */
static const unsigned int stripes[] = { 0x00, 0xff, 0xf0, 0x0f, 0x55, 0x18 };

static bool went_as_it_was(const struct pinion_load_stats *stats, uint64_t warm, bool moved)
{
	const uint64_t header = 1 << 20, cold = 8 * STRIPE - warm;

	/* The header's pages were read before. */
	if (!strcmp(stats->cached_by, "cachestat") && apart(stats->cached_bytes, warm) > header)
		return false;
	/* Moved tensors are looked at 8 MiB at a time. */
	return moved || (apart(stats->buffered_bytes, warm) <= header && apart(stats->direct_bytes, cold) <= header);
}

START_TEST(warm_parts_are_copied_and_cold_ones_read_directly)
{
	static const struct part staying[] = { { 8 * STRIPE - 4096, false } }, moving[] = { { 1, true }, { 8 * STRIPE - 4096, true } };
	uint64_t warm = __builtin_popcount(stripes[_i / 2]) * STRIPE;
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	bool moved = _i % 2, went = false;
	struct file f = { 0 };
	const char *path = moved ? make_file(&f, moving, 2, 1) : make_file(&f, staying, 1, 0);

	for (int i = 0; i < TRIES && !went; i++) {
		if (!warm_up(path, 8 * STRIPE, stripes[_i / 2])) {
			free(f.data);
			SKIP("no direct I/O in the temporary folder");
		}
		stats.size = sizeof(stats);
		pinion_model_free(load(path, PINION_IO_AUTO, &f, &stats));
		ck_assert_str_ne(stats.cached_by, "");
		if (warm && stats.buffered_bytes > STRIPE)
			ck_assert_str_eq(stats.buffered_why, "the page cache holds it");
		went = went_as_it_was(&stats, warm, moved);
	}
	printf("stripes %02x%s: %lu MiB there by %s, direct %lu MiB, buffered %lu MiB (%s)\n", stripes[_i / 2], moved ? ", moved" : "",
	       stats.cached_bytes >> 20, stats.cached_by, stats.direct_bytes >> 20, stats.buffered_bytes >> 20, stats.buffered_why);
	ck_assert(went);
	free(f.data);
}
END_TEST

/* Of a file whose second half is there. */
static bool counts_and_samples(struct cached *exact, struct cached *samples)
{
	uint64_t cold = cached_bytes(exact, 0, 4 * STRIPE), warm = cached_bytes(exact, 4 * STRIPE, 3 * STRIPE);

	if (cold > 1 << 20 || warm < 3 * STRIPE - (1 << 20))
		return false;
	if (cached_bytes(samples, STRIPE, STRIPE) || cached_bytes(samples, 5 * STRIPE, STRIPE) != STRIPE)
		return false;
	return exact->sampled || apart(cached_bytes(exact, 3 * STRIPE, 2 * STRIPE), 2 * STRIPE) >= STRIPE - 8192;
}

/* What a kernel before 6.5 says, and one that will not say what another's file has in memory. */
START_TEST(what_the_page_cache_holds_is_counted_or_sampled)
{
	static const struct part parts[] = { { 8 * STRIPE - 4096, false } };
	struct cached exact = { 0 }, samples = { .sampled = true };
	struct stream_file *file;
	struct file f = { 0 };
	const char *path = make_file(&f, parts, 1, 0);
	bool right = false;
	int fd;

	free(f.data);
	for (int i = 0; i < TRIES && !right; i++) {
		if (!warm_up(path, 8 * STRIPE, 0xf0))
			SKIP("no direct I/O in the temporary folder");
		fd = open(path, O_RDONLY);
		ck_ok(file_open(fd, false, &file));
		exact.file = samples.file = file;
		ck_assert_uint_eq(cached_bytes(&exact, 0, 0), 0);
		right = counts_and_samples(&exact, &samples);
		file_unref(file);
		close(fd);
	}
	ck_assert(right);
}
END_TEST

/* A system call for each of them took longer than all else. */
START_TEST(tensors_of_three_bytes_are_read_many_at_a_time)
{
	const unsigned int n = test_rounds(SANITIZED ? 20000 : 200000);
	struct part *parts = calloc(n, sizeof(*parts));
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct file f = { 0 };
	const char *path;

	for (unsigned int i = 0; i < n; i++)
		parts[i].bytes = 3;
	path = make_file(&f, parts, n, 0);
	free(parts);
	for (unsigned int i = 0; i < 3; i++) {
		pinion_model_free(load(path, all_io[i], &f, &stats));
		printf("%u tensors of 3 bytes: read in %lu us\n", n, stats.read_ns / 1000);
		if (all_io[i] == PINION_IO_BUFFERED)
			ck_assert_uint_eq(stats.buffered_bytes, 3 * n);
		ck_assert_uint_ge(stats.bytes_read, 3 * n);
	}
	free(f.data);
}
END_TEST

static Suite *cached_suite(void)
{
	Suite *suite = suite_create("cached");
	TCase *tcase = tcase_create("cached");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, warm_parts_are_copied_and_cold_ones_read_directly, 0, 2 * LENGTH(stripes));
	tcase_add_test(tcase, what_the_page_cache_holds_is_counted_or_sampled);
	tcase_add_test(tcase, tensors_of_three_bytes_are_read_many_at_a_time);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(cached_suite)
