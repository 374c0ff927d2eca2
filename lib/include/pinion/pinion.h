/* SPDX-License-Identifier: MIT */
/*
 * pinion: pinned, shared buffers and in-flight counts for the processes of one machine.
 *
 * Rules that hold for every call and are not repeated below:
 *
 * - Result: int is 0 or -errno; a call that returns a file descriptor returns it or -errno. An out argument is written
 *   only on success. After a failure pinion_error() holds a sentence for the calling thread: what was refused, the
 *   limit, the need, and what to do about it.
 * - Options: structs begin with their own size (set it to sizeof); NULL means defaults. A struct longer than the library
 *   knows is -E2BIG when the unknown tail is not zero.
 * - Ownership: every pointer's comment says its owner. A _free() or _unref() of NULL does nothing. A NULL object
 *   (first argument) is a bug in the caller, who is not guarded against it.
 * - Threads: different objects may be used from different threads at once; one object is used by one thread at a time
 *   unless its comment says more. pinion_buffer_ref(), pinion_buffer_unref(), pinion_work_begin(), pinion_work_end() and
 *   every pinion_device_*() call may be used from any thread at any time.
 * - Processes: after fork() the child's contexts, devices, streams and tickets answer -EOWNERDEAD and touch nothing;
 *   freeing them in the child releases the child's memory only. Buffer mappings stay valid.
 * - Deadlines are absolute CLOCK_MONOTONIC nanoseconds: 0 polls, PINION_FOREVER waits without end.
 *
 * errno vocabulary: -EINVAL wrong value; -E2BIG a newer struct; -EOPNOTSUPP this ground cannot; -ENODATA no such signal;
 * -EAGAIN a table is full; -ENOMEM memory or a memory limit; -ENOSPC a table of pinion or a file system is full;
 * -EOVERFLOW arithmetic; -EBADMSG a file's content is refused; -EPROTO a peer's message is refused; -ESTALE the device
 * was removed; -EOWNERDEAD the maker of this object is another process; -ETIMEDOUT the deadline passed; -ECANCELED an
 * earlier operation of the stream failed; -EBUSY in use.
 */
#ifndef PINION_PINION_H
#define PINION_PINION_H

#include <pinion/advice.h>
#include <pinion/array.h>
#include <pinion/buffer.h>
#include <pinion/caps.h>
#include <pinion/context.h>
#include <pinion/device.h>
#include <pinion/dtype.h>
#include <pinion/feed.h>
#include <pinion/holder.h>
#include <pinion/index.h>
#include <pinion/leak.h>
#include <pinion/model.h>
#include <pinion/op.h>
#include <pinion/pick.h>
#include <pinion/reservation.h>
#include <pinion/room.h>
#include <pinion/select.h>
#include <pinion/signal.h>
#include <pinion/storage.h>
#include <pinion/stream.h>
#include <pinion/type.h>
#include <pinion/view.h>
#include <pinion/work.h>

#endif
