/* SPDX-License-Identifier: GPL-2.0-only */
/* stat: what can be seen from outside: sysfs totals and limits, debugfs rows. */
#ifndef PINION_STAT_H
#define PINION_STAT_H

struct attribute_group;

extern const struct attribute_group *stat_groups[];

void stat_init(void);
void stat_exit(void);

#endif
