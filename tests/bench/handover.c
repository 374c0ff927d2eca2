/* SPDX-License-Identifier: MIT */
/* handover: memory that goes to another process, a buffer over a socket and a model by its name. */
#include "model_file.h"
#include "pages.h"
#include "peer.h"
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/holder.h>
#include <pinion/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BUFFER_BYTES (2u << 20)
#define TENSORS	     300
#define TENSOR_BYTES 16384
#define INDEX_BYTES  65536 /* about what the index of so many tensors takes */
#define NAME	     "bench-300"
#define TIMES	     9

/* ---- a buffer ------------------------------------------------------------------------------------------------ */

struct handing {
	struct pinion_buffer *buf;
	int fd; /* the same memory, for the raw calls */
	struct peer receiver, raw;
};

/* The first answer ends what is measured, the second says that everything is put away again. */
static void receive_buffers(int sock, void *arg)
{
	struct pinion_context *ctx;
	struct pinion_buffer *buf;
	void *addr;

	(void)arg;
	if (pinion_open(NULL, &ctx) || !peer_say(sock))
		return;
	while (!pinion_buffer_recv(ctx, sock, &buf)) {
		if (pinion_buffer_map(buf, PINION_READ, &addr))
			return;
		pages_touch(addr, BUFFER_BYTES);
		peer_say(sock);
		pinion_buffer_unmap(buf, PINION_READ);
		pinion_buffer_unref(buf);
		peer_say(sock);
	}
}

static void receive_raw(int sock, void *arg)
{
	void *addr;
	int fd;

	(void)arg;
	peer_say(sock);
	while (raw_recv(sock, &fd, 1)) {
		addr = mmap(NULL, BUFFER_BYTES, PROT_READ, MAP_SHARED, fd, 0);
		if (addr == MAP_FAILED)
			return;
		pages_touch(addr, BUFFER_BYTES);
		peer_say(sock);
		munmap(addr, BUFFER_BYTES);
		close(fd);
		peer_say(sock);
	}
}

static int way_hand(void *arg, struct sample *out)
{
	struct handing *h = arg;
	double start = now_ns();
	int ret = pinion_buffer_send(h->buf, h->receiver.sock, PINION_READ);

	if (ret)
		return broke_pinion(ret, "pinion_buffer_send");
	if (!peer_hear(h->receiver.sock))
		return broke(EPIPE, "the receiver of buffers is gone");
	out->of[TIME] = now_ns() - start;
	peer_hear(h->receiver.sock);
	return 0;
}

static int way_hand_raw(void *arg, struct sample *out)
{
	struct handing *h = arg;
	double start = now_ns();

	if (!raw_send(h->raw.sock, &h->fd, 1) || !peer_hear(h->raw.sock))
		return broke(EPIPE, "the receiver of descriptors is gone");
	out->of[TIME] = now_ns() - start;
	peer_hear(h->raw.sock);
	return 0;
}

static int handing_open(struct handing *h, struct pinion_context *ctx)
{
	void *addr;
	int ret = pinion_buffer_alloc(ctx, BUFFER_BYTES, NULL, &h->buf);

	if (!ret)
		ret = pinion_buffer_map(h->buf, PINION_READ, &addr);
	if (ret)
		return broke_pinion(ret, "a buffer");
	h->fd = pinion_buffer_export(h->buf);
	if (h->fd < 0)
		return broke_pinion(h->fd, "pinion_buffer_export");
	ret = peer_start(&h->receiver, receive_buffers, NULL);
	return ret ? ret : peer_start(&h->raw, receive_raw, NULL);
}

static void handing_close(struct handing *h)
{
	peer_stop(&h->receiver);
	peer_stop(&h->raw);
	pinion_buffer_unref(h->buf);
	if (h->fd >= 0)
		close(h->fd);
}

/* One way of doing it, which a round does some times over. */
struct times {
	way_fn once;
	void *arg;
};

static int way_times(void *arg, struct sample *out)
{
	const struct times *t = arg;

	return repeat(t->once, t->arg, TIMES, out);
}

/* The figure is of @run in microseconds, over @raw. A/A is of @run where the bar is on the figure, else of @raw. */
static int measure(struct row *row, way_fn run, way_fn raw, void *arg)
{
	struct times ours = { run, arg }, theirs = { raw, arg };
	unsigned int a, base, a_again, base_again;
	struct trial t;
	double ns;
	int ret;

	trial_start(&t, ROUNDS_SHORT);
	a = trial_add(&t, way_times, &ours);
	base = trial_add(&t, way_times, &theirs);
	a_again = trial_add(&t, way_times, &ours);
	base_again = trial_add(&t, way_times, &theirs);
	ret = trial_warm(&t, &ns);
	if (!ret)
		ret = trial_run(&t);
	if (ret)
		return ret;
	row->figure = trial_figure(&t, a, TIME).median / 1e3;
	row->unit = "us";
	row->ratio = trial_ratio(&t, a, base, TIME);
	if (row->bar == BAR_FIGURE_MAX)
		row->same = trial_ratio(&t, a_again, a, TIME);
	else
		row->same = trial_ratio(&t, base_again, base, TIME);
	return 0;
}

static void row_hand(struct rows *r, struct pinion_context *ctx)
{
	struct handing h = { .fd = -1 };
	char pages[PAGES_TEXT] = "";
	struct row row = {
		.name = "hand over a buffer",
		.against = "sendmsg recvmsg mmap touch",
		.bar = BAR_RATIO_MAX,
		.limit = 1.3,
		.pages = pages,
		.note = "2 MiB of which the other side reads a byte of each page, until its answer is here"
	};
	int ret = handing_open(&h, ctx);

	if (!ret)
		ret = measure(&row, way_hand, way_hand_raw, &h);
	if (ret) {
		table_broken(r->table, row.name);
	} else {
		pages_of_buffer(pages, h.buf);
		table_row(r->table, &row);
	}
	handing_close(&h);
}

/* ---- a model ------------------------------------------------------------------------------------------------- */

struct attaching {
	struct pinion_context *ctx;
	struct model_file file;
	struct sockaddr_un addr; /* of the raw holder */
	struct peer holder, raw;
};

static void hold_model(int sock, void *arg)
{
	const struct attaching *a = arg;
	struct pinion_context *ctx;
	struct pinion_holder *h;
	struct pinion_model *m;

	if (pinion_open(NULL, &ctx) || pinion_holder_open(ctx, NAME, a->file.path, &h) ||
	    pinion_model_load(ctx, a->file.path, NULL, &m) || pinion_holder_publish(h, m) || !peer_say(sock))
		return;
	pinion_holder_wait(h, PINION_FOREVER);
}

static int make_memfd(uint64_t bytes)
{
	int fd = memfd_create("bench", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, bytes) || fallocate(fd, 0, 0, bytes))
		return -1;
	return fd;
}

/* Answers each connection with two descriptors, of data and of an index. */
static void hold_raw(int sock, void *arg)
{
	const struct attaching *a = arg;
	int fds[2] = { make_memfd(a->file.bytes), make_memfd(INDEX_BYTES) };
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	if (listener < 0 || fds[0] < 0 || fds[1] < 0 ||
	    bind(listener, (const struct sockaddr *)&a->addr, sizeof(a->addr)) || listen(listener, 16) ||
	    !peer_say(sock))
		return;
	for (;;) {
		int conn = accept(listener, NULL, NULL);

		if (conn < 0 || !peer_hear(conn) || !raw_send(conn, fds, 2))
			return;
		close(conn);
	}
}

static int way_attach(void *arg, struct sample *out)
{
	struct attaching *a = arg;
	struct pinion_index_info info = { .size = sizeof(info) };
	double start = now_ns();
	struct pinion_model *m;
	int ret = pinion_model_attach(a->ctx, NAME, NULL, &m);

	if (ret)
		return broke_pinion(ret, "pinion_model_attach");
	out->of[TIME] = now_ns() - start;
	pinion_model_info(m, &info);
	pinion_model_free(m);
	if (info.tensors != TENSORS)
		return broke(EPROTO, "the model has %llu tensors", (unsigned long long)info.tensors);
	return 0;
}

static int way_attach_raw(void *arg, struct sample *out)
{
	struct attaching *a = arg;
	double start = now_ns();
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fds[2];
	void *data, *index;

	if (sock < 0 || connect(sock, (const struct sockaddr *)&a->addr, sizeof(a->addr)) || !peer_say(sock) ||
	    !raw_recv(sock, fds, 2)) {
		if (sock >= 0)
			close(sock);
		return broke(EPIPE, "the raw holder is gone");
	}
	data = mmap(NULL, a->file.bytes, PROT_READ, MAP_SHARED, fds[0], 0);
	index = mmap(NULL, INDEX_BYTES, PROT_READ, MAP_SHARED, fds[1], 0);
	if (index != MAP_FAILED)
		pages_touch(index, INDEX_BYTES);
	out->of[TIME] = now_ns() - start;
	if (data != MAP_FAILED)
		munmap(data, a->file.bytes);
	if (index != MAP_FAILED)
		munmap(index, INDEX_BYTES);
	close(fds[0]);
	close(fds[1]);
	close(sock);
	return data == MAP_FAILED || index == MAP_FAILED ? broke(ENOMEM, "mapping what the raw holder gave") : 0;
}

static int attaching_open(struct attaching *a, struct pinion_context *ctx)
{
	const char *dir = getenv("PINION_DIR");
	int ret = model_file_gguf(&a->file, dir, "tensors-300.gguf", TENSORS * TENSOR_BYTES, TENSORS);

	if (ret)
		return ret;
	a->ctx = ctx;
	a->addr.sun_family = AF_UNIX;
	if (snprintf(a->addr.sun_path, sizeof(a->addr.sun_path), "%s/raw", dir) >= (int)sizeof(a->addr.sun_path))
		return broke(ENAMETOOLONG, "%s is too long for a socket", dir);
	ret = peer_start(&a->holder, hold_model, a);
	return ret ? ret : peer_start(&a->raw, hold_raw, a);
}

static void row_attach(struct rows *r, struct pinion_context *ctx)
{
	struct attaching a = { .ctx = NULL };
	struct row row = { .name = "attach to a model of 300 tensors",
			   .against = "connect, 2 descriptors, mmap",
			   .bar = BAR_FIGURE_MAX,
			   .limit = 1000,
			   .note = "p50; the raw calls touch an index as large and look at nothing in it" };
	int ret = attaching_open(&a, ctx);

	if (!ret)
		ret = measure(&row, way_attach, way_attach_raw, &a);
	if (ret)
		table_broken(r->table, row.name);
	else
		table_row(r->table, &row);
	peer_stop(&a.holder);
	peer_stop(&a.raw);
	model_file_remove(&a.file);
}

void rows_handover(struct rows *r)
{
	struct pinion_context *ctx;
	int ret = pinion_open(NULL, &ctx);

	table_section(r->table, "to another process");
	if (ret) {
		broke_pinion(ret, "a context");
		table_broken(r->table, "hand over");
		return;
	}
	row_hand(r, ctx);
	row_attach(r, ctx);
	pinion_close(ctx);
}
