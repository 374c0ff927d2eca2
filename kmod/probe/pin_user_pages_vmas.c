// SPDX-License-Identifier: GPL-2.0-only
// Before 6.5: pin_user_pages() takes an array of VMAs. The same release let io_uring register any mapping with struct pages.
#include <linux/mm.h>
long probe(struct page **pages);
long probe(struct page **pages)
{
	return pin_user_pages(0, 1, FOLL_WRITE, pages, NULL);
}
