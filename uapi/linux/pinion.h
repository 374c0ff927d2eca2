/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * /dev/pinion: pinned, shareable, DMA-able buffers.
 *
 * A buffer is a dma-buf file, called a *slice*, over (part of) refcounted *pages*. The descriptor is the capability:
 * whoever was handed it may map the buffer, nobody else can. Its memory is present, zeroed and unmovable from ALLOC on,
 * charged to the caller's memory cgroup and to the limits that INFO reports, and given back with the last descriptor,
 * mapping or device attachment.
 *
 * Calls. Every argument is a struct that starts with its own size, as the caller was built. The kernel reads what it
 * knows; a longer struct whose unknown tail is not zero is E2BIG, so is a size above a page; a size below the first
 * version's is EINVAL. Outputs are written into the same struct as far as the caller's size reaches; what lies behind
 * stays as it was. Unknown flags and reserved fields that are not zero are EINVAL. A call that fails changes nothing:
 * no descriptor, no charge, no byte of the struct (but where only part of it can be written). Arrays carry their count and
 * the size of an entry.
 *
 * Opens. Whatever changes anything needs an open with O_RDWR; INFO, BUFINFO and LIST work with O_RDONLY. Credentials are
 * those of the opener. The open file itself holds nothing: buffers outlive it.
 *
 * Errors, of every call:
 *   EINVAL      unknown flags, a reserved field, a size or offset that is 0, not a multiple of a page or out of range, a
 *		 node that has no memory, a descriptor that is not a pinion buffer, a memfd that could shrink
 *   E2BIG       a newer struct than this module knows, or a size above a page
 *   EFAULT      an address that cannot be read, written, or has nothing mapped
 *   EBADF       no such descriptor
 *   EACCES      a read-only open; more rights than the slice has; a writable mapping or a device's write beyond the rights
 *   EPERM       a memfd sealed against writing, also when it is mapped later; a node outside the caller's cpuset
 *   ENOMEM      memory, the cgroup, max_bytes, max_user_bytes or RLIMIT_MEMLOCK is short (INFO has the limits and their use)
 *   ENOSPC      the user has max_user_buffers buffers
 *   EMFILE      the process has no descriptor left
 *   ENFILE      the system has no open file left
 *   EINTR       a fatal signal came; everything is rolled back
 *   EOPNOTSUPP  this kernel has no such backing, or memory that cannot be pinned for devices
 *   ENODATA     PIN of a range with pages that are not present and writable yet: MADV_POPULATE_WRITE first (PIN never faults
 *		 them in, because a fault may kill where ENOMEM is due)
 *   ENXIO       mmap of a buffer made by PIN of an address range: map the range itself
 *   ENOTTY      no such call
 */
#ifndef _UAPI_LINUX_PINION_H
#define _UAPI_LINUX_PINION_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PINION_ABI 1
#define PINION_DEVICE "/dev/pinion"
#define PINION_NAME_BYTES 32

/* Without a size in the number, so that structs can grow. 1 and 2 are never used: the VFS answers them itself. */
#define PINION_IOC_MAGIC 0xBB
#define PINION_IOC(nr) _IO(PINION_IOC_MAGIC, nr)

#define PINION_IOC_INFO PINION_IOC(0x10)
#define PINION_IOC_ALLOC PINION_IOC(0x20)
#define PINION_IOC_SLICE PINION_IOC(0x21)
#define PINION_IOC_PIN PINION_IOC(0x22)
#define PINION_IOC_BUFINFO PINION_IOC(0x23)
#define PINION_IOC_LIST PINION_IOC(0x24)
/* Reserved: 0x25 SEAL (drop all write rights for ever, with a digest), 0x30-0x4f devices and counts, 0x50 DOMAIN_NEW. */

/* Rights of a slice. A slice of a slice never has more. Reading by the CPU and by devices is always part of it. */
#define PINION_RIGHT_READ (1U << 0)
#define PINION_RIGHT_WRITE (1U << 1)  /* writable mappings */
#define PINION_RIGHT_DMA_RW (1U << 2) /* devices may write; many importers (DRM, RDMA) map both ways and need it */
#define PINION_RIGHTS (PINION_RIGHT_READ | PINION_RIGHT_WRITE | PINION_RIGHT_DMA_RW)

/* Features: what this module on this kernel can do. */
#define PINION_FEATURE_SHMEM (1ULL << 0)	/* ALLOC_SHMEM exists (kernels whose io_uring needs it) */
#define PINION_FEATURE_GUP_REGISTER (1ULL << 1) /* io_uring registers mappings of the default backing */
#define PINION_FEATURE_PIN_HUGETLB (1ULL << 2)	/* PIN of a hugetlb memfd need not be populated first */
#define PINION_FEATURE_MEMLOCK (1ULL << 3)	/* RLIMIT_MEMLOCK is charged too (parameter memlock=1) */

/*
 * INFO: what there is, the limits and how much of each is used. "user" is the opener's uid.
 */
struct pinion_info {
	__u32 size;
	__u32 flags; /* 0 */
	/* out */
	__u32 abi;
	__u32 page_size;
	__u32 huge_size; /* bytes of a page that maps as one entry of the level above */
	__u32 reserved;
	__u64 features;
	__u64 max_bytes; /* over all users */
	__u64 bytes;
	__u64 max_user_bytes;
	__u64 user_bytes;
	__u64 max_user_buffers;
	__u64 user_buffers;
	__u64 max_buffer_bytes; /* of one buffer */
	__u64 buffers;		/* slices over all users */
	__u64 memlock_bytes;	/* RLIMIT_MEMLOCK of the caller where it is charged, else all ones */
	__u64 poisoned_bytes;	/* kept from the kernel because a page in them was poisoned */
	__u64 unwiped_bytes;	/* asked to be wiped and not, because somebody else still held the page */
};

/*
 * ALLOC: new pages, zeroed, and a slice over all of them with every right. bytes is rounded up to a page, no further.
 * Huge pages come first and as many as there are, unless a flag says otherwise. node is preferred, or with NODE_STRICT the
 * only one; PINION_NODE_ANY follows the caller's memory policy.
 */
#define PINION_ALLOC_HUGE_REQUIRE (1U << 0) /* bytes is a multiple of huge_size; all huge pages or ENOMEM */
#define PINION_ALLOC_HUGE_NEVER (1U << 1)
#define PINION_ALLOC_NODE_STRICT (1U << 2)
#define PINION_ALLOC_SHMEM (1U << 3)	    /* small pages that io_uring registers before 6.5; keep the fd while mapped */
#define PINION_ALLOC_WIPE_ON_FREE (1U << 4) /* not with SHMEM */
#define PINION_ALLOC_FLAGS                                                                                                         \
	(PINION_ALLOC_HUGE_REQUIRE | PINION_ALLOC_HUGE_NEVER | PINION_ALLOC_NODE_STRICT | PINION_ALLOC_SHMEM |                     \
	 PINION_ALLOC_WIPE_ON_FREE)
#define PINION_NODE_ANY (-1)

struct pinion_alloc {
	__u32 size;
	__u32 flags;
	__u64 bytes;
	__s32 node;
	__u32 reserved;
	char name[PINION_NAME_BYTES]; /* for people: LIST, fdinfo; zero-terminated, printable */
	/* out */
	__s32 fd; /* close-on-exec */
	__u32 reserved_out;
	__u64 out_bytes;
	__u64 out_huge_bytes; /* of them in huge pages */
};

/*
 * SLICE: another slice over part of the pages of fd. offset and length are multiples of a page inside it. The new
 * descriptor is opened for reading, or for both with RIGHT_WRITE. READ is always part of rights. A part of pages of
 * ALLOC_SHMEM or of a memfd cannot be mapped for writing (EACCES): the kernel would let its holder move the mapping to the rest.
 * Who may write all of a memfd sees, by the same means, what its owner adds by growing it: F_SEAL_GROW prevents that.
 */
struct pinion_slice {
	__u32 size;
	__u32 flags; /* 0 */
	__s32 fd;
	__u32 rights;
	__u64 offset;
	__u64 length;
	/* out */
	__s32 out_fd;
	__u32 reserved;
};

/*
 * PIN: a slice over memory that exists. Without a flag: the caller's range at addr, which must be writable anonymous,
 * shared (tmpfs, memfd) or hugetlb memory, present (ENODATA); the slice is for devices and cannot be mapped (ENXIO). With
 * PIN_FD: a memfd sealed with F_SEAL_SHRINK and neither F_SEAL_WRITE nor F_SEAL_FUTURE_WRITE; mappings of the slice are
 * mappings of the memfd. A memfd opened read-only gives a slice that nobody can ever write. While a writable slice lives,
 * F_SEAL_WRITE cannot be added. addr or offset, and bytes, are multiples of a page.
 */
#define PINION_PIN_FD (1U << 0)
#define PINION_PIN_FLAGS PINION_PIN_FD

struct pinion_pin {
	__u32 size;
	__u32 flags;
	__u64 addr; /* or the offset into fd */
	__u64 bytes;
	__s32 fd; /* with PIN_FD, else -1 */
	__u32 reserved;
	char name[PINION_NAME_BYTES];
	/* out */
	__s32 out_fd;
	__u32 out_rights;
};

/* BUFINFO: whether fd is a pinion buffer, and what it is. nodes is filled with the bytes of the pages on each node. */
enum pinion_kind {
	PINION_KIND_PAGES = 1, /* ALLOC */
	PINION_KIND_SHMEM = 2, /* ALLOC with ALLOC_SHMEM */
	PINION_KIND_RANGE = 3, /* PIN of a range */
	PINION_KIND_MEMFD = 4, /* PIN of a memfd */
};

struct pinion_bufinfo {
	__u32 size;
	__u32 flags; /* 0 */
	__s32 fd;
	__u32 nr_nodes; /* in: entries at nodes, may be 0; out: nodes of the machine */
	__u64 nodes;	/* address of __u64 each */
	__u32 node_size; /* bytes of an entry, 8 */
	/* out */
	__u32 kind;
	__u32 rights;
	__u32 attachments; /* of devices, to the pages */
	__u64 id;	   /* of the slice, never used again */
	__u64 pages_id;	   /* of the pages: slices with the same one share memory */
	__u64 offset;	   /* of the slice in the pages */
	__u64 bytes;	   /* of the slice */
	__u64 pages_bytes;
	__u64 huge_bytes; /* of pages_bytes */
	__u64 alloc_flags;
	char name[PINION_NAME_BYTES];
};

/*
 * LIST: rows with an id above cursor, in the order of their ids, up to count; out_count were written, cursor is set to the
 * last. out_count below count: that was all. To a read-only open, the rows of other users come as one row at the end, with
 * id 0 and the uid PINION_UID_OTHERS; the cursor is all ones then, behind which there is nothing.
 */
#define PINION_LIST_BUFFERS 1
#define PINION_UID_OTHERS (~0U)

struct pinion_list {
	__u32 size;
	__u32 kind; /* PINION_LIST_BUFFERS */
	__u64 cursor;
	__u64 rows; /* address of the rows */
	__u32 count;
	__u32 row_size;
	/* out */
	__u32 out_count;
	__u32 reserved;
};

struct pinion_list_buffer {
	__u64 id;
	__u64 pages_id;
	__u64 offset;
	__u64 bytes;	  /* of the slice; in the row of others, of their pages */
	__u64 pages_bytes;
	__u64 huge_bytes; /* of pages_bytes */
	__u64 made_ns;	  /* CLOCK_MONOTONIC */
	__u32 uid;	  /* as the reader's user namespace shows it */
	__s32 pid;	  /* who made the slice, as the reader's pid namespace shows it; 0: not in it */
	__u32 kind;
	__u32 rights;
	__u32 buffers; /* slices in this row: 1 but for the row of others */
	__u32 attachments;
	char name[PINION_NAME_BYTES];
};

#endif
