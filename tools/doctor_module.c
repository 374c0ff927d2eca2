/* SPDX-License-Identifier: MIT */
/* The kernel module as doctor sees it: loaded, loadable, absent, refused, and who stands in the way. */
#include "doctor.h"

#include "format.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SECURE_BOOT "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

static void look_at_limits(struct doctor *d, const struct pinion_module_info *info)
{
	uint64_t left = info->max_bytes > info->bytes ? info->max_bytes - info->bytes : 0;
	uint64_t user = info->max_user_bytes > info->user_bytes ? info->max_user_bytes - info->user_bytes : 0;
	enum pinion_advice advice = user < left ? PINION_ADVICE_MODULE_USER_BYTES : PINION_ADVICE_MODULE_BYTES;
	const char *name = user < left ? "max_user_bytes" : "max_bytes";
	uint64_t use = user < left ? info->user_bytes : info->bytes;
	char enough[24];

	snprintf(enough, sizeof(enough), "%llu", (unsigned long long)(use + d->need));
	left = user < left ? user : left;
	if (d->need > left)
		doctor_advise(d, FINDING_NO_ROOM, "module limits", advice, enough, "%s are asked for, %s are left of %s",
			      size_text(d->need).s, size_text(left).s, name);
	else
		doctor_say(d, FINDING_OK, "module limits", "this user has %s in %llu buffers, %s are left",
			   size_text(info->user_bytes).s, (unsigned long long)info->user_buffers, size_text(left).s);
	if (info->poisoned_bytes)
		doctor_advise(d, FINDING_WARN, "broken memory", PINION_ADVICE_MODULE_POISONED, NULL,
			      "%s are kept out of use because a page in them broke", size_text(info->poisoned_bytes).s);
}

/* Whether depmod knows a module file of ours for this kernel. */
static bool is_installed(const char *release)
{
	char path[PATH_MAX], line[1024];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/lib/modules/%s/modules.dep", release);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		const char *end = strchr(line, ':'), *name;

		if (!end)
			continue;
		line[end - line] = 0;
		name = strrchr(line, '/');
		found = !strncmp(name ? name + 1 : line, "pinion.ko", 9);
	}
	fclose(f);
	return found;
}

static void look_at_absent(struct doctor *d)
{
	char path[PATH_MAX];
	struct utsname un;

	uname(&un);
	if (!access("/sys/module/pinion", F_OK)) {
		doctor_advise(d, FINDING_WARN, "module", PINION_ADVICE_MODULE_CONTAINER, NULL,
			      "loaded, but there is no /dev/pinion here");
		return;
	}
	if (is_installed(un.release)) {
		doctor_advise(d, FINDING_WARN, "module", PINION_ADVICE_MODULE_UNLOADED, NULL,
			      "built for this kernel and not loaded");
		return;
	}
	snprintf(path, sizeof(path), "/lib/modules/%s/build/Makefile", un.release);
	if (!access(path, F_OK))
		doctor_advise(d, FINDING_WARN, "module", PINION_ADVICE_MODULE_UNBUILT, NULL,
			      "not built for kernel %s, whose headers are here", un.release);
	else
		doctor_advise(d, FINDING_WARN, "module", PINION_ADVICE_MODULE_HEADERS, un.release,
			      "not there, and neither are the headers of kernel %s", un.release);
}

static void look_at_refusal(struct doctor *d)
{
	doctor_advise(d, FINDING_WARN, "module", getgrnam("pinion") ? PINION_ADVICE_MODULE_ACCESS : PINION_ADVICE_MODULE_GROUP,
		      NULL, "loaded, but this user may not open /dev/pinion");
}

/* Who would refuse an unsigned module: of interest as long as none is loaded. */
static void look_at_signatures(struct doctor *d, bool loaded)
{
	char enforce[8], lockdown[128];
	unsigned char boot[5] = { 0 };
	bool enforced = doctor_read("/sys/module/module/parameters/sig_enforce", enforce, sizeof(enforce)) && *enforce == 'Y';
	bool locked = doctor_read("/sys/kernel/security/lockdown", lockdown, sizeof(lockdown)) && *lockdown &&
		      !strstr(lockdown, "[none]");
	int fd = open(SECURE_BOOT, O_RDONLY | O_CLOEXEC);
	bool secure = fd >= 0 && read(fd, boot, sizeof(boot)) == sizeof(boot) && boot[4] == 1;

	if (fd >= 0)
		close(fd);
	if (loaded || (!enforced && !locked))
		doctor_say(d, FINDING_OK, "module signature", "%s; Secure Boot is %s",
			   enforced || locked ? "asked for" : "not asked for by this kernel", secure ? "on" : "off or not there");
	else
		doctor_advise(d, FINDING_WARN, "module signature", PINION_ADVICE_MODULE_SIGNATURE, NULL,
			      "this kernel loads signed modules only (%s%s, Secure Boot %s)", enforced ? "sig_enforce" : "",
			      locked ? (enforced ? ", lockdown" : "lockdown") : "", secure ? "on" : "off");
}

void doctor_module(struct doctor *d)
{
	struct pinion_module_info info = { .size = sizeof(info) };
	int ret = pinion_module_info(&info);

	switch (ret) {
	case 0:
		doctor_say(d, FINDING_OK, "module", "loaded, ABI %u, %s of %s in use", info.abi, size_text(info.bytes).s,
			   size_text(info.max_bytes).s);
		look_at_limits(d, &info);
		break;
	case -ENODEV:
		look_at_absent(d);
		break;
	case -EACCES:
		look_at_refusal(d);
		break;
	default:
		doctor_say_error(d, FINDING_FAIL, "module");
	}
	look_at_signatures(d, ret != -ENODEV);
}
