// SPDX-License-Identifier: GPL-2.0-only
// 6.11: long-term pins of a memfd's pages.
#include <linux/mm.h>
long probe(struct file *file, struct folio **folios, pgoff_t *offset);
long probe(struct file *file, struct folio **folios, pgoff_t *offset)
{
	return memfd_pin_folios(file, 0, 4095, folios, 1, offset);
}
