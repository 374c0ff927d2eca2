/* SPDX-License-Identifier: MIT */
/* Models through a few buffers: every byte once, in order, never more in memory than the buffers hold. */
#include "index_files.h"
#include "sha256.h"

#include <pinion/pinion.h>
#include <sys/stat.h>

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

/* A model of U8 tensors, some without bytes: first, last and amid. */
static void make_safetensors(struct file *f)
{
	static const struct part parts[] = { { 0, false },    { 77, true },	 { 9000, true }, { 0, false }, { 0, false },
					     { 300001, true }, { 4096, true }, { 1, true },	 { 0, false } };

	f->bytes = f->sparse = 0;
	put_parts(f, parts, LENGTH(parts), 1);
	put_filling(f, 3);
}

/* Tensors far from one another: what is between them need not be read. */
static void make_gguf(struct file *f)
{
	gguf(f, 3, 4, 0);
	put_tensor(f, "b", PINION_TYPE_F32, UINT64_C(4096) * 3, 1, UINT64_C(1000));
	put_tensor(f, "a", PINION_TYPE_I8, 0, 1, UINT64_C(5000));
	put_tensor(f, "none", PINION_TYPE_I8, 0, 1, UINT64_C(0));
	put_tensor(f, "c", PINION_TYPE_I8, UINT64_C(1) << 20, 1, UINT64_C(70001));
	pad(f, 32);
	f->sparse = f->bytes + (1 << 20) + 70001 + 777;
	put_filling(f, 3);
}

/* All of it, against the file, in order. */
static void expect_all(struct pinion_feed *feed, const struct file *f)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_chunk c = { .size = sizeof(c) };
	uint64_t number = 0, at = 0, bytes = 0, place = 0;

	ck_ok(pinion_feed_info(feed, &info));
	while (number < info.tensors) {
		ck_ok(pinion_feed_next(feed, &c));
		ck_assert_uint_eq(c.number, number);
		ck_assert_uint_eq(c.at, at);
		ck_assert(c.bytes || !c.tensor.bytes);
		ck_assert_uint_le(c.at + c.bytes, c.tensor.bytes);
		ck_assert_uint_ge(c.tensor.file_offset, place);
		place = c.tensor.file_offset;
		ck_assert_ptr_null(c.tensor.data);
		if (c.bytes) {
			ck_assert_uint_eq((uintptr_t)c.data % 4096, (c.tensor.file_offset + c.at) % 4096);
			ck_assert_int_eq(memcmp(c.data, f->data + c.tensor.file_offset + c.at, c.bytes), 0);
		}
		bytes += c.bytes;
		at += c.bytes;
		if (at == c.tensor.bytes) {
			number++;
			at = 0;
		}
		pinion_feed_done(feed, &c);
	}
	ck_assert_uint_eq(bytes, info.tensor_bytes);
	ck_assert_int_eq(pinion_feed_next(feed, &c), -ENODATA);
	ck_assert_int_eq(pinion_feed_next(feed, &c), -ENODATA);
}

static const struct {
	uint32_t buffers;
	uint64_t bytes;
} rings[] = { { 1, 4096 }, { 2, 8192 }, { 3, 1 << 20 }, { 0, 0 } };

START_TEST(every_byte_comes_once_and_in_order)
{
	struct pinion_feed_stats stats = { .size = sizeof(stats) };
	struct pinion_shard shard = { .size = sizeof(shard) };
	struct file f = { 0 };
	const char *path;
	char want[65];

	if (_i % 2)
		make_gguf(&f);
	else
		make_safetensors(&f);
	sha256_hex(f.data, f.bytes, want);
	path = save_as("fed", &f);
	for (size_t i = 0; i < LENGTH(rings); i++) {
		struct pinion_feed_opts opts = { .size = sizeof(opts), .io = all_io[_i / 2], .buffers = rings[i].buffers,
						 .buffer_bytes = rings[i].bytes, .hash = true };
		struct pinion_feed *feed;

		ck_ok(pinion_feed_open(ctx, path, &opts, &feed));
		expect_all(feed, &f);
		ck_ok(pinion_feed_shard_at(feed, 0, &shard));
		ck_assert_str_eq(shard.sha256, want);
		ck_ok(pinion_feed_stats(feed, &stats));
		ck_assert_uint_eq(stats.bytes_read, stats.direct_bytes + stats.buffered_bytes);
		ck_assert_uint_ge(stats.bytes_read, stats.fed_bytes);
		/* Of the 1 MiB that nobody's tensor has, small buffers read nothing. */
		if (_i % 2 && rings[i].bytes == 4096)
			ck_assert_uint_lt(stats.bytes_read, 5000 + 4000 + 70001 + 6 * 4096);
		pinion_feed_free(feed);
	}
	free(f.data);
}
END_TEST

START_TEST(files_follow_one_another)
{
	struct pinion_feed_opts opts = { .size = sizeof(opts), .buffers = 2, .buffer_bytes = 65536, .hash = true };
	struct pinion_shard shard = { .size = sizeof(shard) };
	struct pinion_chunk c = { .size = sizeof(c) };
	static const uint64_t bytes[] = { 70000, 0, 200000 };
	char header[128], want[3][65];
	struct file f[3] = { 0 };
	struct pinion_feed *feed;
	const char *path;
	uint64_t fed = 0;

	for (unsigned int i = 0; i < 3; i++) {
		snprintf(header, sizeof(header), "{\"t%u\":{\"dtype\":\"U8\",\"shape\":[%lu],\"data_offsets\":[0,%lu]}}", i, bytes[i], bytes[i]);
		safetensors(&f[i], header, bytes[i]);
		put_filling(&f[i], 3);
		sha256_hex(f[i].data, f[i].bytes, want[i]);
		save_as((const char *[]){ "a", "b", "c" }[i], &f[i]);
	}
	path = save_as("list", &(struct file){ .data = (unsigned char *)"{\"weight_map\":{\"t0\":\"a\",\"t1\":\"b\",\"t2\":\"c\"}}", .bytes = 43 });
	ck_ok(pinion_feed_open(ctx, path, &opts, &feed));
	while (!pinion_feed_next(feed, &c)) {
		ck_assert_uint_eq(c.tensor.shard, c.number);
		ck_assert_int_eq(c.bytes ? memcmp(c.data, f[c.number].data + c.tensor.file_offset + c.at, c.bytes) : 0, 0);
		fed += c.bytes;
		pinion_feed_done(feed, &c);
	}
	ck_assert_uint_eq(fed, 270000);
	for (unsigned int i = 0; i < 3; i++) {
		ck_ok(pinion_feed_shard_at(feed, i, &shard));
		ck_assert_str_eq(shard.sha256, want[i]);
		free(f[i].data);
	}
	pinion_feed_free(feed);
}
END_TEST

/* Backpressure: what is read is never more than what was given back makes room for. */
START_TEST(no_more_is_read_than_the_buffers_take)
{
	struct pinion_feed_opts opts = { .size = sizeof(opts), .buffers = 3, .buffer_bytes = 16384, .io = PINION_IO_BUFFERED };
	static const struct part parts[] = { { 1 << 20, false } };
	struct pinion_feed_stats stats = { .size = sizeof(stats) };
	struct pinion_chunk c[64], more = { .size = sizeof(more) };
	struct pinion_device *dev;
	struct pinion_feed *feed;
	struct file f = { 0 };
	uint32_t pending;
	unsigned int n = 0;

	put_parts(&f, parts, 1, 0);
	put_filling(&f, 3);
	ck_ok(pinion_device_find(ctx, "hostio", &dev));
	ck_ok(pinion_feed_open(ctx, save_as("pressed", &f), &opts, &feed));
	for (; n < 3; n++) {
		c[n].size = sizeof(c[n]);
		ck_ok(pinion_feed_next(feed, &c[n]));
		ck_assert_uint_eq(c[n].buffer, n);
	}
	for (unsigned int i = 0; i < 5; i++) {
		usleep(10000);
		ck_assert_int_eq(pinion_feed_next(feed, &more), -EBUSY);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "3 buffers"));
		ck_ok(pinion_feed_stats(feed, &stats));
		ck_assert_uint_eq(stats.bytes_read, 3 * 16384);
		ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &pending));
		ck_assert_uint_eq(pending, 0);
	}
	/* What the caller has stays as it is, and buffers come back in any order. */
	pinion_feed_done(feed, &c[1]);
	pinion_feed_done(feed, &c[2]);
	ck_assert_int_eq(pinion_feed_next(feed, &more), -EBUSY);
	ck_assert_int_eq(memcmp(c[0].data, f.data + c[0].tensor.file_offset, c[0].bytes), 0);
	pinion_feed_done(feed, &c[0]);
	/* Once too often changes nothing. */
	pinion_feed_done(feed, &c[0]);
	ck_ok(pinion_feed_next(feed, &more));
	ck_assert_uint_eq(more.at, c[2].at + c[2].bytes);
	ck_assert_int_eq(memcmp(more.data, f.data + more.tensor.file_offset + more.at, more.bytes), 0);
	pinion_feed_free(feed);
	free(f.data);
}
END_TEST

/* Row of the promise: a model larger than what may be had goes through. */
START_TEST(the_peak_of_memory_is_the_buffers)
{
	struct pinion_feed_opts opts = { .size = sizeof(opts), .buffers = 4, .buffer_bytes = 1 << 20, .io = all_io[_i], .hash = true };
	static const struct part parts[] = { { UINT64_C(384) << 20, false } };
	struct pinion_chunk c = { .size = sizeof(c) };
	struct pinion_context *own;
	struct pinion_feed *feed;
	struct file f = { 0 };
	const char *path;
	long kib = -1;
	uint64_t sum = 0;
	int ends[2], status;

	if (SANITIZED)
		SKIP("an address sanitizer's own memory would be measured");
	put_parts(&f, parts, 1, 0);
	path = save_as("large", &f);
	ck_assert_int_eq(pipe(ends), 0);
	if (fork() == 0) {
		ck_ok(pinion_open(NULL, &own));
		kib = peak_kib();
		ck_ok(pinion_feed_open(own, path, &opts, &feed));
		while (!pinion_feed_next(feed, &c)) {
			sum += c.bytes;
			pinion_feed_done(feed, &c);
		}
		kib = peak_kib() - kib;
		_exit(sum != parts[0].bytes || write(ends[1], &kib, sizeof(kib)) != sizeof(kib));
	}
	wait(&status);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(read(ends[0], &kib, sizeof(kib)), sizeof(kib));
	printf("384 MiB through 4 buffers of 1 MiB: %ld KiB more at the peak\n", kib);
	ck_assert_int_le(kib, (4 << 10) + (4 << 10));
	unlink(path);
	free(f.data);
}
END_TEST

START_TEST(a_file_that_changes_is_an_error_and_stays_one)
{
	struct pinion_feed_opts opts = { .size = sizeof(opts), .buffers = 1, .buffer_bytes = 4096, .io = all_io[_i] };
	struct pinion_chunk c = { .size = sizeof(c) };
	struct pinion_feed *feed;
	struct file f = { 0 };
	const char *path;
	int ret;

	make_safetensors(&f);
	path = save_as("shrinks", &f);
	ck_ok(pinion_feed_open(ctx, path, &opts, &feed));
	ck_assert_int_eq(truncate(path, 8192), 0);
	do {
		ret = pinion_feed_next(feed, &c);
		if (!ret)
			pinion_feed_done(feed, &c);
	} while (!ret);
	ck_assert_int_eq(ret, -EBADMSG);
	ck_assert_msg(strstr(pinion_error(), "shrinks changed while it was read") != NULL, "%s", pinion_error());
	ck_assert_int_eq(pinion_feed_next(feed, &c), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "shrinks changed"));
	pinion_feed_free(feed);
	free(f.data);
}
END_TEST

/* The descriptor of a file that is through was closed; its number is another's then. */
START_TEST(a_file_that_is_gone_ends_the_feed_and_closes_nothing_of_others)
{
	struct pinion_feed_opts opts = { .size = sizeof(opts), .buffers = 2, .buffer_bytes = 4096 };
	struct pinion_chunk c[3], more = { .size = sizeof(more) };
	struct file f[2] = { 0 };
	struct pinion_feed *feed;
	char gone[PATH_MAX];
	int others[16];

	for (unsigned int i = 0; i < 2; i++) {
		safetensors(&f[i], i ? "{\"t1\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}" :
				       "{\"t0\":{\"dtype\":\"U8\",\"shape\":[9000],\"data_offsets\":[0,9000]}}",
			    i ? 9 : 9000);
		put_filling(&f[i], 3);
		snprintf(gone, sizeof(gone), "%s", save_as(i ? "gone" : "first", &f[i]));
		free(f[i].data);
	}
	ck_ok(pinion_feed_open(ctx,
			       save_as("gone.json", &(struct file){ .data = (unsigned char *)"{\"weight_map\":{\"t0\":\"first\",\"t1\":\"gone\"}}",
								 .bytes = 41 }),
			       &opts, &feed));
	for (unsigned int i = 0; i < 3; i++) {
		c[i].size = sizeof(c[i]);
		ck_ok(pinion_feed_next(feed, &c[i]));
		if (i == 0)
			pinion_feed_done(feed, &c[i]);
	}
	for (size_t i = 0; i < LENGTH(others); i++)
		ck_assert_int_ge(others[i] = open("/dev/null", O_RDONLY), 0);
	ck_assert_int_eq(unlink(gone), 0);
	pinion_feed_done(feed, &c[1]);
	ck_assert_int_eq(pinion_feed_next(feed, &more), -ENOENT);
	pinion_feed_free(feed);
	for (size_t i = 0; i < LENGTH(others); i++)
		ck_assert_int_eq(close(others[i]), 0);
}
END_TEST

START_TEST(a_feed_is_cancelled_and_freed_at_any_time)
{
	bool cancel = false;
	struct pinion_feed_opts opts = { .size = sizeof(opts), .buffers = 2, .buffer_bytes = 4096, .cancel = &cancel, .hash = true };
	struct pinion_chunk c = { .size = sizeof(c) };
	struct pinion_feed *feed;
	struct pinion_device *dev;
	struct file f = { 0 };
	const char *path;
	uint32_t pending;

	make_safetensors(&f);
	path = save_as("left", &f);
	for (unsigned int chunks = 0; chunks < 12; chunks++) {
		cancel = false;
		ck_ok(pinion_feed_open(ctx, path, &opts, &feed));
		for (unsigned int i = 0; i < chunks; i++) {
			ck_ok(pinion_feed_next(feed, &c));
			pinion_feed_done(feed, &c);
		}
		cancel = true;
		ck_assert_int_eq(pinion_feed_next(feed, &c), -ECANCELED);
		cancel = false;
		/* It is as if nobody had asked. */
		if (chunks % 2)
			ck_ok(pinion_feed_next(feed, &c));
		pinion_feed_free(feed);
		ck_ok(pinion_device_find(ctx, "hostio", &dev));
		ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &pending));
		ck_assert_uint_eq(pending, 0);
	}
	free(f.data);
}
END_TEST

START_TEST(what_a_feed_cannot_be_is_refused)
{
	static const struct {
		uint32_t buffers;
		uint64_t bytes;
		enum pinion_io io;
		const char *why;
	} bad[] = {
		{ 1025, 4096, 0, "at most 1024" },
		{ 1, 4097, 0, "a multiple of 4096" },
		{ 1, UINT64_C(2) << 30, 0, "up to 1073741824" },
		{ 1, 4096, 7, "not one of enum pinion_io" },
	};
	struct pinion_feed *feed = NULL;
	struct file f = { 0 };
	const char *path;

	make_safetensors(&f);
	path = save_as("options", &f);
	for (size_t i = 0; i < LENGTH(bad); i++) {
		struct pinion_feed_opts opts = { .size = sizeof(opts), .buffers = bad[i].buffers, .buffer_bytes = bad[i].bytes, .io = bad[i].io };

		ck_assert_int_eq(pinion_feed_open(ctx, path, &opts, &feed), -EINVAL);
		ck_assert_msg(strstr(pinion_error(), bad[i].why) != NULL, "%s", pinion_error());
	}
	ck_assert_int_eq(pinion_feed_open(ctx, hostile("bad_truncated.safetensors"), NULL, &feed), -EBADMSG);
	ck_assert_int_eq(pinion_feed_open(ctx, "/no/such/file", NULL, &feed), -ENOENT);
	ck_assert_ptr_null(feed);
	free(f.data);
}
END_TEST

static Suite *feed_suite(void)
{
	Suite *suite = suite_create("feed");
	TCase *tcase = tcase_create("feed");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, every_byte_comes_once_and_in_order, 0, 6);
	tcase_add_test(tcase, files_follow_one_another);
	tcase_add_test(tcase, no_more_is_read_than_the_buffers_take);
	tcase_add_loop_test(tcase, the_peak_of_memory_is_the_buffers, 0, 3);
	tcase_add_loop_test(tcase, a_file_that_changes_is_an_error_and_stays_one, 0, 3);
	tcase_add_test(tcase, a_file_that_is_gone_ends_the_feed_and_closes_nothing_of_others);
	tcase_add_test(tcase, a_feed_is_cancelled_and_freed_at_any_time);
	tcase_add_test(tcase, what_a_feed_cannot_be_is_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(feed_suite)
