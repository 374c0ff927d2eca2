/* SPDX-License-Identifier: MIT */
/* buffers: the memory that the kernel module knows, as a table or as JSON. */
#ifndef PINION_TOOLS_BUFFERS_H
#define PINION_TOOLS_BUFFERS_H

#include <stdint.h>

/* The buffers that process @pid made, 0: all of them. Without one nothing is printed. 0 or -errno of pinion_module_buffers(). */
int buffers_print(int32_t pid);
int buffers_print_json(void);

#endif
