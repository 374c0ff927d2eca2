/* SPDX-License-Identifier: MIT */
/* The SHA-256 of what was loaded, whether a file is still what is in memory, and many who load one file under one name. */
#include "index_files.h"
#include "sha256.h"

#include <pinion/pinion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
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

static void sum_of(const struct file *f, char hex[65])
{
	sha256_hex(f->data, f->bytes, hex);
}

static void drop_cache(const char *path)
{
	int fd = open(path, O_RDONLY);

	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

/* A GGUF file with gaps between its tensors, and bytes behind the last. */
static void make_gguf(struct file *f)
{
	gguf(f, 3, 3, 0);
	put_tensor(f, "b", PINION_TYPE_F32, UINT64_C(4096) * 3, 1, UINT64_C(1000));
	put_tensor(f, "a", PINION_TYPE_I8, 0, 1, UINT64_C(5000));
	put_tensor(f, "c", PINION_TYPE_I8, UINT64_C(8) << 20, 1, UINT64_C(9) << 20);
	pad(f, 32);
	f->sparse = f->bytes + (17 << 20) + 777;
	put_filling(f, 7);
}

/* Which: tensors that stay, that all move, runs amid such that move, none at all. */
static void make_file(struct file *f, unsigned int which)
{
	static const struct part stay[] = { { 64, false }, { 3 << 20, false }, { 128, false } };
	static const struct part move[] = { { 77, true }, { 20 << 20, true }, { 0, false }, { 1, true } };
	static const struct part both[] = { { 63, true }, { 1, true }, { 9 << 20, false }, { 65, false }, { 100, true },
					    { 20 << 20, true }, { 91, true }, { MIB + 64, false }, { 3, false } };

	f->bytes = f->sparse = 0;
	if (which == 0)
		make_gguf(f);
	else if (which == 1)
		put_parts(f, stay, LENGTH(stay), 0);
	else if (which == 2)
		put_parts(f, move, LENGTH(move), 8);
	else if (which == 3)
		put_parts(f, both, LENGTH(both), 0);
	else
		put_parts(f, NULL, 0, 0);
	put_filling(f, 7);
}

static void expect_sum(const struct pinion_model *m, uint64_t i, const char *want)
{
	struct pinion_shard shard = { .size = sizeof(shard) };

	ck_ok(pinion_model_shard_at(m, i, &shard));
	ck_assert_str_eq(shard.sha256, want);
}

START_TEST(the_hash_of_a_load_is_that_of_the_file)
{
	struct file f = { 0 };
	struct pinion_model *m;
	const char *path;
	char want[65];

	make_file(&f, _i);
	sum_of(&f, want);
	path = save_as("hashed", &f);
	for (unsigned int i = 0; i < 2 * LENGTH(all_io); i++) {
		struct pinion_load_opts opts = { .size = sizeof(opts), .io = all_io[i / 2], .hash = true };

		if (i % 2)
			drop_cache(path);
		ck_ok(pinion_model_load(ctx, path, &opts, &m));
		expect_sum(m, 0, want);
		ck_ok(pinion_model_match(m, path, true));
		pinion_model_free(m);
	}
	ck_ok(pinion_model_load(ctx, path, NULL, &m));
	expect_sum(m, 0, "");
	/* What no load computed is computed of what is in memory. */
	ck_ok(pinion_model_match(m, path, true));
	pinion_model_free(m);
	free(f.data);
}
END_TEST

START_TEST(each_file_of_several_has_its_hash_and_who_attaches_sees_it)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .hash = true };
	char header[128], want[2][65];
	struct pinion_context *own;
	struct pinion_holder *h;
	struct pinion_model *m;
	const char *path;
	int status;

	for (unsigned int i = 0; i < 2; i++) {
		struct file f = { 0 };

		snprintf(header, sizeof(header), "{\"t%u\":{\"dtype\":\"U8\",\"shape\":[70000],\"data_offsets\":[0,70000]}}", i);
		safetensors(&f, header, 70000);
		put_filling(&f, 7);
		sum_of(&f, want[i]);
		save_as(i ? "b" : "a", &f);
		free(f.data);
	}
	path = save_as("list", &(struct file){ .data = (unsigned char *)"{\"weight_map\":{\"t0\":\"a\",\"t1\":\"b\"}}", .bytes = 34 });
	ck_ok(pinion_holder_open(ctx, "sums", path, &h));
	ck_ok(pinion_model_load(ctx, path, &opts, &m));
	ck_ok(pinion_holder_publish(h, m));
	if (fork() == 0) {
		ck_ok(pinion_open(NULL, &own));
		ck_ok(pinion_model_attach(own, "sums", NULL, &m));
		expect_sum(m, 0, want[0]);
		expect_sum(m, 1, want[1]);
		ck_ok(pinion_model_match(m, path, true));
		_exit(0);
	}
	wait(&status);
	ck_assert_int_eq(status, 0);
	pinion_holder_free(h);
	pinion_model_free(m);
}
END_TEST

static int cancel(void *arg, uint64_t done, uint64_t total)
{
	(void)done;
	(void)total;
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELAXED);
	return 0;
}

/* The hash has begun, and waits for tensors that will not come. */
START_TEST(a_cancelled_load_ends_its_hash)
{
	bool cancelled = false;
	struct pinion_load_opts opts = { .size = sizeof(opts), .hash = true, .progress = cancel, .progress_arg = &cancelled,
					 .cancel = &cancelled };
	struct pinion_model *m = NULL;
	struct file f = { 0 };
	const char *path;

	for (unsigned int which = 0; which < 4; which++) {
		make_file(&f, which);
		path = save_as("cancelled", &f);
		cancelled = false;
		ck_assert_int_eq(pinion_model_load(ctx, path, &opts, &m), -ECANCELED);
		ck_assert_ptr_null(m);
	}
	free(f.data);
}
END_TEST

/* ---- what differs -------------------------------------------------------------------------------------------------- */

static void differs(const struct pinion_model *m, const char *path, bool contents, const char *why)
{
	int ret = pinion_model_match(m, path, contents);

	ck_assert_msg(ret == -ESTALE, "%d (%s), wanted: %s", ret, ret ? pinion_error() : "matches", why);
	ck_assert_msg(strstr(pinion_error(), why) != NULL, "'%s' lacks '%s'", pinion_error(), why);
}

static void set_time(const char *path, const struct timespec *mtime)
{
	struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT }, *mtime };

	ck_assert_int_eq(utimensat(AT_FDCWD, path, ts, 0), 0);
}

START_TEST(what_differs_is_said)
{
	static const struct part parts[] = { { 3 << 20, false } };
	char path[PATH_MAX], other[PATH_MAX];
	struct pinion_load_opts opts = { .size = sizeof(opts), .hash = _i };
	struct file f = { 0 };
	struct pinion_model *m;
	struct stat st;
	int fd;

	put_parts(&f, parts, 1, 0);
	put_filling(&f, 7);
	strcpy(path, save_as("original", &f));
	ck_ok(pinion_model_load(ctx, path, &opts, &m));
	ck_ok(pinion_model_match(m, path, false));
	ck_assert_int_eq(stat(path, &st), 0);

	/* Under another name it is the same file; another file it is not, unless it has the name, size and time. */
	snprintf(other, sizeof(other), "%s/linked-%d", test_tmp(), _i);
	ck_assert_int_eq(link(path, other), 0);
	ck_ok(pinion_model_match(m, other, false));
	strcpy(other, save_as("copy", &f));
	set_time(other, &st.st_mtim);
	differs(m, other, false, "copy is another file");
	ck_assert_int_eq(rename(other, path), 0);
	ck_ok(pinion_model_match(m, path, true));

	set_time(path, &(struct timespec){ st.st_mtim.tv_sec - 5, 0 });
	differs(m, path, false, "original was of 20");
	set_time(path, &st.st_mtim);
	/* One byte, with the time set back: nobody sees it who does not read. */
	fd = open(path, O_WRONLY);
	ck_assert_int_eq(pwrite(fd, "x", 1, f.bytes - 1), 1);
	close(fd);
	set_time(path, &st.st_mtim);
	ck_ok(pinion_model_match(m, path, false));
	differs(m, path, true, "the SHA-256 of original was");
	ck_assert_int_eq(truncate(path, f.bytes + 1), 0);
	ck_assert_int_eq(pinion_model_match(m, path, false), -EBADMSG);
	put(&f, "y", 1);
	gguf(&f, 3, 1, 0);
	end_gguf(&f);
	strcpy(path, save_as("original", &f));
	differs(m, path, false, "the format is another one");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(pinion_model_match(m, path, false), -ENOENT);
	pinion_model_free(m);
	free(f.data);
}
END_TEST

START_TEST(other_tensors_in_a_file_of_the_same_size_are_seen)
{
	static const char *const json[] = { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
					    "{\"a\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}" };
	struct file f = { 0 };
	struct pinion_model *m;
	const char *path;
	struct stat st;

	safetensors(&f, json[0], 4);
	path = save_as("types", &f);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_ok(pinion_model_load(ctx, path, NULL, &m));
	safetensors(&f, json[1], 4);
	save_as("types", &f);
	set_time(path, &st.st_mtim);
	differs(m, path, false, "tensor 'a' is not what it was");
	pinion_model_free(m);
	free(f.data);
}
END_TEST

/* ---- many who load one file ---------------------------------------------------------------------------------------- */

static void check_bytes(const struct pinion_model *m, const struct file *f)
{
	struct pinion_tensor t;

	for (uint64_t i = 0; !pinion_model_tensor_at(m, i, &t); i++)
		ck_assert_int_eq(memcmp(t.data, f->data + t.file_offset, t.bytes), 0);
}

START_TEST(a_second_load_under_the_name_attaches)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .hash = true };
	struct pinion_holder *h, *none;
	struct pinion_model *m, *same = NULL;
	struct file f = { 0 };
	const char *path;

	make_file(&f, 3);
	path = save_as("model", &f);
	ck_ok(pinion_model_load_named(ctx, "m", path, &opts, &h, &m));
	ck_assert_ptr_nonnull(h);
	check_bytes(m, &f);
	for (unsigned int i = 0; i < 2; i++) {
		none = h;
		ck_ok(pinion_model_load_named(ctx, "m", path, i ? &opts : NULL, &none, &same));
		ck_assert_ptr_null(none);
		check_bytes(same, &f);
		/* Nothing was loaded. */
		ck_assert_int_eq(pinion_model_load_stats(same, &(struct pinion_load_stats){ .size = sizeof(struct pinion_load_stats) }),
				 -ENODATA);
		pinion_model_free(same);
	}
	/* All of a large file is read to compare it, which nobody has to wait for. */
	opts.cancel = &(bool){ true };
	none = h;
	same = NULL;
	ck_assert_int_eq(pinion_model_load_named(ctx, "m", path, &opts, &none, &same), -ECANCELED);
	ck_assert(none == h && !same);
	ck_assert_int_eq(truncate(path, f.bytes - 1), 0);
	ck_assert_int_eq(truncate(path, f.bytes), 0);
	same = NULL;
	ck_assert_int_eq(pinion_model_load_named(ctx, "m", path, NULL, &none, &same), -EEXIST);
	ck_assert_msg(strstr(pinion_error(), "'m' is held already, and ") == pinion_error() &&
			      strstr(pinion_error(), "model was of ") != NULL, "%s", pinion_error());
	ck_assert_ptr_null(same);
	pinion_holder_free(h);
	pinion_model_free(m);
	ck_ok(pinion_model_load_named(ctx, "m", path, NULL, &h, &m));
	ck_assert_ptr_nonnull(h);
	pinion_holder_free(h);
	pinion_model_free(m);
	free(f.data);
}
END_TEST

#define MANY 12

struct many {
	pthread_barrier_t start;
	unsigned int loaded;
	unsigned int attached;
	unsigned int over;
};

static void one_of_many(struct many *many, const char *path, const struct file *f)
{
	struct pinion_context *own;
	struct pinion_holder *h;
	struct pinion_model *m;

	ck_ok(pinion_open(NULL, &own));
	pthread_barrier_wait(&many->start);
	ck_ok(pinion_model_load_named(own, "many", path, NULL, &h, &m));
	check_bytes(m, f);
	__atomic_add_fetch(h ? &many->loaded : &many->attached, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&many->over, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&many->over, __ATOMIC_SEQ_CST) < MANY)
		usleep(1000);
	pinion_holder_free(h);
	pinion_model_free(m);
	pinion_close(own);
	_exit(0);
}

START_TEST(of_many_who_load_a_file_at_once_one_does)
{
	struct many *many = mmap(NULL, sizeof(*many), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attr;
	struct file f = { 0 };
	const char *path;
	int status;

	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&many->start, &attr, MANY);
	make_file(&f, 3);
	path = save_as("many", &f);
	for (unsigned int i = 0; i < MANY; i++)
		if (fork() == 0)
			one_of_many(many, path, &f);
	for (unsigned int i = 0; i < MANY; i++) {
		ck_assert_int_gt(wait(&status), 0);
		ck_assert_int_eq(status, 0);
	}
	ck_assert_uint_eq(many->loaded, 1);
	ck_assert_uint_eq(many->attached, MANY - 1);
	free(f.data);
}
END_TEST

static int stay_here(void *arg, uint64_t done, uint64_t total)
{
	(void)done;
	(void)total;
	__atomic_store_n((int *)arg, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
	return 0;
}

/* Who waits for another's load takes over when that one is killed. */
START_TEST(a_killed_loader_is_followed_by_one_who_waited)
{
	int *begun = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), status;
	struct pinion_load_opts opts = { .size = sizeof(opts), .progress = stay_here, .progress_arg = begun };
	struct pinion_context *own;
	struct pinion_holder *h;
	struct pinion_model *m;
	struct file f = { 0 };
	const char *path;
	pid_t first, second;

	make_file(&f, 1);
	path = save_as("followed", &f);
	first = fork();
	if (!first) {
		if (!pinion_open(NULL, &own))
			pinion_model_load_named(own, "followed", path, &opts, &h, &m);
		_exit(1);
	}
	while (!__atomic_load_n(begun, __ATOMIC_SEQ_CST))
		usleep(1000);
	second = fork();
	if (!second) {
		ck_ok(pinion_open(NULL, &own));
		ck_ok(pinion_model_load_named(own, "followed", path, NULL, &h, &m));
		ck_assert_ptr_nonnull(h);
		check_bytes(m, &f);
		_exit(0);
	}
	usleep(200000);
	ck_assert_int_eq(waitpid(second, &status, WNOHANG), 0);
	kill(first, SIGKILL);
	ck_assert_int_eq(waitpid(first, &status, 0), first);
	ck_assert_int_eq(waitpid(second, &status, 0), second);
	ck_assert_int_eq(status, 0);
	free(f.data);
}
END_TEST

static Suite *match_suite(void)
{
	Suite *suite = suite_create("match");
	TCase *tcase = tcase_create("match");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, the_hash_of_a_load_is_that_of_the_file, 0, 5);
	tcase_add_test(tcase, each_file_of_several_has_its_hash_and_who_attaches_sees_it);
	tcase_add_test(tcase, a_cancelled_load_ends_its_hash);
	tcase_add_loop_test(tcase, what_differs_is_said, 0, 2);
	tcase_add_test(tcase, other_tensors_in_a_file_of_the_same_size_are_seen);
	tcase_add_test(tcase, a_second_load_under_the_name_attaches);
	tcase_add_test(tcase, of_many_who_load_a_file_at_once_one_does);
	tcase_add_test(tcase, a_killed_loader_is_followed_by_one_who_waited);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(match_suite)
