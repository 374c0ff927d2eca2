/* SPDX-License-Identifier: MIT */
/*
 * Each system call of a walk over the public API fails once, one after the other, whoever makes it: any thread, any library. The
 * walk is another process, stopped at each call of the table below (seccomp) by this one (ptrace), which has the kernel give the
 * error instead. The walk then says why in a sentence, or does without, and leaves nothing; the next one succeeds.
 */
#include "harness.h"
#include "sweep.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pinion/context.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#if SANITIZED
#define STRIDE 5 /* the build without has all */
#else
#define STRIDE 1
#endif

#if defined(__x86_64__)

static const struct {
	long nr;
	int err;
	const char *name;
} table[] = {
#define CALL(name, err)                \
	{                              \
		SYS_##name, err, #name \
	}
	CALL(openat, EMFILE),
	CALL(memfd_create, EMFILE),
	CALL(ftruncate, ENOSPC),
	CALL(fallocate, ENOSPC),
#if !SANITIZED /* whose own memory it is as well, without which it ends the program */
	CALL(mmap, ENOMEM),
#endif
	CALL(mremap, ENOMEM),
	CALL(mprotect, ENOMEM),
	CALL(madvise, EAGAIN),
	CALL(mlock, ENOMEM),
	CALL(read, EIO),
	CALL(pread64, EIO),
	CALL(preadv2, EIO),
	CALL(write, EIO),
	CALL(pwrite64, ENOSPC),
	CALL(lseek, EIO),
	CALL(fcntl, ENOLCK),
	CALL(flock, ENOLCK),
	CALL(ioctl, EIO),
	CALL(newfstatat, EIO),
	CALL(fstat, EIO),
	CALL(statfs, EIO),
	CALL(fstatfs, EIO),
	CALL(getdents64, EIO),
	CALL(mkdir, ENOSPC),
	CALL(linkat, ENOSPC),
	CALL(renameat, ENOSPC),
	CALL(fchmod, EPERM),
	CALL(socket, EMFILE),
	CALL(bind, ENOBUFS),
	CALL(listen, ENOBUFS),
	CALL(connect, ENOBUFS),
	CALL(accept4, EMFILE),
	CALL(getsockopt, ENOBUFS),
	CALL(sendmsg, ENOBUFS),
	CALL(recvmsg, ENOMEM),
	CALL(poll, ENOMEM),
	CALL(ppoll, ENOMEM),
	CALL(eventfd2, EMFILE),
	CALL(io_uring_setup, ENOMEM),
	CALL(io_uring_register, ENOMEM),
	CALL(io_uring_enter, EAGAIN),
	CALL(clone3, EAGAIN),
	CALL(clone, EAGAIN),
	CALL(prctl, EPERM),
	CALL(getrandom, EAGAIN),
	CALL(prlimit64, EPERM),
	CALL(fadvise64, EBADF),
};
#define CALLS (sizeof(table) / sizeof(table[0]))

/* Between the walk and who traces it. */
static struct shared {
	volatile bool armed;
	volatile unsigned int failing; /* counted from 1; 0: none */
	volatile unsigned int calls;
	volatile int which; /* of the table, that failed; -1: none did */
	volatile bool refused;
	char said[1024]; /* what is wrong; "": nothing */
	char show[1024];
} * shared;

/* ---- the process that walks ---------------------------------------------------------------------------------------- */

static int stop_at_calls(void)
{
	struct sock_filter code[2 * CALLS + 8];
	struct sock_fprog prog = { .filter = code };
	unsigned int n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (unsigned int i = 0; i < CALLS; i++) {
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)table[i].nr, 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | i);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prog.len = n;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static int walk(struct sweep_walk *w, unsigned int nth)
{
	shared->failing = nth;
	shared->which = -1;
	shared->calls = 0;
	shared->armed = true;
	sweep_walk(w);
	shared->armed = false;
	return w->ret;
}

static bool differs(const struct sweep_tally *was, const char *when)
{
	struct sweep_tally is = sweep_tally();

	if (is.fds == was->fds && is.maps == was->maps && is.files == was->files)
		return false;
	snprintf(shared->said, sizeof(shared->said), "%s: %u descriptors, %u maps, %u files; before %u, %u, %u", when, is.fds,
		 is.maps, is.files, was->fds, was->maps, was->files);
	return true;
}

/* One call fails, and what comes of it is judged; true while there is another one. */
static bool fail_one(unsigned int nth, const struct sweep_tally *was)
{
	struct sweep_walk w, again;
	const char *bad, *name;

	walk(&w, nth);
	if (shared->which < 0)
		return false;
	name = table[shared->which].name;
	bad = w.ret ? sweep_judge(&w) : NULL;
	snprintf(shared->show, sizeof(shared->show), "%u %s: %s %d %s", nth, name, w.step ? w.step : "-", w.ret, w.why);
	shared->refused = w.ret != 0;
	if (bad)
		snprintf(shared->said, sizeof(shared->said), "%s", bad);
	else if (!differs(was, "after it") && walk(&again, 0))
		snprintf(shared->said, sizeof(shared->said), "the next walk, %s: %d (%s)", again.step, again.ret, again.why);
	else if (!*shared->said)
		differs(was, "after the next walk");
	return true;
}

/* Exit status 3: that was one more than there are. */
static void walker(unsigned int nth)
{
	struct sweep_tally was;
	struct sweep_walk w;

	/* libcheck's own handler, which is inherited, ends the whole group. */
	signal(SIGALRM, SIG_DFL);
	alarm(200);
	if (ptrace(PTRACE_TRACEME, 0, 0, 0))
		_exit(4);
	raise(SIGSTOP);
	if (stop_at_calls())
		_exit(5);
	if (walk(&w, 0)) {
		snprintf(shared->said, sizeof(shared->said), "the first walk, %s: %d (%s)", w.step, w.ret, w.why);
		_exit(0);
	}
	was = sweep_tally();
	_exit(fail_one(nth, &was) ? 0 : 3);
}

/* ---- the process that traces --------------------------------------------------------------------------------------- */

/* Adding one to an eventfd, and taking it, fails in no kernel. */
static bool never_fails(pid_t pid, const struct user_regs_struct *regs)
{
	char link[64], to[64] = "";

	if (regs->orig_rax != SYS_read && regs->orig_rax != SYS_write)
		return false;
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", pid, (int)regs->rdi);
	return readlink(link, to, sizeof(to) - 1) > 0 && strstr(to, "[eventfd]");
}

static void at_call(pid_t pid)
{
	struct user_regs_struct regs;
	unsigned long i = 0;

	if (!shared->armed || ptrace(PTRACE_GETEVENTMSG, pid, 0, &i) || ptrace(PTRACE_GETREGS, pid, 0, &regs) ||
	    never_fails(pid, &regs) || ++shared->calls != shared->failing)
		return;
	shared->which = (int)i;
	regs.orig_rax = -1;
	regs.rax = -table[i].err;
	ptrace(PTRACE_SETREGS, pid, 0, &regs);
}

/* Whether a stop is the tracer's own and not a signal for the thread. */
static bool is_ours(int status)
{
	return status >> 16 || WSTOPSIG(status) == SIGSTOP;
}

/* Follows every thread to the end; the exit status of the process, or minus the signal that ended it. */
static int follow(pid_t first)
{
	int status;

	for (;;) {
		pid_t pid = waitpid(-1, &status, __WALL);

		ck_assert_int_gt(pid, 0);
		if (WIFSTOPPED(status)) {
			if (status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8))
				at_call(pid);
			ptrace(PTRACE_CONT, pid, 0, is_ours(status) ? 0 : WSTOPSIG(status));
		} else if (pid == first) {
			return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
		}
	}
}

static int traced(unsigned int nth)
{
	long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
	int status;
	pid_t pid;

	shared->said[0] = shared->show[0] = 0;
	shared->armed = false;
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		walker(nth);
	ck_assert_int_eq(waitpid(pid, &status, __WALL), pid);
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (ptrace(PTRACE_SETOPTIONS, pid, 0, options)) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, __WALL);
		return 4;
	}
	ptrace(PTRACE_CONT, pid, 0, 0);
	return follow(pid);
}

START_TEST(each_system_call_fails_once)
{
	unsigned int nth, refused = 0, survived = 0;

	sweep_prepare();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(shared != MAP_FAILED);
	for (nth = getenv("PINION_SWEEP_FROM") ? (unsigned int)atoi(getenv("PINION_SWEEP_FROM")) : 1;; nth += STRIDE) {
		int status = traced(nth);

		if (status == 4 || status == 5)
			SKIP("this process may not %s", status == 4 ? "trace its child" : "filter its system calls");
		if (getenv("PINION_SWEEP_SHOW"))
			printf("%s%s%s\n", shared->show, *shared->said ? " !!! " : "", shared->said);
		if (status == 3)
			break;
		ck_assert_msg(status == 0, "call %u (%s): ended by %d", nth,
			      shared->which < 0 ? "none" : table[shared->which].name, status);
		ck_assert_msg(!*shared->said, "call %s: %s", shared->show, shared->said);
		refused += shared->refused;
		survived += !shared->refused;
	}
	printf("%u system calls: of %u that failed %u were refused, %u done without\n", nth - 1, refused + survived, refused,
	       survived);
	ck_assert_uint_gt(refused, SANITIZED ? 10 : 20);
}
END_TEST

#else

START_TEST(each_system_call_fails_once)
{
	SKIP("how a tracer gives an error is written for x86-64");
}
END_TEST

#endif

static Suite *suite(void)
{
	Suite *s = suite_create("sweep_calls");
	TCase *tc = tcase_create("sweep");

	tcase_set_timeout(tc, 200);
	tcase_add_test(tc, each_system_call_fails_once);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(suite)
