/* SPDX-License-Identifier: MIT */
/* Opening a model file: hostile ones, real ones, ones that misbehave while they are read; and the public calls. */
#include "index_files.h"

#include <dirent.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- hostile files ---- */

static const struct hostile {
	const char *file;
	const char *why;
} bad[] = {
	{"bad_align_0.gguf", "key 'general.alignment' is 0, it must be a power of two from 8"},
	{"bad_bytes_wrap.gguf", "tensor 't': its number of elements overflows, shape [32, 9223372036854775808]"},
	{"bad_dim_larger_than_file.gguf",
	 "tensor 't': needs 5383208929592520 bytes at offset 96 of the file, which has 130"},
	{"bad_elements_wrap.gguf", "tensor 't': its number of elements overflows, shape [8589934592, 8589934592]"},
	{"bad_magic.gguf", "magic 47 47 55 58"},
	{"bad_name_len_2p63.gguf", "tensor 0: the length of its name is 9223372036854775808, 1 to 1023 is allowed"},
	{"bad_ndims_9.gguf", "tensor 't': its rank is 9, at most 4 is allowed"},
	{"bad_ntensors_huge.gguf",
	 "the tensor count is 1152921504606846976, of at least 8 bytes each; the file has 0 left"},
	{"bad_offset_past_eof.gguf", "tensor 't': needs 34 bytes at offset 1048640 of the file, which has 98"},
	{"bad_row_not_block.gguf", "tensor 't': its rows of 33 elements are not whole blocks of q8_0, which have 32"},
	{"bad_truncated_data.gguf", "tensor 't': needs 68 bytes at offset 64 of the file, which has 98"},
	{"bad_version_70.gguf", "version 70 of GGUF, only 2 and 3 are read"},
	{"bad_duplicate_key.safetensors", "tensor 't' is there twice"},
	{"bad_header_len_2p40.safetensors", "its JSON needs 1099511627776 bytes at offset 8, the file has 16"},
	{"bad_overlap.safetensors",
	 "tensor 'b' begins at offset 124 of the file and overlaps tensor 'a', which ends at 128"},
	{"bad_shape_bytes.safetensors", "tensor 't': its shape and dtype need 12 bytes, its data_offsets have 16"},
	{"bad_truncated.safetensors", "tensor 't': needs 16 bytes at offset 64 of the file, which has 74"},
};

START_TEST(hostile_refused)
{
	struct dirent *entry;
	unsigned int seen = 0;
	DIR *dir;

	for (size_t i = 0; i < LENGTH(bad); i++)
		refused(hostile(bad[i].file), bad[i].why);
	dir = opendir(hostile(""));
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)))
		seen += !strncmp(entry->d_name, "bad_", 4);
	closedir(dir);
	ck_assert_uint_eq(seen, LENGTH(bad));
}
END_TEST

START_TEST(hostile_light)
{
	const long most = 10000000l * test_slower();

	if (SANITIZED)
		SKIP("an address sanitizer's memory and time would be measured");
	for (size_t i = 0; i < LENGTH(bad); i++) {
		long ns, kib = refuse_kib(hostile(bad[i].file), &ns);

		/* Not every kernel tells its own time from what was taken from it meanwhile. */
		for (int again = 0; again < 10 && ns >= most; again++)
			refuse_kib(hostile(bad[i].file), &ns);
		ck_assert_msg(kib <= 1024, "%s: %ld KiB", bad[i].file, kib);
		ck_assert_msg(ns < most, "%s: %ld ns", bad[i].file, ns);
	}
}
END_TEST

START_TEST(hostile_controls_load)
{
	struct index_block *b = loads(hostile("ok_q8_0_1block.gguf"));

	expect_tensor(b, "t", PINION_TYPE_Q8_0, 32, 34, 64);
	ck_assert_uint_eq(index_shards(b)->alignment, 32);
	free(b);
	b = loads(hostile("ok_two_tensors_align64.gguf"));
	ck_assert_uint_eq(b->tensor_count, 2);
	ck_assert_uint_eq(index_shards(b)->alignment, 64);
	expect_tensor(b, "a", PINION_TYPE_F32, 16, 64, 128);
	expect_tensor(b, "b", PINION_TYPE_F32, 16, 64, 192);
	free(b);
	b = loads(hostile("ok_f32.safetensors"));
	expect_tensor(b, "t", PINION_TYPE_F32, 4, 16, 64);
	ck_assert_uint_eq(b->moved_bytes, 0);
	free(b);
	b = loads(hostile("ok_unaligned_header.safetensors"));
	expect_tensor(b, "t", PINION_TYPE_F32, 4, 16, 63);
	ck_assert_uint_eq(b->moved_bytes, 16);
	ck_assert_uint_eq(index_tensors(b)->offset % 256, 0);
	free(b);
}
END_TEST

static const char *const ok[] = {
	"ok_q8_0_1block.gguf",
	"ok_two_tensors_align64.gguf",
	"ok_f32.safetensors",
	"ok_unaligned_header.safetensors",
};

START_TEST(prefixes_refused)
{
	struct file f;
	size_t whole;

	load_file(hostile(ok[_i]), &f);
	whole = f.bytes;
	for (f.bytes = 0; f.bytes < whole; f.bytes++)
		ck_assert_msg(!survives(save(&f)), "the first %zu of %zu bytes load", f.bytes, whole);
	free(f.data);
}
END_TEST

START_TEST(changed_bytes_survive)
{
	struct file f;
	char path[PATH_MAX];
	int fd;

	load_file(hostile(ok[_i]), &f);
	snprintf(path, sizeof(path), "%s", save(&f));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	for (size_t i = 0; i < f.bytes; i++) {
		for (unsigned int bit = 0; bit < 8; bit++) {
			unsigned char changed = f.data[i] ^ 1u << bit;

			ck_assert_int_eq(pwrite(fd, &changed, 1, i), 1);
			survives(path);
		}
		ck_assert_int_eq(pwrite(fd, &f.data[i], 1, i), 1);
	}
	ck_assert(survives(path));
	close(fd);
	free(f.data);
}
END_TEST

/* ---- real files ---- */

static const char *const real[] = {
	"ocr-rec-f16.safetensors",
	"ocr-rec-q8.gguf",
	"silero-vad-mixed.gguf",
	"silero-vad.safetensors",
	"ocr-rec-sharded/model-00001-of-00002.safetensors",
	"ocr-rec-sharded/model-00002-of-00002.safetensors",
};

static void expect_row(const struct index_block *b, char *row)
{
	char *name = strsep(&row, "\t"), *type = strsep(&row, "\t"), *shape = strsep(&row, "\t");
	uint64_t offset = strtoull(strsep(&row, "\t"), NULL, 10), bytes = strtoull(strsep(&row, "\t"), NULL, 10);
	int64_t i = index_find(b, name);
	struct pinion_tensor t;
	uint32_t rank = 0;
	char *dim;

	ck_assert_msg(i >= 0, "no tensor '%s'", name);
	index_describe(b, i, &t);
	ck_assert_msg(!strcasecmp(pinion_type_info(t.type)->name, type), "%s: %s", name, type);
	if (strcmp(shape, "-"))
		while ((dim = strsep(&shape, ",")))
			ck_assert_uint_eq(t.shape[rank++], strtoull(dim, NULL, 10));
	ck_assert_uint_eq(t.rank, rank);
	ck_assert_uint_eq(t.file_offset, offset);
	ck_assert_uint_eq(t.bytes, bytes);
}

START_TEST(real_manifests)
{
	const char *shared = test_shared();
	struct index_block *b;
	char path[PATH_MAX], *line = NULL;
	uint64_t rows = 0;
	size_t room = 0;
	FILE *in;

	if (!shared)
		SKIP("no shared folder with real files");
	snprintf(path, sizeof(path), "%s/inputs/real/%s", shared, real[_i]);
	b = loads(path);
	snprintf(path, sizeof(path), "%s/inputs/real/%s.manifest.tsv", shared, real[_i]);
	in = fopen(path, "r");
	ck_assert_ptr_nonnull(in);
	ck_assert_int_gt(getline(&line, &room, in), 0);
	while (getline(&line, &room, in) > 0) {
		expect_row(b, line);
		rows++;
	}
	fclose(in);
	free(line);
	ck_assert_uint_eq(rows, b->tensor_count);
	if (!strcmp(real[_i], "ocr-rec-q8.gguf")) {
		ck_assert_str_eq(index_string(b, b->architecture), "ppocr-rec");
		ck_assert_str_eq(index_string(b, b->model_name), "ch_PP-OCRv4_rec_infer");
	}
	free(b);
}
END_TEST

/* ---- files that misbehave ---- */

static struct {
	bool short_reads, interrupts, error;
	const char *truncate; /* to nothing, after so many reads */
	unsigned int after, calls;
} disk;

/* Stands before the C library's for the code under test. */
ssize_t pread(int fd, void *buf, size_t bytes, off_t offset)
{
	disk.calls++;
	if (disk.error && disk.calls > disk.after) {
		errno = EIO;
		return -1;
	}
	if (disk.truncate && disk.calls > disk.after && truncate(disk.truncate, 0))
		return -1;
	if (disk.interrupts && disk.calls % 2) {
		errno = EINTR;
		return -1;
	}
	if (disk.short_reads && bytes > 7)
		bytes = 7;
	return syscall(SYS_pread64, fd, buf, bytes, offset);
}

START_TEST(reads_come_in_parts)
{
	struct file f = {0};
	struct index_block *b;
	const char *path;

	disk.short_reads = disk.interrupts = true;
	b = loads(hostile("ok_two_tensors_align64.gguf"));
	expect_tensor(b, "b", PINION_TYPE_F32, 16, 64, 192);
	free(b);
	/* A header of more than one window. */
	gguf(&f, 3, 1, 1);
	put_key(&f, "k", 9);
	put_u32(&f, 8);
	put_u64(&f, 20000);
	for (unsigned int i = 0; i < 20000; i++)
		put_string(&f, i % 2 ? "odd" : "even!");
	end_gguf(&f);
	path = save(&f);
	disk.calls = 0;
	free(loads(path));
	ck_assert_uint_gt(disk.calls, f.bytes / 7);
	free(f.data);
}
END_TEST

START_TEST(file_shrinks)
{
	struct file f = {0};

	gguf(&f, 3, 1, 1);
	put_key(&f, "k", 9);
	put_u32(&f, 8);
	put_u64(&f, 80000);
	for (unsigned int i = 0; i < 80000; i++)
		put_string(&f, "token");
	end_gguf(&f);
	for (unsigned int after = 0; after < 3; after++) {
		disk.truncate = save(&f);
		disk.after = after;
		disk.calls = 0;
		refused(disk.truncate, "it shrank while it was read");
		disk.truncate = NULL;
	}
	free(f.data);
}
END_TEST

START_TEST(reading_fails)
{
	struct index_block *block;

	disk.error = true;
	for (disk.after = 0; disk.after < 2; disk.after++) {
		disk.calls = 0;
		ck_assert_int_eq(read_path(hostile("ok_f32.safetensors"), &block), -EIO);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "Input/output error"));
	}
}
END_TEST

START_TEST(direct_descriptor)
{
	struct file f;
	struct index_block *block;
	int fd;

	load_file(hostile("ok_two_tensors_align64.gguf"), &f);
	fd = open(save(&f), O_RDONLY | O_DIRECT | O_CLOEXEC);
	free(f.data);
	if (fd < 0)
		SKIP("no O_DIRECT on %s", test_tmp());
	ck_ok(index_read(fd, "direct", &block));
	close(fd);
	expect_tensor(block, "b", PINION_TYPE_F32, 16, 64, 192);
	free(block);
}
END_TEST

static void open_refused(const char *path, int err, const char *why)
{
	struct pinion_index *ix = (struct pinion_index *)1;
	int ret = pinion_index_open(path, &ix);

	ck_assert_msg(ret == -err, "%s: %d", path, ret);
	ck_assert_msg(strstr(pinion_error(), why) != NULL, "'%s' lacks '%s'", pinion_error(), why);
	ck_assert_ptr_eq(ix, (struct pinion_index *)1);
}

START_TEST(not_regular)
{
	char path[PATH_MAX], longer[PATH_MAX];
	struct file f = {0};

	snprintf(path, sizeof(path), "%s/fifo", test_tmp());
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	open_refused(path, EINVAL, "/fifo: it is a FIFO, a regular file is needed");
	open_refused(test_tmp(), EINVAL, "it is a directory, a regular file is needed");
	open_refused("/dev/zero", EINVAL, "/dev/zero: it is a device, a regular file is needed");
	snprintf(path, sizeof(path), "%s/none", test_tmp());
	open_refused(path, ENOENT, "/none: No such file or directory");
	open_refused(save(&f), EBADMSG, "the file is empty");
	put(&f, "{\"metadata\": {}, \"weight_map\": {}}", 34);
	open_refused(save(&f), EBADMSG, "its weight_map is empty");
	/* Of a long path the end is shown. */
	snprintf(longer, sizeof(longer), "%s/%0200d/end", test_tmp(), 0);
	open_refused(longer, ENOENT, "000/end: No such file");
	free(f.data);
}
END_TEST

/* ---- the public calls ---- */

START_TEST(info_by_size)
{
	struct {
		struct pinion_index_info info;
		uint64_t newer;
	} wide = {.info.size = sizeof(wide)};
	struct pinion_index_info info = {.size = offsetof(struct pinion_index_info, tensors), .tensors = 99};
	struct pinion_index *ix;

	ck_ok(pinion_index_open(hostile("ok_two_tensors_align64.gguf"), &ix));
	ck_ok(pinion_index_info(ix, &info));
	ck_assert_str_eq(info.format, "gguf");
	ck_assert(info.version == 3 && info.alignment == 64 && info.file_bytes == 256 && info.data_offset == 128);
	ck_assert_uint_eq(info.tensors, 99);
	ck_assert_uint_eq(info.size, offsetof(struct pinion_index_info, tensors));
	ck_ok(pinion_index_info(ix, &wide.info));
	ck_assert(wide.info.tensors == 2 && wide.info.tensor_bytes == 128 && wide.info.buffer_bytes == 256 &&
		  !wide.info.moved_bytes);
	ck_assert_str_eq(wide.info.architecture, "");
	ck_assert_str_eq(wide.info.name, "");
	wide.newer = 1;
	ck_assert_int_eq(pinion_index_info(ix, &wide.info), -E2BIG);
	info.size = 0;
	ck_assert_int_eq(pinion_index_info(ix, &info), -EINVAL);
	pinion_index_free(ix);
	pinion_index_free(NULL);
}
END_TEST

START_TEST(tensors_by_name_and_place)
{
	struct pinion_tensor t, same;
	struct pinion_index *ix;

	ck_ok(pinion_index_open(hostile("ok_two_tensors_align64.gguf"), &ix));
	ck_ok(pinion_index_tensor(ix, "b", &t));
	ck_assert(t.type == PINION_TYPE_F32 && t.rank == 1 && t.shape[0] == 16 && t.bytes == 64);
	ck_assert(t.file_offset == 192 && t.offset == 192 && t.data == NULL);
	ck_ok(pinion_index_tensor_at(ix, 1, &same));
	ck_assert_mem_eq(&t, &same, sizeof(t));
	ck_assert_int_eq(pinion_index_tensor(ix, "c\n", &t), -ENOENT);
	ck_assert_str_eq(pinion_error(), "there is no tensor 'c?' among the 2");
	ck_assert_int_eq(pinion_index_tensor_at(ix, 2, &t), -ENOENT);
	ck_assert_str_eq(pinion_error(), "there is no tensor 2, the file has 2");
	ck_assert_mem_eq(&t, &same, sizeof(t));
	pinion_index_free(ix);
}
END_TEST

START_TEST(many_tensors)
{
	struct file f = {0};
	struct index_block *b;
	char name[32];

	gguf(&f, 3, 20000, 0);
	for (uint32_t i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "t%u", i * 7919 % 20000);
		put_tensor(&f, name, PINION_TYPE_F32, (19999 - i) * UINT64_C(32), 1, UINT64_C(8));
	}
	f.sparse = up(f.bytes, 32) + 20000 * 32;
	b = file_loads(&f);
	ck_assert_uint_eq(b->tensor_count, 20000);
	ck_assert_uint_eq(b->tensor_bytes, 20000 * 32);
	free(b);
	free(f.data);
}
END_TEST

static void reset(void)
{
	memset(&disk, 0, sizeof(disk));
}

static Suite *index_suite(void)
{
	Suite *suite = suite_create("index");
	TCase *tcase = tcase_create("index");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, reset, NULL);
	tcase_add_test(tcase, hostile_refused);
	tcase_add_test(tcase, hostile_light);
	tcase_add_test(tcase, hostile_controls_load);
	tcase_add_loop_test(tcase, prefixes_refused, 0, LENGTH(ok));
	tcase_add_loop_test(tcase, changed_bytes_survive, 0, LENGTH(ok));
	tcase_add_loop_test(tcase, real_manifests, 0, LENGTH(real));
	tcase_add_test(tcase, reads_come_in_parts);
	tcase_add_test(tcase, file_shrinks);
	tcase_add_test(tcase, reading_fails);
	tcase_add_test(tcase, direct_descriptor);
	tcase_add_test(tcase, not_regular);
	tcase_add_test(tcase, info_by_size);
	tcase_add_test(tcase, tensors_by_name_and_place);
	tcase_add_test(tcase, many_tensors);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(index_suite)
