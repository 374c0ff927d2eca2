/* SPDX-License-Identifier: MIT */
/* advice: what to type about a limit that was met; the one table that errors, `pinion doctor` and the catalogue draw from. */
#ifndef PINION_ADVICE_H
#define PINION_ADVICE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* New ones are added at the end: the numbers stay. */
enum pinion_advice {
	PINION_ADVICE_NONE,
	PINION_ADVICE_MEMORY,
	PINION_ADVICE_CGROUP,
	PINION_ADVICE_MEMLOCK,
	PINION_ADVICE_MODULE_MEMLOCK,
	PINION_ADVICE_HUGE_NONE,
	PINION_ADVICE_HUGE_SHORT,
	PINION_ADVICE_THP_OFF,
	PINION_ADVICE_SHMEM_THP_OFF,
	PINION_ADVICE_URING_SYSCTL,
	PINION_ADVICE_URING_SECCOMP,
	PINION_ADVICE_URING_KERNEL,
	PINION_ADVICE_URING_REFUSED,
	PINION_ADVICE_URING_MEMLOCK,
	PINION_ADVICE_URING_BUFFERS,
	PINION_ADVICE_KERNEL_OLD,
	PINION_ADVICE_MODULE_UNLOADED,
	PINION_ADVICE_MODULE_UNBUILT,
	PINION_ADVICE_MODULE_HEADERS,
	PINION_ADVICE_MODULE_NEEDED,
	PINION_ADVICE_MODULE_CONTAINER,
	PINION_ADVICE_MODULE_ACCESS,
	PINION_ADVICE_MODULE_GROUP,
	PINION_ADVICE_MODULE_ABI,
	PINION_ADVICE_MODULE_SIGNATURE,
	PINION_ADVICE_MODULE_BYTES,
	PINION_ADVICE_MODULE_USER_BYTES,
	PINION_ADVICE_MODULE_USER_LIMIT,
	PINION_ADVICE_MODULE_BUFFER_BYTES,
	PINION_ADVICE_MODULE_POISONED,
	PINION_ADVICE_COUNTS_APART,
	PINION_ADVICE_DIR_OWNER,
	PINION_ADVICE_DIR_MODE,
	PINION_ADVICE_DIR_PLACE,
	PINION_ADVICE_DIR_LOCKED,
	PINION_ADVICE_DISK_FULL,
	PINION_ADVICE_DISK_QUOTA,
	PINION_ADVICE_READ_ONLY,
	PINION_ADVICE_FILE_SIZE,
	PINION_ADVICE_OPEN_FILES,
	PINION_ADVICE_OPEN_FILES_ALL,
	PINION_ADVICE_MAPPINGS,
	PINION_ADVICE_ADDRESS_SPACE,
	PINION_ADVICE_THREADS,
	PINION_ADVICE_CONTEXTS,
	PINION_ADVICE_LANES,
	PINION_ADVICE_CLAIMS,
	PINION_ADVICE_DEVICES,
	PINION_ADVICE_DEVICE_UNKNOWN,
	PINION_ADVICE_DEVICE_BUSY,
	PINION_ADVICE_DEVICE_ROOM,
	PINION_ADVICE_NAME_HELD,
	PINION_ADVICE_NAME_UNKNOWN,
	PINION_ADVICE_NAME_LOADING,
	PINION_ADVICE_NAME_USED,
	PINION_ADVICE_NAME_SILENT,
	PINION_ADVICE_SHM_ABSENT,
	PINION_ADVICE_SHM_SMALL,
	PINION_ADVICE_UDMABUF_ABSENT,
	PINION_ADVICE_UDMABUF_ACCESS,
	PINION_ADVICE_UDMABUF_LIMIT,
	PINION_ADVICE_ORPHANS,
	PINION_ADVICE_FORK,
	PINION_ADVICE_DIR_DAMAGED,
	PINION_ADVICE_CGROUP_HUGE,
};

struct pinion_advice_info {
	size_t size;	  /* set by the caller */
	const char *id;	  /* "memlock": what stands in brackets at the end of a sentence; static */
	const char *when; /* the condition, in words; static */
	const char *line; /* what to type or to do; words in capitals in braces, as {BYTES}, are put in by the sentence; static */
};

/* Fills *@info. -ENOENT: there is no such advice, so a loop from 1 ends here. */
int pinion_advice_info(enum pinion_advice advice, struct pinion_advice_info *info);

/* The advice called @id. -ENOENT. */
int pinion_advice_find(const char *id, enum pinion_advice *advice);

/*
 * Writes the line to type into @out of @room bytes, cut to fit: @value in the place of the first word in braces, the words
 * themselves where there is none (@value NULL) and of the others. Returns @out; "" of no advice.
 */
const char *pinion_advice_line(enum pinion_advice advice, const char *value, char *out, size_t room);

/*
 * Why a call of io_uring's gave the error number @err: the sysctl, a seccomp filter of this process, a kernel without it, a
 * security module, told apart as well as can be from here.
 */
enum pinion_advice pinion_advice_uring(int err);

/* The advice that the last failure of this thread ended with; PINION_ADVICE_NONE when it had none. */
enum pinion_advice pinion_error_advice(void);

#ifdef __cplusplus
}
#endif
#endif
