/* SPDX-License-Identifier: MIT */
/* hugetlb: the kernel's pools of huge pages, which an administrator sets aside. */
#ifndef PINION_LIB_HUGETLB_H
#define PINION_LIB_HUGETLB_H

#include <stdbool.h>
#include <stdint.h>

#define HUGETLB_2M (UINT64_C(2) << 20)
#define HUGETLB_1G (UINT64_C(1) << 30)

/* Flags of memfd_create() for a file of pages of @size. */
unsigned int hugetlb_memfd_flags(uint64_t size);

/* Bytes of the pages that the file is of, 0 when they are of no pool. */
uint64_t hugetlb_page_of(int fd);

/*
 * 0 when @bytes, a multiple of @size, can be had in pages of @size now, of @node alone unless it is -1. Else -ENOMEM, or
 * -EOPNOTSUPP where the pool is empty or there is none, and a sentence: pages needed and free, and the line to type. Others
 * may take them between the look and the use.
 */
int hugetlb_check(uint64_t bytes, uint64_t size, int node);

/* The same of pages that a mapping has reserved and that are not there yet. */
int hugetlb_check_reserved(uint64_t bytes, uint64_t size, int node);

#endif
