/* SPDX-License-Identifier: MIT */
/* Storages shared by name: memory that no peer can shrink, found by a name that dies with its creator. */
#include "ground.h"
#include "storage_help.h"

#include <sys/prctl.h>
#include <sys/socket.h>

#include "memory/name.h"
#include "memory/share.h"
#include "memory/storage_header.h"

static struct pinion_context *ctx;

static void setup(void)
{
	fresh_folder();
	setenv("PINION_DIR", folder, 1);
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

static const struct pinion_storage_opts reader = { .size = sizeof(reader), .rights = PINION_READ };

static struct pinion_storage *create(const char *name, enum pinion_dtype dtype, uint64_t n)
{
	struct pinion_storage *st = NULL;

	ck_ok(pinion_storage_create_named(ctx, name, dtype, n, NULL, &st));
	return st;
}

static struct pinion_storage *open_it(const char *name, enum pinion_dtype dtype, uint64_t n)
{
	struct pinion_storage *st = NULL;

	ck_ok(pinion_storage_open_named(ctx, name, dtype, n, NULL, &st));
	return st;
}

static pid_t child(void)
{
	pid_t pid = fork();

	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

/* ---- hand over --------------------------------------------------------------------------------------------------- */

START_TEST(another_process_finds_the_same_memory)
{
	struct pinion_storage *st = create("kv", PINION_DTYPE_F32, 4);
	struct pinion_view view;
	float *p;
	pid_t pid;

	ck_assert_int_eq(pinion_storage_kind(st), PINION_STORAGE_NAMED);
	ck_ok(pinion_storage_view(st, BOTH, &view));
	p = pinion_view_f32(&view);
	ck_assert_uint_eq((uintptr_t)p % 4096, 0);
	for (int i = 0; i < 4; i++)
		ck_assert(p[i] == 0);
	p[1] = 1.5f;
	pid = child();
	if (!pid) {
		struct pinion_context *own;
		struct pinion_storage *other;
		bool torn;
		float seen[4];

		child_needs(!pinion_open(NULL, &own), 1);
		child_needs(!pinion_storage_open_named(own, "kv", PINION_DTYPE_F32, 4, NULL, &other), 2);
		child_needs(!pinion_storage_load(other, 0, seen, sizeof(seen), 0) && seen[1] == 1.5f, 3);
		child_needs(!pinion_storage_write_begin(other, 0, &torn) && !torn, 4);
		seen[2] = 2.5f;
		child_needs(!pinion_storage_store(other, 8, &seen[2], 4), 5);
		child_needs(!pinion_storage_write_end(other), 6);
		pinion_storage_free(other);
		pinion_close(own);
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_assert(p[2] == 2.5f);
	ck_assert_uint_eq(info_of(st).sequence, 2);
	pinion_storage_free(st);
}
END_TEST

START_TEST(what_is_shared_says_what_it_is)
{
	struct pinion_storage_opts opts = { .size = sizeof(opts), .rank = 2, .shape = { 2, 3 } };
	struct pinion_buffer_opts buffer = { .size = sizeof(buffer), .hold = PINION_HOLD_NONE };
	struct pinion_storage *st = NULL, *other = NULL;
	struct pinion_storage_info info;
	struct pinion_buffer *buf = NULL;
	uint64_t offset = 0;

	opts.buffer = &buffer;
	ck_ok(pinion_storage_create_named(ctx, "kv", PINION_DTYPE_I16, 6, &opts, &st));
	ck_assert_str_eq(described(st),
			 "named i16[2,3] 12 bytes, read and write, header generation 1, named 'kv', unlocked");
	ck_assert_str_eq(info_of(st).hold_why, "not asked for");
	ck_ok(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_I16, 6, &reader, &other));
	info = info_of(other);
	ck_assert(info.header && info.rank == 2 && info.shape[1] == 3 && info.generation == 1 &&
		  info.rights == PINION_READ);
	ck_assert_str_eq(described(other),
			 "named i16[2,3] 12 bytes, read-only, header generation 1, named 'kv', unlocked");
	ck_ok(pinion_storage_buffer(other, &buf, &offset));
	ck_assert_uint_eq(offset, 4096);
	ck_assert_uint_ge(pinion_buffer_size(buf), 4096 + 12);
	pinion_storage_free(other);
	pinion_storage_free(st);
}
END_TEST

START_TEST(a_reader_cannot_write)
{
	struct pinion_storage *st = create("kv", PINION_DTYPE_U8, 4), *ro = NULL;
	struct pinion_view view;
	char *p;

	ck_ok(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_U8, 4, &reader, &ro));
	ck_refused(pinion_storage_view(ro, BOTH, &view), EPERM, "read-only");
	ck_refused(pinion_storage_write_begin(ro, 0, NULL), EPERM, "read-only");
	p = view_data(ro, PINION_READ);
	ck_assert_int_eq(read(open("/dev/zero", O_RDONLY), p, 1), -1);
	ck_assert_int_eq(errno, EFAULT);
	pinion_storage_free(ro);
	pinion_storage_free(st);
}
END_TEST

START_TEST(nobody_shrinks_it)
{
	struct pinion_storage *st = create("kv", PINION_DTYPE_U8, 5000), *other = open_it("kv", PINION_DTYPE_U8, 5000);
	struct pinion_buffer *buf = NULL;
	bool slice = on_module(ctx);
	uint64_t offset;
	int fd;

	ck_ok(pinion_storage_buffer(other, &buf, &offset));
	fd = pinion_buffer_export(buf);
	/* A slice of the module's is no file that has a size to change. */
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(errno, slice ? EINVAL : EPERM);
	ck_assert_int_eq(ftruncate(fd, 1 << 20), -1);
	ck_assert_int_eq(errno, slice ? EINVAL : EPERM);
	close(fd);
	((char *)view_data(st, BOTH))[4999] = 1;
	pinion_storage_free(other);
	pinion_storage_free(st);
}
END_TEST

START_TEST(sealed_it_has_readers_only_where_a_seal_reaches_writers)
{
	struct pinion_storage *st = create("kv", PINION_DTYPE_U8, 5000), *other = open_it("kv", PINION_DTYPE_U8, 5000);
	struct pinion_buffer *buf = NULL;
	uint64_t offset;

	ck_ok(pinion_storage_buffer(other, &buf, &offset));
	((char *)view_data(st, BOTH))[4999] = 1;
	/* The module takes no right back that was handed out. */
	ck_assert_int_eq(pinion_buffer_seal(buf), on_module(ctx) ? -EOPNOTSUPP : 0);
	pinion_storage_free(other);
	other = NULL;
	ck_assert_int_eq(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_U8, 5000, NULL, &other), on_module(ctx) ? 0 : -EPERM);
	if (other)
		pinion_storage_free(other);
	ck_ok(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_U8, 5000, &reader, &other));
	ck_assert_int_eq(((char *)view_data(other, PINION_READ))[4999], 1);
	pinion_storage_free(other);
	pinion_storage_free(st);
}
END_TEST

START_TEST(owning_copies_and_detaches)
{
	struct pinion_storage *st = create("kv", PINION_DTYPE_I32, 3), *own = NULL;
	int32_t *p = view_data(st, BOTH);

	p[0] = -1;
	ck_ok(pinion_storage_into_owned(open_it("kv", PINION_DTYPE_I32, 3), &own));
	ck_assert_int_eq(((int32_t *)view_data(own, BOTH))[0], -1);
	pinion_storage_free(own);
	/* The creator's own: the name goes with it. */
	ck_ok(pinion_storage_into_owned(st, &own));
	ck_assert_int_eq(((int32_t *)view_data(own, BOTH))[0], -1);
	ck_assert_int_eq(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_I32, 3, NULL, &st), -ENOENT);
	pinion_storage_free(own);
}
END_TEST

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

START_TEST(a_wish_that_cannot_be_is_refused)
{
	const struct pinion_storage_opts replace = { .size = sizeof(replace), .replace = true };
	const struct pinion_storage_opts mode = { .size = sizeof(mode), .mode = 0600 };
	const struct pinion_storage_opts deadline = { .size = sizeof(deadline), .deadline_ns = 1 };
	const struct pinion_storage_opts shape = { .size = sizeof(shape), .rank = 1, .shape = { 5 } };
	const struct pinion_buffer_opts none = { .size = sizeof(none) };
	const struct pinion_storage_opts buffer = { .size = sizeof(buffer), .buffer = &none };
	struct pinion_storage *st = (void *)1;
	unsigned int fds = fds_open();

#define ck_both_refuse(name, dtype, n, opts, err, phrase)                                             \
	do {                                                                                          \
		ck_refused(pinion_storage_create_named(ctx, name, dtype, n, opts, &st), err, phrase); \
		ck_refused(pinion_storage_open_named(ctx, name, dtype, n, opts, &st), err, phrase);   \
	} while (0)

	ck_both_refuse("kv", PINION_DTYPE_F4, 0, NULL, EOPNOTSUPP, "dtype has zero size");
	ck_both_refuse("kv", PINION_DTYPE_F32, UINT64_MAX / 4 + 1, NULL, EOVERFLOW, "elem_count overflow");
	ck_both_refuse("kv", PINION_DTYPE_U8, INT64_MAX, NULL, EOVERFLOW, "elem_count overflow");
	ck_both_refuse("kv", PINION_DTYPE_F32, 0, NULL, EINVAL, "zero-length");
	ck_both_refuse("", PINION_DTYPE_F32, 4, NULL, EINVAL, "a name has");
	ck_both_refuse("../kv", PINION_DTYPE_F32, 4, NULL, EINVAL, "a name");
	ck_both_refuse("k/v", PINION_DTYPE_F32, 4, NULL, EINVAL, "a name");
	ck_both_refuse("kv", PINION_DTYPE_F32, 4, &replace, EINVAL, "replace");
	ck_both_refuse("kv", PINION_DTYPE_F32, 4, &mode, EINVAL, "mode");
	ck_both_refuse("kv", PINION_DTYPE_F32, 4, &shape, EINVAL, "5 elements, 4 were asked");
	ck_refused(pinion_storage_create_named(ctx, "kv", PINION_DTYPE_F32, 4, &reader, &st), EINVAL, "PINION_WRITE");
	ck_refused(pinion_storage_create_named(ctx, "kv", PINION_DTYPE_F32, 4, &deadline, &st), EINVAL, "deadline_ns");
	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_F32, 4, &buffer, &st), EINVAL, "buffer");
	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_F32, 4, NULL, &st), ENOENT, "nobody holds 'kv'");
	/* More than there is: the name that was taken for it is free again. */
	ck_assert_int_eq(pinion_storage_create_named(ctx, "kv", PINION_DTYPE_U8, UINT64_C(1) << 60, NULL, &st),
			 -ENOMEM);
	ck_assert_ptr_eq(st, (void *)1);
	ck_assert_uint_le(fds_settled(fds), fds);
	pinion_storage_free(create("kv", PINION_DTYPE_U8, 1));
}
END_TEST

START_TEST(what_is_not_the_headers_is_refused_and_both_are_named)
{
	const struct pinion_storage_opts shape = { .size = sizeof(shape), .rank = 2, .shape = { 3, 4 } };
	struct pinion_storage *st = create("kv", PINION_DTYPE_F32, 12), *none = NULL;
	unsigned int fds = fds_open(), maps = maps_open();

	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_I32, 12, NULL, &none), EBADMSG,
		   "says f32[12], i32[12] was");
	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_F32, 11, NULL, &none), EBADMSG,
		   "says f32[12], f32[11] was");
	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_F32, 13, NULL, &none), EBADMSG,
		   "says f32[12], f32[13] was");
	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_BF16, 24, NULL, &none), EBADMSG,
		   "says f32[12], bf16[24] was");
	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_F32, 12, &shape, &none), EBADMSG,
		   "says f32[12], f32[3,4] was");
	ck_assert_ptr_null(none);
	ck_assert_uint_le(fds_settled(fds), fds);
	ck_assert_uint_eq(maps_open(), maps);
	pinion_storage_free(st);
}
END_TEST

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int find_it(void *arg, const struct pinion_name_info *info)
{
	struct pinion_name_info *found = arg;

	if (!strcmp(info->name, "kv"))
		*found = *info;
	return 0;
}

START_TEST(the_name_is_listed_shown_and_removed_like_a_models)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	struct pinion_storage *st = create("kv", PINION_DTYPE_F32, 12), *other = open_it("kv", PINION_DTYPE_F32, 12),
			      *none = NULL;
	size_t n = 0;

	ck_ok(pinion_name_list(ctx, find_it, &info));
	ck_assert_str_eq(info.state, "ready");
	ck_assert_str_eq(info.format, "storage");
	ck_assert_str_eq(info.path, "f32[12]");
	ck_assert_int_eq(info.pid, getpid());
	ck_assert_uint_eq(info.tensors, 1);
	info.size = sizeof(info);
	ck_ok(pinion_name_show(ctx, "kv", &info, NULL, 0, &n));
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(info.attached, 1);
	ck_refused(pinion_name_remove(ctx, "kv"), EBUSY, "attached by 1");
	pinion_storage_free(other);
	ck_ok(pinion_name_remove(ctx, "kv"));
	ck_assert_int_eq(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_F32, 12, NULL, &none), -ENOENT);
	/* The creator has its memory still, and the name is free. */
	((float *)view_data(st, BOTH))[11] = 1;
	other = create("kv", PINION_DTYPE_I8, 1);
	pinion_storage_free(st);
	none = open_it("kv", PINION_DTYPE_I8, 1);
	pinion_storage_free(none);
	pinion_storage_free(other);
}
END_TEST

START_TEST(a_name_is_held_once)
{
	struct pinion_storage *st = create("kv", PINION_DTYPE_F32, 4), *none = NULL;
	char pid[32];

	snprintf(pid, sizeof(pid), "process %d", getpid());
	ck_refused(pinion_storage_create_named(ctx, "kv", PINION_DTYPE_F32, 4, NULL, &none), EEXIST, pid);
	ck_assert_ptr_null(none);
	pinion_storage_free(st);
	ck_assert_int_eq(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_F32, 4, NULL, &none), -ENOENT);
	pinion_storage_free(create("kv", PINION_DTYPE_F32, 4));
}
END_TEST

START_TEST(a_dead_creators_name_is_free_and_its_memory_stays)
{
	struct pinion_storage *st, *none = NULL;
	int ready[2];
	char c;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = child();
	if (!pid) {
		struct pinion_context *own;

		child_needs(!pinion_open(NULL, &own), 1);
		child_needs(!pinion_storage_create_named(own, "kv", PINION_DTYPE_I32, 2, NULL, &st), 2);
		((int32_t *)view_data(st, BOTH))[1] = 42;
		child_needs(!pinion_storage_write_begin(st, 0, NULL), 3);
		child_needs(write(ready[1], "r", 1) == 1, 4);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	st = open_it("kv", PINION_DTYPE_I32, 2);
	kill(pid, SIGKILL);
	ck_assert_int_eq(reap(pid), -SIGKILL);
	ck_assert_int_eq(((int32_t *)view_data(st, BOTH))[1], 42);
	ck_refused(pinion_storage_load(st, 0, &c, 1, pinion_deadline_in(3600 * SECOND)), EOWNERDEAD, "died");
	ck_assert_int_eq(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_I32, 2, NULL, &none), -ENOENT);
	pinion_storage_free(create("kv", PINION_DTYPE_U8, 9));
	pinion_storage_free(st);
}
END_TEST

START_TEST(a_storage_outlives_the_context_it_was_opened_in)
{
	struct pinion_storage *st = create("kv", PINION_DTYPE_I32, 2), *other = NULL;
	struct pinion_context *own = NULL;

	ck_ok(pinion_open(NULL, &own));
	ck_ok(pinion_storage_open_named(own, "kv", PINION_DTYPE_I32, 2, NULL, &other));
	pinion_close(own);
	((int32_t *)view_data(other, BOTH))[1] = 42;
	ck_assert_int_eq(((int32_t *)view_data(st, BOTH))[1], 42);
	pinion_storage_free(other);
	pinion_storage_free(st);
}
END_TEST

START_TEST(a_forked_child_frees_its_copy_alone)
{
	struct pinion_storage *st = create("kv", PINION_DTYPE_I32, 2);
	pid_t pid = child();

	if (!pid) {
		struct pinion_storage *none = NULL;

		((int32_t *)view_data(st, BOTH))[1] = 7;
		child_needs(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_I32, 2, NULL, &none) == -EOWNERDEAD, 1);
		child_needs(pinion_storage_create_named(ctx, "kv2", PINION_DTYPE_I32, 2, NULL, &none) == -EOWNERDEAD,
			    2);
		pinion_storage_free(st);
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_assert_int_eq(((int32_t *)view_data(st, BOTH))[1], 7);
	pinion_storage_free(open_it("kv", PINION_DTYPE_I32, 2));
	pinion_storage_free(st);
}
END_TEST

/* ---- what is no storage ------------------------------------------------------------------------------------------ */

static void write_model(const char *path)
{
	static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
	uint64_t len = sizeof(header) - 1;
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	fwrite(&len, 8, 1, f);
	fwrite(header, len, 1, f);
	fwrite("12345678", 8, 1, f);
	fclose(f);
}

START_TEST(a_model_is_no_storage_and_a_storage_no_model)
{
	const struct pinion_storage_opts wait = { .size = sizeof(wait), .deadline_ns = pinion_deadline_in(20 * MS) };
	struct pinion_storage *st = NULL;
	struct pinion_model *m = NULL, *none = NULL;
	struct pinion_holder *h = NULL;
	unsigned int fds;

	write_model(in_tmp("m.safetensors"));
	ck_ok(pinion_holder_open(ctx, "kv", in_tmp("m.safetensors"), &h));
	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_U8, 8, NULL, &st), EBUSY, "still being loaded");
	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_U8, 8, &wait, &st), ETIMEDOUT,
		   "did not answer in time");
	ck_refused(pinion_storage_create_named(ctx, "kv", PINION_DTYPE_U8, 8, NULL, &st), EEXIST, "is held by");
	ck_ok(pinion_model_load(ctx, in_tmp("m.safetensors"), NULL, &m));
	ck_ok(pinion_holder_publish(h, m));
	fds = fds_open();
	ck_refused(pinion_storage_open_named(ctx, "kv", PINION_DTYPE_U8, 8, NULL, &st), EPROTO, "is a model");
	ck_assert_ptr_null(st);
	ck_assert_uint_le(fds_settled(fds), fds);
	pinion_holder_free(h);
	pinion_model_free(m);

	st = create("kv", PINION_DTYPE_U8, 8);
	fds = fds_open();
	ck_refused(pinion_model_attach(ctx, "kv", NULL, &none), EPROTO, "is a storage");
	ck_assert_ptr_null(none);
	ck_assert_uint_le(fds_settled(fds), fds);
	pinion_storage_free(st);
}
END_TEST

/* Opens a storage of 8 bytes whose holder hands out @fd with the words of @answer. */
static int open_fake(const struct name_answer *answer, size_t bytes, int fd)
{
	struct name_record record = { .magic = NAME_MAGIC,
				      .slot = ctx->counts->slot,
				      .generation = ctx->counts->slot_generation,
				      .pid = getpid() };
	const struct pinion_storage_opts patient = { .size = sizeof(patient), .deadline_ns = pinion_deadline_in(3600 * SECOND) };
	struct pinion_storage *st = NULL;
	unsigned int fds;
	int sock, ret;
	pid_t pid;

	ck_ok(name_take(ctx, "fake", &record, &sock));
	pid = child();
	if (!pid) {
		int client = accept(sock, NULL, NULL);
		struct name_request req;
		unsigned int nfds;

		share_recv(client, &req, sizeof(req), NULL, 0, &nfds);
		share_send(client, answer, bytes, &fd, fd >= 0);
		_exit(0);
	}
	fds = fds_open();
	ret = pinion_storage_open_named(ctx, "fake", PINION_DTYPE_U8, 8, &patient, &st);
	ck_assert_int_eq(reap(pid), 0);
	if (!ret)
		pinion_storage_free(st);
	else
		ck_assert_ptr_null(st);
	ck_assert_uint_le(fds_settled(fds), fds);
	name_release(ctx, "fake", &record);
	close(sock);
	return ret;
}

static int memory_file(uint64_t bytes, const void *data, size_t len, int seals)
{
	int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	ck_assert_int_eq(pwrite(fd, data, len, 0), len);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

START_TEST(a_holder_that_lies_is_found_out)
{
	struct name_answer good = { .magic = NAME_MAGIC, .bytes = 8192, .page_size = 4096 }, bad;
	unsigned int maps = maps_open();
	struct storage_layout layout;
	struct storage_header header;
	int fd;

	ck_ok(storage_layout(&layout, PINION_DTYPE_U8, 8, false));
	header_fill(&header, &layout);
	fd = memory_file(8192, &header, sizeof(header), F_SEAL_SHRINK | F_SEAL_GROW);
	ck_ok(open_fake(&good, sizeof(good), fd));
	ck_assert_int_eq(open_fake(&good, sizeof(good) - 1, fd), -EPROTO);
	ck_assert_int_eq(open_fake(&good, sizeof(good), -1), -EPROTO);
	bad = good;
	bad.index_bytes = 1;
	ck_assert_int_eq(open_fake(&bad, sizeof(bad), fd), -EPROTO);
	bad = good;
	bad.bytes = 4096;
	ck_assert_int_eq(open_fake(&bad, sizeof(bad), fd), -EPROTO);
	bad = good;
	bad.magic++;
	ck_assert_int_eq(open_fake(&bad, sizeof(bad), fd), -EPROTO);
	bad = good;
	bad.err = -EACCES;
	snprintf(bad.sentence, sizeof(bad.sentence), "not for you");
	ck_assert_int_eq(open_fake(&bad, sizeof(bad), -1), -EACCES);
	ck_assert_str_eq(pinion_error(), "not for you");
	close(fd);
	/* A memory that could shrink; one without a header; a header that speaks of more; one that lies. */
	fd = memory_file(8192, &header, sizeof(header), F_SEAL_GROW);
	ck_assert_int_eq(open_fake(&good, sizeof(good), fd), -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "shrink"));
	close(fd);
	fd = memory_file(8192, "", 0, F_SEAL_SHRINK);
	ck_assert_int_eq(open_fake(&good, sizeof(good), fd), -EPROTO);
	close(fd);
	bad = good;
	bad.bytes = 4096;
	fd = memory_file(4096, &header, sizeof(header), F_SEAL_SHRINK);
	ck_assert_int_eq(open_fake(&bad, sizeof(bad), fd), -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "speaks of 4104 bytes"));
	close(fd);
	header.elements = 9;
	fd = memory_file(8192, &header, sizeof(header), F_SEAL_SHRINK);
	ck_assert_int_eq(open_fake(&good, sizeof(good), fd), -EBADMSG);
	close(fd);
	ck_assert_uint_eq(maps_open(), maps);
}
END_TEST

START_TEST(hundreds_leave_nothing)
{
	unsigned int fds = fds_open(), maps = maps_open();

	for (unsigned int i = test_rounds(200); i; i--) {
		struct pinion_storage *st = create("kv", PINION_DTYPE_U8, 5000),
				      *other = open_it("kv", PINION_DTYPE_U8, 5000);

		pinion_storage_free(i & 1 ? st : other);
		pinion_storage_free(i & 1 ? other : st);
	}
	ck_assert_uint_le(fds_settled(fds), fds);
	ck_assert_uint_eq(maps_open(), maps);
}
END_TEST

START_TEST(locked_memory_is_locked_by_those_who_open_it)
{
	struct pinion_buffer_opts buffer = { .size = sizeof(buffer), .hold = PINION_HOLD_LOCKED };
	struct pinion_storage_opts opts = { .size = sizeof(opts), .buffer = &buffer };
	struct pinion_name_info info = { .size = sizeof(info) };
	struct pinion_storage *st = NULL, *other;
	int ret = pinion_storage_create_named(ctx, "kv", PINION_DTYPE_U8, 64, &opts, &st);

	if (ret)
		SKIP("%s", pinion_error());
	ck_assert_ptr_nonnull(strstr(described(st), ", locked"));
	other = open_it("kv", PINION_DTYPE_U8, 64);
	/* The holder hears of it on its own time. */
	do {
		info.size = sizeof(info);
		ck_ok(pinion_name_show(ctx, "kv", &info, NULL, 0, NULL));
		usleep(info.locked ? 0 : 10000);
	} while (!info.locked);
	ck_assert_uint_eq(info.locked, 1);
	pinion_storage_free(other);
	pinion_storage_free(st);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("storage_named");
	TCase *over = tcase_create("hand over"), *refused = tcase_create("refused"), *names = tcase_create("names");
	TCase *hostile = tcase_create("hostile");

	tcase_add_checked_fixture(over, setup, teardown);
	tcase_add_test(over, another_process_finds_the_same_memory);
	tcase_add_test(over, what_is_shared_says_what_it_is);
	tcase_add_test(over, a_reader_cannot_write);
	tcase_add_test(over, nobody_shrinks_it);
	tcase_add_test(over, sealed_it_has_readers_only_where_a_seal_reaches_writers);
	tcase_add_test(over, owning_copies_and_detaches);
	tcase_add_test(over, hundreds_leave_nothing);
	tcase_add_test(over, locked_memory_is_locked_by_those_who_open_it);
	suite_add_tcase(s, over);
	tcase_add_checked_fixture(refused, setup, teardown);
	tcase_add_test(refused, a_wish_that_cannot_be_is_refused);
	tcase_add_test(refused, what_is_not_the_headers_is_refused_and_both_are_named);
	suite_add_tcase(s, refused);
	tcase_add_checked_fixture(names, setup, teardown);
	tcase_add_test(names, the_name_is_listed_shown_and_removed_like_a_models);
	tcase_add_test(names, a_name_is_held_once);
	tcase_add_test(names, a_dead_creators_name_is_free_and_its_memory_stays);
	tcase_add_test(names, a_storage_outlives_the_context_it_was_opened_in);
	tcase_add_test(names, a_forked_child_frees_its_copy_alone);
	suite_add_tcase(s, names);
	tcase_set_timeout(hostile, 30);
	tcase_add_checked_fixture(hostile, setup, teardown);
	tcase_add_test(hostile, a_model_is_no_storage_and_a_storage_no_model);
	tcase_add_test(hostile, a_holder_that_lies_is_found_out);
	suite_add_tcase(s, hostile);
	return s;
}

PINION_TEST_MAIN(suite)
