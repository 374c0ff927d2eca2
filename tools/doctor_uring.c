/* SPDX-License-Identifier: MIT */
/*
 * io_uring as doctor sees it: each part that the runtime uses, or would, is tried on a ring of its own, because a kernel may lack
 * one and a seccomp filter may refuse one.
 */
#include "doctor.h"

#include "pinion.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Newer than the headers this is built with. */
#define OP_URING_CMD	       46 /* IORING_OP_URING_CMD, Linux 5.19 */
#define REGISTER_CLONE_BUFFERS 30 /* IORING_REGISTER_CLONE_BUFFERS, Linux 6.12 */
#define CLONE_REPLACE	       (1u << 1) /* IORING_REGISTER_DST_REPLACE, Linux 6.13, and so are the fields after flags */

#define TRIES		       40
#define PAUSE_US	       5000

struct clone_buffers { /* struct io_uring_clone_buffers */
	uint32_t src_fd;
	uint32_t flags;
	uint32_t src_off, dst_off, nr;
	uint32_t pad[3];
};

static const struct {
	int op;
	const char *name;
} wanted[] = {
	{ IORING_OP_NOP, "nop" },
	{ IORING_OP_READ, "read" },
	{ IORING_OP_WRITE, "write" },
	{ IORING_OP_READ_FIXED, "read_fixed" },
	{ IORING_OP_WRITE_FIXED, "write_fixed" },
	{ IORING_OP_FSYNC, "fsync" },
	{ IORING_OP_POLL_ADD, "poll_add" },
	{ IORING_OP_ASYNC_CANCEL, "async_cancel" },
	{ IORING_OP_LINK_TIMEOUT, "link_timeout" },
};

/* The finding of what does not work where streams have another engine, and where they do not. */
static enum finding without(const char *engine)
{
	return engine && !strcmp(engine, "threads") ? FINDING_WARN : FINDING_FAIL;
}

static void ring_refused(struct doctor *d, enum finding finding, const char *what, const char *call, int err, const char *engine)
{
	char disabled[8] = "", how[64] = "";

	if (doctor_read("/proc/sys/kernel/io_uring_disabled", disabled, sizeof(disabled)) && *disabled != '0')
		snprintf(how, sizeof(how), ", kernel.io_uring_disabled is %s", disabled);
	else if (doctor_is_filtered())
		snprintf(how, sizeof(how), ", a seccomp filter binds this process");
	doctor_advise(d, finding, what, pinion_advice_uring(err), NULL, "%s: %s%s%s%s", call, strerrordesc_np(err), how,
		      finding == FINDING_WARN && engine ? "; streams run on: " : "",
		      finding == FINDING_WARN && engine ? engine : "");
}

/*
 * Kernels that count rings against RLIMIT_MEMLOCK give it back some time after a ring is closed, so that one is asked for more
 * than once, as the runtime does.
 */
static int open_ring(unsigned int entries, struct io_uring *ring)
{
	int ret;

	for (unsigned int i = 0; (ret = io_uring_queue_init(entries, ring, 0)) == -ENOMEM && i < TRIES; i++)
		usleep(PAUSE_US);
	return ret;
}

/* One operation that does nothing, through the kernel and back. 0 or -errno. */
static int try_nop(struct io_uring *ring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct __kernel_timespec patience = { .tv_sec = 5 };
	struct io_uring_cqe *cqe;
	int ret;

	io_uring_prep_nop(sqe);
	ret = io_uring_submit(ring);
	if (ret < 0)
		return ret;
	ret = io_uring_wait_cqe_timeout(ring, &cqe, &patience);
	if (ret)
		return ret;
	ret = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return ret < 0 ? ret : 0;
}

static int register_page(struct io_uring *ring)
{
	struct iovec iov = { .iov_len = sysconf(_SC_PAGESIZE) };
	int ret;

	iov.iov_base = mmap(NULL, iov.iov_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (iov.iov_base == MAP_FAILED)
		return -errno;
	ret = io_uring_register_buffers(ring, &iov, 1);
	munmap(iov.iov_base, iov.iov_len);
	return ret;
}

static void look_at_operations(struct doctor *d, struct io_uring *ring)
{
	struct io_uring_probe *probe = calloc(1, sizeof(*probe) + 256 * sizeof(probe->ops[0]));
	char missing[128] = "";
	int ret;

	if (!probe)
		no_memory();
	ret = io_uring_register_probe(ring, probe, 256);
	if (ret) {
		ring_refused(d, FINDING_WARN, "io_uring operations", "IORING_REGISTER_PROBE", -ret, NULL);
		free(probe);
		return;
	}
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (!io_uring_opcode_supported(probe, wanted[i].op))
			snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s", wanted[i].name);
	if (*missing)
		doctor_advise(d, FINDING_WARN, "io_uring operations", PINION_ADVICE_KERNEL_OLD, NULL, "missing:%s", missing);
	else
		doctor_say(d, FINDING_OK, "io_uring operations", "all that streams use");
	if (io_uring_opcode_supported(probe, OP_URING_CMD))
		doctor_say(d, FINDING_OK, "io_uring commands",
			   "uring_cmd is there: the module can count in the kernel (Linux 6.7 on)");
	else
		doctor_say(d, FINDING_WARN, "io_uring commands",
			   "this kernel has no uring_cmd (Linux 5.19): the module's counts are "
			   "changed by system calls and loads only");
	free(probe);
}

/* The ring @to shares the one buffer that @from has registered, from its slot @at on. 0 or -errno. */
static int share_buffer(const struct io_uring *to, const struct io_uring *from, uint32_t at)
{
	struct clone_buffers args = { .src_fd = from->ring_fd };

	if (at) {
		args.flags = CLONE_REPLACE;
		args.dst_off = at;
		args.nr = 1;
	}
	return syscall(__NR_io_uring_register, to->ring_fd, REGISTER_CLONE_BUFFERS, &args, 1) < 0 ? -errno : 0;
}

#define BY_ADDRESS "name memory by its address: the same results, at no charge, for more CPU time"

/* Whether a stream's ring can take part in what holds a buffer, and in that of a second one, as the runtime does it. */
static void look_at_clone(struct doctor *d, struct io_uring *from)
{
	struct io_uring to;
	int ret = open_ring(1, &to), more = 0;

	if (ret) {
		ring_refused(d, FINDING_WARN, "io_uring clone", "a second ring", -ret, NULL);
		return;
	}
	ret = share_buffer(&to, from, 0);
	if (!ret)
		more = share_buffer(&to, from, 1);
	io_uring_queue_exit(&to);
	if (ret == -EINVAL)
		doctor_say(d, FINDING_WARN, "io_uring clone",
			   "not in this kernel (Linux 6.12): a buffer is registered and charged once all the same, and requests "
			   "of streams " BY_ADDRESS);
	else if (ret)
		ring_refused(d, FINDING_WARN, "io_uring clone", "IORING_REGISTER_CLONE_BUFFERS", -ret, NULL);
	else if (more)
		doctor_say(d, FINDING_WARN, "io_uring clone",
			   "a stream shares the registration of one buffer at a time (more: Linux 6.13); its requests on "
			   "others " BY_ADDRESS);
	else
		doctor_say(d, FINDING_OK, "io_uring clone",
			   "streams share what holds a buffer: it is registered and charged once");
}

static void look_at_registration(struct doctor *d, struct io_uring *ring)
{
	int fd = STDERR_FILENO, ret = register_page(ring);

	if (!ret) {
		doctor_say(d, FINDING_OK, "io_uring buffers", "can be registered");
		look_at_clone(d, ring);
	} else if (ret == -ENOMEM) {
		doctor_advise(d, FINDING_WARN, "io_uring buffers", PINION_ADVICE_URING_BUFFERS, NULL,
			      "none can be registered (%s), so none is held that way", strerrordesc_np(-ret));
	} else {
		ring_refused(d, FINDING_WARN, "io_uring buffers", "registering one page", -ret, NULL);
	}
	ret = io_uring_register_files(ring, &fd, 1);
	if (ret)
		ring_refused(d, FINDING_WARN, "io_uring files", "registering a file", -ret, NULL);
	else
		doctor_say(d, FINDING_OK, "io_uring files", "can be registered");
}

/* A ring works; whether streams have one is another thing. */
static void ring_works(struct doctor *d, const char *engine, const char *why)
{
	if (engine && !strcmp(engine, "none"))
		doctor_say(d, FINDING_FAIL, "io_uring", "rings can be set up and used, but no stream can be made: %s", why);
	else
		doctor_say(d, FINDING_OK, "io_uring", "rings can be set up and used%s",
			   engine && !strcmp(engine, "threads") ? ", but streams were told to run on threads" : "");
}

void doctor_uring(struct doctor *d, const char *engine, const char *why)
{
	struct io_uring ring;
	int ret = open_ring(4, &ring);

	if (ret) {
		ring_refused(d, without(engine), "io_uring", "io_uring_setup", -ret, engine);
		return;
	}
	ret = try_nop(&ring);
	if (ret) {
		ring_refused(d, without(engine), "io_uring", "io_uring_enter", -ret, engine);
	} else {
		ring_works(d, engine, why);
		look_at_operations(d, &ring);
		look_at_registration(d, &ring);
	}
	io_uring_queue_exit(&ring);
}
