/* SPDX-License-Identifier: MIT */
#include "name.h"

#include "../advice.h"

#include "../machine/filesize.h"
#include "share.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FILE_MAX (PINION_NAME_MAX + 16)
/* How often a waiting client looks whether the holder lives; its death closes the connection at once in most cases. */
#define LOOK_MS 100

int name_check(const char *name)
{
	size_t len = name ? strnlen(name, PINION_NAME_MAX + 1) : 0;

	if (len == 0 || len > PINION_NAME_MAX)
		return fail(EINVAL, "a name has 1 to %d characters", PINION_NAME_MAX);
	if (name[0] == '.' || name[0] == '-')
		return fail(EINVAL, "a name does not begin with '%c'", name[0]);
	for (size_t i = 0; i < len; i++)
		if (!isascii(name[i]) || (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i])))
			return fail(EINVAL, "a name is made of letters, digits, '.', '_' and '-'; character %zu is none", i + 1);
	return 0;
}

static void file_name(char out[FILE_MAX], const char *name, const char *suffix)
{
	snprintf(out, FILE_MAX, "%s%s", name, suffix);
}

/* ---- records ------------------------------------------------------------------------------------------------------- */

static bool read_record(struct pinion_context *ctx, const char *name, struct name_record *record)
{
	char file[FILE_MAX];
	ssize_t n;
	int fd;

	file_name(file, name, ".name");
	fd = openat(ctx->dir.fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	n = read(fd, record, sizeof(*record));
	close(fd);
	return n == sizeof(*record) && record->magic == NAME_MAGIC;
}

static bool record_alive(struct pinion_context *ctx, const struct name_record *record)
{
	return counts_slot_alive(ctx->counts, record->slot, record->generation);
}

static bool same_record(const struct name_record *a, const struct name_record *b)
{
	return a->slot == b->slot && a->generation == b->generation && a->serial == b->serial;
}

/* Through a name of its own, so that a reader sees the old record or the new one, whole. */
static int write_record(struct pinion_context *ctx, const char *name, const struct name_record *record)
{
	char file[FILE_MAX], fresh[FILE_MAX];
	int fd, err = filesize_check("the record of a name", sizeof(*record));

	if (err)
		return err;
	file_name(file, name, ".name");
	file_name(fresh, name, ".new");
	unlinkat(ctx->dir.fd, fresh, 0);
	fd = openat(ctx->dir.fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail_errno(errno, "writing the record of '%s' in %s", name, ctx->dir.path);
	errno = ENOSPC;
	if (write(fd, record, sizeof(*record)) != sizeof(*record) || renameat(ctx->dir.fd, fresh, ctx->dir.fd, file))
		err = errno;
	close(fd);
	if (!err)
		return 0;
	unlinkat(ctx->dir.fd, fresh, 0);
	return fail_errno(err, "writing the record of '%s' in %s", name, ctx->dir.path);
}

/* Under the lock. */
static void remove_files(struct pinion_context *ctx, const char *name)
{
	static const char *const suffix[] = { ".name", ".sock", ".new" };
	char file[FILE_MAX];

	for (unsigned int i = 0; i < 3; i++) {
		file_name(file, name, suffix[i]);
		unlinkat(ctx->dir.fd, file, 0);
	}
}

/* Removes what a dead holder left, unless someone has taken the name since. */
static void remove_dead(struct pinion_context *ctx, const char *name)
{
	struct name_record record;
	int lock;

	if (rundir_lock(&ctx->dir, &lock))
		return;
	if (!read_record(ctx, name, &record) || !record_alive(ctx, &record))
		remove_files(ctx, name);
	rundir_unlock(lock);
}

/* ---- sockets ------------------------------------------------------------------------------------------------------- */

/* A Unix socket's path has room for 107 characters; through the directory's descriptor any directory will do. */
static socklen_t address(struct pinion_context *ctx, const char *name, struct sockaddr_un *addr)
{
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	snprintf(addr->sun_path, sizeof(addr->sun_path), "/proc/self/fd/%d/%s.sock", ctx->dir.fd, name);
	return sizeof(*addr);
}

static int open_socket(int *sock)
{
	*sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return *sock < 0 ? fail_errno(errno, "making a socket") : 0;
}

static int listen_at(struct pinion_context *ctx, const char *name, int *sock)
{
	struct sockaddr_un addr;
	socklen_t len = address(ctx, name, &addr);
	int ret = open_socket(sock);

	if (ret)
		return ret;
	if (bind(*sock, (struct sockaddr *)&addr, len) || listen(*sock, 1024)) {
		ret = fail_errno(errno, "listening at %s/%s.sock", ctx->dir.path, name);
		close(*sock);
	}
	return ret;
}

int name_take(struct pinion_context *ctx, const char *name, const struct name_record *record, int *sock)
{
	struct name_record old;
	int lock, ret = rundir_lock(&ctx->dir, &lock);

	if (ret)
		return ret;
	if (read_record(ctx, name, &old) && record_alive(ctx, &old)) {
		ret = fail(EEXIST, "'%s' is held by process %d; 'pinion rm %s' frees it", name, old.pid, name);
		goto out;
	}
	remove_files(ctx, name);
	ret = listen_at(ctx, name, sock);
	if (ret)
		goto out;
	ret = write_record(ctx, name, record);
	if (ret) {
		remove_files(ctx, name);
		close(*sock);
	}
out:
	rundir_unlock(lock);
	return ret;
}

void name_release(struct pinion_context *ctx, const char *name, const struct name_record *record)
{
	struct name_record now;
	int lock;

	if (rundir_lock(&ctx->dir, &lock))
		return;
	if (read_record(ctx, name, &now) && same_record(&now, record))
		remove_files(ctx, name);
	rundir_unlock(lock);
}

static int no_such(struct pinion_context *ctx, const char *name)
{
	return fail(ENOENT, "nobody holds '%s' in %s; 'pinion ls' lists what is there", name, ctx->dir.path);
}

int name_connect(struct pinion_context *ctx, const char *name, struct name_record *record, int *sock)
{
	struct sockaddr_un addr;
	socklen_t len;
	int ret;

	if (!read_record(ctx, name, record))
		return no_such(ctx, name);
	if (!record_alive(ctx, record)) {
		remove_dead(ctx, name);
		return no_such(ctx, name);
	}
	ret = open_socket(sock);
	if (ret)
		return ret;
	len = address(ctx, name, &addr);
	if (connect(*sock, (struct sockaddr *)&addr, len)) {
		/* The holder went between the record and here. */
		ret = errno == ENOENT || errno == ECONNREFUSED ? no_such(ctx, name) : fail_errno(errno, "connecting to '%s'", name);
		close(*sock);
	}
	return ret;
}

int name_await(struct pinion_context *ctx, const struct name_record *record, int sock, int64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = { .fd = sock, .events = POLLIN };
		int n = poll(&p, 1, LOOK_MS);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return fail_errno(errno, "waiting for a holder");
		/* A child that the holder forked may keep the connection open. */
		if (!record_alive(ctx, record))
			return fail(EPIPE, "the holder, process %d, died", record->pid);
		if (pinion_deadline_in(0) >= deadline_ns)
			return fail(ETIMEDOUT, "the holder, process %d, did not answer in time", record->pid);
	}
}

/* Sends the request and waits for the answer, which has at least one descriptor. */
static int ask_for_it(struct pinion_context *ctx, const char *name, int64_t deadline_ns, int sock, const struct name_record *record,
		      struct name_answer *answer, int fds[2], unsigned int *nfds)
{
	struct name_request req = { .magic = NAME_MAGIC, .op = NAME_ATTACH, .wait = deadline_ns != 0 };
	ssize_t n;
	int ret = share_send(sock, &req, sizeof(req), NULL, 0);

	if (!ret)
		ret = name_await(ctx, record, sock, deadline_ns ? deadline_ns : pinion_deadline_in(NAME_SILENT_NS));
	else
		ret = fail(EPIPE, "the holder of '%s', process %d, died", name, record->pid);
	if (ret)
		return ret;
	n = share_recv(sock, answer, sizeof(*answer), fds, 2, nfds);
	if (n == -EMFILE)
		return fail(EMFILE, "'%s' comes in descriptors, and this process may have no more (ulimit -n)", name);
	if (n == 0 || n == -ECONNRESET)
		return fail(EPIPE, "the holder of '%s', process %d, died before the data was whole", name, record->pid);
	if (n < 0)
		return fail_errno(-n, "the answer of the holder of '%s'", name);
	answer->sentence[sizeof(answer->sentence) - 1] = 0;
	if (n == sizeof(*answer) && answer->magic == NAME_MAGIC && answer->err < 0 && !*nfds)
		return fail(-answer->err, "%s", answer->sentence);
	if (n == sizeof(*answer) && answer->magic == NAME_MAGIC && !answer->err && *nfds)
		return 0;
	share_close(fds, *nfds);
	return fail(EPROTO, "the holder of '%s' gave an answer of %zd bytes with %u descriptors that is none", name, n, *nfds);
}

int name_attach(struct pinion_context *ctx, const char *name, int64_t deadline_ns, struct name_answer *answer, int fds[2],
		unsigned int *nfds, int *sock)
{
	struct name_record record;
	int ret = name_check(name);

	if (!ret)
		ret = name_connect(ctx, name, &record, sock);
	if (ret)
		return ret;
	ret = ask_for_it(ctx, name, deadline_ns, *sock, &record, answer, fds, nfds);
	if (ret)
		close(*sock);
	return ret;
}

/* ---- show, list, remove -------------------------------------------------------------------------------------------- */

/* Sends a request and receives the answer, with a bound on how long the holder may take. */
static ssize_t ask(struct pinion_context *ctx, const char *name, enum name_op op, int64_t deadline_ns, void *answer, size_t room,
		   int *kept_sock)
{
	struct name_request req = { .magic = NAME_MAGIC, .op = op };
	struct name_record record;
	unsigned int nfds;
	ssize_t n;
	int sock, ret = name_check(name);

	if (!ret)
		ret = name_connect(ctx, name, &record, &sock);
	if (ret)
		return ret;
	ret = share_send(sock, &req, sizeof(req), NULL, 0);
	if (!ret)
		ret = name_await(ctx, &record, sock, deadline_ns);
	n = ret ? ret : share_recv(sock, answer, room, NULL, 0, &nfds);
	if (n == 0 || n == -EPIPE || n == -ECONNRESET)
		n = no_such(ctx, name);
	if (kept_sock && n > 0)
		*kept_sock = sock;
	else
		close(sock);
	return n;
}

static int bad_answer(const char *name, ssize_t n)
{
	return fail(EPROTO, "the holder of '%s' gave an answer of %zd bytes that is none", name, n);
}

/* Strings and counts of a peer are cut to what they must be. */
static int check_show(const char *name, struct name_show *show, ssize_t n)
{
	struct pinion_name_info *info = &show->info;

	if (n < (ssize_t)sizeof(*show) || show->magic != NAME_MAGIC || show->rows > NAME_USERS || show->rows > show->count ||
	    n != (ssize_t)(sizeof(*show) + show->rows * sizeof(show->user[0])))
		return bad_answer(name, n);
	info->name[sizeof(info->name) - 1] = info->path[sizeof(info->path) - 1] = info->state[sizeof(info->state) - 1] = 0;
	info->hold[sizeof(info->hold) - 1] = info->hold_why[sizeof(info->hold_why) - 1] = info->format[sizeof(info->format) - 1] = 0;
	for (uint32_t i = 0; i < show->rows; i++)
		show->user[i].comm[sizeof(show->user[i].comm) - 1] = 0;
	return 0;
}

/* A holder that is stopped still holds its name. */
static void describe_silent(struct pinion_context *ctx, const char *name, struct pinion_name_info *info)
{
	struct name_record record = { 0 };

	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s", name);
	snprintf(info->state, sizeof(info->state), "not answering");
	if (read_record(ctx, name, &record))
		info->pid = record.pid;
}

static int show_until(struct pinion_context *ctx, const char *name, int64_t deadline_ns, struct pinion_name_info *info,
		      struct pinion_name_user *rows, size_t cap, size_t *n)
{
	size_t room = sizeof(struct name_show) + NAME_USERS * sizeof(struct pinion_name_user);
	struct name_show *show;
	ssize_t got;
	int ret = context_check(ctx);

	if (ret)
		return ret;
	show = calloc(1, room);
	if (!show)
		return fail(ENOMEM, "no memory for an answer");
	got = ask(ctx, name, NAME_SHOW, deadline_ns, show, room, NULL);
	if (got == -ETIMEDOUT)
		describe_silent(ctx, name, &show->info);
	else
		ret = got < 0 ? (int)got : check_show(name, show, got);
	if (!ret)
		ret = opts_out(info, &show->info, sizeof(show->info), "pinion_name_info");
	if (!ret && n)
		*n = show->count;
	if (!ret && rows)
		memcpy(rows, show->user, (cap < show->rows ? cap : show->rows) * sizeof(*rows));
	free(show);
	return ret;
}

PINION_API int pinion_name_show(struct pinion_context *ctx, const char *name, struct pinion_name_info *info,
				struct pinion_name_user *rows, size_t cap, size_t *n)
{
	return show_until(ctx, name, pinion_deadline_in(NAME_SILENT_NS), info, rows, cap, n);
}

/* The name that @file is the record of; false when it is none. */
static bool name_of(const char *file, char name[PINION_NAME_MAX + 1])
{
	size_t len = strlen(file);

	if (len <= 5 || len - 5 > PINION_NAME_MAX || strcmp(file + len - 5, ".name"))
		return false;
	memcpy(name, file, len - 5);
	name[len - 5] = 0;
	return name_check(name) == 0;
}

static int by_text(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

PINION_API int pinion_name_list(struct pinion_context *ctx, int (*fn)(void *arg, const struct pinion_name_info *info), void *arg)
{
	/* One for all: of many that are stopped only the first is waited for so long. */
	int64_t deadline_ns = pinion_deadline_in(NAME_SILENT_NS);
	struct dirent **entry;
	int n, ret = context_check(ctx);

	if (ret)
		return ret;
	n = scandirat(ctx->dir.fd, ".", &entry, NULL, by_text);
	if (n < 0)
		return fail_errno(errno, "listing %s", ctx->dir.path);
	for (int i = 0; i < n; i++) {
		struct pinion_name_info info = { .size = sizeof(info) };
		char name[PINION_NAME_MAX + 1];

		if (!ret && name_of(entry[i]->d_name, name)) {
			ret = show_until(ctx, name, deadline_ns, &info, NULL, 0, NULL);
			/* Gone meanwhile, or dead and removed now. */
			ret = ret == -ENOENT ? 0 : ret ? ret : fn(arg, &info);
		}
		free(entry[i]);
	}
	free(entry);
	return ret;
}

PINION_API int pinion_name_remove(struct pinion_context *ctx, const char *name)
{
	struct name_answer answer;
	struct pollfd gone;
	ssize_t n;
	int sock, ret = context_check(ctx);

	if (ret)
		return ret;
	n = ask(ctx, name, NAME_REMOVE, pinion_deadline_in(NAME_SILENT_NS), &answer, sizeof(answer), &sock);
	if (n < 0)
		return n;
	if (n != sizeof(answer) || answer.magic != NAME_MAGIC) {
		close(sock);
		return bad_answer(name, n);
	}
	answer.sentence[sizeof(answer.sentence) - 1] = 0;
	if (answer.err) {
		close(sock);
		return fail(-answer.err, "%s", answer.sentence);
	}
	/* The name is free now; the holder's end of the connection closes when it lets go of the memory. */
	gone = (struct pollfd){ .fd = sock, .events = POLLIN };
	poll(&gone, 1, NAME_SILENT_NS / 1000000);
	close(sock);
	return 0;
}
