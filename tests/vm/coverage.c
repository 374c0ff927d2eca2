// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which blocks of the module ran, on kernels without KCOV. build.py adds this file to a copy of kmod/ and has the others compiled
 * with -fsanitize-coverage=trace-pc, which calls the function below at the start of every block. Init and exit code is not
 * counted: the first is gone, the second has not run when the result is read.
 *
 * Writing 1 to the parameter `coverage` makes debugfs's pinion-coverage, writing 0 takes it away again: there is no second
 * module_init() in a module to do it.
 */
#include <linux/bitmap.h>
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/seq_file.h>
#include <linux/version.h>

#define TEXT_MAX (1ul << 20)

void notrace __sanitizer_cov_trace_pc(void);

static DECLARE_BITMAP(ran, TEXT_MAX);
static struct dentry *file;

static __always_inline unsigned long text_base(void)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
	return (unsigned long)THIS_MODULE->core_layout.base;
#else
	return (unsigned long)THIS_MODULE->mem[MOD_TEXT].base;
#endif
}

void notrace __sanitizer_cov_trace_pc(void)
{
	unsigned long at = _RET_IP_ - text_base();

	if (at < TEXT_MAX && !test_bit(at, ran))
		set_bit(at, ran);
}

static int coverage_show(struct seq_file *s, void *unused)
{
	unsigned long at;

	for_each_set_bit(at, ran, TEXT_MAX) seq_printf(s, "at %lx\n", text_base() + at);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(coverage);

static int coverage_set(const char *text, const struct kernel_param *param)
{
	bool on;
	int err = kstrtobool(text, &on);

	if (err)
		return err;
	debugfs_remove(file);
	file = on ? debugfs_create_file("pinion-coverage", 0400, NULL, NULL, &coverage_fops) : NULL;
	return 0;
}

static const struct kernel_param_ops coverage_ops = { .set = coverage_set };
module_param_cb(coverage, &coverage_ops, NULL, 0200);
MODULE_PARM_DESC(coverage, "1: debugfs shows which blocks ran");
