/* SPDX-License-Identifier: MIT */
#include "notify.h"

#include "pinion.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int send_ready(const struct sockaddr_un *addr, socklen_t len)
{
	static const char ready[] = "READY=1";
	int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ssize_t n;

	if (sock < 0)
		return -errno;
	do
		n = sendto(sock, ready, strlen(ready), MSG_NOSIGNAL, (const struct sockaddr *)addr, len);
	while (n < 0 && errno == EINTR);
	n = n < 0 ? -errno : 0;
	close(sock);
	return n;
}

void notify_ready(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	size_t bytes = path ? strlen(path) : 0;
	int ret;

	if (!bytes)
		return;
	if ((path[0] != '/' && path[0] != '@') || bytes >= sizeof(addr.sun_path)) {
		complain("NOTIFY_SOCKET '%s' is no absolute path or @name of at most %zu bytes", path, sizeof(addr.sun_path) - 1);
		return;
	}
	memcpy(addr.sun_path, path, bytes);
	/* The abstract namespace begins with a NUL, and its names end where the address does. */
	if (addr.sun_path[0] == '@')
		addr.sun_path[0] = 0;
	ret = send_ready(&addr, offsetof(struct sockaddr_un, sun_path) + bytes);
	if (ret)
		complain("telling NOTIFY_SOCKET '%s': %s", path, strerror(-ret));
}
