/* SPDX-License-Identifier: MIT */
/* holder: serves a buffer under a name from a thread of its own, from before it is filled until it is told to go. */
#include "holder.h"

#include "../advice.h"

#include "../deadline.h"
#include "buffer.h"
#include "name.h"
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ATTACHED_MAX 4096 /* processes that are served, or wait to be */
#define ASKING_MAX   64	  /* connections beside those, of who asks about the name or removes it */

/* One client. The thread's own, no lock. */
struct connection {
	int fd;
	bool waits;    /* asked to attach before it was loaded */
	bool attached;
	bool locked;   /* says that it locked its mapping */
	int32_t pid;
	uint32_t uid;
	int64_t since_ns;
	char comm[16];
};

struct pinion_holder {
	struct pinion_context *ctx;
	struct name_record record;
	char name[PINION_NAME_MAX + 1];
	int listen_fd;
	int wake_fd; /* published or to stop */
	bool asked;  /* pinion_holder_stop() was called; atomic, because a signal handler sets it */
	pthread_t thread;
	int64_t since_ns;
	struct connection *conn; /* the thread's own */
	uint32_t conns;

	pthread_mutex_t lock; /* what follows */
	pthread_cond_t removed_cond;
	struct pinion_name_info info;
	struct name_answer ready; /* what attachers are told */
	int fds[2];		  /* buffer and index; -1: none */
	bool published;
	bool stays; /* what is served outlives the name */
	bool removed;
	bool stop;
};

/* ---- connections --------------------------------------------------------------------------------------------------- */

static void read_comm(int32_t pid, char comm[16])
{
	char path[64];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, comm, 15);
		close(fd);
	}
	comm[n > 0 ? n : 0] = 0;
	comm[strcspn(comm, "\n")] = 0;
}

static void drop(struct pinion_holder *h, uint32_t i)
{
	close(h->conn[i].fd);
	h->conn[i] = h->conn[--h->conns];
}

/* Takes one client in, if it is of this user (or root). */
static void take(struct pinion_holder *h)
{
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);
	struct connection *conn;
	int fd = accept4(h->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		/* Out of descriptors, say: without a pause the thread would spin on the same client. */
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			usleep(10000);
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || (cred.uid != geteuid() && cred.uid != 0) ||
	    h->conns == ATTACHED_MAX + ASKING_MAX)
		goto refuse;
	conn = realloc(h->conn, (h->conns + 1) * sizeof(*conn));
	if (!conn)
		goto refuse;
	h->conn = conn;
	conn = &h->conn[h->conns++];
	memset(conn, 0, sizeof(*conn));
	conn->fd = fd;
	conn->pid = cred.pid;
	conn->uid = cred.uid;
	return;
refuse:
	close(fd);
}

/* ---- answers ------------------------------------------------------------------------------------------------------- */

static int answer_error(struct connection *conn, int err, const char *sentence)
{
	struct name_answer answer = { .magic = NAME_MAGIC, .err = -err };

	snprintf(answer.sentence, sizeof(answer.sentence), "%s", sentence);
	return share_send(conn->fd, &answer, sizeof(answer), NULL, 0);
}

/* Under lock, published. */
static int answer_attached(struct pinion_holder *h, struct connection *conn)
{
	int ret = share_send(conn->fd, &h->ready, sizeof(h->ready), h->fds, h->fds[1] < 0 ? 1 : 2);

	if (ret)
		return ret;
	conn->waits = false;
	conn->attached = true;
	conn->since_ns = deadline_now();
	read_comm(conn->pid, conn->comm);
	return 0;
}

static bool is_full(const struct pinion_holder *h)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < h->conns; i++)
		n += h->conn[i].attached || h->conn[i].waits;
	return n >= ATTACHED_MAX;
}

static int attach(struct pinion_holder *h, struct connection *conn, bool wait)
{
	char sentence[SENTENCE_MAX];
	int ret = 0;

	pthread_mutex_lock(&h->lock);
	if (is_full(h)) {
		fail(EAGAIN, "'%s' serves %d processes, as many as a holder does; ask again when one of them has gone", h->name,
		     ATTACHED_MAX);
		sentence_get(sentence);
		ret = answer_error(conn, EAGAIN, sentence);
	} else if (h->published) {
		ret = answer_attached(h, conn);
	} else if (wait) {
		conn->waits = true;
	} else {
		fail_advise(EBUSY, PINION_ADVICE_NAME_LOADING, NULL,
			    "'%s' is still being loaded by process %d, %llu of %llu bytes", h->name, h->record.pid,
			    (unsigned long long)h->info.done, (unsigned long long)h->info.total);
		sentence_get(sentence);
		ret = answer_error(conn, EBUSY, sentence);
	}
	pthread_mutex_unlock(&h->lock);
	return ret;
}

static uint32_t count_attached(const struct pinion_holder *h, uint32_t *locked)
{
	uint32_t n = 0;

	*locked = 0;
	for (uint32_t i = 0; i < h->conns; i++) {
		n += h->conn[i].attached;
		*locked += h->conn[i].attached && h->conn[i].locked;
	}
	return n;
}

static uint32_t list_attached(const struct pinion_holder *h, struct pinion_name_user *row)
{
	int64_t now = deadline_now();
	uint32_t n = 0;

	for (uint32_t i = 0; i < h->conns && n < NAME_USERS; i++) {
		const struct connection *conn = &h->conn[i];

		if (!conn->attached)
			continue;
		row[n] = (struct pinion_name_user){ .pid = conn->pid, .uid = conn->uid, .locked = conn->locked,
						    .since_ns = now - conn->since_ns };
		memcpy(row[n++].comm, conn->comm, sizeof(conn->comm));
	}
	return n;
}

static int show(struct pinion_holder *h, struct connection *conn)
{
	struct name_show *answer = calloc(1, sizeof(*answer) + NAME_USERS * sizeof(answer->user[0]));
	int ret;

	if (!answer)
		return -ENOMEM;
	answer->magic = NAME_MAGIC;
	answer->rows = list_attached(h, answer->user);
	pthread_mutex_lock(&h->lock);
	h->info.attached = answer->count = count_attached(h, &h->info.locked);
	h->info.age_ns = deadline_now() - h->since_ns;
	answer->info = h->info;
	pthread_mutex_unlock(&h->lock);
	ret = share_send(conn->fd, answer, sizeof(*answer) + answer->rows * sizeof(answer->user[0]), NULL, 0);
	free(answer);
	return ret;
}

/* Under lock. */
static void end_wait(struct pinion_holder *h)
{
	h->removed = true;
	pthread_cond_broadcast(&h->removed_cond);
}

/* "pid 12 (worker), pid 13 (worker)", cut when there are many. */
static void name_attached(const struct pinion_holder *h, char *out, size_t room)
{
	size_t at = 0;

	for (uint32_t i = 0; i < h->conns && at < room - 48; i++)
		if (h->conn[i].attached)
			at += snprintf(out + at, room - at, "%spid %d (%s)", at ? ", " : "", h->conn[i].pid, h->conn[i].comm);
}

static int remove_name(struct pinion_holder *h, struct connection *conn)
{
	char sentence[SENTENCE_MAX], who[SENTENCE_MAX - 128] = "";
	uint32_t locked, n = count_attached(h, &locked);
	bool stays;

	if (n) {
		name_attached(h, who, sizeof(who));
		fail_advise(EBUSY, PINION_ADVICE_NAME_USED, h->name, "'%s' is attached by %u: %s", h->name, n, who);
		sentence_get(sentence);
		return answer_error(conn, EBUSY, sentence);
	}
	/* Free before the answer, so that the one who asked can take it at once. */
	n = -name_release(h->ctx, h->name, &h->record);
	if (n) {
		sentence_get(sentence);
		return answer_error(conn, n, sentence);
	}
	answer_error(conn, 0, "");
	pthread_mutex_lock(&h->lock);
	end_wait(h);
	stays = h->stays;
	pthread_mutex_unlock(&h->lock);
	/* Whoever asked waits for the memory to go, which the end of the connection says. */
	return stays ? -ECANCELED : 0;
}

/* Who gave up waiting for the answer was told that nothing came of it. */
static bool has_gone(const struct connection *conn)
{
	struct pollfd p = { .fd = conn->fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0;
}

/* What a client says; an error ends the connection. */
static int hear(struct pinion_holder *h, struct connection *conn)
{
	struct name_request req;
	unsigned int nfds;
	ssize_t n = share_recv(conn->fd, &req, sizeof(req), NULL, 0, &nfds);

	if (n == -EAGAIN)
		return 0;
	if (n != sizeof(req) || req.magic != NAME_MAGIC)
		return -EPROTO;
	switch (req.op) {
	case NAME_ATTACH:
		return conn->attached || conn->waits ? -EPROTO : attach(h, conn, req.wait);
	case NAME_SHOW:
		return show(h, conn);
	case NAME_REMOVE:
		return has_gone(conn) ? -EPIPE : remove_name(h, conn);
	case NAME_LOCKED:
		conn->locked = conn->attached;
		return 0;
	default:
		return -EPROTO;
	}
}

/* ---- the thread ---------------------------------------------------------------------------------------------------- */

/* Woken by publish or stop. */
static bool look_around(struct pinion_holder *h)
{
	uint64_t count;
	bool stop;

	while (read(h->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	pthread_mutex_lock(&h->lock);
	stop = h->stop;
	if (__atomic_load_n(&h->asked, __ATOMIC_ACQUIRE))
		end_wait(h);
	for (uint32_t i = h->conns; i-- && h->published;)
		if (h->conn[i].waits && answer_attached(h, &h->conn[i]))
			drop(h, i);
	pthread_mutex_unlock(&h->lock);
	return !stop;
}

/* One round: waits, then serves whoever spoke. False when it is to stop; -1 on no memory is waited out. */
static bool serve_once(struct pinion_holder *h)
{
	uint32_t n = h->conns;
	struct pollfd *p = calloc(n + 2, sizeof(*p));
	bool go_on = true;

	if (!p) {
		usleep(10000);
		return true;
	}
	p[0] = (struct pollfd){ .fd = h->wake_fd, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = h->listen_fd, .events = POLLIN };
	for (uint32_t i = 0; i < n; i++)
		p[i + 2] = (struct pollfd){ .fd = h->conn[i].fd, .events = POLLIN };
	if (poll(p, n + 2, -1) > 0) {
		/* From the end, because dropping moves the last one into the gap. */
		for (uint32_t i = n; i--;)
			if (p[i + 2].revents && hear(h, &h->conn[i]))
				drop(h, i);
		if (p[1].revents)
			take(h);
		if (p[0].revents)
			go_on = look_around(h);
	}
	free(p);
	return go_on;
}

static void *serve(void *holder)
{
	struct pinion_holder *h = holder;

	prctl(PR_SET_NAME, "pinion-holder");
	while (serve_once(h))
		;
	for (uint32_t i = 0; i < h->conns; i++) {
		if (h->conn[i].waits)
			answer_error(&h->conn[i], EPIPE, "the load was given up before the data was whole");
		close(h->conn[i].fd);
	}
	free(h->conn);
	return NULL;
}

static void wake(struct pinion_holder *h)
{
	uint64_t one = 1;

	while (write(h->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* ---- open, publish, free ------------------------------------------------------------------------------------------- */

static int start_thread(struct pinion_holder *h)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&h->thread, NULL, serve, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err ? fail_thread(err, "starting a holder's thread") : 0;
}

static void init_holder(struct pinion_holder *h, struct pinion_context *ctx, const char *name, const char *path)
{
	static uint32_t serial;
	pthread_condattr_t attr;
	size_t len = path ? strlen(path) : 0, room = sizeof(h->info.path) - 1;

	h->ctx = ctx;
	h->fds[0] = h->fds[1] = -1;
	h->since_ns = deadline_now();
	h->record = (struct name_record){ .magic = NAME_MAGIC, .slot = ctx->counts->slot,
					  .generation = ctx->counts->slot_generation, .pid = getpid(),
					  .serial = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED) };
	snprintf(h->name, sizeof(h->name), "%s", name);
	h->info.size = sizeof(h->info);
	h->info.pid = h->record.pid;
	snprintf(h->info.name, sizeof(h->info.name), "%s", name);
	snprintf(h->info.path, sizeof(h->info.path), "%s", path ? path + (len > room ? len - room : 0) : "");
	snprintf(h->info.state, sizeof(h->info.state), "loading");
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->removed_cond, &attr);
	pthread_condattr_destroy(&attr);
}

PINION_API int pinion_holder_open(struct pinion_context *ctx, const char *name, const char *path, struct pinion_holder **out)
{
	struct pinion_holder *h;
	int ret = context_check(ctx);

	if (!ret)
		ret = name_check(name);
	if (ret)
		return ret;
	h = calloc(1, sizeof(*h));
	if (!h)
		return fail(ENOMEM, "no memory for a holder");
	init_holder(h, ctx, name, path);
	h->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (h->wake_fd < 0) {
		ret = fail_errno(errno, "making an eventfd");
		goto err_free;
	}
	ret = name_take(ctx, name, &h->record, &h->listen_fd);
	if (ret)
		goto err_wake;
	ret = start_thread(h);
	if (ret)
		goto err_name;
	*out = h;
	return 0;

err_name:
	/* Closed first: to give a name back takes two descriptors for a moment, and this process may have no other. */
	close(h->listen_fd);
	close(h->wake_fd);
	name_release(ctx, name, &h->record);
	goto err_free;
err_wake:
	close(h->wake_fd);
err_free:
	pthread_cond_destroy(&h->removed_cond);
	pthread_mutex_destroy(&h->lock);
	free(h);
	return ret;
}

PINION_API void pinion_holder_progress(struct pinion_holder *h, uint64_t done, uint64_t total)
{
	pthread_mutex_lock(&h->lock);
	h->info.done = done;
	h->info.total = total;
	pthread_mutex_unlock(&h->lock);
}

int holder_check(struct pinion_holder *h)
{
	int ret = context_check(h->ctx);

	if (!ret && h->published)
		ret = fail(EINVAL, "'%s' is published already", h->name);
	return ret;
}

/* Under lock. */
static void describe_ready(struct pinion_holder *h, const struct holder_offer *offer, const struct pinion_buffer_info *buf)
{
	struct pinion_name_info *info = &h->info;

	snprintf(info->state, sizeof(info->state), "ready");
	snprintf(info->hold, sizeof(info->hold), "%s", buffer_hold_name(buf->hold));
	snprintf(info->hold_why, sizeof(info->hold_why), "%s", buf->hold_why);
	snprintf(info->format, sizeof(info->format), "%s", offer->format);
	info->bytes = buf->bytes;
	info->huge_bytes = buf->huge_bytes;
	info->page_size = buf->page_size;
	info->tensors = offer->tensors;
	info->done = info->total = offer->tensor_bytes;
	h->ready = (struct name_answer){ .magic = NAME_MAGIC, .bytes = buf->bytes, .index_bytes = offer->index_bytes,
					 .page_size = buf->page_size, .hold = buf->hold };
	h->published = true;
}

int holder_publish(struct pinion_holder *h, const struct holder_offer *offer)
{
	struct pinion_buffer_info buf = { .size = sizeof(buf) };
	int fd, ret = pinion_buffer_info(offer->buf, &buf);

	if (ret)
		return ret;
	fd = pinion_buffer_export(offer->buf);
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&h->lock);
	h->fds[0] = fd;
	h->fds[1] = offer->index_fd;
	h->stays = offer->stays;
	describe_ready(h, offer, &buf);
	pthread_mutex_unlock(&h->lock);
	wake(h);
	return 0;
}

PINION_API int pinion_holder_wait(struct pinion_holder *h, int64_t deadline_ns)
{
	struct timespec ts = deadline_timespec(deadline_ns);
	int err = 0, ret = context_check(h->ctx);

	if (ret)
		return ret;
	pthread_mutex_lock(&h->lock);
	while (!h->removed && err != ETIMEDOUT)
		err = deadline_ns == PINION_FOREVER ? pthread_cond_wait(&h->removed_cond, &h->lock) :
						      pthread_cond_timedwait(&h->removed_cond, &h->lock, &ts);
	ret = h->removed ? 0 : fail(ETIMEDOUT, "nobody removed '%s'", h->name);
	pthread_mutex_unlock(&h->lock);
	return ret;
}

PINION_API void pinion_holder_stop(struct pinion_holder *h)
{
	__atomic_store_n(&h->asked, true, __ATOMIC_RELEASE);
	wake(h);
}

PINION_API void pinion_holder_free(struct pinion_holder *h)
{
	bool released;

	if (!h)
		return;
	if (!process_is_maker(&h->ctx->mark)) {
		/* A child: the name and the thread are its parent's. */
		close(h->listen_fd);
		close(h->wake_fd);
		free(h);
		return;
	}
	/* Free before those who wait hear of it. */
	released = !name_release(h->ctx, h->name, &h->record);
	pthread_mutex_lock(&h->lock);
	h->stop = true;
	pthread_mutex_unlock(&h->lock);
	wake(h);
	pthread_join(h->thread, NULL);
	close(h->listen_fd);
	close(h->wake_fd);
	for (unsigned int i = 0; i < 2; i++)
		if (h->fds[i] >= 0)
			close(h->fds[i]);
	/* For want of descriptors: now there are some. */
	if (!released)
		name_release(h->ctx, h->name, &h->record);
	pthread_cond_destroy(&h->removed_cond);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
