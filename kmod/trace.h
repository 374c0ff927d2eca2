/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pinion

#if !defined(PINION_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PINION_TRACE_H

#include <linux/tracepoint.h>

#include "pages.h"
#include "slice.h"

DECLARE_EVENT_CLASS(pinion_pages,
	TP_PROTO(const struct pages *pages),
	TP_ARGS(pages),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, bytes)
		__field(u64, huge_bytes)
		__field(int, kind)
	),
	TP_fast_assign(
		__entry->id = pages->id;
		__entry->bytes = pages->charge.bytes;
		__entry->huge_bytes = pages_huge_bytes(pages);
		__entry->kind = pages->ops->kind;
	),
	TP_printk("pages=%llu bytes=%llu huge=%llu kind=%d", __entry->id, __entry->bytes, __entry->huge_bytes, __entry->kind)
);
DEFINE_EVENT(pinion_pages, pinion_pages_alloc, TP_PROTO(const struct pages *pages), TP_ARGS(pages));
DEFINE_EVENT(pinion_pages, pinion_pages_free, TP_PROTO(const struct pages *pages), TP_ARGS(pages));

DECLARE_EVENT_CLASS(pinion_slice,
	TP_PROTO(const struct slice *slice),
	TP_ARGS(slice),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, pages)
		__field(u64, offset)
		__field(u64, bytes)
		__field(u32, rights)
	),
	TP_fast_assign(
		__entry->id = slice->id;
		__entry->pages = slice->pages->id;
		__entry->offset = (u64)slice->first << PAGE_SHIFT;
		__entry->bytes = (u64)slice->nr << PAGE_SHIFT;
		__entry->rights = slice->rights;
	),
	TP_printk("slice=%llu pages=%llu offset=%llu bytes=%llu rights=%x", __entry->id, __entry->pages, __entry->offset,
		  __entry->bytes, __entry->rights)
);
DEFINE_EVENT(pinion_slice, pinion_slice_new, TP_PROTO(const struct slice *slice), TP_ARGS(slice));
DEFINE_EVENT(pinion_slice, pinion_slice_free, TP_PROTO(const struct slice *slice), TP_ARGS(slice));

DECLARE_EVENT_CLASS(pinion_mapping,
	TP_PROTO(const struct slice *slice, unsigned int entries, int dir),
	TP_ARGS(slice, entries, dir),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(unsigned int, entries)
		__field(int, dir)
	),
	TP_fast_assign(
		__entry->id = slice->id;
		__entry->entries = entries;
		__entry->dir = dir;
	),
	TP_printk("slice=%llu entries=%u dir=%d", __entry->id, __entry->entries, __entry->dir)
);
DEFINE_EVENT(pinion_mapping, pinion_slice_map, TP_PROTO(const struct slice *slice, unsigned int entries, int dir),
	     TP_ARGS(slice, entries, dir));
DEFINE_EVENT(pinion_mapping, pinion_slice_unmap, TP_PROTO(const struct slice *slice, unsigned int entries, int dir),
	     TP_ARGS(slice, entries, dir));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
