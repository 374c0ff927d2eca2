// SPDX-License-Identifier: MIT
/*
 * Lives and deaths of buffers: as long as anybody holds one (a descriptor, a mapping, a slice, a device, a message on its way)
 * its bytes are right, after the last its memory is back; the module stays while any of these is left, and can go and come
 * back when none is.
 */
#define _GNU_SOURCE
#include "mem.h"
#include "state.h"
#include "vgem.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define BYTES (3 * HUGE + 5 * PAGE)
#define SEED  11

static int dev;
static uint64_t base_bytes, base_buffers;

/* A buffer that is filled; the mapping is the caller's. */
static int filled(size_t bytes, char **map)
{
	int fd = dev_alloc(dev, bytes, 0);

	if (!expect(fd, 0, "ALLOC"))
		return fd;
	*map = dev_map_aligned(fd, bytes, PROT_READ | PROT_WRITE);
	if (*map == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	else
		mem_fill(*map, bytes, 0, SEED);
	return fd;
}

static void check(const char *map, size_t bytes, const char *who)
{
	long page = mem_wrong(map, bytes, 0, SEED);

	if (page >= 0)
		wrong("%s: page %ld is not what it was", who, page);
}

static void gone(const char *after)
{
	if (dev_bytes(dev) != base_bytes || dev_buffers(dev) != base_buffers)
		wrong("after %s %llu bytes and %llu buffers are left", after, (unsigned long long)(dev_bytes(dev) - base_bytes),
		      (unsigned long long)(dev_buffers(dev) - base_buffers));
}

static void held(size_t bytes, const char *by)
{
	if (dev_bytes(dev) != base_bytes + bytes)
		wrong("held by %s, %llu bytes are in use, not %zu", by, (unsigned long long)(dev_bytes(dev) - base_bytes), bytes);
}

/* ---- descriptors over sockets ------------------------------------------------------------------------------------- */

static int send_fds(int sock, const int *fd, int nr)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int) * 4)] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int) * nr)
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * nr) };
	memcpy(CMSG_DATA(c), fd, sizeof(int) * nr);
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -errno;
}

static int receive_fd(int sock)
{
	char byte, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&msg))
		return -EBADMSG;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* ---- one process --------------------------------------------------------------------------------------------------- */

enum { FD, MAP, SLICE, SLICE_MAP, HOLDERS };

/* Drops the four holders in the order that @order counts out; whoever is left sees the bytes. */
static void drop_in_order(int order)
{
	static const char *const names[HOLDERS] = { "the descriptor", "the mapping", "the slice", "the slice's mapping" };
	const size_t offset = HUGE - PAGE, bytes = HUGE + 3 * PAGE;
	bool there[HOLDERS] = { true, true, true, true };
	char *map, *part;
	int fd = filled(BYTES, &map), slice;

	if (fd < 0)
		return;
	slice = dev_slice(dev, fd, offset, bytes, PINION_RIGHT_READ | PINION_RIGHT_WRITE);
	part = dev_map(slice, bytes, PROT_READ | PROT_WRITE);
	for (int left = HOLDERS; left > 0; left--) {
		int nth = order % left, which = 0;

		order /= left;
		while (!there[which] || nth-- > 0)
			which++;
		there[which] = false;
		if (which == FD)
			close(fd);
		else if (which == SLICE)
			close(slice);
		else if (which == MAP)
			munmap(map, BYTES);
		else
			munmap(part, bytes);
		if (there[MAP]) {
			check(map, BYTES, "the mapping");
			mem_fill(map, BYTES, 0, SEED);
		}
		if (there[SLICE_MAP] && mem_wrong(part, bytes, offset / PAGE, SEED) >= 0)
			wrong("the slice's bytes are not what they were without %s", names[which]);
		if (left > 1)
			held(BYTES, "what is left");
	}
	gone("the last");
}

static void try_orders(void)
{
	for (int order = 0; order < 24; order++)
		drop_in_order(order);
	point("one process", "every order of closing and unmapping a buffer and a slice");
}

/* Close, and go on writing; only the last part of a mapping that is unmapped gives the memory back. */
static void try_parts(void)
{
	char *map;
	int fd = filled(BYTES, &map);

	if (fd < 0)
		return;
	close(fd);
	munmap(map, HUGE + PAGE);
	munmap(map + 2 * HUGE, BYTES - 2 * HUGE);
	held(BYTES, "the middle of a mapping");
	mem_fill(map + HUGE + PAGE, HUGE - PAGE, 0, SEED + 1);
	if (mem_wrong(map + HUGE + PAGE, HUGE - PAGE, 0, SEED + 1) >= 0)
		wrong("what is left of the mapping does not hold bytes");
	munmap(map + HUGE + PAGE, HUGE - PAGE);
	gone("the last part");
	point("one process", "writes after close, unmapped part by part");
}

/* What was opened closes without what was made by it. */
static void try_opener(void)
{
	char *map = NULL;
	int fd, own = dev_open(O_RDWR), was = dev;

	dev = own;
	fd = filled(BYTES, &map);
	dev = was;
	close(own);
	held(BYTES, "a buffer whose opener has closed");
	check(map, BYTES, "without the device's descriptor");
	close(fd);
	munmap(map, BYTES);
	gone("the last");
	point("one process", "a buffer outlives the open file it was made by");
}

static int lines_of(const char *path)
{
	FILE *f = fopen(path, "re");
	int c, n = 0;

	while (f && (c = fgetc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

static void try_cycles(void)
{
	uint64_t was = mem_free(), vmalloc;
	int maps = lines_of("/proc/self/maps"), fds = open_fds(), many[64];

	for (int i = 0; i < 10000 && !*state_wrong; i++) {
		size_t bytes = i % 100 ? 2 * PAGE : HUGE;
		int fd = dev_alloc(dev, bytes, 0);
		char *map = fd < 0 ? MAP_FAILED : dev_map(fd, bytes, PROT_READ | PROT_WRITE);

		if (map == MAP_FAILED) {
			wrong("cycle %d: %s", i, strerror(errno));
			break;
		}
		map[0] = map[bytes - 1] = 1;
		if (i & 1)
			close(fd);
		munmap(map, bytes);
		if (!(i & 1))
			close(fd);
	}
	gone("10000 cycles");
	if (lines_of("/proc/self/maps") != maps || open_fds() != fds)
		wrong("%d mappings and %d descriptors, not %d and %d", lines_of("/proc/self/maps"), open_fds(), maps, fds);
	if (!mem_free_again(was, 12 * MIB))
		wrong("%llu KiB are missing", (unsigned long long)(was - mem_free()) >> 10);
	point("one process", "10000 buffers made, mapped, unmapped and freed");

	vmalloc = mem_info("VmallocUsed");
	for (int i = 0; i < 64; i++)
		many[i] = dev_alloc(dev, MIB, 0);
	if (open_fds() != fds + 64)
		wrong("64 buffers take %d descriptors", open_fds() - fds);
	if (mem_info("VmallocUsed") > vmalloc + MIB)
		wrong("64 buffers take %llu KiB of kernel addresses",
		      (unsigned long long)(mem_info("VmallocUsed") - vmalloc) >> 10);
	for (int i = 0; i < 64; i++)
		close(many[i]);
	gone("64 buffers");
	point("one process", "a buffer is one descriptor and takes no kernel addresses");
}

/* ---- several processes -------------------------------------------------------------------------------------------- */

static void try_fork(void)
{
	char *map;
	int fd = filled(BYTES, &map);
	pid_t pid;

	if (fd < 0)
		return;
	pid = fork();
	if (!pid) {
		bool ok = mem_wrong(map, BYTES, 0, SEED) < 0;

		mem_fill(map, BYTES, 0, SEED + 1);
		pid = fork();
		if (!pid) {
			ok = mem_wrong(map, BYTES, 0, SEED + 1) < 0;
			mem_fill(map, BYTES, 0, SEED + 2);
			_exit(!ok);
		}
		ok = ok && !mem_wait(pid) && mem_wrong(map, BYTES, 0, SEED + 2) < 0;
		_exit(!ok);
	}
	if (mem_wait(pid))
		wrong("a child or its child does not see the bytes");
	if (mem_wrong(map, BYTES, 0, SEED + 2) >= 0)
		wrong("what a child of a child wrote is not here");
	munmap(map, BYTES);
	close(fd);
	gone("the parent");
	point("fork", "a child and its child read and write the buffer");
}

/* The one who made it goes; a child has only the mapping. */
static void try_orphan(void)
{
	int go[2], said[2];
	char byte = 0;
	pid_t pid;

	if (pipe2(go, O_CLOEXEC) || pipe2(said, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid) {
		char *map;
		int fd = filled(BYTES, &map);

		if (fork())
			_exit(0);
		close(fd);
		close(go[1]);
		byte = read(go[0], &byte, 1) == 0 && mem_wrong(map, BYTES, 0, SEED) < 0 ? 'y' : 'n';
		_exit(write(said[1], &byte, 1) != 1);
	}
	mem_wait(pid);
	held(BYTES, "an orphan's mapping");
	close(go[1]);
	close(said[1]);
	if (read(said[0], &byte, 1) != 1 || byte != 'y')
		wrong("the orphan does not see the bytes");
	/* It was not our child, but is now. */
	if (wait(NULL) < 0 || read(said[0], &byte, 1))
		wrong("the orphan did not end");
	gone("the orphan");
	close(go[0]);
	close(said[0]);
	point("fork", "a child's mapping outlives the one who made the buffer");
}

/* exec drops mappings, and the descriptors that close on it, as ALLOC's do. */
static bool runs_busybox(pid_t pid)
{
	char path[64], *comm;
	bool is;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	comm = file_get(path);
	is = !strncmp(comm, "busybox", 7);
	free(comm);
	return is;
}

static void try_exec(void)
{
	for (int keep = 0; keep < 2; keep++) {
		int hold[2];
		pid_t pid;

		if (pipe2(hold, O_CLOEXEC))
			return;
		pid = fork();
		if (!pid) {
			char *map;
			int fd = filled(BYTES, &map);

			if (keep)
				fcntl(fd, F_SETFD, 0);
			close(hold[1]);
			dup2(hold[0], 0);
			execl("/bin/busybox", "cat", NULL);
			_exit(127);
		}
		close(hold[0]);
		/* Until the new program runs, its image is still ours. */
		if (!eventually(runs_busybox(pid)))
			wrong("the new program does not run");
		if (keep)
			held(BYTES, "a descriptor that exec keeps");
		else if (!mem_bytes_again(dev, base_bytes, base_buffers))
			gone("exec");
		close(hold[1]);
		if (mem_wait(pid))
			wrong("the new program failed");
		gone("the new program");
	}
	point("exec", "drops mappings and descriptors that close on it, keeps the others");
}

static void try_pass(void)
{
	int sock[2], fd;
	char *map;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock))
		return;
	pid = fork();
	if (!pid) {
		fd = filled(BYTES, &map);
		_exit(fd < 0 || send_fds(sock[1], &fd, 1));
	}
	if (mem_wait(pid))
		wrong("the sender failed");
	held(BYTES, "a message, its sender dead");
	fd = receive_fd(sock[0]);
	map = fd < 0 ? MAP_FAILED : dev_map_aligned(fd, BYTES, PROT_READ | PROT_WRITE);
	if (map == MAP_FAILED) {
		wrong("receiving: %d, %s", fd, strerror(errno));
	} else {
		check(map, BYTES, "the receiver");
		munmap(map, BYTES);
	}
	close(fd);
	gone("the receiver");
	close(sock[0]);
	close(sock[1]);
	point("a passed descriptor", "lives on when its owner has gone, and ends with the receiver");
}

/* Both ends are closed with the message unread; then a socket that is in its own queue, which only the collector finds. */
static void try_in_flight(void)
{
	int sock[2], fd[2];
	char *map;

	for (int cycle = 0; cycle < 2; cycle++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock))
			return;
		fd[0] = filled(BYTES, &map);
		munmap(map, BYTES);
		fd[1] = sock[0];
		expect(send_fds(sock[1], fd, 1 + cycle), 0, "sendmsg");
		close(fd[0]);
		held(BYTES, "a message");
		close(sock[1]);
		held(BYTES, "a message whose sender's end is closed");
		close(sock[0]);
		/* The collector looks when a socket is closed. */
		if (!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock)) {
			close(sock[0]);
			close(sock[1]);
		}
		if (!mem_bytes_again(dev, base_bytes, base_buffers))
			gone(cycle ? "a socket that holds itself" : "both ends of a socket");
	}
	point("a message on its way", "is dropped with its socket");
}

/* ---- states: what may be left of a buffer when somebody dies or wants the module away -------------------------------- */

struct held {
	int fd[4];
	char *map;
	size_t bytes;
	pid_t child;
};

static void state_device(struct held *h)
{
	h->fd[0] = dev_open(O_RDWR);
}

static void state_buffer(struct held *h)
{
	h->fd[0] = filled(BYTES, &h->map);
	munmap(h->map, BYTES);
}

static void state_mapping(struct held *h)
{
	int fd = filled(BYTES, &h->map);

	h->bytes = BYTES;
	close(fd);
}

static void state_slice(struct held *h)
{
	int fd = filled(BYTES, &h->map);

	munmap(h->map, BYTES);
	h->fd[0] = dev_slice(dev, fd, PAGE, PAGE, PINION_RIGHT_READ);
	close(fd);
}

static void state_message(struct held *h)
{
	int fd = filled(BYTES, &h->map);

	munmap(h->map, BYTES);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, h->fd) || send_fds(h->fd[0], &fd, 1))
		wrong("sendmsg: %s", strerror(errno));
	close(fd);
}

static void state_attachment(struct held *h)
{
	int fd = filled(BYTES, &h->map);
	uint32_t handle;

	munmap(h->map, BYTES);
	h->fd[0] = vgem_open();
	expect(vgem_import(h->fd[0], fd, &handle), 0, "import");
	close(fd);
}

static void state_pin(struct held *h)
{
	h->map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	h->bytes = BYTES;
	h->fd[0] = dev_pin(dev, h->map, BYTES);
	expect(h->fd[0], 0, "PIN");
}

static void state_memfd(struct held *h)
{
	int fd = memfd_create("life", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		wrong("memfd: %s", strerror(errno));
	h->fd[0] = dev_pin_fd(dev, fd, 0, BYTES, NULL);
	expect(h->fd[0], 0, "PIN of a memfd");
	close(fd);
}

static void state_child(struct held *h)
{
	int fd = filled(BYTES, &h->map);

	h->bytes = BYTES;
	h->child = fork();
	if (!h->child)
		while (true)
			pause();
	close(fd);
	munmap(h->map, BYTES);
	h->bytes = 0;
}

static const struct {
	const char *name;
	void (*enter)(struct held *h);
	bool holds; /* buffers: bytes are in use */
} states[] = {
	{ "the device, open", state_device, false },
	{ "only a descriptor", state_buffer, true },
	{ "only a mapping", state_mapping, true },
	{ "only a slice", state_slice, true },
	{ "only a message on its way", state_message, true },
	{ "only a device's attachment", state_attachment, true },
	{ "a pinned range", state_pin, true },
	{ "a pinned memfd", state_memfd, true },
	{ "only a child", state_child, true },
};

#define STATES (sizeof(states) / sizeof(*states))

static bool state_can(size_t i)
{
	int fd;

	if (states[i].enter != state_attachment)
		return true;
	fd = vgem_open();
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static void state_leave(struct held *h)
{
	for (int i = 0; i < 4; i++)
		if (h->fd[i] >= 0)
			close(h->fd[i]);
	if (h->bytes)
		munmap(h->map, h->bytes);
	if (h->child) {
		kill(h->child, SIGKILL);
		mem_wait(h->child);
	}
}

static void try_kills(void)
{
	char name[96];

	for (size_t i = 0; i < STATES; i++) {
		struct {
			char reached;
			pid_t child;
		} word = { 0 };
		int ready[2];
		pid_t pid;

		if (!state_can(i)) {
			tap_skip("attachment by vgem", "a kernel without vgem");
			continue;
		}
		if (pipe2(ready, O_CLOEXEC))
			return;
		pid = fork();
		if (!pid) {
			struct held h = { .fd = { -1, -1, -1, -1 } };

			states[i].enter(&h);
			word.reached = !*state_wrong;
			word.child = h.child;
			if (write(ready[1], &word, sizeof(word)) != sizeof(word))
				_exit(1);
			while (true)
				pause();
		}
		close(ready[1]);
		if (read(ready[0], &word, sizeof(word)) != sizeof(word) || !word.reached)
			wrong("the state was not reached");
		if (states[i].holds)
			held(BYTES, "the one to be killed");
		kill(pid, SIGKILL);
		mem_wait(pid);
		if (word.child) {
			held(BYTES, "the child of the one that was killed");
			kill(word.child, SIGKILL);
			mem_wait(word.child);
		}
		close(ready[0]);
		gone("the kill");
		snprintf(name, sizeof(name), "with %s", states[i].name);
		point("SIGKILL", name);
	}
}

static int entries_of(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* Between ALLOC and handing over, many times: no name, no file, no byte is left. */
static void try_many_kills(void)
{
	const int times = 1000, least = 100;
	double late = mem_clock() + 60;
	int files = entries_of("/dev/shm"), segments = lines_of("/proc/sysvipc/shm"), done;

	for (done = 0; done < times && (done < least || mem_clock() < late) && !*state_wrong; done++) {
		int ready[2];
		char byte;
		pid_t pid;

		if (pipe2(ready, O_CLOEXEC))
			break;
		pid = fork();
		if (!pid) {
			byte = dev_alloc(dev, 16 * PAGE, 0) >= 0 ? 'y' : 'n';
			if (write(ready[1], &byte, 1) == 1)
				pause();
			_exit(0);
		}
		close(ready[1]);
		if (read(ready[0], &byte, 1) != 1 || byte != 'y')
			wrong("ALLOC failed in round %d", done);
		kill(pid, SIGKILL);
		mem_wait(pid);
		close(ready[0]);
		gone("a kill between ALLOC and handing over");
	}
	if (entries_of("/dev/shm") != files || lines_of("/proc/sysvipc/shm") != segments)
		wrong("something is left in shared memory");
	printf("# %d of %d kills\n", done, times);
	point("SIGKILL", "between ALLOC and handing over, again and again");
}

/* ---- the module ---------------------------------------------------------------------------------------------------- */

/* With our own device closed, so that nothing but the state holds the module. */
static void try_module_busy(void)
{
	char name[96];

	for (size_t i = 0; i < STATES; i++) {
		struct held h = { .fd = { -1, -1, -1, -1 } };
		int ret;

		if (!state_can(i))
			continue;
		states[i].enter(&h);
		close(dev);
		ret = module_remove();
		if (ret != -EWOULDBLOCK && ret != -EBUSY)
			wrong("delete_module: %d", ret);
		dev = dev_open(O_RDWR);
		if (dev < 0) {
			wrong("the device is gone");
			module_insert();
			dev = dev_open(O_RDWR);
		}
		state_leave(&h);
		gone("the state");
		snprintf(name, sizeof(name), "does not go with %s", states[i].name);
		point("the module", name);
	}
}

/* A page in a pipe, and a mapping of the SHMEM backing, hold memory and not the module. */
static void try_module_goes(void)
{
	int pipes[2], fd, shmem;
	struct iovec iov = { .iov_len = PAGE };
	char *map, *kept = MAP_FAILED, page[PAGE];

	if (access(PARAMETER "coverage", F_OK) == 0) {
		tap_skip("the module goes and comes back", "what ran is read from the module later");
		return;
	}
	if (pipe2(pipes, O_CLOEXEC))
		return;
	fd = filled(BYTES, &map);
	iov.iov_base = map;
	if (vmsplice(pipes[1], &iov, 1, 0) != (ssize_t)PAGE)
		wrong("vmsplice: %s", strerror(errno));
	munmap(map, BYTES);
	close(fd);
	shmem = dev_alloc(dev, 4 * PAGE, PINION_ALLOC_SHMEM);
	if (shmem >= 0) {
		kept = dev_map(shmem, 4 * PAGE, PROT_READ | PROT_WRITE);
		if (kept != MAP_FAILED)
			mem_fill(kept, 4 * PAGE, 0, SEED);
		close(shmem);
	}
	gone("all but what the module does not know of");
	close(dev);
	expect(module_remove(), 0, "delete_module");
	if (access(PINION_DEVICE, F_OK) == 0)
		wrong("the device is still there");
	if (read(pipes[0], page, PAGE) != (ssize_t)PAGE || mem_wrong(page, PAGE, 0, SEED) >= 0)
		wrong("the page in the pipe is not what it was");
	if (kept != MAP_FAILED) {
		if (mem_wrong(kept, 4 * PAGE, 0, SEED) >= 0)
			wrong("the mapping of SHMEM is not what it was");
		munmap(kept, 4 * PAGE);
	}
	close(pipes[0]);
	close(pipes[1]);
	expect(module_insert(), 0, "loading it again");
	dev = dev_open(O_RDWR);
	fd = filled(BYTES, &map);
	check(map, BYTES, "after loading again");
	munmap(map, BYTES);
	close(fd);
	base_bytes = base_buffers = 0;
	gone("loading again");
	point("the module", "goes when nothing is left, and comes back");
}

int main(void)
{
	uint64_t was;

	dev = dev_open(O_RDWR);
	if (!tap_ok(dev >= 0, "open", "%d", dev))
		return tap_end();
	/* Whoever loses its parent is ours to wait for. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	base_bytes = dev_bytes(dev);
	base_buffers = dev_buffers(dev);
	was = mem_free();
	try_orders();
	try_parts();
	try_opener();
	try_cycles();
	try_fork();
	try_orphan();
	try_exec();
	try_pass();
	try_in_flight();
	try_kills();
	try_many_kills();
	try_module_busy();
	try_module_goes();
	gone("everything");
	if (!mem_free_again(was, 16 * MIB))
		wrong("%llu KiB are missing", (unsigned long long)(was - mem_free()) >> 10);
	point("everything", "memory is back");
	close(dev);
	return tap_end();
}
