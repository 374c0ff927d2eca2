/* SPDX-License-Identifier: MIT */
/* Loading files: every byte in its place, by every way of reading; what is hostile leaves nothing behind. */
#include "harness.h"
#include "sha256.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "quant/decode.h"

static struct pinion_context *ctx;

static void setup(void)
{
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

/* ---- files made here ----------------------------------------------------------------------------------------------- */

/* An assertion that holds is written down by libcheck too, and some files are put together of very many pieces. */
static void put(FILE *f, const void *p, size_t n)
{
	if (fwrite(p, 1, n, f) != n)
		ck_abort_msg("%zu bytes more do not fit into the file", n);
}

/* Byte i of the pattern is 31 i + 7 (i >> 8) + (i >> 16): every run of 256 is one of 256 rows. */
#define ROW 256

static const unsigned char *pattern_row(uint64_t at)
{
	static unsigned char row[ROW][ROW];

	if (!row[0][1])
		for (unsigned int k = 0; k < ROW; k++)
			for (unsigned int i = 0; i < ROW; i++)
				row[k][i] = (unsigned char)(i * 31 + k);
	return row[(at / ROW * 7 + at / ROW / ROW) % ROW];
}

/* The pattern's bytes at @at as far as they lie together, at most @most: *run of them. */
static const unsigned char *pattern(uint64_t at, uint64_t most, size_t *run)
{
	size_t left = ROW - at % ROW;

	*run = most < left ? most : left;
	return pattern_row(at) + at % ROW;
}

static void put_pattern(FILE *f, uint64_t n)
{
	const unsigned char *p;
	size_t run;

	for (uint64_t i = 0; i < n; i += run) {
		p = pattern(i, n - i, &run);
		put(f, p, run);
	}
}

/* A safetensors file of U8 tensors with these sizes, the data beginning at 8 + a header padded by @pad spaces. */
static void make_safetensors(char path[PATH_MAX], const char *name, const uint64_t *bytes, unsigned int n, unsigned int pad)
{
	char header[8192];
	size_t at = 0;
	uint64_t pos = 0, len;
	FILE *f;

	at += snprintf(header + at, sizeof(header) - at, "{");
	for (unsigned int i = 0; i < n; i++) {
		at += snprintf(header + at, sizeof(header) - at, "%s\"t%u\":{\"dtype\":\"U8\",\"shape\":[%lu],\"data_offsets\":[%lu,%lu]}",
			       i ? "," : "", i, bytes[i], pos, pos + bytes[i]);
		pos += bytes[i];
	}
	at += snprintf(header + at, sizeof(header) - at, "}%*s", (int)pad, "");
	snprintf(path, PATH_MAX, "%s/%s", test_tmp(), name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	len = at;
	put(f, &len, 8);
	put(f, header, at);
	put_pattern(f, pos);
	fclose(f);
}

/* Every tensor of @m holds the pattern at its place in the data section. */
static void check_pattern(const struct pinion_model *m, uint64_t data_offset)
{
	const unsigned char *p;
	struct pinion_tensor t;
	size_t run;

	for (uint64_t i = 0; !pinion_model_tensor_at(m, i, &t); i++)
		for (uint64_t b = 0; b < t.bytes; b += run) {
			p = pattern(t.file_offset - data_offset + b, t.bytes - b, &run);
			if (memcmp((const unsigned char *)t.data + b, p, run))
				ck_abort_msg("%s: a byte from %lu on is wrong", t.name, b);
		}
}

static const enum pinion_io all_io[] = { PINION_IO_AUTO, PINION_IO_BUFFERED, PINION_IO_DIRECT };

static struct pinion_model *load(const char *path, enum pinion_io io)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .io = io };
	struct pinion_model *m;

	ck_ok(pinion_model_load(ctx, path, &opts, &m));
	return m;
}

static void drop_cache(const char *path)
{
	int fd = open(path, O_RDONLY);

	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

START_TEST(unaligned_tensors_are_moved_to_256_by_every_way_of_reading)
{
	const uint64_t bytes[] = { 1, 3000001, 0, 77, 9 << 20, 5, 4096, 12345678, 1 };
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_model *m;
	struct pinion_tensor t;
	char path[PATH_MAX];

	make_safetensors(path, "unaligned.safetensors", bytes, 9, 3);
	for (int cold = 0; cold < 2; cold++) {
		for (unsigned int i = 0; i < 3; i++) {
			if (cold)
				drop_cache(path);
			m = load(path, all_io[i]);
			ck_ok(pinion_model_info(m, &info));
			ck_ok(pinion_model_load_stats(m, &stats));
			check_pattern(m, info.data_offset);
			for (uint64_t k = 0; !pinion_model_tensor_at(m, k, &t); k++)
				ck_assert_msg(!t.bytes || (uintptr_t)t.data % 256 == 0 || (uintptr_t)t.data % 64 == 0, "%s at %p", t.name, t.data);
			ck_assert_uint_le(stats.staging_bytes, 8 << 20);
			if (all_io[i] == PINION_IO_BUFFERED) {
				ck_assert_uint_eq(stats.moved_bytes, 0);
				ck_assert_uint_eq(stats.staging_bytes, 0);
			}
			pinion_model_free(m);
		}
	}
}
END_TEST

START_TEST(aligned_tensors_are_never_moved)
{
	const uint64_t bytes[] = { 64, 1 << 20, 128, 3 << 20, 640 };
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct pinion_index_info info = { .size = sizeof(info) };
	char path[PATH_MAX];

	for (unsigned int pad = 0; pad < 64; pad++) {
		struct pinion_model *m;

		make_safetensors(path, "aligned.safetensors", bytes, 5, pad);
		m = load(path, PINION_IO_DIRECT);
		ck_ok(pinion_model_info(m, &info));
		ck_ok(pinion_model_load_stats(m, &stats));
		check_pattern(m, info.data_offset);
		if (info.data_offset % 64 == 0) {
			ck_assert_uint_eq(stats.moved_bytes, 0);
			ck_assert_uint_eq(stats.staging_bytes, 0);
		} else {
			ck_assert_uint_gt(stats.moved_bytes, 0);
		}
		pinion_model_free(m);
	}
}
END_TEST

START_TEST(aligned_runs_between_unaligned_tensors_stay_where_their_blocks_fall)
{
	/* The header's length differs by padding until the second tensor is at a multiple of 64. */
	const uint64_t bytes[] = { 100, 2 << 20, 5 << 20, 33, 64 << 10, 7 };
	struct pinion_index_info info = { .size = sizeof(info) };
	char path[PATH_MAX];

	for (unsigned int pad = 0; pad < 64; pad++) {
		struct pinion_model *m;
		struct pinion_tensor t;

		make_safetensors(path, "mixed.safetensors", bytes, 6, pad);
		m = load(path, PINION_IO_DIRECT);
		ck_ok(pinion_model_info(m, &info));
		check_pattern(m, info.data_offset);
		ck_ok(pinion_model_tensor(m, "t1", &t));
		if (t.file_offset % 64 == 0) {
			ck_assert_uint_eq(t.offset % 4096, t.file_offset % 4096);
			ck_assert_uint_lt(info.moved_bytes, info.tensor_bytes);
		}
		pinion_model_free(m);
	}
}
END_TEST

START_TEST(empty_tensors_and_files_without_tensors_load)
{
	const uint64_t none[] = { 0 };
	struct pinion_model *m;
	struct pinion_tensor t;
	char path[PATH_MAX];

	make_safetensors(path, "zero.safetensors", none, 1, 0);
	m = load(path, PINION_IO_AUTO);
	ck_ok(pinion_model_tensor(m, "t0", &t));
	ck_assert_uint_eq(t.bytes, 0);
	ck_assert_int_eq(pinion_model_tensor(m, "t1", &t), -ENOENT);
	pinion_model_free(m);
	make_safetensors(path, "none.safetensors", none, 0, 0);
	m = load(path, PINION_IO_AUTO);
	ck_assert_int_eq(pinion_model_tensor_at(m, 0, &t), -ENOENT);
	pinion_model_free(m);
}
END_TEST

/* What pinion_buffer_alloc() does with them test_pages tells; here, that they reach it. */
START_TEST(the_buffer_has_the_pages_and_the_node_that_were_asked_for)
{
	const uint64_t bytes[] = { 3 << 20 };
	struct pinion_load_opts opts = { .size = sizeof(opts), .pages = PINION_PAGES_1G, .prefer_pages = true };
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_model *m = NULL;
	char path[PATH_MAX];

	make_safetensors(path, "placed.safetensors", bytes, 1, 0);
	ck_ok(pinion_model_load(ctx, path, &opts, &m));
	ck_ok(pinion_buffer_info(pinion_model_buffer(m), &info));
	ck_assert_msg((info.pages == PINION_PAGES_1G) == !*info.pages_why, "%d %s", info.pages, info.pages_why);
	ck_assert_uint_eq(info.node_bytes, 0);
	pinion_model_free(m);
	opts = (struct pinion_load_opts){ .size = sizeof(opts), .pages = PINION_PAGES_SMALL, .numa = PINION_NUMA_STRICT };
	ck_ok(pinion_model_load(ctx, path, &opts, &m));
	ck_ok(pinion_buffer_info(pinion_model_buffer(m), &info));
	ck_assert_int_eq(info.pages, PINION_PAGES_SMALL);
	ck_assert_uint_eq(info.node_bytes, info.bytes);
	pinion_model_free(m);
	m = NULL;
	opts.node = 4711;
	for (opts.numa = PINION_NUMA_PREFERRED; opts.numa <= PINION_NUMA_STRICT; opts.numa++) {
		ck_assert_int_eq(pinion_model_load(ctx, path, &opts, &m), -EINVAL);
		ck_assert_msg(strstr(pinion_error(), "NUMA node 4711") != NULL, "%s", pinion_error());
	}
	ck_assert_ptr_null(m);
}
END_TEST

static int cancel_at_once(void *arg, uint64_t done, uint64_t total)
{
	(void)done;
	(void)total;
	++*(int *)arg;
	return 1;
}

START_TEST(a_progress_function_can_cancel)
{
	const uint64_t bytes[] = { 64 << 20 };
	struct pinion_load_opts opts = { .size = sizeof(opts), .progress = cancel_at_once };
	struct pinion_model *m = NULL;
	char path[PATH_MAX];
	uint32_t pending;
	struct pinion_device *dev;
	int calls = 0;

	opts.progress_arg = &calls;
	make_safetensors(path, "cancel.safetensors", bytes, 1, 0);
	ck_assert_int_eq(pinion_model_load(ctx, path, &opts, &m), -ECANCELED);
	ck_assert_ptr_null(m);
	ck_assert_int_eq(calls, 1);
	ck_ok(pinion_device_find(ctx, "hostio", &dev));
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &pending));
	ck_assert_uint_eq(pending, 0);
}
END_TEST

static int truncate_it(void *arg, uint64_t done, uint64_t total)
{
	(void)done;
	(void)total;
	ck_assert_int_eq(truncate(arg, 4096), 0);
	return 0;
}

START_TEST(a_file_truncated_while_it_is_read_is_an_error_not_a_signal)
{
	const uint64_t bytes[] = { 128 << 20 };
	struct pinion_load_opts opts = { .size = sizeof(opts), .progress = truncate_it };
	struct pinion_model *m = NULL;
	char path[PATH_MAX];
	int ret;

	make_safetensors(path, "shrinks.safetensors", bytes, 1, 0);
	drop_cache(path);
	opts.progress_arg = path;
	ret = pinion_model_load(ctx, path, &opts, &m);
	ck_assert_msg(ret == -EBADMSG, "%d %s", ret, pinion_error());
	ck_assert_msg(strstr(pinion_error(), "shrinks.safetensors changed while it was read") != NULL, "%s", pinion_error());
	ck_assert_ptr_null(m);
}
END_TEST

static int touch_it(void *arg, uint64_t done, uint64_t total)
{
	(void)done;
	(void)total;
	ck_assert_int_eq(utimensat(AT_FDCWD, arg, NULL, 0), 0);
	return 0;
}

START_TEST(a_file_that_changed_while_it_was_read_is_refused)
{
	const uint64_t bytes[] = { 32 << 20 };
	struct pinion_load_opts opts = { .size = sizeof(opts), .progress = touch_it };
	struct pinion_model *m = NULL;
	char path[PATH_MAX];

	make_safetensors(path, "changes.safetensors", bytes, 1, 0);
	usleep(20000);
	opts.progress_arg = path;
	ck_assert_int_eq(pinion_model_load(ctx, path, &opts, &m), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "changed while it was read"));
}
END_TEST

/* ---- hostile files ------------------------------------------------------------------------------------------------- */

static long rss_kb(void)
{
	long pages = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	ck_assert_int_eq(fscanf(f, "%ld %ld", &pages, &resident), 2);
	fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

START_TEST(every_hostile_file_is_refused_and_every_ok_one_loads)
{
	char dir[PATH_MAX], path[PATH_MAX * 2];
	unsigned int bad = 0, ok = 0;
	struct dirent *e;
	long before;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/hostile", test_data());
	d = opendir(dir);
	ck_assert_ptr_nonnull(d);
	before = rss_kb();
	while ((e = readdir(d))) {
		struct pinion_model *m = NULL;
		int ret;

		if (strncmp(e->d_name, "bad_", 4) && strncmp(e->d_name, "ok_", 3))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		ret = pinion_model_load(ctx, path, NULL, &m);
		if (e->d_name[0] == 'b') {
			ck_assert_msg(ret == -EBADMSG && !m && *pinion_error(), "%s: %d %s", e->d_name, ret, pinion_error());
			bad++;
		} else {
			ck_assert_msg(ret == 0, "%s: %d %s", e->d_name, ret, pinion_error());
			pinion_model_free(m);
			ok++;
		}
	}
	closedir(d);
	ck_assert_uint_eq(bad, 17);
	ck_assert_uint_eq(ok, 4);
#if !SANITIZED
	ck_assert_int_le(rss_kb() - before, 1024);
#else
	(void)before;
#endif
}
END_TEST

START_TEST(what_is_not_a_model_file_is_refused_without_waiting)
{
	struct pinion_model *m;
	char path[PATH_MAX];

	ck_assert_int_lt(pinion_model_load(ctx, test_tmp(), NULL, &m), 0);
	ck_assert_int_eq(pinion_model_load(ctx, "/no/such/file", NULL, &m), -ENOENT);
	snprintf(path, sizeof(path), "%s/fifo", test_tmp());
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_lt(pinion_model_load(ctx, path, NULL, &m), 0);
	ck_assert_int_lt(pinion_model_load(ctx, "/dev/zero", NULL, &m), 0);
}
END_TEST

/* ---- real files ---------------------------------------------------------------------------------------------------- */

/* One line of a manifest, split at its tabs. */
static bool next_row(FILE *f, char *line, size_t room, char *field[8])
{
	char *at = line;

	if (!fgets(line, room, f))
		return false;
	line[strcspn(line, "\n")] = 0;
	for (int i = 0; i < 8; i++) {
		ck_assert_ptr_nonnull(at);
		field[i] = strsep(&at, "\t");
	}
	return true;
}

static void check_decoded(const struct pinion_tensor *t, const char *want)
{
	const struct pinion_type_info *type = pinion_type_info(t->type);
	uint64_t elems = t->bytes / type->block_bytes * type->block_elems;
	float *f = malloc(elems * sizeof(*f) + 1);
	char hex[65];

	ck_ok(quant_decode(t->type, t->data, f, elems));
	sha256_hex(f, elems * sizeof(*f), hex);
	ck_assert_msg(!strcmp(hex, want), "%s: decoded %s, want %s", t->name, hex, want);
	free(f);
}

/* In another process: attaches and compares every tensor with the manifest. Exits 0, with the counts in @shared. */
static void compare(const char *name, const char *manifest, unsigned int shared[2])
{
	struct pinion_attach_opts opts = { .size = sizeof(opts), .deadline_ns = PINION_FOREVER };
	char line[4096], *field[8], hex[65];
	struct pinion_context *own;
	struct pinion_model *m;
	struct pinion_tensor t;
	FILE *f = fopen(manifest, "r");

	ck_assert_ptr_nonnull(f);
	ck_ok(pinion_open(NULL, &own));
	ck_ok(pinion_model_attach(own, name, &opts, &m));
	ck_assert(next_row(f, line, sizeof(line), field));
	while (next_row(f, line, sizeof(line), field)) {
		ck_ok(pinion_model_tensor(m, field[0], &t));
		ck_assert_int_eq(strcasecmp(pinion_type_info(t.type)->name, field[1]), 0);
		ck_assert_uint_eq(t.file_offset, strtoull(field[3], NULL, 10));
		ck_assert_uint_eq(t.bytes, strtoull(field[4], NULL, 10));
		sha256_hex(t.data, t.bytes, hex);
		ck_assert_msg(!strcmp(hex, field[5]), "%s: %s, want %s", t.name, hex, field[5]);
		shared[0]++;
		if (strcmp(field[6], "-")) {
			check_decoded(&t, field[6]);
			shared[1]++;
		}
	}
	ck_assert_int_eq(pinion_model_tensor_at(m, shared[0], &t), -ENOENT);
	fclose(f);
	pinion_model_free(m);
	pinion_close(own);
}

static const struct {
	const char *file;
	unsigned int tensors;
} real[] = {
	{ "silero-vad-mixed.gguf", 0 },
	{ "ocr-rec-q8.gguf", 0 },
	{ "silero-vad.safetensors", 0 },
	{ "ocr-rec-f16.safetensors", 0 },
};

START_TEST(real_files_match_their_manifests_as_a_second_process_sees_them)
{
	char path[PATH_MAX * 2], manifest[PATH_MAX * 3];
	struct pinion_holder *h;
	struct pinion_model *m;
	unsigned int *shared;
	int status;

	if (!test_shared())
		SKIP("the folder of shared inputs is not there");
	snprintf(path, sizeof(path), "%s/inputs/real/%s", test_shared(), real[_i].file);
	snprintf(manifest, sizeof(manifest), "%s.manifest.tsv", path);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (unsigned int i = 0; i < 3; i++) {
		shared[0] = shared[1] = 0;
		ck_ok(pinion_holder_open(ctx, "real", path, &h));
		m = load(path, all_io[i]);
		ck_ok(pinion_holder_publish(h, m));
		if (fork() == 0) {
			compare("real", manifest, shared);
			_exit(0);
		}
		wait(&status);
		ck_assert_int_eq(status, 0);
		ck_assert_uint_gt(shared[0], 30);
		if (strstr(real[_i].file, "gguf"))
			ck_assert_uint_gt(shared[1], 5);
		pinion_holder_free(h);
		pinion_model_free(m);
	}
	printf("%s: %u tensors equal, %u decoded equal\n", real[_i].file, shared[0], shared[1]);
}
END_TEST

static Suite *load_suite(void)
{
	Suite *s = suite_create("load");
	TCase *tc = tcase_create("load");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, unaligned_tensors_are_moved_to_256_by_every_way_of_reading);
	tcase_add_test(tc, aligned_tensors_are_never_moved);
	tcase_add_test(tc, aligned_runs_between_unaligned_tensors_stay_where_their_blocks_fall);
	tcase_add_test(tc, empty_tensors_and_files_without_tensors_load);
	tcase_add_test(tc, the_buffer_has_the_pages_and_the_node_that_were_asked_for);
	tcase_add_test(tc, a_progress_function_can_cancel);
	tcase_add_test(tc, a_file_truncated_while_it_is_read_is_an_error_not_a_signal);
	tcase_add_test(tc, a_file_that_changed_while_it_was_read_is_refused);
	tcase_add_test(tc, every_hostile_file_is_refused_and_every_ok_one_loads);
	tcase_add_test(tc, what_is_not_a_model_file_is_refused_without_waiting);
	tcase_add_loop_test(tc, real_files_match_their_manifests_as_a_second_process_sees_them, 0, 4);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(load_suite)
