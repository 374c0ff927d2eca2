/* SPDX-License-Identifier: MIT */
/* Prints what is in flight on the device of a key: ./a.out KEY. Needs the header alone, and to read the node. */
#include <fcntl.h>
#include <linux/pinion.h>
#include <stdio.h>
#include <sys/ioctl.h>

int main(int argc, char **argv)
{
	struct pinion_dev dev = { .size = sizeof(dev) };
	snprintf(dev.key, sizeof(dev.key), "%s", argc > 1 ? argv[1] : "");
	int node = open(PINION_DEVICE, O_RDONLY), none = ioctl(node, PINION_IOC_DEV_GET, &dev);
	struct pinion_reading row = { .index = dev.index, .generation = dev.generation };
	struct pinion_read read = { sizeof(read), .rows = (unsigned long)&row, .count = 1, .row_size = sizeof(row) };
	none = none || ioctl(node, PINION_IOC_READ, &read) || row.status;
	return none ? fprintf(stderr, "nothing is known of '%s'\n", dev.key), 1 : printf("%llu\n", row.high) < 0;
}
