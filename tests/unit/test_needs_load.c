/* SPDX-License-Identifier: MIT */
/*
 * Reports of users of other loaders, made tests of this one: the rows of user-needs.md, section 5, that concern loading. The row
 * is named above each; what it says of the parsers alone is in test_index.c.
 */
#include "index_files.h"

#include <pinion/pinion.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

static struct pinion_context *ctx;

static void setup(void)
{
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

/* The file is refused with a sentence, and nobody has its name. */
static void expect_refused(const char *file, const char *why)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	struct pinion_holder *h = NULL;
	struct pinion_model *m = NULL;
	int ret = pinion_model_load_named(ctx, "hostile", hostile(file), NULL, &h, &m);

	ck_assert_msg(ret == -EBADMSG, "%s: %d (%s)", file, ret, pinion_error());
	ck_assert_msg(strstr(pinion_error(), why) != NULL, "'%s' lacks '%s'", pinion_error(), why);
	ck_assert(!m && !h);
	ck_assert_int_eq(pinion_name_show(ctx, "hostile", &info, NULL, 0, NULL), -ENOENT);
}

/* Row 31 */
START_TEST(an_offset_past_the_end_is_refused_with_tensor_need_and_have_and_holds_nothing)
{
	expect_refused("bad_offset_past_eof.gguf", "tensor 't': needs 34 bytes at offset 1048640 of the file, which has 98");
	expect_refused("bad_truncated_data.gguf", "tensor 't': needs 68 bytes at offset 64 of the file, which has 98");
}
END_TEST

/* Row 32; no check of the parsers is an assert(), which NDEBUG would take away. */
START_TEST(nine_dimensions_are_refused)
{
	expect_refused("bad_ndims_9.gguf", "tensor 't': its rank is 9, at most 4 is allowed");
}
END_TEST

/* Row 33 */
START_TEST(sizes_that_wrap_are_refused)
{
	expect_refused("bad_bytes_wrap.gguf", "overflows");
	expect_refused("bad_elements_wrap.gguf", "its number of elements overflows");
}
END_TEST

/* Row 34 */
START_TEST(alignment_zero_and_lengths_without_bound_are_refused_and_cost_nothing)
{
	static const char *const files[] = { "bad_align_0.gguf",	"bad_name_len_2p63.gguf", "bad_ntensors_huge.gguf",
					     "bad_row_not_block.gguf", "bad_magic.gguf",	  "bad_version_70.gguf" };
	long ns, kib;

	for (size_t i = 0; i < LENGTH(files); i++) {
		expect_refused(files[i], "");
		if (SANITIZED)
			continue;
		kib = refuse_kib(hostile(files[i]), &ns);
		printf("%s: %ld KiB, %ld us\n", files[i], kib, ns / 1000);
		ck_assert_int_lt(kib, 1024);
	}
}
END_TEST

/* Row 35 */
START_TEST(truncated_and_inconsistent_headers_are_refused_with_the_reason)
{
	expect_refused("bad_truncated.safetensors", "tensor 't': needs 16 bytes at offset 64 of the file, which has 74");
	expect_refused("bad_header_len_2p40.safetensors", "its JSON needs 1099511627776 bytes");
	expect_refused("bad_overlap.safetensors", "overlaps tensor 'a'");
	expect_refused("bad_shape_bytes.safetensors", "its shape and dtype need 12 bytes, its data_offsets have 16");
	expect_refused("bad_duplicate_key.safetensors", "tensor 't' is there twice");
}
END_TEST

/* Row 36 */
START_TEST(a_tensor_that_the_file_has_unaligned_is_at_a_multiple_of_256)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .io = _i };
	struct pinion_model *m;
	struct pinion_tensor t;
	uint64_t n = 0;

	ck_ok(pinion_model_load(ctx, hostile("ok_unaligned_header.safetensors"), &opts, &m));
	for (; !pinion_model_tensor_at(m, n, &t); n++) {
		ck_assert_uint_ne(t.file_offset % 64, 0);
		ck_assert_uint_eq((uintptr_t)t.data % 256, 0);
	}
	ck_assert_uint_ge(n, 1);
	pinion_model_free(m);
}
END_TEST

static void make_file(struct file *f, uint64_t bytes, unsigned int skew)
{
	struct part part = { bytes, skew != 0 };

	put_parts(f, &part, 1, skew);
	while (f->bytes < f->sparse) {
		uint64_t word = f->bytes * UINT64_C(0x9e3779b97f4a7c15);

		put(f, &word, f->sparse - f->bytes < 8 ? f->sparse - f->bytes : 8);
	}
}

static void expect_bytes(const struct pinion_model *m, const struct file *f)
{
	struct pinion_tensor t;

	for (uint64_t i = 0; !pinion_model_tensor_at(m, i, &t); i++)
		ck_assert_int_eq(memcmp(t.data, f->data + t.file_offset, t.bytes), 0);
}

static void on_alarm(int sig)
{
	(void)sig;
}

/*
 * Row 37: three pieces of 4 MiB and a byte, while signals interrupt what can be interrupted. That the kernel returns less than was
 * asked for is in test_stream.c (short_reads_are_continued), which can make it do so.
 */
START_TEST(three_pieces_and_a_byte_are_whole_under_a_storm_of_signals)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .io = _i / 2, .hash = true };
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };
	struct sigaction action = { .sa_handler = on_alarm }; /* without SA_RESTART */
	struct pinion_model *m;
	struct file f = { 0 };
	const char *path;
	int ret;

	make_file(&f, 3 * (UINT64_C(4) << 20) + 1, _i % 2);
	path = save(&f);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	ret = pinion_model_load(ctx, path, &opts, &m);
	setitimer(ITIMER_REAL, &never, NULL);
	ck_assert_msg(!ret, "%d (%s)", ret, pinion_error());
	expect_bytes(m, &f);
	pinion_model_free(m);
	free(f.data);
}
END_TEST

/* Row 8: the data is right, and why the pages are held no better is said. */
START_TEST(nine_unaligned_blocks_load_where_memlock_is_64_kib)
{
	struct rlimit lim = { 65536, 65536 };
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_context *own;
	struct pinion_model *m;
	struct file f = { 0 };
	char dir[] = "/tmp/pinion-plain-XXXXXX", path[64], command[PATH_MAX + 96];
	const char *saved;
	int status;

	/* Where a plain user gets to. */
	ck_assert_ptr_nonnull(mkdtemp(dir));
	make_file(&f, 9 * 4096, 3);
	snprintf(path, sizeof(path), "%s/nine.safetensors", dir);
	saved = save(&f);
	if (rename(saved, path)) {
		/* It is another file system. */
		snprintf(command, sizeof(command), "mv '%s' %s", saved, path);
		ck_assert_int_eq(system(command), 0);
	}
	if (geteuid() == 0)
		ck_assert(!chown(dir, 65534, 65534) && !chown(path, 65534, 65534));
	if (fork() == 0) {
		ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &lim), 0);
		if (geteuid() == 0)
			ck_assert(!setgid(65534) && !setuid(65534));
		setenv("PINION_DIR", dir, 1);
		ck_ok(pinion_open(NULL, &own));
		ck_ok(pinion_model_load(own, path, &(struct pinion_load_opts){ .size = sizeof(struct pinion_load_opts), .io = _i }, &m));
		expect_bytes(m, &f);
		ck_ok(pinion_buffer_info(pinion_model_buffer(m), &info));
		printf("held %d: %s\n", info.hold, info.hold_why);
		/* Either it fits the limit, or it is said why it is held worse. */
		ck_assert(info.hold == PINION_HOLD_REGISTERED || info.hold == PINION_HOLD_PINNED || *info.hold_why);
		_exit(0);
	}
	wait(&status);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(status, 0);
	free(f.data);
}
END_TEST

static int remove_it(void *arg, uint64_t done, uint64_t total)
{
	int *ret = arg;

	(void)done;
	(void)total;
	if (*ret == 1)
		*ret = pinion_name_remove(ctx, "going");
	return 0;
}

/* Row 16: the name may go, the data is whole. */
START_TEST(a_name_that_is_removed_while_it_is_read_leaves_whole_data)
{
	int removed = 1;
	struct pinion_load_opts opts = { .size = sizeof(opts), .progress = remove_it, .progress_arg = &removed };
	struct pinion_holder *h;
	struct pinion_model *m;
	struct file f = { 0 };

	make_file(&f, 9 << 20, 3);
	ck_ok(pinion_model_load_named(ctx, "going", save(&f), &opts, &h, &m));
	ck_assert_msg(removed == 0 || removed == -EBUSY, "%d", removed);
	expect_bytes(m, &f);
	pinion_holder_free(h);
	pinion_model_free(m);
	free(f.data);
}
END_TEST

static Suite *needs_load_suite(void)
{
	Suite *suite = suite_create("needs_load");
	TCase *tcase = tcase_create("needs_load");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_offset_past_the_end_is_refused_with_tensor_need_and_have_and_holds_nothing);
	tcase_add_test(tcase, nine_dimensions_are_refused);
	tcase_add_test(tcase, sizes_that_wrap_are_refused);
	tcase_add_test(tcase, alignment_zero_and_lengths_without_bound_are_refused_and_cost_nothing);
	tcase_add_test(tcase, truncated_and_inconsistent_headers_are_refused_with_the_reason);
	tcase_add_loop_test(tcase, a_tensor_that_the_file_has_unaligned_is_at_a_multiple_of_256, 0, 3);
	tcase_add_loop_test(tcase, three_pieces_and_a_byte_are_whole_under_a_storm_of_signals, 0, 6);
	tcase_add_loop_test(tcase, nine_unaligned_blocks_load_where_memlock_is_64_kib, 0, 3);
	tcase_add_test(tcase, a_name_that_is_removed_while_it_is_read_leaves_whole_data);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(needs_load_suite)
