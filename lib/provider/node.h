/* SPDX-License-Identifier: MIT */
/* node: on which NUMA node memory is, by libnuma. */
#ifndef PINION_LIB_NODE_H
#define PINION_LIB_NODE_H

#include <pinion/buffer.h>
#include <stdint.h>

/* Whether the process can have memory of @node. -EINVAL: no such node, none with memory, or not in its cpuset. */
int node_check(unsigned int node);

/* 0 when @node has @need more bytes, page cache that can be dropped counted; else -ENOMEM and a sentence. */
int node_room_check(uint64_t need, unsigned int node);

/* Pages of the mapping at @addr that are not there yet will be of @node, or with PREFERRED of others when it has none. */
int node_bind(void *addr, uint64_t bytes, enum pinion_numa numa, unsigned int node);

/* Bytes of the mapping, whose pages are there and of @page bytes or more, that are on @node. 0 or -errno and a sentence. */
int node_count(void *addr, uint64_t bytes, uint64_t page, unsigned int node, uint64_t *on_node);

#endif
