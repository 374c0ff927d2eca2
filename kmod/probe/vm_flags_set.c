// SPDX-License-Identifier: GPL-2.0-only
// 6.3: vm_flags is written through functions only.
#include <linux/mm.h>
void probe(struct vm_area_struct *vma);
void probe(struct vm_area_struct *vma)
{
	vm_flags_mod(vma, VM_DONTEXPAND, VM_MAYEXEC);
}
