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
/* The largest error number that a system call has. */
#define ERRNO_MAX 4095

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

/* 0; -ENOENT there is none, or what has its name is none; what keeps this process from looking, with a sentence. */
static int read_record(struct pinion_context *ctx, const char *name, struct name_record *record)
{
	char file[FILE_MAX];
	ssize_t n = -1;
	int fd, err;

	file_name(file, name, ".name");
	fd = openat(ctx->dir.fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		n = read(fd, record, sizeof(*record));
	err = errno;
	if (fd >= 0)
		close(fd);
	if (n < 0 && (err == EMFILE || err == ENFILE || err == ENOMEM || err == EIO))
		return fail_errno(err, "reading who holds '%s' in %s", name, ctx->dir.path);
	return n == sizeof(*record) && record->magic == NAME_MAGIC ? 0 : -ENOENT;
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

static const char *const suffix[] = { ".name", ".sock", ".new" };

void name_remove_files(struct pinion_context *ctx, const char *name)
{
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
	int lock, ret;

	if (rundir_lock(&ctx->dir, &lock))
		return;
	ret = read_record(ctx, name, &record);
	if (ret == -ENOENT || (!ret && !record_alive(ctx, &record)))
		name_remove_files(ctx, name);
	rundir_unlock(lock);
}

int name_state(struct pinion_context *ctx, const char *name, enum name_state *state, int32_t *pid)
{
	struct name_record record;
	int ret = read_record(ctx, name, &record);

	*state = NAME_STATE_NONE;
	if (ret)
		return ret == -ENOENT ? 0 : ret;
	*pid = record.pid;
	*state = record_alive(ctx, &record) ? NAME_STATE_HELD : NAME_STATE_DEAD;
	return 0;
}

/* The name that @file of the runtime directory belongs to, and whether it is its record; false: it is no file of a name. */
static bool name_of_file(const char *file, char name[PINION_NAME_MAX + 1], bool *is_record)
{
	const char *dot = strrchr(file, '.');
	size_t len = dot ? dot - file : 0;

	if (!len || len > PINION_NAME_MAX)
		return false;
	memcpy(name, file, len);
	name[len] = 0;
	for (unsigned int i = 0; i < 3; i++)
		if (!strcmp(dot, suffix[i])) {
			*is_record = i == 0;
			return name_check(name) == 0;
		}
	return false;
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

/* Nothing on it waits longer than LOOK_MS in one call. */
static int open_socket(int *sock)
{
	const struct timeval look = { .tv_usec = LOOK_MS * 1000 };

	*sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (*sock < 0)
		return fail_errno(errno, "making a socket");
	setsockopt(*sock, SOL_SOCKET, SO_SNDTIMEO, &look, sizeof(look));
	return 0;
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
	ret = read_record(ctx, name, &old);
	if (ret && ret != -ENOENT)
		goto out;
	if (!ret && record_alive(ctx, &old)) {
		ret = fail_advise(EEXIST, PINION_ADVICE_NAME_HELD, name, "'%s' is held by process %d", name, old.pid);
		goto out;
	}
	name_remove_files(ctx, name);
	ret = listen_at(ctx, name, sock);
	if (!ret) {
		ret = write_record(ctx, name, record);
		if (ret)
			close(*sock);
	}
	if (ret)
		name_remove_files(ctx, name);
out:
	rundir_unlock(lock);
	return ret;
}

int name_release(struct pinion_context *ctx, const char *name, const struct name_record *record)
{
	struct name_record now;
	int lock, ret = rundir_lock(&ctx->dir, &lock);

	if (ret)
		return ret;
	ret = read_record(ctx, name, &now);
	if (!ret && same_record(&now, record))
		name_remove_files(ctx, name);
	rundir_unlock(lock);
	return ret == -ENOENT ? 0 : ret;
}

static int no_such(struct pinion_context *ctx, const char *name)
{
	return fail_advise(ENOENT, PINION_ADVICE_NAME_UNKNOWN, name, "nobody holds '%s' in %s", name, ctx->dir.path);
}

static int fail_silent(const struct name_record *record)
{
	char who[16];

	snprintf(who, sizeof(who), "%d", record->pid);
	return fail_advise(ETIMEDOUT, PINION_ADVICE_NAME_SILENT, who, "the holder, process %d, did not answer in time",
			   record->pid);
}

/*
 * 0 or -errno of connect(); -ETIMEDOUT, with a sentence. Who is stopped takes nobody in, and those who gave up stay in the queue
 * before its socket: once that is full connect() waits.
 */
static int connect_until(struct pinion_context *ctx, const char *name, const struct name_record *record, int sock,
			 int64_t deadline_ns)
{
	struct sockaddr_un addr;
	socklen_t len = address(ctx, name, &addr);

	while (connect(sock, (struct sockaddr *)&addr, len)) {
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (!record_alive(ctx, record))
			return -ECONNREFUSED;
		if (pinion_deadline_in(0) >= deadline_ns)
			return fail_silent(record);
	}
	return 0;
}

int name_connect(struct pinion_context *ctx, const char *name, int64_t deadline_ns, struct name_record *record, int *sock)
{
	int ret = read_record(ctx, name, record);

	if (ret)
		return ret == -ENOENT ? no_such(ctx, name) : ret;
	if (!record_alive(ctx, record)) {
		remove_dead(ctx, name);
		return no_such(ctx, name);
	}
	ret = open_socket(sock);
	if (ret)
		return ret;
	ret = connect_until(ctx, name, record, *sock, deadline_ns);
	/* The holder went between the record and here. */
	if (ret == -ENOENT || ret == -ECONNREFUSED)
		ret = no_such(ctx, name);
	else if (ret && ret != -ETIMEDOUT)
		ret = fail_errno(-ret, "connecting to '%s'", name);
	if (ret)
		close(*sock);
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
			return fail_silent(record);
	}
}

/*
 * Who ended a connection without an answer may have died, which can show a moment after the end of its files, or have given
 * the name back. One that does neither lacks what it takes to answer.
 */
static bool still_holds(struct pinion_context *ctx, const char *name, const struct name_record *record)
{
	struct name_record now;

	for (int i = 0; i < 10; i++) {
		int ret = read_record(ctx, name, &now);

		if (ret == -ENOENT || (!ret && !same_record(&now, record)) || !record_alive(ctx, record))
			return false;
		usleep(10000);
	}
	return true;
}

static int no_answer(const char *name, const struct name_record *record)
{
	return fail(EAGAIN, "the holder of '%s', process %d, gave no answer: it serves as many processes as it can, or is short of memory; ask again",
		    name, record->pid);
}

/* Whether the answer is an error number with its sentence. Anyone may have written it. */
static bool is_refusal(struct name_answer *answer)
{
	answer->sentence[sizeof(answer->sentence) - 1] = 0;
	return answer->err < 0 && answer->err >= -ERRNO_MAX && *answer->sentence;
}

/* Sends the request and waits for the answer, which has at least one descriptor; @wait: until there is something to give. */
static int ask_for_it(struct pinion_context *ctx, const char *name, bool wait, int64_t deadline_ns, int sock,
		      const struct name_record *record, struct name_answer *answer, int fds[2], unsigned int *nfds)
{
	struct name_request req = { .magic = NAME_MAGIC, .op = NAME_ATTACH, .wait = wait };
	ssize_t n;
	int ret = share_send(sock, &req, sizeof(req), NULL, 0);

	if (!ret)
		ret = name_await(ctx, record, sock, deadline_ns);
	else
		ret = still_holds(ctx, name, record) ? no_answer(name, record) :
						       fail(EPIPE, "the holder of '%s', process %d, died", name, record->pid);
	if (ret)
		return ret;
	n = share_recv(sock, answer, sizeof(*answer), fds, 2, nfds);
	if (n == -EMFILE)
		return fail_advise(EMFILE, PINION_ADVICE_OPEN_FILES, NULL,
				   "'%s' comes in descriptors, and this process may have no more", name);
	if ((n == 0 || n == -ECONNRESET) && still_holds(ctx, name, record))
		return no_answer(name, record);
	if (n == 0 || n == -ECONNRESET)
		return fail(EPIPE, "the holder of '%s', process %d, died before the data was whole", name, record->pid);
	if (n < 0)
		return fail_errno(-n, "the answer of the holder of '%s'", name);
	if (n == sizeof(*answer) && answer->magic == NAME_MAGIC && !*nfds && is_refusal(answer))
		return fail(-answer->err, "%s", answer->sentence);
	if (n == sizeof(*answer) && answer->magic == NAME_MAGIC && !answer->err && *nfds)
		return 0;
	share_close(fds, *nfds);
	return fail(EPROTO, "the holder of '%s' gave an answer of %zd bytes with %u descriptors that is none", name, n, *nfds);
}

int name_attach(struct pinion_context *ctx, const char *name, int64_t deadline_ns, struct name_answer *answer, int fds[2],
		unsigned int *nfds, int *sock)
{
	int64_t until = deadline_ns ? deadline_ns : pinion_deadline_in(NAME_SILENT_NS);
	struct name_record record;
	int ret = name_check(name);

	if (!ret)
		ret = name_connect(ctx, name, until, &record, sock);
	if (ret)
		return ret;
	ret = ask_for_it(ctx, name, deadline_ns != 0, until, *sock, &record, answer, fds, nfds);
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
	bool said = false;
	ssize_t n;
	int sock, ret = name_check(name);

	if (!ret)
		ret = name_connect(ctx, name, deadline_ns, &record, &sock);
	if (ret)
		return ret;
	n = share_send(sock, &req, sizeof(req), NULL, 0);
	if (!n) {
		n = name_await(ctx, &record, sock, deadline_ns);
		said = n < 0;
	}
	if (!n)
		n = share_recv(sock, answer, room, NULL, 0, &nfds);
	if (n == 0 || n == -EPIPE || n == -ECONNRESET)
		n = still_holds(ctx, name, &record) ? no_answer(name, &record) : no_such(ctx, name);
	else if (n < 0 && !said)
		n = fail_errno(-n, "asking the holder of '%s'", name);
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

/* A holder that is stopped, or too short of memory to answer, still holds its name. */
static void describe_silent(struct pinion_context *ctx, const char *name, struct pinion_name_info *info)
{
	struct name_record record = { 0 };

	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s", name);
	snprintf(info->state, sizeof(info->state), "not answering");
	if (!read_record(ctx, name, &record))
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
	if (got == -ETIMEDOUT || got == -EAGAIN)
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

static int by_text(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

int name_each_file(struct pinion_context *ctx, name_file_fn fn, void *arg)
{
	char name[PINION_NAME_MAX + 1];
	struct dirent **entry;
	bool is_record;
	int n, ret = 0;

	n = scandirat(ctx->dir.fd, ".", &entry, NULL, by_text);
	if (n < 0)
		return fail_errno(errno, "listing %s", ctx->dir.path);
	for (int i = 0; i < n; i++) {
		if (!ret && name_of_file(entry[i]->d_name, name, &is_record))
			ret = fn(arg, entry[i]->d_name, name, is_record);
		free(entry[i]);
	}
	free(entry);
	return ret;
}

struct listing {
	struct pinion_context *ctx;
	bool remove;
	int64_t deadline_ns;
	int (*fn)(void *arg, const struct pinion_name_info *info);
	void *arg;
};

static int list_file(void *arg, const char *file, const char *name, bool is_record)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	enum name_state state = NAME_STATE_HELD;
	const struct listing *l = arg;
	int32_t pid;
	int ret = 0;

	(void)file;
	if (is_record && !l->remove)
		ret = name_state(l->ctx, name, &state, &pid);
	if (ret || !is_record || state != NAME_STATE_HELD)
		return ret;
	ret = show_until(l->ctx, name, l->deadline_ns, &info, NULL, 0, NULL);
	/* Gone meanwhile, or dead and removed now. */
	return ret == -ENOENT ? 0 : ret ? ret : l->fn(l->arg, &info);
}

int name_each(struct pinion_context *ctx, bool remove, int (*fn)(void *arg, const struct pinion_name_info *info), void *arg)
{
	/* One deadline for all: of many that are stopped only the first is waited for so long. */
	struct listing l = { ctx, remove, pinion_deadline_in(NAME_SILENT_NS), fn, arg };
	int ret = context_check(ctx);

	return ret ? ret : name_each_file(ctx, list_file, &l);
}

PINION_API int pinion_name_list(struct pinion_context *ctx, int (*fn)(void *arg, const struct pinion_name_info *info), void *arg)
{
	return name_each(ctx, true, fn, arg);
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
	if (n != sizeof(answer) || answer.magic != NAME_MAGIC || answer.err) {
		bool refused = n == sizeof(answer) && answer.magic == NAME_MAGIC && is_refusal(&answer);

		close(sock);
		return refused ? fail(-answer.err, "%s", answer.sentence) : bad_answer(name, n);
	}
	/* The name is free now; the holder's end of the connection closes when it lets go of the memory. */
	gone = (struct pollfd){ .fd = sock, .events = POLLIN };
	poll(&gone, 1, NAME_SILENT_NS / 1000000);
	close(sock);
	return 0;
}
