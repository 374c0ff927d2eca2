/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * /dev/pinion: pinned, shareable, DMA-able buffers; devices, what is in flight on them and who has claimed them.
 *
 * A buffer is a dma-buf file, called a *slice*, over (part of) refcounted *pages*. The descriptor is the capability:
 * whoever was handed it may map the buffer, nobody else can. Its memory is present, zeroed and unmovable from ALLOC on,
 * charged to the caller's memory cgroup and to the limits that INFO reports, and given back with the last descriptor,
 * mapping or device attachment.
 *
 * A device here is one place where work can run, known to all processes by a key; the kernel drives nothing on it. Work in
 * flight is counted by the processes themselves, each in a page of counters of its own (<linux/pinion_counters.h>), which
 * goes with its mapping: a process that was killed counts no more when waitpid() returns. READ sums, RESERVE claims, WAIT
 * and WATCH wait.
 *
 * Calls. Every argument is a struct that starts with its own size, as the caller was built. The kernel reads what it
 * knows; a longer struct whose unknown tail is not zero is E2BIG, so is a size above a page; a size below the first
 * version's is EINVAL. Outputs are written into the same struct as far as the caller's size reaches; what lies behind
 * stays as it was. Unknown flags and reserved fields that are not zero are EINVAL. A call that fails changes nothing:
 * no descriptor, no charge, no byte of the struct (but where only part of it can be written; and WAIT that ends with
 * ETIMEDOUT says what it saw). Arrays carry their count and the size of an entry.
 *
 * Opens. Whatever changes anything needs an open with O_RDWR; INFO, BUFINFO, LIST, DEV_GET, READ, CLAIMINFO, WAIT, WATCH, the
 * info page and the window work with O_RDONLY. Credentials are those of the opener. Buffers and claims outlive the open
 * file; its session, its watches' scope MINE and the devices that nobody else refers to do not.
 *
 * Errors, of every call:
 *   EINVAL      unknown flags, a reserved field, a size or offset that is 0, not a multiple of a page or out of range, a
 *		 node that has no memory, a descriptor that is not a pinion buffer, a memfd that could shrink; a key that is
 *		 not printable, a handle that this open does not have, more ended than was begun
 *   E2BIG       a newer struct than this module knows, or a size above a page
 *   EFAULT      an address that cannot be read, written, or has nothing mapped
 *   EBADF       no such descriptor
 *   EACCES      a read-only open; more rights than the slice has; a writable mapping or a device's write beyond the rights
 *   EPERM       a memfd sealed against writing, also when it is mapped later, by a device too; a node outside the caller's
 *		 cpuset; a device that another user added
 *   ENOMEM      memory, the cgroup, max_bytes, max_user_bytes or RLIMIT_MEMLOCK is short (INFO has the limits and their use)
 *   ENOSPC      the user has max_user_buffers buffers, or as many devices, sessions, claims or watches as INFO allows, or lanes
 *		 of one device; a device has all its lanes; the budget or the capacity has not so much left; max_inflight is reached
 *   EBUSY       a device in use; an exclusive claim stands, or is asked for while others do; a counter page mapped already; the
 *		 lane asked for is taken
 *   EEXIST      the key exists with another unit of cost
 *   ENOENT      no such device, or no more of them
 *   ESTALE      the device was removed, also while waiting for it
 *   EOWNERDEAD  the session ended when its counter page was unmapped
 *   ETIMEDOUT   the deadline of WAIT
 *   EMFILE      the process has no descriptor left
 *   ENFILE      the system has no open file left
 *   EINTR       a fatal signal came; everything is rolled back. WAIT: any signal whose handler does not restart calls
 *   EOPNOTSUPP  this kernel has no such backing, or memory that cannot be pinned for devices; a command that io_uring of this
 *		 kernel could not cancel
 *   ENODATA     a synchronous device has no queue to count or wait for; a device has no budget, or no capacity, to claim
 *		 from; PIN of a range with pages that are not present and writable yet: MADV_POPULATE_WRITE first (PIN never faults
 *		 them in, because a fault may kill where ENOMEM is due)
 *   EIO         PIN of a memfd with a page that is broken, or of swap that cannot be read
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
#define PINION_IOC_DEV_ADD PINION_IOC(0x30)
#define PINION_IOC_DEV_GET PINION_IOC(0x31)
#define PINION_IOC_DEV_SET PINION_IOC(0x32)
#define PINION_IOC_DEV_DEL PINION_IOC(0x33)
#define PINION_IOC_ATTACH PINION_IOC(0x38)
#define PINION_IOC_DETACH PINION_IOC(0x39)
#define PINION_IOC_RESET PINION_IOC(0x3a)
#define PINION_IOC_ADD PINION_IOC(0x3b)
#define PINION_IOC_READ PINION_IOC(0x3c)
#define PINION_IOC_KICK PINION_IOC(0x3d)
#define PINION_IOC_RESERVE PINION_IOC(0x40)
#define PINION_IOC_CLAIMINFO PINION_IOC(0x41)
#define PINION_IOC_WAIT PINION_IOC(0x44)
#define PINION_IOC_WATCH PINION_IOC(0x45)
/*
 * Reserved: 0x25 SEAL (drop all write rights for ever, with a digest), 0x3e ACQUIRE (holds a chain until the queue has room),
 * 0x50 DOMAIN_NEW.
 */

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
#define PINION_FEATURE_COUNTS (1ULL << 4)	/* devices, sessions, claims, waits: the calls from 0x30 on */
#define PINION_FEATURE_URING (1ULL << 5)	/* IORING_OP_URING_CMD: ADD and READ */
#define PINION_FEATURE_URING_WAIT (1ULL << 6)	/* and WAIT */

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
	/* since counts */
	__u32 max_user_devices; /* each kind of object that one user may have, and has */
	__u32 user_devices;
	__u32 max_user_sessions;
	__u32 user_sessions;
	__u32 max_user_claims;
	__u32 user_claims;
	__u32 max_user_watches;
	__u32 user_watches;
	__u32 max_devices;     /* of the module */
	__u32 max_lanes;       /* of one device, over all sessions */
	__u32 max_inflight;    /* of one lane */
	__u32 info_page_bytes; /* of the mapping at PINION_MMAP_INFO */
	__u64 session;	       /* of this open: where others see its page, behind PINION_MMAP_WINDOW; 0: none yet */
	__u32 max_user_lanes;  /* of one device, over all sessions of one user */
	__u32 reserved_out;
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
 * mappings of the memfd. A memfd opened read-only gives a slice that nobody can ever write. While a slice lives,
 * F_SEAL_WRITE cannot be added (EBUSY); after F_SEAL_FUTURE_WRITE no mapping begins to write, of a process or a device
 * (EPERM). addr or offset, and bytes, are multiples of a page.
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
	__u32 kind; /* PINION_LIST_BUFFERS, or one of those below */
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

/* ==== devices ======================================================================================================= */

#define PINION_KEY_BYTES 64

#define PINION_DEV_SYNC (1U << 0) /* no queue: nothing is counted on it; ATTACH, READ and waits but for CHANGED are ENODATA */
#define PINION_DEV_FLAGS PINION_DEV_SYNC

/*
 * DEV_ADD: makes the device of that key known, or finds it: what is there wins and comes back in the struct; another
 * cost_unit is EEXIST. The key is 1 to 63 printable characters without space and names the physical thing (a UUID, a PCI
 * address, a service), never an ordinal. The device lives while an open file that has added it, a session's lane, a watch
 * or a claim refers to it. generation differs for each device that ever was.
 * DEV_GET: by says what the struct holds: the key; the index; or the index from which on to take the first there is. A
 * generation that is not 0 must be the device's (ESTALE). ENOENT: none.
 * DEV_SET: changes what set names, by index and generation; the rest is 0 or as DEV_GET gave it. By the user that added it, or
 * with CAP_SYS_ADMIN.
 */
#define PINION_DEV_CREATED (1U << 31) /* out, of DEV_ADD: it was not there */

#define PINION_BY_KEY 0
#define PINION_BY_INDEX 1
#define PINION_BY_NEXT 2

#define PINION_SET_CAPACITY (1U << 0)
#define PINION_SET_BUDGET (1U << 1)

struct pinion_dev {
	__u32 size;
	__u32 flags; /* DEV_ADD: PINION_DEV_*; out: of the device. DEV_GET: 0 */
	char key[PINION_KEY_BYTES];
	__u32 by;  /* DEV_GET; DEV_ADD: 0 */
	__u32 set; /* DEV_SET, else 0 */
	__u64 generation;
	__u64 budget;	 /* bytes, 0: not known */
	__u32 index;
	__u32 capacity;	 /* units it works on at once, 0: not known */
	__u32 cost_unit; /* what cost is counted in, as those who use the key agreed; 0: units */
	__u32 uid;	 /* out: who added it, as the caller's user namespace shows it */
};

/*
 * DEV_DEL: EBUSY while other sessions, claims or watches refer to it, unless FORCE: then they find it ESTALE. Rights as for
 * DEV_SET.
 */
#define PINION_DEL_FORCE (1U << 0)

struct pinion_dev_del {
	__u32 size;
	__u32 flags;
	__u32 index;
	__u32 reserved;
	__u64 generation;
};

/* ==== sessions ====================================================================================================== */

/*
 * Mappings of /dev/pinion, all MAP_SHARED. COUNTERS: this open's counter page, a page, for reading and writing, once, by one
 * process: the session ends with that mapping (unmap, exit, exec, death), and cannot come back; an open that never maps it
 * has a session until its last close. A child does not inherit the mapping. INFO: info_page_bytes, read-only. WINDOW + session
 * * page: the counter page of a living session of the same user (or, with the parameter window_group=1, of anybody), read-only;
 * it reads zero when the session has ended, by the time its death can be waited for. A session's number is never used again.
 */
#define PINION_MMAP_COUNTERS 0ULL
#define PINION_MMAP_INFO (1ULL << 20)
#define PINION_MMAP_WINDOW (1ULL << 30)

/* The info page: a line for the module, then one for each index of a device. Written by the kernel alone. */
struct pinion_info_head {
	__u32 version; /* 1 */
	__u32 devices; /* lines that follow */
	__u64 roster;  /* moves before and after a lane changes hands, and when held does: LIST says who has which */
	__u64 reserved[6];
};

struct pinion_info_device {
	__u64 generation; /* 0: none */
	__u64 budget;
	__u64 claimed_bytes; /* all ones: exclusive */
	__u64 reclaimed;
	__u64 retired;
	__u32 claimed_units;
	__u32 claims;
	__u32 capacity;
	__u32 flags;
	__u32 sessions;
	__u32 held; /* sessions that have counts which the window does not show: ADD, and lanes given back */
};

/*
 * ATTACH: a lane of this open's counter page becomes the device's: lane of struct pinion_counter_page, written by one
 * thread. Its words are zero and its control word shows the session's parity. max_inflight bounds what the lane can add to
 * a total, max_cost (0: no bound) what it can add to the cost; a session whose difference is out of its bounds is marked. With
 * COMPLETED_FD the completed words are not in the page but at completed_off, a multiple of 32, in that pinion buffer: struct
 * pinion_count for each parity, which a device may write. handle is this open's name for the lane on that device.
 */
#define PINION_ATTACH_COMPLETED_FD (1U << 0)
#define PINION_ATTACH_LANE (1U << 1) /* the lane is given, else one is chosen */

struct pinion_attach {
	__u32 size;
	__u32 flags;
	__u32 index;
	__u32 max_inflight; /* 1 to max_inflight of INFO */
	__u64 generation;
	__u64 max_cost;
	__s32 completed_fd; /* with COMPLETED_FD, else -1 */
	__u32 lane;	    /* in with LANE, else 0; out */
	__u64 completed_off;
	/* out */
	__u32 handle;
	__u32 reserved;
};

/*
 * DETACH gives the lane back; what it counted stays the session's until its last lane of the device goes. Units in flight then
 * are given up: out_units. RESET forgets the session's units in flight on the device, out_units; who forgets them must not end
 * them. KICK says that a unit ended while somebody waits: the armed word of the lane's control.
 */
struct pinion_handle {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 handle;
	__u32 reserved;
	/* out */
	__u64 out_units;
};

/*
 * ADD: counts kept by the kernel, for callers without the page: ops units of together cost begin (> 0) or end (< 0; cost
 * is negative then) in a parity. They are the session's, beside those of its page; no more can end than began (EINVAL).
 * PARITY_NOW: the one of new units, which comes back and is what their end must be given.
 */
#define PINION_PARITY_NOW 2

struct pinion_add {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 handle;
	__s32 ops;
	__s64 cost;
	__u32 parity;
	__u32 reserved;
	/* out */
	__u32 out_parity;
	__u32 reserved_out;
};

/* ==== readings ====================================================================================================== */

#define PINION_SCOPE_SESSION 0 /* of this open */
#define PINION_SCOPE_USER 1    /* sessions of the opener's user */
#define PINION_SCOPE_EVERY 2   /* all */

/*
 * READ: rows, each for one device. high is not below the number of units in flight at some instant of the call, low not above
 * it at a later one; both are exact when nothing moves. Counts speak of living owners. submitted, retired and cost are
 * advisory: their owners write them. cookie moves with whatever is counted or claimed: see WAIT.
 */
struct pinion_reading {
	__u32 index;
	__s32 status;	  /* out: 0, or -ENOENT, -ESTALE, -ENODATA and the rest of the row is 0 but for what stands below */
	__u64 generation; /* 0: of the device that is there now; out */
	/* out */
	__u64 low;
	__u64 high;
	__u64 cost; /* upper bound */
	__u64 session_low; /* of them, this open's */
	__u64 session_high;
	__u64 submitted; /* by living sessions */
	__u64 retired;	 /* by those that are gone */
	__u64 reclaimed; /* units whose owner died with them in flight */
	__u64 cookie;
	/* also of a device without a queue */
	__u64 budget;
	__u64 claimed_bytes; /* all ones: exclusive */
	__u32 claimed_units;
	__u32 claims;
	__u32 capacity;
	__u32 flags; /* PINION_DEV_* */
	__u32 sessions;
	__u32 marked; /* of them, whose counts could not be true */
};

struct pinion_read {
	__u32 size;
	__u32 flags;	/* 0 */
	__u64 rows;	/* address of the rows */
	__u32 count;	/* 1 to 256 */
	__u32 row_size;
};

/* ==== claims ======================================================================================================== */

/*
 * RESERVE: a claim on the device's budget and capacity, all of it or nothing. It is held by the descriptor: passing it hands
 * the claim over, the last close gives it back. EXCLUSIVE: the whole device, with no other claim on it. most_bytes and
 * most_units, where not 0, bound the sum of all claims beside the device's own budget and capacity. CLAIMINFO: what fd holds.
 */
#define PINION_RESERVE_EXCLUSIVE (1U << 0)

struct pinion_reserve {
	__u32 size;
	__u32 flags;
	__u32 index;
	__u32 units;
	__u64 generation;
	__u64 bytes;
	__u64 most_bytes;
	__u32 most_units;
	__s32 fd; /* out; close-on-exec. CLAIMINFO: in, and the rest is out */
};

/* ==== waits ========================================================================================================= */

#define PINION_COND_PENDING_LE 0 /* no more than value units in flight in the scope */
#define PINION_COND_FLUSH 1	 /* what the scope had in flight when the wait began is done, or its owner gone; value is 0 */
#define PINION_COND_CHANGED 2	 /* the device's cookie is not value; scope EVERY */

/*
 * WAIT: until the condition holds, the deadline (CLOCK_MONOTONIC, ns; 0 has passed) or a signal. Work that begins later does
 * not prolong a FLUSH, whatever order units end in; but one that meets an earlier FLUSH's turn waits for what began up to the
 * end of that turn. lost are units in the scope whose owner died with them in flight
 * meanwhile: done is not dead. At the deadline culprit_pid is the process of the caller's own user that the wait is for
 * most, 0 where there is none, or not in the caller's pid namespace.
 */
struct pinion_wait {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 index;
	__u32 scope;
	__u64 generation;
	__u32 cond;
	__u32 reserved;
	__u64 value;
	__s64 deadline_ns;
	/* out */
	__u64 high; /* in the scope */
	__u64 lost;
	__u64 cookie;
	__s32 culprit_pid;
	__u32 culprit_units;
};

/*
 * WATCH: the same as a descriptor that polls readable (EPOLLIN) when the condition has come to hold, and EPOLLHUP | EPOLLERR when
 * the device is gone. A FLUSH began with the call. read() takes one struct pinion_event, or waits for it (EAGAIN with
 * O_NONBLOCK), and starts anew: CHANGED from the cookie that it returned, PENDING_LE and FLUSH from now.
 */
struct pinion_watch {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 index;
	__u32 scope;
	__u64 generation;
	__u32 cond;
	__u32 reserved;
	__u64 value;
	/* out */
	__s32 fd; /* close-on-exec */
	__u32 reserved_out;
};

struct pinion_event {
	__s32 status; /* 0, or -ESTALE */
	__u32 reserved;
	__u64 high;
	__u64 lost;
	__u64 cookie;
};

/* ==== lists ========================================================================================================= */

#define PINION_LIST_SESSIONS 2
#define PINION_LIST_RESERVATIONS 3
#define PINION_LIST_WATCHES 4

#define PINION_SESSION_MARKED (1U << 0) /* its counts could not be true */
#define PINION_SESSION_HELD (1U << 1)	/* it has counts that the window does not show */
#define PINION_SESSION_MAPPED (1U << 2) /* its counter page is mapped: it ends with its process */
#define PINION_SESSION_MINE (1U << 3)	/* it is this open's */
#define PINION_SESSION_DMA (1U << 4)	/* it has lanes whose completed words are elsewhere */

/* A session on one device. In the row of others: sums. */
struct pinion_list_session {
	__u64 id;
	__u64 session; /* its page is at PINION_MMAP_WINDOW + session * page */
	__u64 generation;
	__u64 lanes; /* bit i: lane i of the page */
	__u64 low;
	__u64 high;
	__u64 cost;
	__u64 submitted;
	__u64 max_inflight;
	__u64 since_ns; /* CLOCK_BOOTTIME */
	__u32 index;
	__u32 flags;
	__u32 uid;
	__s32 pid;
	__u32 sessions; /* 1 but for the row of others */
	__u32 reserved;
	char comm[16];
};

struct pinion_list_claim {
	__u64 id;
	__u64 generation;
	__u64 bytes;
	__u64 made_ns; /* CLOCK_BOOTTIME */
	__u32 index;
	__u32 units;
	__u32 flags;
	__u32 uid;
	__s32 pid; /* who made it; who holds it may be another */
	__u32 claims; /* 1 but for the row of others */
};

struct pinion_list_watch {
	__u64 id;
	__u64 generation;
	__u64 value;
	__u64 made_ns; /* CLOCK_BOOTTIME */
	__u32 index;
	__u32 cond;
	__u32 scope;
	__u32 uid;
	__s32 pid;
	__u32 watches; /* 1 but for the row of others */
};

/* ==== io_uring ====================================================================================================== */

/*
 * IORING_OP_URING_CMD on /dev/pinion: cmd_op is one of these and the 16 bytes of cmd the struct below. The result of the
 * completion is 0 or a negative errno, never a count. A chain that counts an I/O: ADD +1 with IOSQE_IO_LINK, the I/O with
 * IOSQE_IO_HARDLINK, ADD -1: a failed +1 runs nothing, a failed I/O still counts down. Some kernels (6.12) read a linked entry
 * when it runs: leave it alone until its completion, or give the ADD -1 IOSQE_ASYNC, which has it copied. READ and WAIT take
 * the address of the struct of the call. WAIT is EOPNOTSUPP without FEATURE_URING_WAIT: poll a watch instead. It ends by its
 * condition, its deadline, or with its ring or task; io_uring's own cancel requests and linked timeouts do not find it.
 */
#define PINION_URING_ADD PINION_IOC_ADD
#define PINION_URING_READ PINION_IOC_READ
#define PINION_URING_WAIT PINION_IOC_WAIT

struct pinion_uring_add {
	__u32 handle;
	__s32 ops;
	__s32 cost;
	__u32 parity; /* 0 or 1: of the lane's control word when the chain is made, for both ADD */
};

struct pinion_uring_call {
	__u64 address; /* of struct pinion_read or pinion_wait */
	__u64 reserved;
};

#endif
