// SPDX-License-Identifier: GPL-2.0-only
/*
 * pinion: pinned memory that can be shared, mapped and given to devices.
 *
 * The table of contents. call.c takes a call apart and puts its result back; buffer.c has the calls about buffers. pages.c
 * (with shmem.c, pin.c and memfd.c, the other kinds) is the memory, slice.c the dma-buf over it, payer.c who is charged,
 * table.c every object there is and list.c the rows about them, stat.c what can be seen from outside, compat.c what differs
 * between kernels. session.c is an open file and its counter page, queue.c a device, lane.c what binds the one to the other,
 * count.c the counts, reading.c their sums, claim.c who has reserved, wait.c who waits (watch.c: as a descriptor), uring.c the
 * same by io_uring, info.c the page that shows it. fault.c is in test builds only.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "call.h"
#include "compat.h"
#include "info.h"
#include "lane.h"
#include "pages.h"
#include "queue.h"
#include "session.h"
#include "stat.h"
#include "table.h"
#include "uring.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

int module_info(struct call *call)
{
	struct pinion_info *info = &call->info;
	struct payer_use use;

	if (info->flags || info->reserved)
		return -EINVAL;
	payer_use(call->session->payer, &use);
	*info = (struct pinion_info){
		.size = info->size,
		.abi = PINION_ABI,
		.page_size = PAGE_SIZE,
		.huge_size = PAGE_SIZE << LAYOUT_HUGE_ORDER,
		.features = (COMPAT_NEEDS_SHMEM ? PINION_FEATURE_SHMEM : PINION_FEATURE_GUP_REGISTER) |
			    (COMPAT_PINS_HUGETLB ? PINION_FEATURE_PIN_HUGETLB : 0) |
			    (payer_memlock_charged() ? PINION_FEATURE_MEMLOCK : 0) | PINION_FEATURE_COUNTS |
			    (IS_ENABLED(CONFIG_IO_URING) ? PINION_FEATURE_URING : 0) |
			    (COMPAT_CANCELS_URING ? PINION_FEATURE_URING_WAIT : 0),
		.max_bytes = use.max_bytes,
		.bytes = use.bytes,
		.max_user_bytes = use.max_user_bytes,
		.user_bytes = use.user_bytes,
		.max_user_buffers = use.max_user[PAYER_BUFFERS],
		.user_buffers = use.user[PAYER_BUFFERS],
		.max_buffer_bytes = PINION_MAX_BUFFER_BYTES,
		.buffers = use.all[PAYER_BUFFERS],
		.memlock_bytes = payer_memlock(),
		.poisoned_bytes = pages_poisoned_bytes(),
		.unwiped_bytes = pages_unwiped_bytes(),
		.max_user_devices = use.max_user[PAYER_DEVICES],
		.user_devices = use.user[PAYER_DEVICES],
		.max_user_sessions = use.max_user[PAYER_SESSIONS],
		.user_sessions = use.user[PAYER_SESSIONS],
		.max_user_claims = use.max_user[PAYER_CLAIMS],
		.user_claims = use.user[PAYER_CLAIMS],
		.max_user_watches = use.max_user[PAYER_WATCHES],
		.user_watches = use.user[PAYER_WATCHES],
		.max_devices = QUEUES_MAX,
		.max_lanes = QUEUE_LANES_MAX,
		.max_inflight = SESSION_INFLIGHT_MAX,
		.info_page_bytes = INFO_BYTES,
		.session = READ_ONCE(call->session->page) ? call->session->id : 0,
		.max_user_lanes = lane_user_most(),
	};
	return 0;
}

static void device_fdinfo(struct seq_file *m, struct file *file)
{
	const struct session *session = file->private_data;
	struct payer_use use;

	payer_use(session->payer, &use);
	seq_printf(m, "pinion-abi:\t%d\n", PINION_ABI);
	seq_printf(m, "pinion-user-bytes:\t%llu\n", use.user_bytes);
	seq_printf(m, "pinion-user-buffers:\t%u\n", use.user[PAYER_BUFFERS]);
	seq_printf(m, "pinion-session:\t%llu\n", session->id);
}

static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.open = session_open,
	.release = session_release,
	.mmap = session_mmap,
	.unlocked_ioctl = call_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
#ifdef CONFIG_IO_URING
	.uring_cmd = uring_call,
#endif
	.show_fdinfo = device_fdinfo,
	.llseek = noop_llseek,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "pinion",
	.mode = 0660,
	.fops = &device_fops,
	.groups = stat_groups,
};

static int __init pinion_init(void)
{
	int ret;

	ret = info_init();
	if (ret)
		return ret;
	stat_init();
	ret = misc_register(&device);
	if (ret) {
		stat_exit();
		info_exit();
	}
	return ret;
}

static void __exit pinion_exit(void)
{
	misc_deregister(&device);
	stat_exit();
	queue_exit();
	table_exit();
	info_exit();
}

module_init(pinion_init);
module_exit(pinion_exit);

MODULE_DESCRIPTION("pinned, shareable, DMA-able buffers; counts of work in flight");
MODULE_AUTHOR("pinion");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
MODULE_IMPORT_NS(DMA_BUF);
