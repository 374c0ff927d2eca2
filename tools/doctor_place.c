/* SPDX-License-Identifier: MIT */
/* Folders, other drivers' devices, the limits of a process, and what stands round it, as doctor sees it. */
#include "doctor.h"

#include "format.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TMPFS_MAGIC 0x01021994
/* A name's record and its socket take two files and a page; the counter file grows with its users. */
#define DIR_BYTES      (UINT64_C(1) << 20)
#define MAPPINGS_USUAL 65530
#define OPEN_FILES_MIN 4096

static void look_at_dir(struct doctor *d, const char *dir)
{
	struct statvfs fs;
	struct statfs kind;
	uint64_t left;

	if (!dir || !*dir)
		return;
	if (statvfs(dir, &fs) || statfs(dir, &kind)) {
		doctor_advise(d, FINDING_FAIL, "runtime directory", PINION_ADVICE_DIR_PLACE, NULL, "%s: %s", dir,
			      strerrordesc_np(errno));
		return;
	}
	left = (uint64_t)fs.f_bavail * fs.f_frsize;
	/* A file system without a limit says 0 blocks of 0. */
	if (fs.f_blocks && left < DIR_BYTES)
		doctor_advise(d, FINDING_WARN, "runtime directory", PINION_ADVICE_DISK_FULL, NULL,
			      "%s: its file system has %s left", dir, size_text(left).s);
	else if (fs.f_flag & ST_RDONLY)
		doctor_advise(d, FINDING_WARN, "runtime directory", PINION_ADVICE_READ_ONLY, NULL,
			      "%s is on a read-only file system", dir);
	else
		doctor_say(d, FINDING_OK, "runtime directory", "%s, %s", dir,
			   kind.f_type == TMPFS_MAGIC ? "in memory" : "on disk");
}

static void look_at_shm(struct doctor *d)
{
	struct statvfs fs;
	uint64_t left;
	char need[24];

	snprintf(need, sizeof(need), "%" PRIu64, d->need ? d->need : UINT64_C(1) << 30);
	if (access("/dev/shm", W_OK | X_OK) || statvfs("/dev/shm", &fs)) {
		doctor_advise(d, FINDING_WARN, "/dev/shm", PINION_ADVICE_SHM_ABSENT, NULL,
			      "%s: storages that are shared by path need a folder in memory; buffers do not",
			      strerrordesc_np(errno));
		return;
	}
	left = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (fs.f_flag & ST_RDONLY)
		doctor_advise(d, FINDING_WARN, "/dev/shm", PINION_ADVICE_SHM_ABSENT, NULL, "it is mounted read-only");
	else if (fs.f_blocks && (d->need ? d->need > left : left < UINT64_C(64) << 20))
		doctor_advise(d, FINDING_WARN, "/dev/shm", PINION_ADVICE_SHM_SMALL, need,
			      "%s of %s are left; buffers do not need it, storages that are shared by path do", size_text(left).s,
			      size_text((uint64_t)fs.f_blocks * fs.f_frsize).s);
	else if (!fs.f_blocks)
		doctor_say(d, FINDING_OK, "/dev/shm", "without a limit of its own");
	else
		doctor_say(d, FINDING_OK, "/dev/shm", "%s of %s are left", size_text(left).s,
			   size_text((uint64_t)fs.f_blocks * fs.f_frsize).s);
}

static void look_at_udmabuf_limit(struct doctor *d)
{
	char text[32], mib[32];
	uint64_t limit;

	if (!doctor_read("/sys/module/udmabuf/parameters/size_limit_mb", text, sizeof(text))) {
		doctor_say(d, FINDING_OK, "udmabuf", "can be opened");
		return;
	}
	limit = strtoull(text, NULL, 10) << 20;
	snprintf(mib, sizeof(mib), "%" PRIu64, (d->need >> 20) + 1);
	if (d->need > limit)
		doctor_advise(d, FINDING_WARN, "udmabuf", PINION_ADVICE_UDMABUF_LIMIT, mib,
			      "%s are asked for, one dma-buf has at most %s", size_text(d->need).s, size_text(limit).s);
	else
		doctor_say(d, FINDING_OK, "udmabuf", "can be opened; one dma-buf has at most %s", size_text(limit).s);
}

static void look_at_udmabuf(struct doctor *d)
{
	int fd = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), err = errno;
	struct group *group;
	struct stat st;

	if (fd >= 0) {
		close(fd);
		look_at_udmabuf_limit(d);
		return;
	}
	if ((err == EACCES || err == EPERM) && !stat("/dev/udmabuf", &st)) {
		group = getgrgid(st.st_gid);
		doctor_advise(d, FINDING_WARN, "udmabuf", PINION_ADVICE_UDMABUF_ACCESS, group ? group->gr_name : NULL,
			      "%s: no memfd can be handed to a device as a dma-buf", strerrordesc_np(err));
		return;
	}
	doctor_advise(d, FINDING_WARN, "udmabuf", PINION_ADVICE_UDMABUF_ABSENT, NULL,
		      "%s: no memfd can be handed to a device as a dma-buf; the module's buffers can", strerrordesc_np(err));
}

static unsigned int mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned int n = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

static void look_at_process(struct doctor *d)
{
	struct rlimit files;
	char text[32];

	if (doctor_read("/proc/sys/vm/max_map_count", text, sizeof(text))) {
		if (strtoull(text, NULL, 10) < MAPPINGS_USUAL)
			doctor_advise(d, FINDING_WARN, "max_map_count", PINION_ADVICE_MAPPINGS, NULL,
				      "%s mappings a process, fewer than kernels come with (%u); this one has %u", text,
				      MAPPINGS_USUAL, mappings());
		else
			doctor_say(d, FINDING_OK, "max_map_count", "%s mappings a process; this one has %u", text, mappings());
	}
	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	if (files.rlim_max < OPEN_FILES_MIN)
		doctor_advise(d, FINDING_WARN, "open files", PINION_ADVICE_OPEN_FILES, NULL,
			      "%llu soft, %llu hard: a holder needs one for each process that is attached",
			      (unsigned long long)files.rlim_cur, (unsigned long long)files.rlim_max);
	else
		doctor_say(d, FINDING_OK, "open files", "%llu soft, %llu hard", (unsigned long long)files.rlim_cur,
			   (unsigned long long)files.rlim_max);
}

/* What runs this as a container, "" when nothing shows that it is one. */
static void name_container(char *out, size_t room)
{
	char text[4096] = "", kind[64] = "";
	int fd;

	*out = 0;
	if (!access("/.dockerenv", F_OK))
		snprintf(out, room, "docker");
	else if (!access("/run/.containerenv", F_OK))
		snprintf(out, room, "podman");
	else if (getenv("KUBERNETES_SERVICE_HOST"))
		snprintf(out, room, "kubernetes");
	else if (doctor_read("/run/systemd/container", kind, sizeof(kind)) && *kind)
		snprintf(out, room, "%s", kind);
	if (*out)
		return;
	fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	if (fd >= 0)
		close(fd);
	for (size_t i = 0; i < 5; i++) {
		static const char *const mark[] = { "kubepods", "docker", "libpod", "containerd", "lxc" };

		if (strstr(text, mark[i])) {
			snprintf(out, room, "%s", mark[i]);
			return;
		}
	}
}

static void look_at_container(struct doctor *d)
{
	char name[64], map[64];
	uint32_t inside = 0, outside = 0, count = 0;
	bool own_users;

	own_users = doctor_read("/proc/self/uid_map", map, sizeof(map)) &&
		    sscanf(map, "%" SCNu32 " %" SCNu32 " %" SCNu32, &inside, &outside, &count) == 3 && count != UINT32_MAX;
	name_container(name, sizeof(name));
	doctor_say(d, FINDING_OK, "container", "%s%s%s%s", *name ? name : "none shows",
		   *name ? ": devices and limits of the host are there as far as they were passed in" : "",
		   own_users ? "; a user namespace of its own, whose root has no rights outside" : "",
		   doctor_is_filtered() ? "; a seccomp filter binds this process" : "; no seccomp filter");
}

void doctor_place(struct doctor *d, const char *dir)
{
	look_at_dir(d, dir);
	look_at_shm(d);
	look_at_udmabuf(d);
	look_at_process(d);
	look_at_container(d);
}
