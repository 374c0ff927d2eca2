/* SPDX-License-Identifier: MIT */
/*
 * storage writer: a process in one word, so that taking the writer's place is one compare-and-exchange, and others can
 * tell whether the one who has it is dead. The kernel's locks do not serve: that of a process goes when it closes any
 * descriptor of the file, that of a description lives on in forked children.
 *
 * bits 0-21 the process id (the kernel's are below 2^22), 22-41 of its pid namespace, 42-63 of when it began. Ids are
 * used again; the same id at the same tick of the same boot is not. The word is never 0.
 */
#ifndef PINION_LIB_STORAGE_WRITER_H
#define PINION_LIB_STORAGE_WRITER_H

#include <stdbool.h>
#include <stdint.h>

/* The calling process. */
uint64_t writer_self(void);

/* Its id where it runs. */
int32_t writer_pid(uint64_t word);

/* True when it is certain: a process of another pid namespace may live. */
bool writer_is_dead(uint64_t word);

#endif
