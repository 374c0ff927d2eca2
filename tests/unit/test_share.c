/* SPDX-License-Identifier: MIT */
#include "ground.h"
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BOTH (PINION_READ | PINION_WRITE)

#define PASS_PIDFD 76 /* SO_PASSPIDFD, Linux 6.5 */

static struct pinion_context *context(void)
{
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(NULL, &ctx));
	return ctx;
}

/* A context on a ground that may differ from that of the others here. */
static struct pinion_context *context_on(const char *ground)
{
	struct pinion_open_opts opts = { .size = sizeof(opts), .ground = ground };
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(&opts, &ctx));
	return ctx;
}

static struct pinion_buffer *buffer(struct pinion_context *ctx, size_t size)
{
	struct pinion_buffer *buf = NULL;

	ck_ok(pinion_buffer_alloc(ctx, size, NULL, &buf));
	return buf;
}

static int reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void pair(int type, int sock[2])
{
	ck_assert_int_eq(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sock), 0);
}

/* ---- between processes ------------------------------------------------------------------------------------------- */

/* The peer: receives, checks the rights, sees the sender's byte and, as a writer, answers with its own. */
static int peer(int sock, uint32_t rights)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_context *ctx;
	struct pinion_buffer *buf;
	char *addr;
	int ret;

	if (pinion_open(NULL, &ctx))
		return 1;
	if (pinion_buffer_recv(ctx, sock, &buf))
		return 2;
	if (pinion_buffer_info(buf, &info) || info.rights != rights || info.bytes != 3 * 4096)
		return 3;
	if (pinion_buffer_map(buf, PINION_READ, (void **)&addr) || addr[5000] != 's')
		return 4;
	ret = pinion_buffer_map(buf, BOTH, (void **)&addr);
	if (rights == PINION_READ && ret != -EPERM)
		return 5;
	if (rights == BOTH) {
		if (ret)
			return 6;
		addr[5001] = 'p';
	}
	if (send(sock, "done", 4, 0) != 4)
		return 7;
	pinion_buffer_unref(buf);
	pinion_close(ctx);
	return 0;
}

static void hand_over(int type, uint32_t rights)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 2 * 4096 + 1);
	volatile char *addr;
	char word[4];
	int sock[2];
	pid_t pid;

	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&addr));
	addr[5000] = 's';
	pair(type, sock);
	pid = fork();
	if (!pid)
		_exit(peer(sock[1], rights));
	close(sock[1]);
	ck_ok(pinion_buffer_send(buf, sock[0], rights));
	if (recv(sock[0], word, 4, MSG_WAITALL) == 4 && rights == BOTH)
		ck_assert_int_eq(addr[5001], 'p');
	ck_assert_int_eq(reap(pid), 0);
	close(sock[0]);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}

START_TEST(a_reader_is_handed_over)
{
	hand_over(SOCK_STREAM, PINION_READ);
	hand_over(SOCK_SEQPACKET, PINION_READ);
	hand_over(SOCK_DGRAM, PINION_READ);
}
END_TEST

START_TEST(a_writer_is_handed_over)
{
	hand_over(SOCK_STREAM, BOTH);
	hand_over(SOCK_SEQPACKET, BOTH);
}
END_TEST

START_TEST(the_memory_outlives_its_sender)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;
	char *addr;
	int sock[2];
	pid_t pid;

	pair(SOCK_SEQPACKET, sock);
	pid = fork();
	if (!pid) {
		struct pinion_context *own;

		if (pinion_open(NULL, &own) || pinion_buffer_alloc(own, 4096, NULL, &buf) ||
		    pinion_buffer_map(buf, BOTH, (void **)&addr))
			_exit(1);
		addr[0] = 'z';
		_exit(pinion_buffer_send(buf, sock[1], PINION_READ) ? 2 : 0);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_ok(pinion_buffer_recv(ctx, sock[0], &buf));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&addr));
	ck_assert_int_eq(addr[0], 'z');
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(several_buffers_arrive_in_order_on_a_byte_stream)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf, *got;
	int sock[2];

	pair(SOCK_STREAM, sock);
	for (int i = 1; i <= 4; i++) {
		buf = buffer(ctx, i * 4096);
		ck_ok(pinion_buffer_send(buf, sock[0], i & 1 ? PINION_READ : BOTH));
		pinion_buffer_unref(buf);
	}
	for (int i = 1; i <= 4; i++) {
		ck_ok(pinion_buffer_recv(ctx, sock[1], &got));
		ck_assert_uint_eq(pinion_buffer_size(got), i * 4096);
		pinion_buffer_unref(got);
	}
	close(sock[0]);
	close(sock[1]);
	pinion_close(ctx);
}
END_TEST

/* ---- seals and rights -------------------------------------------------------------------------------------------- */

START_TEST(a_sealed_buffer_has_no_second_writer)
{
	struct pinion_context *ctx = context_on("memfd");
	struct pinion_buffer *buf = buffer(ctx, 4096), *got = NULL;
	int sock[2];

	pair(SOCK_SEQPACKET, sock);
	ck_assert_int_eq(pinion_buffer_send(buf, sock[0], 0), -EINVAL);
	ck_assert_int_eq(pinion_buffer_send(buf, sock[0], PINION_WRITE), -EINVAL);
	ck_ok(pinion_buffer_send(buf, sock[0], PINION_READ));
	ck_assert_int_eq(pinion_buffer_send(buf, sock[0], BOTH), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "module"));
	ck_ok(pinion_buffer_recv(ctx, sock[1], &got));
	ck_assert_int_eq(pinion_buffer_send(got, sock[0], BOTH), -EOPNOTSUPP);
	ck_ok(pinion_buffer_send(got, sock[0], PINION_READ));
	pinion_buffer_unref(got);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_writer_works_beside_readers_where_there_is_the_module)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 4096), *reader = NULL, *writer = NULL;
	char *r, *w;
	int sock[2];

	pair(SOCK_SEQPACKET, sock);
	ck_ok(pinion_buffer_send(buf, sock[0], PINION_READ));
	ck_ok(pinion_buffer_recv(ctx, sock[1], &reader));
	ck_ok(pinion_buffer_map(reader, PINION_READ, (void **)&r));
	ck_assert_int_eq(pinion_buffer_map(reader, BOTH, (void **)&w), -EPERM);
	ck_assert_int_eq(pinion_buffer_send(reader, sock[1], BOTH), -EOPNOTSUPP);
	if (on_module(ctx)) {
		ck_ok(pinion_buffer_send(buf, sock[0], BOTH));
		ck_ok(pinion_buffer_recv(ctx, sock[1], &writer));
		ck_ok(pinion_buffer_map(writer, BOTH, (void **)&w));
		w[9] = 'w';
		ck_assert_int_eq(r[9], 'w');
		ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
		ck_assert_int_eq(w[9], 'w');
		/* Two others write: a seal would be a promise that nobody keeps. */
		ck_assert_int_eq(pinion_buffer_seal(buf), -EOPNOTSUPP);
		ck_assert_int_eq(pinion_buffer_seal(writer), -EOPNOTSUPP);
		ck_ok(pinion_buffer_seal(reader));
		pinion_buffer_unref(writer);
	} else {
		ck_assert_int_eq(pinion_buffer_send(buf, sock[0], BOTH), -EOPNOTSUPP);
	}
	pinion_buffer_unref(reader);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

/* From a process on one ground to one on the other, and back. */
static void mixed(const char *from, const char *to, uint32_t rights)
{
	struct pinion_context *ctx = context_on(from);
	struct pinion_buffer *buf = buffer(ctx, 4096), *back = NULL;
	char *addr;
	int sock[2];
	pid_t pid;

	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&addr));
	addr[0] = 's';
	pair(SOCK_SEQPACKET, sock);
	pid = fork();
	if (!pid) {
		struct pinion_open_opts opts = { .size = sizeof(opts), .ground = to };
		struct pinion_context *own;
		struct pinion_buffer *got;

		if (pinion_open(&opts, &own) || pinion_buffer_recv(own, sock[1], &got))
			_exit(1);
		if (pinion_buffer_map(got, rights, (void **)&addr) || addr[0] != 's')
			_exit(2);
		if (rights == BOTH)
			addr[1] = 'r';
		_exit(pinion_buffer_send(got, sock[1], rights) ? 3 : 0);
	}
	ck_ok(pinion_buffer_send(buf, sock[0], rights));
	ck_assert_int_eq(reap(pid), 0);
	ck_ok(pinion_buffer_recv(ctx, sock[0], &back));
	ck_ok(pinion_buffer_map(back, PINION_READ, (void **)&addr));
	ck_assert_int_eq(addr[0], 's');
	if (rights == BOTH)
		ck_assert_int_eq(addr[1], 'r');
	pinion_buffer_unref(back);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
	close(sock[0]);
	close(sock[1]);
}

START_TEST(processes_on_different_grounds_share)
{
	uint32_t rights = _i ? BOTH : PINION_READ;

	mixed("auto", "memfd", rights);
	mixed("memfd", "auto", rights);
}
END_TEST

/* The descriptor is the right: who may not open the module's device receives all the same. */
START_TEST(a_user_without_the_device_receives)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 4096);
	char dir[PATH_MAX], *addr;
	int sock[2];
	pid_t pid;

	snprintf(dir, sizeof(dir), "%s/other", test_tmp());
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	if (!geteuid())
		ck_assert_int_eq(chown(dir, 65534, 65534), 0);
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&addr));
	addr[7] = 'x';
	pair(SOCK_SEQPACKET, sock);
	ck_ok(pinion_buffer_send(buf, sock[0], PINION_READ));
	pid = fork();
	if (!pid) {
		struct pinion_context *own;
		struct pinion_buffer *got;

		/* The user may not come through what is above. */
		if (chdir(dir) || (!geteuid() && (setgid(65534) || setuid(65534))))
			_exit(1);
		setenv("PINION_DIR", ".", 1);
		if (pinion_open(NULL, &own) || pinion_buffer_recv(own, sock[1], &got))
			_exit(2);
		if (pinion_buffer_map(got, PINION_READ, (void **)&addr) || addr[7] != 'x')
			_exit(3);
		_exit(pinion_buffer_map(got, BOTH, (void **)&addr) == -EPERM ? 0 : 4);
	}
	ck_assert_int_eq(reap(pid), 0);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_seal_made_by_another_holder_is_noticed)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_context *ctx = context_on("memfd");
	struct pinion_buffer *buf = buffer(ctx, 4096), *got = NULL;
	void *addr;
	int sock[2];

	pair(SOCK_SEQPACKET, sock);
	ck_ok(pinion_buffer_map(buf, BOTH, &addr));
	ck_ok(pinion_buffer_unmap(buf, BOTH));
	ck_ok(pinion_buffer_send(buf, sock[0], BOTH));
	ck_ok(pinion_buffer_recv(ctx, sock[1], &got));
	ck_ok(pinion_buffer_seal(got));
	ck_assert_int_eq(pinion_buffer_map(buf, BOTH, &addr), -EPERM);
	ck_assert_int_eq(pinion_buffer_send(buf, sock[0], BOTH), -EOPNOTSUPP);
	ck_ok(pinion_buffer_info(buf, &info));
	ck_assert_uint_eq(info.rights, PINION_READ);
	pinion_buffer_unref(got);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(sealing_what_another_holder_sealed_is_no_error)
{
	struct pinion_context *ctx = context_on("memfd");
	struct pinion_buffer *buf = buffer(ctx, 4096), *got = NULL;
	int sock[2];

	pair(SOCK_SEQPACKET, sock);
	ck_ok(pinion_buffer_send(buf, sock[0], BOTH));
	ck_ok(pinion_buffer_recv(ctx, sock[1], &got));
	ck_ok(pinion_buffer_seal(got));
	ck_ok(pinion_buffer_seal(buf));
	ck_ok(pinion_buffer_send(buf, sock[0], PINION_READ));
	pinion_buffer_unref(got);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_reader_cannot_be_turned_into_a_writer)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 4096), *got = NULL;
	char path[64];
	void *addr;
	int sock[2], fd, again;

	pair(SOCK_SEQPACKET, sock);
	ck_ok(pinion_buffer_send(buf, sock[0], PINION_READ));
	ck_ok(pinion_buffer_recv(ctx, sock[1], &got));
	ck_ok(pinion_buffer_map(got, PINION_READ, &addr));
	ck_assert_int_eq(mprotect(addr, 4096, PROT_READ | PROT_WRITE), -1);
	ck_assert_int_eq(errno, EACCES);
	fd = pinion_buffer_export(got);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR);
	if (on_module(ctx)) {
		/* There is no file of that name to open. */
		ck_assert_int_eq(again, -1);
		ck_assert_ptr_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
		ck_assert_int_eq(errno, EACCES);
	} else {
		ck_assert_int_ge(again, 0);
		ck_assert_int_eq(write(again, "x", 1), -1);
		ck_assert_int_eq(errno, EPERM);
		ck_assert_ptr_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
		ck_assert_int_eq(errno, EPERM);
		close(again);
	}
	close(fd);
	pinion_buffer_unref(got);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

/* ---- messages that are no buffer --------------------------------------------------------------------------------- */

/* What pinion_buffer_send() puts on the wire, known here to lie about it. */
struct message {
	uint32_t magic, rights;
	uint64_t bytes;
	uint32_t page_size, reserved;
};

static const struct message honest = { 0x31465542, PINION_READ, 4096, 4096, 0 };

static void send_raw(int sock, const void *data, size_t bytes, const int *fds, unsigned int nfds)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(16 * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (void *)data, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *head;

	if (nfds) {
		msg.msg_control = control.room;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		head = CMSG_FIRSTHDR(&msg);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(head), fds, nfds * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(sock, &msg, 0), bytes);
}

static int memfd(off_t bytes, int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* The message is refused with @want and leaves no descriptor behind. */
static void refused(int type, const void *data, size_t bytes, const int *fds, unsigned int nfds, int want)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;
	unsigned int before;
	int sock[2], ret;

	pair(type, sock);
	send_raw(sock[0], data, bytes, fds, nfds);
	before = fds_open();
	ret = pinion_buffer_recv(ctx, sock[1], &buf);
	ck_assert_msg(ret == want, "%d (%s), not %d", ret, pinion_error(), want);
	ck_assert_str_ne(pinion_error(), "");
	ck_assert_ptr_null(buf);
	ck_assert_uint_eq(fds_open(), before);
	close(sock[0]);
	close(sock[1]);
	pinion_close(ctx);
}

START_TEST(garbage_is_refused)
{
	struct message bad = honest;
	char text[200];
	int fd = memfd(4096, F_SEAL_SHRINK);

	memset(text, 'g', sizeof(text));
	refused(SOCK_SEQPACKET, text, sizeof(honest), NULL, 0, -EPROTO);
	refused(SOCK_SEQPACKET, text, sizeof(honest), &fd, 1, -EPROTO);
	refused(SOCK_SEQPACKET, text, 1, &fd, 1, -EPROTO);
	refused(SOCK_SEQPACKET, text, sizeof(text), &fd, 1, -EPROTO);
	refused(SOCK_STREAM, text, sizeof(text), &fd, 1, -EPROTO);
	refused(SOCK_STREAM, text, 1, NULL, 0, -EPROTO);
	refused(SOCK_SEQPACKET, &honest, sizeof(honest), NULL, 0, -EPROTO);
	bad.magic++;
	refused(SOCK_SEQPACKET, &bad, sizeof(bad), &fd, 1, -EPROTO);
	close(fd);
}
END_TEST

START_TEST(a_memory_file_that_could_shrink_is_refused)
{
	int fds[3] = { memfd(4096, 0), memfd(4096, F_SEAL_GROW), memfd(4096, F_SEAL_GROW | F_SEAL_FUTURE_WRITE) };

	for (int i = 0; i < 3; i++) {
		refused(SOCK_SEQPACKET, &honest, sizeof(honest), &fds[i], 1, -EPROTO);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "shrink"));
		close(fds[i]);
	}
}
END_TEST

START_TEST(a_size_that_is_a_lie_is_refused)
{
	static const uint64_t bytes[] = { 0, 1, 4095, 8192, UINT64_C(1) << 40, UINT64_MAX, (uint64_t)INT64_MAX + 1 };
	static const uint32_t pages[] = { 0, 1, 2048, 4097, 8192, 3 << 12, UINT32_MAX };
	struct message lie;
	int fd = memfd(4096, F_SEAL_SHRINK), empty = memfd(0, F_SEAL_SHRINK);

	for (unsigned int i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		lie = honest;
		lie.bytes = bytes[i];
		refused(SOCK_SEQPACKET, &lie, sizeof(lie), &fd, 1, -EPROTO);
	}
	for (unsigned int i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		lie = honest;
		lie.page_size = pages[i];
		refused(SOCK_SEQPACKET, &lie, sizeof(lie), &fd, 1, -EPROTO);
	}
	/* True, and still no buffer: nothing of it could be mapped. */
	lie = honest;
	lie.bytes = 0;
	refused(SOCK_SEQPACKET, &lie, sizeof(lie), &empty, 1, -EPROTO);
	close(empty);
	close(fd);
}
END_TEST

/* Pages of a pool that are not there are a bus fault where the pool is empty, or a control group allows no more. */
START_TEST(memory_of_a_pool_that_could_be_missing_is_refused)
{
	struct message lie = honest;
	int fd = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | 21u << 26);

	if (fd < 0)
		SKIP("no file of huge pages can be made here");
	lie.bytes = 4 << 20;
	ck_assert_int_eq(ftruncate(fd, lie.bytes), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	refused(SOCK_SEQPACKET, &lie, sizeof(lie), &fd, 1, -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "is said to have pages of 4096 bytes and has pages of 2097152"));
	lie.page_size = 2 << 20;
	refused(SOCK_SEQPACKET, &lie, sizeof(lie), &fd, 1, -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "its writers could take pages away"));
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	refused(SOCK_SEQPACKET, &lie, sizeof(lie), &fd, 1, -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "4194304 bytes of it are not there"));
	close(fd);
}
END_TEST

START_TEST(more_than_one_descriptor_is_refused)
{
	int fds[6];

	for (int i = 0; i < 6; i++)
		fds[i] = memfd(4096, F_SEAL_SHRINK);
	for (unsigned int n = 2; n <= 6; n++) {
		refused(SOCK_SEQPACKET, &honest, sizeof(honest), fds, n, -EPROTO);
		refused(SOCK_STREAM, &honest, sizeof(honest), fds, n, -EPROTO);
	}
	for (int i = 0; i < 6; i++)
		close(fds[i]);
}
END_TEST

START_TEST(a_process_that_may_have_no_more_descriptors_is_told)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;
	struct rlimit was, low;
	int sock[2], fd = memfd(4096, F_SEAL_SHRINK), next, ret;

	pair(_i ? SOCK_SEQPACKET : SOCK_STREAM, sock);
	send_raw(sock[0], &honest, sizeof(honest), &fd, 1);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	next = dup(fd);
	close(next);
	low = (struct rlimit){ .rlim_cur = next, .rlim_max = was.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	ret = pinion_buffer_recv(ctx, sock[1], &buf);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
	ck_assert_msg(ret == -EMFILE, "%d (%s)", ret, pinion_error());
	ck_assert_ptr_null(buf);
	close(sock[0]);
	close(sock[1]);
	close(fd);
	pinion_close(ctx);
}
END_TEST

START_TEST(an_ordinary_file_is_refused)
{
	char path[PATH_MAX];
	int fd, end[2], dir = open(test_tmp(), O_RDONLY | O_DIRECTORY);

	snprintf(path, sizeof(path), "%s/file", test_tmp());
	fd = open(path, O_RDWR | O_CREAT, 0600);
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	refused(SOCK_SEQPACKET, &honest, sizeof(honest), &fd, 1, -EPROTO);
	refused(SOCK_SEQPACKET, &honest, sizeof(honest), &dir, 1, -EPROTO);
	ck_assert_int_eq(pipe(end), 0);
	refused(SOCK_SEQPACKET, &honest, sizeof(honest), &end[0], 1, -EPROTO);
	unlink(path);
}
END_TEST

START_TEST(an_empty_packet_with_a_descriptor_leaves_none)
{
	int fd = memfd(4096, F_SEAL_SHRINK);

	refused(SOCK_SEQPACKET, "", 0, &fd, 1, -ECONNRESET);
	close(fd);
}
END_TEST

/* A socket may be set to say who sent what. */
START_TEST(what_else_comes_with_a_message_is_passed_over)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 4096), *got = NULL;
	unsigned int before;
	int sock[2], on = 1;

	pair(SOCK_SEQPACKET, sock);
	before = fds_open();
	ck_assert_int_eq(setsockopt(sock[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	ck_assert_int_eq(setsockopt(sock[1], SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)), 0);
	/* Not on every kernel. */
	setsockopt(sock[1], SOL_SOCKET, SO_PASSSEC, &on, sizeof(on));
	setsockopt(sock[1], SOL_SOCKET, PASS_PIDFD, &on, sizeof(on));
	ck_ok(pinion_buffer_send(buf, sock[0], BOTH));
	ck_ok(pinion_buffer_recv(ctx, sock[1], &got));
	ck_assert_uint_eq(pinion_buffer_size(got), 4096);
	pinion_buffer_unref(got);
	ck_assert_uint_eq(fds_open(), before);
	pinion_buffer_unref(buf);
	close(sock[0]);
	close(sock[1]);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_peer_that_closed_is_said)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL, *own = buffer(ctx, 4096);
	int sock[2], types[2] = { SOCK_STREAM, SOCK_SEQPACKET };

	for (int i = 0; i < 2; i++) {
		pair(types[i], sock);
		close(sock[0]);
		ck_assert_int_eq(pinion_buffer_recv(ctx, sock[1], &buf), -ECONNRESET);
		ck_assert_int_eq(pinion_buffer_send(own, sock[1], PINION_READ), -EPIPE);
		close(sock[1]);
	}
	ck_assert_int_eq(pinion_buffer_recv(ctx, -1, &buf), -EBADF);
	ck_assert_int_eq(pinion_buffer_send(own, -1, PINION_READ), -EBADF);
	ck_assert_ptr_null(buf);
	pinion_buffer_unref(own);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_thousand_hand_overs_leave_nothing)
{
	struct pinion_context *ctx = context();
	unsigned int fds;
	int sock[2];

	pair(SOCK_SEQPACKET, sock);
	fds = fds_open();
	for (unsigned int i = test_rounds(1000); i; i--) {
		struct pinion_buffer *buf = buffer(ctx, 4096), *got = NULL;

		ck_ok(pinion_buffer_send(buf, sock[0], i & 1 ? PINION_READ : BOTH));
		ck_ok(pinion_buffer_recv(ctx, sock[1], &got));
		pinion_buffer_unref(got);
		pinion_buffer_unref(buf);
	}
	ck_assert_uint_eq(fds_open(), fds);
	pinion_close(ctx);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("share");
	TCase *over = tcase_create("hand over"), *rights = tcase_create("rights"), *hostile = tcase_create("hostile");

	tcase_set_timeout(over, 30);
	tcase_add_test(over, a_reader_is_handed_over);
	tcase_add_test(over, a_writer_is_handed_over);
	tcase_add_test(over, the_memory_outlives_its_sender);
	tcase_add_test(over, several_buffers_arrive_in_order_on_a_byte_stream);
	tcase_add_test(over, a_thousand_hand_overs_leave_nothing);
	suite_add_tcase(s, over);
	tcase_add_loop_test(rights, processes_on_different_grounds_share, 0, 2);
	tcase_add_test(rights, a_user_without_the_device_receives);
	tcase_add_test(rights, a_writer_works_beside_readers_where_there_is_the_module);
	tcase_add_test(rights, a_sealed_buffer_has_no_second_writer);
	tcase_add_test(rights, a_seal_made_by_another_holder_is_noticed);
	tcase_add_test(rights, sealing_what_another_holder_sealed_is_no_error);
	tcase_add_test(rights, a_reader_cannot_be_turned_into_a_writer);
	suite_add_tcase(s, rights);
	tcase_set_timeout(hostile, 30);
	tcase_add_test(hostile, garbage_is_refused);
	tcase_add_test(hostile, a_memory_file_that_could_shrink_is_refused);
	tcase_add_test(hostile, a_size_that_is_a_lie_is_refused);
	tcase_add_test(hostile, memory_of_a_pool_that_could_be_missing_is_refused);
	tcase_add_test(hostile, more_than_one_descriptor_is_refused);
	tcase_add_loop_test(hostile, a_process_that_may_have_no_more_descriptors_is_told, 0, 2);
	tcase_add_test(hostile, an_ordinary_file_is_refused);
	tcase_add_test(hostile, an_empty_packet_with_a_descriptor_leaves_none);
	tcase_add_test(hostile, what_else_comes_with_a_message_is_passed_over);
	tcase_add_test(hostile, a_peer_that_closed_is_said);
	suite_add_tcase(s, hostile);
	return s;
}

PINION_TEST_MAIN(suite)
