/* SPDX-License-Identifier: MIT */
#include "advice.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/context.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * The one table. An id is lower case with dashes and is never given to something else. Documentation/errors.md is printed
 * from here (Documentation/errors.c), and a test holds the two together.
 */
#define ROW(advice, id, when, line) [PINION_ADVICE_##advice] = { sizeof(struct pinion_advice_info), id, when, line }

static const struct pinion_advice_info table[] = {
	ROW(MEMORY, "memory", "The machine has less free memory (MemAvailable in /proc/meminfo) than is needed.",
	    "end what holds memory (pinion ls, pinion leaks), or ask for less"),
	ROW(CGROUP, "cgroup", "A control group of this process, its own or one above it, has less room than is needed.",
	    "as root: echo {BYTES} > {FILE}; of a service: MemoryMax={BYTES}; of a container: --memory {BYTES}"),
	ROW(MEMLOCK, "memlock",
	    "RLIMIT_MEMLOCK is less than what is to be locked or registered, what the user has registered already included.",
	    "ulimit -l unlimited; for good as root: echo '* - memlock unlimited' > /etc/security/limits.d/pinion.conf; of a "
	    "service: LimitMEMLOCK=infinity; of a container: --ulimit memlock=-1"),
	ROW(MODULE_MEMLOCK, "module-memlock", "The module was told to charge RLIMIT_MEMLOCK (memlock=1), and it is short.",
	    "ulimit -l unlimited; or as root: echo 0 > /sys/module/pinion/parameters/memlock"),
	ROW(HUGE_NONE, "huge-none", "Huge pages of that size were asked for, and the kernel keeps none, or too few are free.",
	    "as root: echo {PAGES > /sys/kernel/mm/hugepages/hugepages-SIZE/nr_hugepages}; or ask for --pages auto"),
	ROW(HUGE_SHORT, "huge-short", "The kernel found no memory in one piece for huge pages.",
	    "as root: echo 1 > /proc/sys/vm/compact_memory; or ask for --pages auto"),
	ROW(THP_OFF, "thp-off", "Transparent huge pages are off for anonymous memory.",
	    "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
	ROW(SHMEM_THP_OFF, "shmem-thp-off", "The kernel gives no transparent huge pages to shared memory.",
	    "as root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"),
	ROW(URING_SYSCTL, "io-uring-sysctl", "io_uring is refused by kernel.io_uring_disabled.",
	    "as root: sysctl kernel.io_uring_disabled=0"),
	ROW(URING_SECCOMP, "io-uring-seccomp",
	    "io_uring is refused, or hidden, by a seccomp profile, as container engines bring one.",
	    "--security-opt seccomp=PROFILE with io_uring_setup, io_uring_enter and io_uring_register; of a service: "
	    "SystemCallFilter=@aio"),
	ROW(URING_KERNEL, "io-uring-kernel", "This kernel was built without io_uring, or is older than 5.1.",
	    "a kernel with CONFIG_IO_URING=y, 5.14 or later"),
	ROW(URING_REFUSED, "io-uring-refused",
	    "io_uring is refused and neither the sysctl nor a seccomp filter of this process explains it.",
	    "ask the security module: dmesg | grep -i -e denied -e apparmor -e selinux"),
	ROW(URING_MEMLOCK, "io-uring-memlock", "A ring was refused: some kernels count rings against RLIMIT_MEMLOCK.",
	    "ulimit -l unlimited; of a service: LimitMEMLOCK=infinity; of a container: --ulimit memlock=-1"),
	ROW(URING_BUFFERS, "io-uring-buffers", "io_uring works, but registers no buffer here.",
	    "ulimit -l unlimited; without it buffers are locked, or not held at all"),
	ROW(KERNEL_OLD, "kernel-old", "The kernel lacks a call that pinion needs.", "a kernel of Linux 5.14 or later"),
	ROW(MODULE_UNLOADED, "module-unloaded", "The module is built for this kernel, or may be, and is not loaded.",
	    "as root: modprobe pinion"),
	ROW(MODULE_UNBUILT, "module-unbuilt", "The module is not built for this kernel, whose headers are there.",
	    "as root: make modules modules_install && modprobe pinion"),
	ROW(MODULE_HEADERS, "module-headers", "Neither the module nor the headers of this kernel are there.",
	    "as root: apt install linux-headers-{RELEASE}, then: make modules modules_install && modprobe pinion"),
	ROW(MODULE_NEEDED, "module-needed", "The call is one that only the kernel module has.",
	    "as root: modprobe pinion; pinion doctor says whether it is there"),
	ROW(MODULE_CONTAINER, "module-container", "The module is loaded, and its device is not in this container.",
	    "--device /dev/pinion"),
	ROW(MODULE_ACCESS, "module-access", "The module is loaded, and this user may not open its device.",
	    "as root: usermod -aG pinion USER, then log in anew"),
	ROW(MODULE_GROUP, "module-group",
	    "The module is loaded, this user may not open its device, and there is no group for it.",
	    "as root: groupadd -r pinion && chgrp pinion /dev/pinion && usermod -aG pinion USER, then log in anew"),
	ROW(MODULE_ABI, "module-abi", "The loaded module speaks another ABI than the library.",
	    "install both from one release, then as root: rmmod pinion && modprobe pinion"),
	ROW(MODULE_SIGNATURE, "module-signature", "This kernel loads signed modules only.",
	    "sign it with a key that the firmware knows: mokutil --import KEY.der, or with DKMS, which makes one"),
	ROW(MODULE_BYTES, "module-bytes", "All users together have as much memory from the module as its max_bytes allows.",
	    "as root: echo {BYTES} > /sys/module/pinion/parameters/max_bytes"),
	ROW(MODULE_USER_BYTES, "module-user-bytes", "This user has as much memory from the module as its max_user_bytes allows.",
	    "as root: echo {BYTES} > /sys/module/pinion/parameters/max_user_bytes"),
	ROW(MODULE_USER_LIMIT, "module-user-limit",
	    "This user has as many buffers, sessions, devices, claims or watches as the module allows.",
	    "give some back, or as root: echo N > /sys/module/pinion/parameters/{PARAMETER}"),
	ROW(MODULE_BUFFER_BYTES, "module-buffer-bytes", "One buffer of the module cannot be so large.",
	    "split it into several buffers"),
	ROW(MODULE_POISONED, "module-poisoned", "Memory is kept out of use because a page in it broke.",
	    "as root: dmesg | grep -i pinion"),
	ROW(COUNTS_APART, "counts-apart", "Processes of one runtime directory count in two places and do not see each other.",
	    "start all with one PINION_GROUND, and let all open /dev/pinion or none"),
	ROW(DIR_OWNER, "dir-owner",
	    "The runtime directory belongs to another user, or there are other things in it that others use.",
	    "export PINION_DIR={DIR}, a directory of your own"),
	ROW(DIR_MODE, "dir-mode", "The runtime directory is open to others.",
	    "chmod 700 {DIR}, or name another one in PINION_DIR"),
	ROW(DIR_PLACE, "dir-place", "The runtime directory is not there and cannot be made, or something else has its name.",
	    "export PINION_DIR=DIR, a directory that can be written, in memory if possible (/dev/shm/DIR)"),
	ROW(DIR_LOCKED, "dir-locked", "A process is stopped while it changes what all share in the runtime directory.",
	    "kill -CONT {PID}, or kill {PID}"),
	ROW(DISK_FULL, "disk-full", "The file system is full.", "free space there (df -h, df -i), or name another place"),
	ROW(DISK_QUOTA, "disk-quota", "This user's quota of the file system is used up.",
	    "free space there (quota -s), or name another place"),
	ROW(READ_ONLY, "read-only", "The file system is mounted read-only.",
	    "name another place, for the runtime directory in PINION_DIR"),
	ROW(FILE_SIZE, "file-size", "The file would be larger than RLIMIT_FSIZE allows.", "ulimit -f unlimited"),
	ROW(OPEN_FILES, "open-files", "This process has as many open files as RLIMIT_NOFILE allows.",
	    "ulimit -n 65536; of a service: LimitNOFILE=65536"),
	ROW(OPEN_FILES_ALL, "open-files-all", "The machine has as many open files as fs.file-max allows.",
	    "as root: sysctl fs.file-max=9223372036854775807"),
	ROW(MAPPINGS, "mappings", "A process may have no more memory mappings than vm.max_map_count.",
	    "as root: sysctl vm.max_map_count=1048576"),
	ROW(ADDRESS_SPACE, "address-space",
	    "The process may have no more memory: RLIMIT_AS or RLIMIT_DATA, or the machine is short.",
	    "ulimit -v unlimited; ulimit -d unlimited; pinion doctor shows what is free"),
	ROW(THREADS, "threads",
	    "The user may have no more threads (RLIMIT_NPROC), the control group none (pids.max), or the process no room for "
	    "their "
	    "stacks (RLIMIT_AS, RLIMIT_DATA).",
	    "ulimit -u unlimited; ulimit -v unlimited; ulimit -d unlimited; of a service: TasksMax=infinity; of a container: "
	    "--pids-limit -1"),
	ROW(CONTEXTS, "contexts", "Every counter slot of this user is held by a living context.",
	    "close contexts that are not used; pinion top shows whose they are"),
	ROW(LANES, "lanes", "One context counts on as many devices as it can.", "open another context for more devices"),
	ROW(CLAIMS, "claims", "As many claims stand as the table holds.", "free some; pinion devices shows how many stand where"),
	ROW(DEVICES, "devices", "The table of devices is full, and all are in use.", "pinion devices --remove KEY"),
	ROW(DEVICE_UNKNOWN, "device-unknown", "No device has the key.", "pinion devices --add {KEY}"),
	ROW(DEVICE_BUSY, "device-busy", "The device is counted on, or claimed, by another process.",
	    "pinion top and pinion devices show by whom; end that first"),
	ROW(DEVICE_ROOM, "device-room", "Claims leave less of the device's budget or capacity than is asked for.",
	    "wait, ask for less, or another device; pinion devices shows what is claimed"),
	ROW(NAME_HELD, "name-held", "A living process holds the name.", "pinion rm {NAME}, or choose another name"),
	ROW(NAME_UNKNOWN, "name-unknown", "Nobody holds the name in this runtime directory.",
	    "pinion ls shows what is held; pinion load FILE --name {NAME} takes it"),
	ROW(NAME_LOADING, "name-loading", "What the name stands for is still being loaded.",
	    "wait for it with a deadline; pinion ls shows how far it is"),
	ROW(NAME_USED, "name-used", "Processes are attached to the name.", "end them, or: pinion rm --when-unused {NAME}"),
	ROW(NAME_SILENT, "name-silent", "The process that holds the name lives and does not answer: it is stopped.",
	    "kill -CONT {PID}, or kill -KILL {PID}"),
	ROW(SHM_ABSENT, "shm-absent", "There is no /dev/shm that this user can write.",
	    "as root: mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm; of a container: --shm-size {BYTES}"),
	ROW(SHM_SMALL, "shm-small", "/dev/shm has less room than is needed.",
	    "as root: mount -o remount,size={BYTES} /dev/shm; of a container: --shm-size {BYTES}"),
	ROW(UDMABUF_ABSENT, "udmabuf-absent",
	    "There is no /dev/udmabuf, so that no memfd can be handed to a device as a dma-buf.",
	    "as root: modprobe udmabuf; of a container: --device /dev/udmabuf"),
	ROW(UDMABUF_ACCESS, "udmabuf-access", "This user may not open /dev/udmabuf.",
	    "as root: usermod -aG {GROUP} USER, then log in anew"),
	ROW(UDMABUF_LIMIT, "udmabuf-limit", "A dma-buf of udmabuf cannot be so large.",
	    "as root: echo {MIB} > /sys/module/udmabuf/parameters/size_limit_mb"),
	ROW(ORPHANS, "orphans", "Something is held that no living process stands for.", "pinion leaks --remove"),
	ROW(FORK, "fork", "The object was made by the parent process.", "open a context in the child, after fork()"),
	ROW(DIR_DAMAGED, "dir-damaged",
	    "Something has written over the counter file of the runtime directory, or cut it: then SIGBUS ends who counts in it.",
	    "end the processes that use the directory, then rm {DIR}/counters.1"),
	ROW(CGROUP_HUGE, "cgroup-huge",
	    "A control group of this process, its own or one above it, allows fewer huge pages than are needed: this is a limit "
	    "beside MemoryMax and --memory.",
	    "as root: echo {BYTES} > {FILE}; in Kubernetes: limits: hugepages-2Mi or hugepages-1Gi; or ask for --pages small"),
};

#define ROWS (sizeof(table) / sizeof(table[0]))

static bool known(enum pinion_advice advice)
{
	return (unsigned int)advice < ROWS && table[advice].id;
}

PINION_API int pinion_advice_info(enum pinion_advice advice, struct pinion_advice_info *info)
{
	if (!known(advice))
		return fail(ENOENT, "there is no advice of number %d", advice);
	return opts_out(info, &table[advice], sizeof(table[advice]), "pinion_advice_info");
}

PINION_API int pinion_advice_find(const char *id, enum pinion_advice *advice)
{
	for (size_t i = 0; i < ROWS; i++)
		if (table[i].id && !strcmp(table[i].id, id)) {
			*advice = i;
			return 0;
		}
	return fail(ENOENT, "there is no advice called '%.40s'", id);
}

PINION_API const char *pinion_advice_line(enum pinion_advice advice, const char *value, char *out, size_t room)
{
	const char *at = known(advice) ? table[advice].line : "";
	const char *word = NULL; /* the first in braces */
	size_t word_len = 0, n = 0;

	while (*at && n + 1 < room) {
		size_t len = *at == '{' ? strcspn(at, "}") : 0;

		if (!len) {
			out[n++] = *at++;
			continue;
		}
		if (!word) {
			word = at + 1;
			word_len = len - 1;
		}
		if (value && len - 1 == word_len && !strncmp(at + 1, word, word_len))
			n += snprintf(out + n, room - n, "%s", value);
		else
			n += snprintf(out + n, room - n, "%.*s", (int)len - 1, at + 1);
		at += len + 1;
	}
	if (room)
		out[n < room ? n : room - 1] = 0;
	return out;
}

/* The id in brackets that ends @sentence. */
enum pinion_advice advice_of_sentence(const char *sentence)
{
	size_t len = strlen(sentence);
	const char *at = strrchr(sentence, '[');

	if (!at || !len || sentence[len - 1] != ']')
		return PINION_ADVICE_NONE;
	at++;
	for (size_t i = 0; i < ROWS; i++)
		if (table[i].id && strlen(table[i].id) == strlen(at) - 1 && !strncmp(table[i].id, at, strlen(at) - 1))
			return i;
	return PINION_ADVICE_NONE;
}

PINION_API enum pinion_advice pinion_error_advice(void)
{
	return advice_of_sentence(pinion_error());
}

#define CUT "..."

/* @head, as much of it as there is room for, and @tail. */
static void join(char *out, size_t room, const char *head, size_t head_len, const char *tail)
{
	size_t tail_len = strlen(tail);

	if (head_len + tail_len < room)
		snprintf(out, room, "%.*s%s", (int)head_len, head, tail);
	else
		snprintf(out, room, "%.*s" CUT "%s", (int)(room - 1 - strlen(CUT) - tail_len), head, tail);
}

/* Where "; LINE [id]" begins in @text, which ends in that id; its end where there is no such place. */
static const char *advice_start(const char *text, enum pinion_advice advice)
{
	const char *line = table[advice].line, *at = text, *found = NULL;
	size_t same = strcspn(line, "{"); /* as far as no value is put in */

	while ((at = strstr(at, "; "))) {
		at += strlen("; ");
		if (!strncmp(at, line, same))
			found = at - strlen("; ");
	}
	return found ? found : text + strlen(text);
}

void sentence_fit(char *out, size_t room, const char *text)
{
	enum pinion_advice advice = advice_of_sentence(text);
	const char *end = text + strlen(text), *tail = advice ? advice_start(text, advice) : end;

	if (strlen(tail) + strlen(CUT) >= room)
		tail = end;
	join(out, room, text, tail - text, tail);
}

int fail_advise(int err, enum pinion_advice advice, const char *value, const char *fmt, ...)
{
	char text[SENTENCE_DRAFT], line[SENTENCE_MAX], tail[2 * SENTENCE_MAX], whole[SENTENCE_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!known(advice))
		return fail(err, "%s", text);
	pinion_advice_line(advice, value, line, sizeof(line));
	/* A value that leaves no room for the sentence, as a path may, is not put in: the sentence has it. */
	if (strlen(line) + strlen(table[advice].id) + SENTENCE_LEAST >= SENTENCE_MAX)
		pinion_advice_line(advice, NULL, line, sizeof(line));
	snprintf(tail, sizeof(tail), "; %s [%s]", line, table[advice].id);
	join(whole, sizeof(whole), text, strlen(text), tail);
	return fail(err, "%s", whole);
}

int fail_thread(int err, const char *what)
{
	return fail_advise(err, err == EAGAIN ? PINION_ADVICE_THREADS : advice_of_errno(err), NULL, "%s: %s", what,
			   strerrordesc_np(err));
}

/* The first @room - 1 bytes of a file; false: it cannot be read. */
static bool read_start(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	return n >= 0;
}

static bool is_filtered(void)
{
	char text[4096], *at;

	if (!read_start("/proc/self/status", text, sizeof(text)))
		return false;
	at = strstr(text, "\nSeccomp:");
	return at && at[strlen("\nSeccomp:\t")] == '2';
}

/* Whether the kernel has io_uring, by its symbols, which are listed to everyone even where their addresses are not. */
static bool has_ring_symbols(void)
{
	char line[256];
	bool found = false;
	FILE *f = fopen("/proc/kallsyms", "re");

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, " io_submit_sqes") != NULL;
	if (f)
		fclose(f);
	return found;
}

PINION_API enum pinion_advice pinion_advice_uring(int err)
{
	char disabled[8];
	bool has_sysctl = read_start("/proc/sys/kernel/io_uring_disabled", disabled, sizeof(disabled));

	switch (err) {
	case EPERM:
		/* 1: refused to those who have no CAP_SYS_ADMIN and are not in kernel.io_uring_group. */
		if (has_sysctl && (*disabled == '2' || (*disabled == '1' && geteuid())))
			return PINION_ADVICE_URING_SYSCTL;
		return is_filtered() ? PINION_ADVICE_URING_SECCOMP : PINION_ADVICE_URING_REFUSED;
	case ENOSYS:
		/* The sysctl came with Linux 6.6 and is there only where io_uring is. */
		return is_filtered() && (has_sysctl || has_ring_symbols()) ? PINION_ADVICE_URING_SECCOMP :
									     PINION_ADVICE_URING_KERNEL;
	case EACCES:
		return is_filtered() ? PINION_ADVICE_URING_SECCOMP : PINION_ADVICE_URING_REFUSED;
	case ENOMEM:
		return PINION_ADVICE_URING_MEMLOCK;
	case EMFILE:
	case ENFILE:
		return advice_of_errno(err);
	}
	/* A filter may answer with any number. */
	return is_filtered() ? PINION_ADVICE_URING_SECCOMP : advice_of_errno(err);
}

enum pinion_advice advice_of_errno(int err)
{
	switch (err) {
	case ENOSPC:
		return PINION_ADVICE_DISK_FULL;
	case EDQUOT:
		return PINION_ADVICE_DISK_QUOTA;
	case EROFS:
		return PINION_ADVICE_READ_ONLY;
	case EFBIG:
		return PINION_ADVICE_FILE_SIZE;
	case EMFILE:
		return PINION_ADVICE_OPEN_FILES;
	case ENFILE:
		return PINION_ADVICE_OPEN_FILES_ALL;
	case ENOMEM:
		return PINION_ADVICE_ADDRESS_SPACE;
	case ENOSYS:
		return PINION_ADVICE_KERNEL_OLD;
	}
	return PINION_ADVICE_NONE;
}
