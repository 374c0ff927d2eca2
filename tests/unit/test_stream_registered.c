/* SPDX-License-Identifier: MIT */
/*
 * Requests on registered buffers and files: the same bytes as without, no second charge, and nothing kept when its owner
 * goes.
 */
#include "plain_user.h"
#include "stream_help.h"

#include <dirent.h>
#include <errno.h>
#include <liburing.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "memory/buffer.h"
#include "provider/pin.h"
#include "work/ring_files.h"

#define CLONE_BUFFERS 30 /* IORING_REGISTER_CLONE_BUFFERS */

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static const struct pinion_stream_opts direct = { .size = sizeof(direct), .io = PINION_IO_DIRECT };

/*
 * What a ring had registered is given back to the user's limit by a work queue, which a busy machine comes to late; the library
 * waits for it, but not for long. So what the limit has room for is asked for again, as long as the test's own limit is.
 */
static struct pinion_buffer *registered_buffer(struct pinion_context *ctx, size_t size)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_REGISTERED };
	struct pinion_buffer *buf = NULL;
	struct rlimit lim;

	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &lim), 0);
	while (pinion_buffer_alloc(ctx, size, &opts, &buf))
		if (pinion_error_advice() != PINION_ADVICE_MEMLOCK || lim.rlim_cur < size + MIB / 4)
			return NULL;
	return buf;
}

/* All of the file's first @len bytes, to @off of the buffer. */
static void read_all(struct ground *g, struct pinion_buffer *buf, uint64_t off, int fd, uint64_t foff, uint64_t len)
{
	uint64_t seq = 0;
	int ret = pinion_stream_read(g->stream, buf, off, fd, foff, len, &seq);

	ret = result_of(g, ret, seq);
	ck_assert_msg(ret == 0, "%d (%s)", ret, pinion_error());
}

/* NULL: requests of a stream on @n registered buffers, at most 2, are to be had here; else why not. */
static const char *unregistered(unsigned int n)
{
	struct pinion_stream_stats stats;
	struct pinion_buffer *buf[2] = { 0 };
	bool had = true;
	struct ground g;
	int fd = file(64 * KIB);

	unsetenv("PINION_ENGINE");
	setenv("PINION_GROUND", "memfd", 1); /* the module holds its buffers itself */
	ground_open(&g, &direct);
	for (unsigned int i = 0; i < n && had; i++) {
		buf[i] = registered_buffer(g.ctx, 64 * KIB);
		had = buf[i];
		if (had)
			read_all(&g, buf[i], 0, fd, 0, 64 * KIB);
	}
	stats = stats_of(g.stream);
	pinion_buffer_unref(buf[0]);
	pinion_buffer_unref(buf[1]);
	ground_close(&g);
	close(fd);
	if (!had)
		return "no buffer can be registered";
	if (stats.buffered_bytes)
		return "no direct I/O in the temporary folder";
	return *stats.unregistered_why ? stats.unregistered_why : NULL;
}

/* Of one buffer and its slices from Linux 6.12 on, of several from 6.13 on. */
#define NEED_REGISTERED(n)                          \
	do {                                        \
		const char *why_ = unregistered(n); \
		if (why_)                           \
			SKIP("%s", why_);           \
	} while (0)

/* Every byte that went past the page cache went by a registered buffer. */
static void all_registered(struct pinion_stream *s)
{
	struct pinion_stream_stats stats = stats_of(s);

	ck_assert_str_eq(stats.unregistered_why, "");
	ck_assert_uint_gt(stats.registered_bytes, 0);
	ck_assert_uint_eq(stats.registered_bytes, stats.direct_bytes);
}

/* Whether nothing but descriptors has the memory of memfd @fd: the kernel seals it against writing then, and only then. */
static bool is_let_go(int fd)
{
	int64_t until = SOON;

	while (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)) {
		ck_assert_int_eq(errno, EBUSY);
		if (pinion_deadline_in(0) > until)
			return false;
		usleep(1000);
	}
	return true;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

START_TEST(bytes_are_those_of_the_file)
{
	struct pinion_buffer *buf, *part, *within;
	struct ground g;
	int fd = file(3 * MIB + 512), out = file(0);

	NEED_REGISTERED(1);
	ground_open(&g, &direct);
	buf = registered_buffer(g.ctx, 7 * MIB);
	read_all(&g, buf, 4096, fd, 4096, 3 * MIB - 4096);
	same_bytes(buf, 4096, 4096, 3 * MIB - 4096);
	ck_ok(pinion_buffer_slice(buf, 3 * MIB + 4096, 3 * MIB, BOTH, &part));
	read_all(&g, part, 512, fd, 512, MIB);
	same_bytes(part, 512, 512, MIB);
	/* The slice of a slice outlives both, and its bytes are theirs. */
	ck_ok(pinion_buffer_slice(part, 2 * MIB - 8192, MIB + 4096, BOTH, &within));
	read_all(&g, within, 1536, fd, 1024, MIB);
	same_bytes(within, 1536, 1024, MIB);
	same_bytes(part, 2 * MIB - 8192 + 1536, 1024, MIB);
	pinion_buffer_unref(buf);
	pinion_buffer_unref(part);
	read_all(&g, within, 1536, fd, 1024, MIB);
	ck_ok(pinion_stream_write(g.stream, within, 1536, out, 0, MIB, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	all_registered(g.stream);
	buf = buffer(g.ctx, MIB);
	read_all(&g, buf, 0, out, 0, MIB);
	same_bytes(buf, 0, 1024, MIB);
	pinion_buffer_unref(buf);
	pinion_buffer_unref(within);
	ground_close(&g);
}
END_TEST

/* A safetensors file with one tensor of so many bytes, all holes. */
static const char *model_file(char path[PATH_MAX], uint64_t bytes)
{
	char header[4096] = "";
	uint64_t len = sizeof(header) - 8;
	int fd;

	snprintf(header + 8, len, "{\"w\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}",
		 (unsigned long long)bytes, (unsigned long long)bytes);
	memset(header + 8 + strlen(header + 8), ' ', len - strlen(header + 8));
	memcpy(header, &len, 8);
	snprintf(path, PATH_MAX, "%s/model.safetensors", test_tmp());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, header, sizeof(header)), sizeof(header));
	ck_assert_int_eq(ftruncate(fd, sizeof(header) + bytes), 0);
	close(fd);
	return path;
}

START_TEST(a_load_says_what_it_read_into_registered_buffers)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .io = PINION_IO_DIRECT, .hold = PINION_HOLD_REGISTERED };
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct pinion_context *ctx;
	struct pinion_model *m;
	char path[PATH_MAX];

	NEED_REGISTERED(1);
	model_file(path, MIB);
	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_model_load(ctx, path, &opts, &m));
	ck_ok(pinion_model_load_stats(m, &stats));
	ck_assert_uint_ge(stats.direct_bytes, MIB);
	ck_assert_uint_eq(stats.registered_bytes, stats.direct_bytes);
	ck_assert_str_eq(stats.unregistered_why, "");
	pinion_model_free(m);
	opts.hold = PINION_HOLD_NONE;
	ck_ok(pinion_model_load(ctx, path, &opts, &m));
	ck_ok(pinion_model_load_stats(m, &stats));
	ck_assert_uint_ge(stats.direct_bytes, MIB);
	ck_assert_uint_eq(stats.registered_bytes, 0);
	ck_assert_ptr_nonnull(strstr(stats.unregistered_why, "held otherwise"));
	pinion_model_free(m);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_stream_may_be_told_to_register_nothing)
{
	struct pinion_stream_opts opts = direct;
	struct pinion_stream *s = NULL;
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(MIB);

	NEED_REGISTERED(1);
	opts.registered = PINION_REGISTERED_NEVER;
	ground_open(&g, &opts);
	buf = registered_buffer(g.ctx, MIB);
	read_all(&g, buf, 0, fd, 0, MIB);
	same_bytes(buf, 0, 0, MIB);
	ck_assert_uint_eq(stats_of(g.stream).registered_bytes, 0);
	ck_assert_str_eq(stats_of(g.stream).unregistered_why, "asked for");
	opts.registered++;
	ck_assert_int_eq(pinion_stream_new(g.dev, &opts, &s), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "registered is 2"));
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

START_TEST(what_is_not_registered_is_read_all_the_same)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_LOCKED };
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(MIB);

	NEED_REGISTERED(1);
	ground_open(&g, &direct);
	ck_ok(pinion_buffer_alloc(g.ctx, MIB, &opts, &buf));
	read_all(&g, buf, 0, fd, 0, MIB);
	same_bytes(buf, 0, 0, MIB);
	ck_assert_uint_eq(stats_of(g.stream).registered_bytes, 0);
	ck_assert_ptr_nonnull(strstr(stats_of(g.stream).unregistered_why, "held otherwise"));
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

/* io_uring takes no more than 1 GiB as one buffer. */
START_TEST(a_buffer_of_more_than_a_gib_is_many_to_the_kernel_and_one_to_its_user)
{
	const uint64_t edge = 1024 * MIB, len = 9 * MIB;
	struct pinion_stream_stats stats;
	struct pinion_buffer *buf, *part;
	struct ground g;
	int fd = file(len);

	NEED_REGISTERED(1);
	ground_open(&g, &direct);
	buf = registered_buffer(g.ctx, edge + 16 * MIB);
	if (!buf) {
		ground_close(&g);
		SKIP("%s", pinion_error());
	}
	read_all(&g, buf, edge - 5 * MIB, fd, 0, len);
	same_bytes(buf, edge - 5 * MIB, 0, len);
	stats = stats_of(g.stream);
	/* But for the one request that goes over the edge, or more where one was cut short. */
	ck_assert_uint_eq(stats.direct_bytes, len);
	ck_assert_uint_ge(stats.registered_bytes, len - 4 * MIB);
	ck_assert_ptr_nonnull(strstr(stats.unregistered_why, "edge of a GiB"));
	ck_ok(pinion_buffer_slice(buf, edge, 16 * MIB, BOTH, &part));
	read_all(&g, part, 5 * MIB, fd, 0, len);
	same_bytes(part, 5 * MIB, 0, len);
	ck_assert_uint_eq(stats_of(g.stream).registered_bytes, stats.registered_bytes + len);
	pinion_buffer_unref(part);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

/* ---- charges ----------------------------------------------------------------------------------------------------- */

/* As an ordinary user who may register 1 MiB: half of it, in one buffer, for eight streams. */
static int eight_streams_on_one_charge(const char *home, int fd)
{
	struct rlimit lim = { MIB, MIB };
	struct pinion_stream *s[8];
	struct pinion_device *dev;
	struct pinion_context *ctx;
	struct pinion_buffer *buf;
	uint64_t seq;

	/* The user may not come through what is above. */
	if (chdir(home) || setenv("PINION_DIR", ".", 1) || setrlimit(RLIMIT_MEMLOCK, &lim) || !plain_become())
		return 1;
	if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, "many", NULL, &dev))
		return fprintf(stderr, "%s\n", pinion_error()), 2;
	buf = registered_buffer(ctx, MIB / 2);
	if (!buf)
		return fprintf(stderr, "%s\n", pinion_error()), 3;
	for (int i = 0; i < 8; i++)
		if (pinion_stream_new(dev, &direct, &s[i]))
			return fprintf(stderr, "%s\n", pinion_error()), 10 + i;
	for (int i = 0; i < 8; i++)
		if (pinion_stream_read(s[i], buf, 0, fd, 0, MIB / 2, &seq) || pinion_stream_wait(s[i], seq, SOON))
			return fprintf(stderr, "%s\n", pinion_error()), 20 + i;
	for (int i = 0; i < 8; i++)
		if (stats_of(s[i]).registered_bytes != MIB / 2)
			return fprintf(stderr, "%s\n", stats_of(s[i]).unregistered_why), 30 + i;
	/* What the limit leaves is there for another buffer. */
	return registered_buffer(ctx, MIB / 4) ? 0 : 4;
}

START_TEST(many_streams_of_a_plain_user_are_charged_for_one_registration)
{
	int fd = file(MIB / 2), status;
	char home[PATH_MAX];
	pid_t pid;

	NEED_REGISTERED(1);
	snprintf(home, sizeof(home), "%s/home-XXXXXX", test_tmp());
	ck_assert_ptr_nonnull(mkdtemp(home));
	ck_assert(plain_own(home));
	/* A direct descriptor is a second open. */
	ck_assert_int_eq(fchmod(fd, 0644), 0);
	pid = fork();
	if (!pid)
		_exit(eight_streams_on_one_charge(home, fd));
	status = reap(pid);
	ck_assert_msg(status == 0, "%d", status);
}
END_TEST

/* From now on io_uring_register(@op) fails with @err, on every thread; every @op: -1. */
static void refuse_register(int op, int err)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 0, op < 0 ? 1 : 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, op, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(program) / sizeof(program[0]), program };

	if (op < 0) {
		program[1].jf = 1;
		program[2] = program[4];
		program[3] = program[5];
	}
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter), 0);
}

/*
 * What a kernel answers that is older than the sharing of registrations, or than registration, or whose profile forbids it.
 */
START_TEST(without_what_newer_kernels_have_the_bytes_are_the_same)
{
	static const struct {
		int op, err;
	} refused[] = { { CLONE_BUFFERS, EINVAL }, { CLONE_BUFFERS, ENOMEM }, { -1, EINVAL }, { -1, EPERM } };
	struct pinion_buffer *buf[2];
	struct ground g;
	int fd = file(MIB);

	NEED_REGISTERED(1);
	refuse_register(refused[_i].op, refused[_i].err);
	ground_open(&g, &direct);
	for (int i = 0; i < 2; i++) {
		buf[i] = buffer(g.ctx, MIB);
		read_all(&g, buf[i], 0, fd, 0, MIB);
		read_all(&g, buf[i], 0, fd, 0, MIB);
		same_bytes(buf[i], 0, 0, MIB);
	}
	ck_assert_str_eq(stats_of(g.stream).engine, "io_uring");
	ck_assert_uint_eq(stats_of(g.stream).registered_bytes, 0);
	ck_assert_ptr_nonnull(
		strstr(stats_of(g.stream).unregistered_why, refused[_i].op < 0 ? "held otherwise" : "no second ring"));
	pinion_buffer_unref(buf[0]);
	pinion_buffer_unref(buf[1]);
	ground_close(&g);
}
END_TEST

/* ---- what goes --------------------------------------------------------------------------------------------------- */

START_TEST(a_buffer_that_is_freed_leaves_streams_that_live_on)
{
	struct pinion_buffer *buf, *kept, *next;
	struct pinion_stream *other;
	struct ground g;
	int fd = file(MIB), memfd;

	NEED_REGISTERED(2);
	ground_open(&g, &direct);
	ck_ok(pinion_stream_new(g.dev, &direct, &other));
	buf = registered_buffer(g.ctx, MIB);
	kept = registered_buffer(g.ctx, MIB);
	read_all(&g, buf, 0, fd, 0, MIB);
	read_all(&g, kept, 0, fd, 0, MIB);
	ck_ok(pinion_stream_read(other, buf, 0, fd, 0, MIB, NULL));
	ck_ok(pinion_stream_flush(other, SOON));
	all_registered(other);
	memfd = fcntl(buf->pages.fd, F_DUPFD_CLOEXEC, 0);
	ck_assert(fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE) && errno == EBUSY);
	pinion_buffer_unref(buf);
	ck_assert(is_let_go(memfd));
	/* The one behind it stays where it is, and its place is free for the next. */
	read_all(&g, kept, 0, fd, 0, MIB);
	next = registered_buffer(g.ctx, MIB);
	read_all(&g, next, 0, fd, 0, MIB);
	same_bytes(kept, 0, 0, MIB);
	same_bytes(next, 0, 0, MIB);
	all_registered(g.stream);
	/* The last streams that have it go first. */
	memfd = fcntl(next->pages.fd, F_DUPFD_CLOEXEC, 0);
	pinion_stream_free(other);
	ground_close(&g);
	pinion_buffer_unref(kept);
	pinion_buffer_unref(next);
	ck_assert(is_let_go(memfd));
}
END_TEST

/* The stream has a reference until the operation is done, and the memory goes with that. */
START_TEST(a_buffer_that_is_given_back_during_a_write_is_written_to_the_end)
{
	struct pinion_buffer *buf, *check;
	struct ground g;
	int fd = file(4 * MIB), out = file(0), memfd;

	NEED_REGISTERED(1);
	ground_open(&g, &direct);
	buf = registered_buffer(g.ctx, 4 * MIB);
	memfd = fcntl(buf->pages.fd, F_DUPFD_CLOEXEC, 0);
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 4 * MIB, NULL));
	ck_ok(pinion_stream_write(g.stream, buf, 0, out, 0, 4 * MIB, NULL));
	pinion_buffer_unref(buf);
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert(is_let_go(memfd));
	all_registered(g.stream);
	check = buffer(g.ctx, 4 * MIB);
	read_all(&g, check, 0, out, 0, 4 * MIB);
	same_bytes(check, 0, 0, 4 * MIB);
	pinion_buffer_unref(check);
	ground_close(&g);
}
END_TEST

/* Slots for buffers in the tables of this process's rings, as the kernel tells. It does not of a ring that is just entered. */
static unsigned int buffers_listed(void)
{
	DIR *dir = opendir("/proc/self/fdinfo");
	struct dirent *entry;
	char path[300], line[512];
	unsigned int n, sum = 0;

	ck_assert_ptr_nonnull(dir);
	test_threads_rest();
	while ((entry = readdir(dir))) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/fdinfo/%s", entry->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f))
			sum += sscanf(line, "UserBufs: %u", &n) == 1 ? n : 0;
		if (f)
			fclose(f);
	}
	closedir(dir);
	return sum;
}

/* A buffer that could not be shared takes no room, and the table goes with the last that was. */
START_TEST(a_table_goes_with_the_last_in_it)
{
	struct pinion_buffer *buf, *other;
	struct ground g;
	int fd = file(64 * KIB);

	NEED_REGISTERED(1);
	ground_open(&g, &direct);
	buf = registered_buffer(g.ctx, 64 * KIB);
	other = registered_buffer(g.ctx, 64 * KIB);
	ck_assert_uint_eq(buffers_listed(), 2);
	read_all(&g, buf, 0, fd, 0, 64 * KIB);
	refuse_register(CLONE_BUFFERS, EINVAL);
	read_all(&g, other, 0, fd, 0, 64 * KIB);
	same_bytes(other, 0, 0, 64 * KIB);
	ck_assert_uint_eq(buffers_listed(), 3);
	pinion_buffer_unref(buf);
	ck_assert_uint_eq(buffers_listed(), 1);
	pinion_buffer_unref(other);
	ck_assert_uint_eq(buffers_listed(), 0);
	ground_close(&g);
}
END_TEST

/* More than a table takes; those that come when it is full again find room when others have gone. */
START_TEST(a_full_table_is_no_limit)
{
	struct pinion_buffer *buf[80];
	struct pinion_stream_stats stats;
	struct ground g;
	int fd = file(64 * KIB);

	NEED_REGISTERED(2);
	ground_open(&g, &direct);
	for (unsigned int i = 0; i < 80; i++) {
		buf[i] = registered_buffer(g.ctx, 64 * KIB);
		ck_assert_ptr_nonnull(buf[i]);
		read_all(&g, buf[i], 0, fd, 0, 64 * KIB);
		same_bytes(buf[i], 0, 0, 64 * KIB);
	}
	stats = stats_of(g.stream);
	ck_assert_uint_eq(stats.registered_bytes, 64 * 64 * KIB);
	ck_assert_ptr_nonnull(strstr(stats.unregistered_why, "full"));
	for (unsigned int i = 0; i < 80; i += 2)
		pinion_buffer_unref(buf[i]);
	for (unsigned int i = 1; i < 80; i += 2)
		read_all(&g, buf[i], 0, fd, 0, 64 * KIB);
	ck_assert_uint_eq(stats_of(g.stream).registered_bytes, stats.registered_bytes + 40 * 64 * KIB);
	for (unsigned int i = 1; i < 80; i += 2) {
		same_bytes(buf[i], 0, 0, 64 * KIB);
		pinion_buffer_unref(buf[i]);
	}
	ground_close(&g);
}
END_TEST

/* Buffers that come and go while one stays do not use up the table. */
START_TEST(what_comes_and_goes_uses_nothing_up)
{
	struct pinion_buffer *kept, *buf;
	struct ground g;
	int fd = file(64 * KIB);

	NEED_REGISTERED(2);
	ground_open(&g, &direct);
	kept = registered_buffer(g.ctx, 64 * KIB);
	read_all(&g, kept, 0, fd, 0, 64 * KIB);
	for (int i = 0; i < 1100; i++) {
		buf = registered_buffer(g.ctx, 64 * KIB);
		ck_assert_ptr_nonnull(buf);
		read_all(&g, buf, 0, fd, 0, 64 * KIB);
		if (i % 100 == 0) {
			same_bytes(buf, 0, 0, 64 * KIB);
			read_all(&g, kept, 0, fd, 0, 64 * KIB);
		}
		pinion_buffer_unref(kept);
		kept = buf;
	}
	all_registered(g.stream);
	pinion_buffer_unref(kept);
	ground_close(&g);
}
END_TEST

struct worker {
	struct ground *g;
	pthread_t thread;
	struct pinion_buffer *shared;
	int fd;
	unsigned int wrong;
};

static bool reads_right(struct pinion_stream *s, struct pinion_buffer *buf, uint64_t off, int fd)
{
	unsigned char *p;
	bool right;

	if (pinion_stream_read(s, buf, off, fd, 4096, 4096, NULL) || pinion_stream_flush(s, SOON) ||
	    pinion_buffer_map(buf, PINION_READ, (void **)&p))
		return false;
	right = p[off] == byte_at(4096) && p[off + 4095] == byte_at(8191);
	pinion_buffer_unmap(buf, PINION_READ);
	return right;
}

/*
 * Streams of its own, one after the other, each over buffers of its own and the shared one, some of which outlive their
 * stream.
 */
static void *comes_and_goes(void *arg)
{
	struct worker *w = arg;
	struct pinion_buffer *old = NULL;

	for (unsigned int i = test_rounds(30); i; i--) {
		struct pinion_stream *s;

		if (pinion_stream_new(w->g->dev, &direct, &s))
			return w->wrong++, NULL;
		for (int k = 0; k < 5; k++) {
			struct pinion_buffer *buf = registered_buffer(w->g->ctx, 16384);

			w->wrong += !buf || !reads_right(s, buf, 8192, w->fd) || !reads_right(s, w->shared, 4096 * k, w->fd);
			pinion_buffer_unref(old);
			old = buf;
		}
		w->wrong += stats_of(s).registered_bytes != stats_of(s).direct_bytes;
		pinion_stream_free(s);
	}
	pinion_buffer_unref(old);
	return NULL;
}

START_TEST(streams_and_buffers_come_and_go_at_once)
{
	struct worker w[4];
	struct ground g;
	int fd = file(64 * KIB);

	NEED_REGISTERED(2);
	ground_open(&g, &direct);
	w[0].shared = registered_buffer(g.ctx, 64 * KIB);
	for (int i = 0; i < 4; i++) {
		w[i] = (struct worker){ .g = &g, .shared = w[0].shared, .fd = fd };
		ck_assert_int_eq(pthread_create(&w[i].thread, NULL, comes_and_goes, &w[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(w[i].thread, NULL), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(w[i].wrong, 0);
	pinion_buffer_unref(w[0].shared);
	ground_close(&g);
}
END_TEST

START_TEST(nothing_of_a_killed_process_stays)
{
	int fd = file(MIB), end[2], memfd, in_child;
	char path[64];
	pid_t pid;

	NEED_REGISTERED(1);
	ck_assert_int_eq(pipe(end), 0);
	pid = fork();
	if (!pid) {
		struct pinion_buffer *buf;
		struct ground g;

		ground_open(&g, &direct);
		buf = registered_buffer(g.ctx, MIB);
		read_all(&g, buf, 0, fd, 0, MIB);
		all_registered(g.stream);
		in_child = buf->pages.fd;
		if (write(end[1], &in_child, sizeof(in_child)) == sizeof(in_child))
			pause();
		_exit(1);
	}
	close(end[1]);
	ck_assert_int_eq(read(end[0], &in_child, sizeof(in_child)), sizeof(in_child));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, in_child);
	memfd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(memfd, 0);
	ck_assert(fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE) && errno == EBUSY);
	kill(pid, SIGKILL);
	ck_assert_int_eq(reap(pid), -SIGKILL);
	ck_assert(is_let_go(memfd));
}
END_TEST

/* A child may use its copy of a buffer and free it; the rings are its parent's. */
START_TEST(a_forked_child_takes_nothing_from_the_parents_rings)
{
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(MIB);
	pid_t pid;

	NEED_REGISTERED(1);
	ground_open(&g, &direct);
	buf = registered_buffer(g.ctx, MIB);
	read_all(&g, buf, 0, fd, 0, MIB);
	pid = fork();
	if (!pid) {
		struct ground own;

		ground_open(&own, &direct);
		read_all(&own, buf, 0, fd, 0, MIB);
		same_bytes(buf, 0, 0, MIB);
		pinion_buffer_unref(buf);
		pinion_stream_free(g.stream);
		ground_close(&own);
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), 0);
	read_all(&g, buf, 0, fd, 0, MIB);
	same_bytes(buf, 0, 0, MIB);
	all_registered(g.stream);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

/* A ring that is long in leaving: up to Linux 6.12 the kernel waits for what it has in flight. */
struct slow_ring {
	struct pin_share share;
	struct pin *pin;
	sem_t leaving, go;
	bool has_left; /* atomic */
};

static struct slow_ring slow;

static void leave_slowly(struct pin_share *share)
{
	ck_assert_ptr_eq(share, &slow.share);
	sem_post(&slow.leaving);
	sem_wait(&slow.go);
	__atomic_store_n(&slow.has_left, true, __ATOMIC_RELAXED);
}

static void leave_at_once(struct pin_share *share)
{
	(void)share;
}

/* As pin_new() makes one, of no memory. */
static struct pin *pin_of_nothing(void)
{
	struct pin *pin = calloc(1, sizeof(*pin));

	ck_assert_ptr_nonnull(pin);
	pin->refs = 1;
	pin->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return pin;
}

static void *free_the_buffer(void *arg)
{
	pin_unref(slow.pin);
	return arg;
}

static void *close_the_stream(void *arg)
{
	pin_leave(&slow.share);
	return __atomic_load_n(&slow.has_left, __ATOMIC_RELAXED) ? arg : NULL;
}

/* What every free and every first use of another buffer does. 0 */
static int join_and_free(void)
{
	struct pin_share share = { .end = leave_at_once };
	struct pin *pin = pin_of_nothing();
	struct process_mark mark;

	if (process_mark(&mark) || pin_join(pin, &mark, &share))
		return 1;
	pin_leave(&share);
	if (pin_join(pin, &mark, &share))
		return 2;
	pin_unref(pin);
	return 0;
}

START_TEST(a_ring_that_is_long_in_leaving_is_waited_for_by_its_own_stream_alone)
{
	struct process_mark mark;
	pthread_t freeing, closing;
	void *closed = NULL;
	pid_t pid;

	sem_init(&slow.leaving, 0, 0);
	sem_init(&slow.go, 0, 0);
	slow.share.end = leave_slowly;
	slow.pin = pin_of_nothing();
	ck_ok(process_mark(&mark));
	ck_ok(pin_join(slow.pin, &mark, &slow.share));
	ck_assert_int_eq(pthread_create(&freeing, NULL, free_the_buffer, NULL), 0);
	sem_wait(&slow.leaving);
	ck_assert_int_eq(pthread_create(&closing, NULL, close_the_stream, &slow), 0);
	ck_assert_int_eq(join_and_free(), 0);
	pid = fork();
	if (!pid)
		_exit(join_and_free());
	ck_assert_int_eq(reap(pid), 0);
	ck_assert(!__atomic_load_n(&slow.has_left, __ATOMIC_RELAXED));
	sem_post(&slow.go);
	pthread_join(freeing, NULL);
	pthread_join(closing, &closed);
	ck_assert_ptr_eq(closed, &slow);
}
END_TEST

/* Who has a descriptor that may write can make holes; what comes in their place are not the pages that were registered. */
START_TEST(bytes_are_where_mappings_see_them_after_somebody_made_a_hole)
{
	struct pinion_buffer *buf, *whole;
	struct ground g;
	int fd = file(MIB), memfd;

	NEED_REGISTERED(1);
	ground_open(&g, &direct);
	buf = registered_buffer(g.ctx, MIB);
	read_all(&g, buf, 0, fd, 0, MIB);
	all_registered(g.stream);
	/* The slice is another buffer over the same memory. */
	ck_ok(pinion_buffer_slice(buf, 0, MIB, BOTH, &whole));
	memfd = pinion_buffer_export(_i ? whole : buf);
	ck_assert_int_ge(memfd, 0);
	ck_assert_int_eq(fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB), 0);
	read_all(&g, buf, 0, fd, 0, MIB);
	same_bytes(buf, 0, 0, MIB);
	ck_assert_ptr_nonnull(strstr(stats_of(g.stream).unregistered_why, "holes"));
	pinion_buffer_unref(whole);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Files in the tables of this process's rings, as the kernel lists them. */
static unsigned int files_listed(void)
{
	DIR *dir = opendir("/proc/self/fdinfo");
	unsigned int n = 0, slot;
	struct dirent *entry;
	char path[300], line[512], first;

	ck_assert_ptr_nonnull(dir);
	test_threads_rest();
	while ((entry = readdir(dir))) {
		bool files = false;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/fdinfo/%s", entry->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f)) {
			if (strchr("PUN", *line))
				files = !strncmp(line, "UserFiles:", 10);
			else if (files && sscanf(line, " %u: %c", &slot, &first) == 2)
				n += first != '<'; /* Linux 6.12 lists empty places too, as "<none>" */
		}
		if (f)
			fclose(f);
	}
	closedir(dir);
	return n;
}

/* Reads of 64 KiB, as many as make a place in the table pay. */
static void read_often(struct ground *g, struct pinion_buffer *buf, int fd)
{
	for (int i = 0; i < 20; i++)
		read_all(g, buf, 0, fd, 0, 64 * KIB);
}

/* Nobody has it open but for @fd. */
static bool is_open_once(int fd)
{
	bool once = !fcntl(fd, F_SETLEASE, F_WRLCK);

	if (once)
		fcntl(fd, F_SETLEASE, F_UNLCK);
	return once;
}

/* The classic mistake with registered files is to know them by a number that means another file by then. */
START_TEST(a_number_that_is_used_again_is_the_new_file)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = _i ? PINION_IO_BUFFERED : PINION_IO_DIRECT };
	unsigned char other[64 * KIB], *p;
	int fd = file(64 * KIB), number = fd, second = file(0);
	struct pinion_buffer *buf;
	struct ground g;

	NEED_REGISTERED(1);
	for (unsigned int i = 0; i < sizeof(other); i++)
		other[i] = ~byte_at(i);
	ck_assert_int_eq(write(second, other, sizeof(other)), sizeof(other));
	ground_open(&g, &opts);
	buf = registered_buffer(g.ctx, 64 * KIB);
	for (int round = 0; round < 3; round++) {
		read_often(&g, buf, number);
		same_bytes(buf, 0, 0, 64 * KIB);
		ck_assert_uint_eq(files_listed(), 1);
		fd = fcntl(number, F_DUPFD_CLOEXEC, 0);
		ck_assert_int_eq(dup2(second, number), number);
		read_often(&g, buf, number);
		ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&p));
		ck_assert_mem_eq(p, other, sizeof(other));
		ck_ok(pinion_buffer_unmap(buf, PINION_READ));
		ck_assert_uint_eq(files_listed(), 1);
		ck_assert_int_eq(dup2(fd, number), number);
		close(fd);
	}
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

START_TEST(a_file_that_is_done_with_is_closed_at_once)
{
	char path[PATH_MAX];
	struct pinion_buffer *buf;
	struct ground g;
	int fd, next = file(64 * KIB);

	NEED_REGISTERED(1);
	snprintf(path, sizeof(path), "%s/closed", test_tmp());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_eq(ftruncate(fd, 64 * KIB), 0);
	ground_open(&g, &direct);
	buf = registered_buffer(g.ctx, 64 * KIB);
	ck_assert(is_open_once(fd));
	read_often(&g, buf, fd);
	ck_assert_uint_eq(files_listed(), 1);
	ck_assert(!is_open_once(fd));
	read_all(&g, buf, 0, next, 0, 64 * KIB);
	ck_assert_uint_eq(files_listed(), 0);
	ck_assert(is_open_once(fd));
	read_often(&g, buf, fd);
	pinion_buffer_unref(buf);
	ground_close(&g);
	/* The ring goes a moment after its descriptor. */
	while (!is_open_once(fd))
		usleep(1000);
}
END_TEST

/* IORING_REGISTER_FILES, and putting one there. */
START_TEST(without_registered_files_the_bytes_are_the_same)
{
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(64 * KIB);

	NEED_REGISTERED(1);
	refuse_register(_i ? IORING_REGISTER_FILES_UPDATE : IORING_REGISTER_FILES, _i ? ENOMEM : EMFILE);
	ground_open(&g, &direct);
	buf = registered_buffer(g.ctx, 64 * KIB);
	read_often(&g, buf, fd);
	same_bytes(buf, 0, 0, 64 * KIB);
	ck_assert_uint_eq(files_listed(), 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

static int found_after(struct ring_files *t, struct ring_file *file, int fd, unsigned int requests)
{
	int slot = -1;

	while (requests--)
		slot = ring_files_find(t, file, fd);
	return slot;
}

START_TEST(a_full_table_of_files_is_no_limit)
{
	struct ring_file file[RING_FILES + 1] = { 0 };
	struct io_uring ring;
	struct ring_files t;
	uint64_t slots = 0;
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	NEED_REGISTERED(1);
	ck_assert_int_eq(io_uring_queue_init(4, &ring, 0), 0);
	ring_files_open(&t, ring.ring_fd);
	ck_assert_int_eq(found_after(&t, &file[0], fd, 1), -1);
	for (int i = 0; i < RING_FILES; i++)
		slots |= UINT64_C(1) << found_after(&t, &file[i], fd, 20);
	ck_assert_uint_eq(slots, UINT32_MAX);
	ck_assert_uint_eq(files_listed(), RING_FILES);
	ck_assert_int_eq(found_after(&t, &file[RING_FILES], fd, 20), -1);
	ring_files_leave(&file[7]);
	ck_assert_uint_eq(files_listed(), RING_FILES - 1);
	ck_assert_int_eq(found_after(&t, &file[RING_FILES], fd, 20), 7);
	for (int i = 0; i <= RING_FILES; i++)
		ring_files_leave(&file[i]);
	ck_assert_uint_eq(files_listed(), 0);
	ring_files_close(&t);
	io_uring_queue_exit(&ring);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("stream_registered");
	TCase *bytes = tcase_create("bytes"), *charges = tcase_create("charges"), *gone = tcase_create("gone");
	TCase *files = tcase_create("files");

	tcase_set_timeout(bytes, 60);
	tcase_add_test(bytes, bytes_are_those_of_the_file);
	tcase_add_test(bytes, a_load_says_what_it_read_into_registered_buffers);
	tcase_add_test(bytes, a_stream_may_be_told_to_register_nothing);
	tcase_add_test(bytes, what_is_not_registered_is_read_all_the_same);
	tcase_add_test(bytes, a_buffer_of_more_than_a_gib_is_many_to_the_kernel_and_one_to_its_user);
	tcase_add_loop_test(bytes, bytes_are_where_mappings_see_them_after_somebody_made_a_hole, 0, 2);
	suite_add_tcase(s, bytes);
	tcase_set_timeout(charges, 60);
	tcase_add_test(charges, many_streams_of_a_plain_user_are_charged_for_one_registration);
	tcase_add_loop_test(charges, without_what_newer_kernels_have_the_bytes_are_the_same, 0, 4);
	suite_add_tcase(s, charges);
	tcase_set_timeout(gone, 60);
	tcase_add_test(gone, a_buffer_that_is_freed_leaves_streams_that_live_on);
	tcase_add_test(gone, a_buffer_that_is_given_back_during_a_write_is_written_to_the_end);
	tcase_add_test(gone, a_table_goes_with_the_last_in_it);
	tcase_add_test(gone, a_full_table_is_no_limit);
	tcase_add_test(gone, what_comes_and_goes_uses_nothing_up);
	tcase_add_test(gone, streams_and_buffers_come_and_go_at_once);
	tcase_add_test(gone, nothing_of_a_killed_process_stays);
	tcase_add_test(gone, a_forked_child_takes_nothing_from_the_parents_rings);
	tcase_add_test(gone, a_ring_that_is_long_in_leaving_is_waited_for_by_its_own_stream_alone);
	suite_add_tcase(s, gone);
	tcase_set_timeout(files, 60);
	tcase_add_loop_test(files, a_number_that_is_used_again_is_the_new_file, 0, 2);
	tcase_add_test(files, a_file_that_is_done_with_is_closed_at_once);
	tcase_add_loop_test(files, without_registered_files_the_bytes_are_the_same, 0, 2);
	tcase_add_test(files, a_full_table_of_files_is_no_limit);
	suite_add_tcase(s, files);
	return s;
}

PINION_TEST_MAIN(suite)
