/* SPDX-License-Identifier: MIT */
/* What every ground needs, as doctor sees it: limits, memory, io_uring, huge pages, folders. */
#include "doctor.h"

#include "format.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Of the memfd ground; the module charges it only if it was told to. */
static void look_at_memlock(struct doctor *d)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_MEMLOCK, &lim))
		return;
	if (lim.rlim_cur == RLIM_INFINITY)
		doctor_say(d, FINDING_OK, "memlock", "no limit");
	else if (!geteuid() && (!d->need || d->need > lim.rlim_cur))
		doctor_say(d, FINDING_OK, "memlock", "%s, which does not bind root", size_text(lim.rlim_cur).s);
	else if (d->need ? d->need > lim.rlim_cur : lim.rlim_cur < UINT64_C(1) << 30)
		doctor_say(d, FINDING_WARN, "memlock",
			   "%s: larger buffers on memfd may be swapped; ulimit -l unlimited, and for good as root: "
			   "echo '* - memlock unlimited' > /etc/security/limits.d/pinion.conf",
			   size_text(lim.rlim_cur).s);
	else
		doctor_say(d, FINDING_OK, "memlock", "%s", size_text(lim.rlim_cur).s);
}

static void look_at_memory(struct doctor *d, struct pinion_context *ctx)
{
	struct pinion_device *dev;
	uint64_t bytes, total;

	if (!ctx || pinion_device_find(ctx, "cpu", &dev) || pinion_device_available(dev, &bytes) ||
	    pinion_device_total(dev, &total)) {
		doctor_say(d, FINDING_WARN, "memory", "what is free cannot be told: %s",
			   ctx ? pinion_error() : "there is no context");
		return;
	}
	if (d->need > bytes)
		doctor_say(d, FINDING_NO_ROOM, "memory",
			   "%s are asked for, %s of %s are left by the machine and the cgroups of this process; free memory, or "
			   "raise "
			   "memory.max of the cgroup in /proc/self/cgroup",
			   size_text(d->need).s, size_text(bytes).s, size_text(total).s);
	else
		doctor_say(d, FINDING_OK, "memory", "%s of %s are left by the machine and the cgroups of this process",
			   size_text(bytes).s, size_text(total).s);
}

/* Registers a page with a ring of one entry. 0 or -errno. */
static int try_registration(int ring)
{
	size_t bytes = sysconf(_SC_PAGESIZE);
	struct iovec iov = { .iov_len = bytes };
	int ret;

	iov.iov_base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (iov.iov_base == MAP_FAILED)
		return -errno;
	ret = syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &iov, 1) ? -errno : 0;
	munmap(iov.iov_base, bytes);
	return ret;
}

static void look_at_refused_ring(struct doctor *d, int err)
{
	char disabled[8] = "0";

	doctor_read("/proc/sys/kernel/io_uring_disabled", disabled, sizeof(disabled));
	if (err == ENOSYS)
		doctor_say(d, FINDING_FAIL, "io_uring",
			   "not in this kernel, or hidden by a seccomp profile; streams and loads need it");
	else if (err == EPERM && *disabled != '0')
		doctor_say(d, FINDING_FAIL, "io_uring",
			   "refused by kernel.io_uring_disabled=%s; as root: sysctl kernel.io_uring_disabled=0", disabled);
	else if (err == EPERM)
		doctor_say(d, FINDING_FAIL, "io_uring",
			   "refused by a seccomp profile; in a container: --security-opt seccomp=PROFILE with io_uring_setup, "
			   "io_uring_enter and io_uring_register");
	else
		doctor_say(d, FINDING_FAIL, "io_uring", "%s; some kernels count rings against RLIMIT_MEMLOCK (ulimit -l)",
			   strerror(err));
}

static void look_at_io_uring(struct doctor *d)
{
	struct io_uring_params params = { 0 };
	int ring = syscall(SYS_io_uring_setup, 1, &params), ret;

	if (ring < 0) {
		look_at_refused_ring(d, errno);
		return;
	}
	ret = try_registration(ring);
	close(ring);
	if (ret)
		doctor_say(d, FINDING_WARN, "io_uring",
			   "works, but registers no buffer (%s), so none is held that way; ulimit -l unlimited", strerror(-ret));
	else
		doctor_say(d, FINDING_OK, "io_uring", "works and registers buffers");
}

static void look_at_pages(struct doctor *d, struct pinion_context *ctx)
{
	struct pinion_context_info info = { .size = sizeof(info) };

	if (!ctx || pinion_context_info(ctx, &info))
		return;
	if (info.huge_size)
		doctor_say(d, FINDING_OK, "huge pages", "%s: %s", size_text(info.huge_size).s, info.huge_why);
	else
		doctor_say(d, FINDING_WARN, "huge pages", "none: %s", info.huge_why);
}

static void look_at_shm(struct doctor *d)
{
	struct statvfs fs;
	uint64_t left;

	if (statvfs("/dev/shm", &fs) || access("/dev/shm", W_OK)) {
		doctor_say(d, FINDING_WARN, "/dev/shm", "%s; storages shared by path need a folder in memory", strerror(errno));
		return;
	}
	left = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (d->need && left && d->need > left)
		doctor_say(d, FINDING_WARN, "/dev/shm",
			   "%s are left, buffers do not need it but files there do; as root: mount -o remount,size=%llu /dev/shm",
			   size_text(left).s, (unsigned long long)d->need);
	else
		doctor_say(d, FINDING_OK, "/dev/shm", "%s are left", size_text(left).s);
}

void doctor_system(struct doctor *d, struct pinion_context *ctx)
{
	look_at_memory(d, ctx);
	look_at_memlock(d);
	look_at_io_uring(d);
	look_at_pages(d, ctx);
	look_at_shm(d);
}
