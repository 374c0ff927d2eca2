/* SPDX-License-Identifier: MIT */
#include "nodes.h"

#include <ctype.h>
#include <pinion/caps.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The first line of a file of sysfs; "" when it cannot be read. */
static struct text line_of(const char *path)
{
	struct text t = { "" };
	FILE *f = fopen(path, "re");

	if (!f)
		return t;
	if (!fgets(t.s, sizeof(t.s), f))
		t.s[0] = 0;
	fclose(f);
	t.s[strcspn(t.s, "\n")] = 0;
	return t;
}

/* "0000:3b:00.0" at the end of the key, NULL where there is none. */
static const char *pci_address(const char *key)
{
	static const char pattern[] = "xxxx:xx:xx.x";
	size_t len = strlen(key), n = sizeof(pattern) - 1;
	const char *at;

	if (len < n)
		return NULL;
	at = key + len - n;
	if (at > key && isxdigit((unsigned char)at[-1]))
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (pattern[i] == 'x' ? !isxdigit((unsigned char)at[i]) : at[i] != pattern[i])
			return NULL;
	return at;
}

struct text device_nodes(const struct pinion_device *dev)
{
	const struct pinion_caps *caps = pinion_device_caps(dev);
	const char *pci = pci_address(pinion_device_key(dev));
	struct text t = { "" };
	char path[64];

	if (caps && caps->substrate == PINION_SUBSTRATE_HOST)
		return line_of("/sys/devices/system/node/has_memory");
	if (!pci)
		return t;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
	for (char *c = path; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	t = line_of(path);
	/* -1 where the firmware does not say. */
	if (t.s[0] == '-')
		t.s[0] = 0;
	return t;
}
