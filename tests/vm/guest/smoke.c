// SPDX-License-Identifier: MIT
/* The module is there: its device opens both ways, knows what it does not know, and holds the module while it is open. */
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEVICE "/dev/pinion"
#define TAINT  "/sys/module/pinion/taint" /* O: out of tree, P: not under the GPL */

static int taint(char mark)
{
	char text[32] = "";
	int fd = open(TAINT, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	return strchr(text, mark) != NULL;
}

int main(void)
{
	struct stat st = { 0 };
	int rw = open(DEVICE, O_RDWR | O_CLOEXEC);
	int ro;

	if (!tap_ok(rw >= 0, "open for reading and writing", DEVICE ": %s", strerror(errno)))
		return tap_end();
	ro = open(DEVICE, O_RDONLY | O_CLOEXEC);
	tap_ok(ro >= 0, "open for reading", DEVICE ": %s", strerror(errno));
	tap_ok(fstat(rw, &st) == 0 && S_ISCHR(st.st_mode), "a character device", "mode %o", st.st_mode);
	errno = 0;
	tap_ok(ioctl(rw, _IO('?', 0xfe), 0) == -1 && errno == ENOTTY, "an unknown ioctl is ENOTTY", "%s", strerror(errno));
	errno = 0;
	tap_ok(syscall(SYS_delete_module, "pinion", O_NONBLOCK) == -1 && (errno == EWOULDBLOCK || errno == EBUSY),
	       "the module stays while it is open", "%s", strerror(errno));
	tap_ok(taint('O') && !taint('P'), "its licence is no taint", "%s", TAINT);
	close(ro);
	close(rw);
	return tap_end();
}
