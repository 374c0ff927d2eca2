/* SPDX-License-Identifier: MIT */
/*
 * What processes say to each other when they hand memory over, both ways: a client hears what a holder may answer, a
 * receiver what a peer may send, and holders hear what a client may ask. The messages come with descriptors, over real sockets;
 * what is taken for good is used in full. Nobody crashes, waits or keeps a descriptor; an error is a sentence.
 *
 * The client's connection is one end of a pair that holds the answer already (connect() is wrapped), holders are reached as
 * they are by anybody. A holder whose connection ended waits for nothing, so usleep(), by which a client looks for its
 * death, returns at once.
 */
#include "fuzz.h"

#include "memory/name.h"
#include "memory/share.h"

#include <fcntl.h>
#include <pinion/pinion.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS_MAX	 6
#define BUFFER	 (UINT64_C(64) << 10)
#define ELEMENTS 64
#define STORE	 "store"
#define MODEL	 "model"
#define UNREADY	 "unready"

enum door { RECEIVE, ATTACH, OPEN, SHOW, REMOVE, ASK_READY, ASK_UNREADY, IMPORT, OPEN_PATH, DOORS };

/* How an input begins; the message follows, then what is in the descriptors that have contents. */
struct head {
	uint8_t door;
	uint8_t nfds;
	uint8_t kind[FDS_MAX];
	uint8_t fits; /* bit 0: the message says how large an index it brings, bit 1: and a buffer */
	uint8_t more; /* to a holder: that many bytes of the contents are said after it */
	uint16_t bytes;
};

enum kind { INDEX, SEALED_BUFFER, CONTENTS, UNSEALED, NOWHERE, PIPE, FOLDER, SOCKET, KINDS };

static struct {
	struct pinion_context *ctx;
	struct pinion_model *model;
	struct pinion_holder *ready, *unready;
	struct pinion_storage *store;
	int buffer; /* a memfd */
	int peer;   /* what connect() leads to; -1: where it would */
} here = { .peer = -1 };

/* ---- the wraps ------------------------------------------------------------------------------------------------------ */

int __real_connect(int sock, const struct sockaddr *to, socklen_t len);
int __wrap_connect(int sock, const struct sockaddr *to, socklen_t len);
int __wrap_usleep(useconds_t us);

int __wrap_connect(int sock, const struct sockaddr *to, socklen_t len)
{
	if (here.peer < 0)
		return __real_connect(sock, to, len);
	return dup3(here.peer, sock, O_CLOEXEC) < 0 ? -1 : 0;
}

int __wrap_usleep(useconds_t us)
{
	(void)us;
	return 0;
}

/*
 * The array that a holder's thread waits on is in a register of that thread alone, where the leak sanitizer does not always see
 * it: once in a million inputs it took that of each waiting thread for lost.
 */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:serve_once\n";
}

/* ---- descriptors ---------------------------------------------------------------------------------------------------- */

static int contents(const struct fuzz_input *in, uint64_t bytes, int seals)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	EXPECT(fd >= 0 && pwrite(fd, in->data, in->size, 0) == (ssize_t)in->size);
	EXPECT(!ftruncate(fd, (off_t)bytes) && !fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static int end_of_pipe(void)
{
	int end[2];

	EXPECT(!pipe2(end, O_CLOEXEC));
	close(end[1]);
	return end[0];
}

static int make_fd(enum kind kind, const struct fuzz_input *in)
{
	switch (kind) {
	case INDEX:
		return contents(in, in->size, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
	case SEALED_BUFFER:
		return fcntl(here.buffer, F_DUPFD_CLOEXEC, 0);
	case CONTENTS:
		return contents(in, (in->size + 4095) & ~UINT64_C(4095), F_SEAL_SHRINK);
	case UNSEALED:
		return contents(in, in->size, 0);
	case PIPE:
		return end_of_pipe();
	case FOLDER:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case SOCKET:
		return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	default:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	}
}

/* As share_send(), and more descriptors than the library ever sends. */
static void say(int sock, const void *message, size_t bytes, const int *fds, unsigned int nfds)
{
	struct iovec iov = { .iov_base = (void *)message, .iov_len = bytes };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control = { 0 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *head = &control.align;

	if (nfds) {
		*head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(nfds * sizeof(int)),
					  .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(head), fds, nfds * sizeof(int));
		msg.msg_control = head;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
	}
	EXPECT(sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)bytes);
}

/* ---- to holders ----------------------------------------------------------------------------------------------------- */

static int call_holder(const char *name)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	EXPECT(snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s.sock", getenv("PINION_DIR"), name) <
	       (int)sizeof(addr.sun_path));
	EXPECT(sock >= 0 && !__real_connect(sock, (struct sockaddr *)&addr, sizeof(addr)));
	return sock;
}

/* Hears all that the other end says, until it ends the connection, which a holder does when it has heard all. */
static void hear_out(int sock)
{
	static char room[1 << 16];
	unsigned int nfds;
	ssize_t n;
	int fds[4];

	do {
		n = share_recv(sock, room, sizeof(room), fds, 4, &nfds);
		share_close(fds, nfds);
	} while (n > 0);
	close(sock);
}

static void open_ready(void)
{
	pinion_holder_free(here.ready);
	EXPECT(!pinion_holder_open(here.ctx, MODEL, "a model", &here.ready));
	EXPECT(!pinion_holder_publish(here.ready, here.model));
}

static void open_unready(void)
{
	pinion_holder_free(here.unready);
	EXPECT(!pinion_holder_open(here.ctx, UNREADY, "", &here.unready));
}

/* What a client may say to a holder, twice. A name that was removed is taken again. */
static void ask(const char *name, const void *message, size_t bytes, const int *fds, unsigned int nfds,
		const struct fuzz_input *more, size_t more_bytes)
{
	int sock = call_holder(name);

	say(sock, message, bytes, fds, nfds);
	if (more_bytes)
		share_send(sock, more->data, more_bytes < more->size ? more_bytes : more->size, NULL, 0);
	shutdown(sock, SHUT_WR);
	hear_out(sock);
	if (!pinion_holder_wait(here.ready, 0))
		open_ready();
	if (!pinion_holder_wait(here.unready, 0))
		open_unready();
}

/* ---- from holders and senders --------------------------------------------------------------------------------------- */

static void use_buffer(struct pinion_buffer *buf)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };
	const volatile char *at;
	void *addr;

	EXPECT(!pinion_buffer_info(buf, &info) && info.bytes == pinion_buffer_size(buf) && info.bytes);
	if (!fuzz_said(pinion_buffer_map(buf, PINION_READ, &addr))) {
		at = addr;
		(void)at[0];
		(void)at[info.bytes - 1];
		EXPECT(!pinion_buffer_unmap(buf, PINION_READ));
	}
	pinion_buffer_unref(buf);
}

static void use_model(struct pinion_model *m)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_tensor t, same;
	const volatile char *at;

	EXPECT(!pinion_model_info(m, &info));
	for (uint64_t i = 0; i < info.tensors; i++) {
		EXPECT(!pinion_model_tensor_at(m, i, &t) && !pinion_model_tensor(m, t.name, &same) && t.data == same.data);
		at = t.data;
		if (t.bytes) {
			(void)at[0];
			(void)at[t.bytes - 1];
		}
	}
	pinion_model_free(m);
}

static void use_storage(struct pinion_storage *st)
{
	struct pinion_storage_info info = { .size = sizeof(info) };
	char text[512], data[ELEMENTS * 4];
	int64_t now = pinion_deadline_in(0);
	uint64_t sequence;

	EXPECT(!pinion_storage_info(st, &info) && info.elements == ELEMENTS && info.bytes == sizeof(data));
	EXPECT(pinion_storage_describe(st, text, sizeof(text)) > 0);
	fuzz_said(pinion_storage_load(st, 0, data, sizeof(data), now));
	if (!fuzz_said(pinion_storage_write_begin(st, now, NULL))) {
		EXPECT(!pinion_storage_store(st, 0, data, sizeof(data)));
		EXPECT(!pinion_storage_write_end(st));
		EXPECT(!pinion_storage_read_begin(st, now, &sequence) && !pinion_storage_read_retry(st, sequence));
	}
	pinion_storage_free(st);
}

static void show(void)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	struct pinion_name_user row[8];
	size_t n;

	if (fuzz_said(pinion_name_show(here.ctx, MODEL, &info, row, 8, &n)))
		return;
	EXPECT(strlen(info.name) < sizeof(info.name) && strlen(info.path) < sizeof(info.path));
	EXPECT(strlen(info.state) < sizeof(info.state) && strlen(info.hold) < sizeof(info.hold));
	EXPECT(strlen(info.hold_why) < sizeof(info.hold_why) && strlen(info.format) < sizeof(info.format));
}

/* A file that any process of the user may have written. */
static void open_path(const struct fuzz_input *in)
{
	struct pinion_storage_opts opts = { .size = sizeof(opts), .rights = PINION_READ | PINION_WRITE, .header = true };
	struct pinion_storage *st;
	char path[4096];

	fuzz_save(getenv("PINION_DIR"), "fuzz.storage", in->data, in->size);
	snprintf(path, sizeof(path), "%s/fuzz.storage", getenv("PINION_DIR"));
	if (!fuzz_said(pinion_storage_open(path, PINION_DTYPE_F32, ELEMENTS, &opts, &st)))
		use_storage(st);
}

static void import(int fd)
{
	struct pinion_buffer *buf;

	if (!fuzz_said(pinion_buffer_import(here.ctx, fd, NULL, &buf)))
		use_buffer(buf);
}

/* A call that reads from @sock, or from who it believes is a holder. */
static void hear(enum door door, int sock)
{
	struct pinion_storage_opts opts = { .size = sizeof(opts), .rights = PINION_READ | PINION_WRITE };
	struct pinion_storage *st;
	struct pinion_buffer *buf;
	struct pinion_model *m;

	switch (door) {
	case RECEIVE:
		if (!fuzz_said(pinion_buffer_recv(here.ctx, sock, &buf)))
			use_buffer(buf);
		break;
	case ATTACH:
		if (!fuzz_said(pinion_model_attach(here.ctx, MODEL, NULL, &m)))
			use_model(m);
		break;
	case OPEN:
		if (!fuzz_said(pinion_storage_open_named(here.ctx, MODEL, PINION_DTYPE_F32, ELEMENTS, &opts, &st)))
			use_storage(st);
		break;
	case SHOW:
		show();
		break;
	default:
		fuzz_said(pinion_name_remove(here.ctx, MODEL));
	}
}

/* The answer is there before the question, and the end of the connection behind it. */
static void answer(enum door door, const void *message, size_t bytes, const int *fds, unsigned int nfds)
{
	int pair[2];

	EXPECT(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	say(pair[1], message, bytes, fds, nfds);
	shutdown(pair[1], SHUT_WR);
	here.peer = pair[0];
	hear(door, pair[0]);
	here.peer = -1;
	close(pair[0]);
	close(pair[1]);
}

/* ---- an input ------------------------------------------------------------------------------------------------------- */

/* Both kinds of message that bring a buffer say its size at the same place. */
_Static_assert(offsetof(struct name_answer, bytes) == 8, "as in a message of share.c");

static void make_fit(const struct head *head, char *message, const struct fuzz_input *in)
{
	uint64_t bytes = head->kind[0] % KINDS == SEALED_BUFFER ? BUFFER : (in->size + 4095) & ~UINT64_C(4095);
	uint64_t index_bytes = in->size;

	if ((head->fits & 1) && head->bytes >= sizeof(struct name_answer))
		memcpy(message + offsetof(struct name_answer, index_bytes), &index_bytes, sizeof(index_bytes));
	if ((head->fits & 2) && head->bytes >= 16)
		memcpy(message + offsetof(struct name_answer, bytes), &bytes, sizeof(bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char message[1 << 16];
	struct fuzz_input in = { data, size };
	unsigned int nfds, were = fuzz_open_fds();
	struct head head;
	int fds[FDS_MAX];

	fuzz_take(&in, &head, sizeof(head));
	head.bytes = fuzz_take(&in, message, head.bytes);
	make_fit(&head, message, &in);
	nfds = head.nfds % (FDS_MAX + 1);
	for (unsigned int i = 0; i < nfds; i++)
		fds[i] = make_fd(head.kind[i] % KINDS, &in);
	if (head.door % DOORS == ASK_READY)
		ask(MODEL, message, head.bytes, fds, nfds, &in, head.more);
	else if (head.door % DOORS == ASK_UNREADY)
		ask(UNREADY, message, head.bytes, fds, nfds, &in, head.more);
	else if (head.door % DOORS == OPEN_PATH)
		open_path(&in);
	else if (head.door % DOORS == IMPORT)
		import(nfds ? fds[0] : -1);
	else
		answer(head.door % DOORS, message, head.bytes, fds, nfds);
	share_close(fds, nfds);
	EXPECT(fuzz_open_fds() == were);
	return 0;
}

/* ---- the ground and the seeds --------------------------------------------------------------------------------------- */

static void make_model(void)
{
	static const char text[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[0,64]},"
				   "\"b\":{\"dtype\":\"U8\",\"shape\":[64],\"data_offsets\":[64,128]}}";
	unsigned char file[8 + sizeof(text) - 1 + 128] = { sizeof(text) - 1 };
	char path[4096];

	memcpy(file + 8, text, sizeof(text) - 1);
	fuzz_save(getenv("PINION_DIR"), "fuzz.safetensors", file, sizeof(file));
	snprintf(path, sizeof(path), "%s/fuzz.safetensors", getenv("PINION_DIR"));
	EXPECT(!pinion_model_load(here.ctx, path, NULL, &here.model));
}

static void take_down(void)
{
	pinion_storage_free(here.store);
	pinion_holder_free(here.ready);
	pinion_holder_free(here.unready);
	pinion_model_free(here.model);
	pinion_close(here.ctx);
}

/* One seed: the head, @message and what is in @contents, if it is a descriptor. */
static void save_seed(const char *dir, const char *name, struct head head, const void *message, size_t bytes, int from)
{
	static char seed[1 << 16];
	size_t at = sizeof(head);
	ssize_t n = 0;

	head.bytes = bytes;
	memcpy(seed, &head, sizeof(head));
	memcpy(seed + at, message, bytes);
	at += bytes;
	if (from >= 0)
		n = pread(from, seed + at, 4096 + ELEMENTS * 4 < sizeof(seed) - at ? 4096 + ELEMENTS * 4 : sizeof(seed) - at, 0);
	EXPECT(n >= 0);
	fuzz_save(dir, name, seed, at + n);
}

/* What holder @name answers to @op, as a seed of @door; the question, as one of @asked. */
static void seed_of(const char *dir, const char *seed, const char *name, enum name_op op, struct head head, enum door asked)
{
	static char reply[1 << 16];
	struct name_request req = { .magic = NAME_MAGIC, .op = op };
	int fds[2] = { -1, -1 }, sock = call_holder(name);
	char asking[64];
	unsigned int nfds;
	ssize_t n;

	EXPECT(!share_send(sock, &req, sizeof(req), NULL, 0));
	n = share_recv(sock, reply, sizeof(reply), fds, 2, &nfds);
	EXPECT(n > 0);
	head.nfds = nfds;
	save_seed(dir, seed, head, reply, n, nfds ? fds[nfds - 1] : -1);
	snprintf(asking, sizeof(asking), "ask-%s", seed);
	save_seed(dir, asking, (struct head){ .door = asked, .more = sizeof(req) }, &req, sizeof(req), -1);
	share_close(fds, nfds);
	close(sock);
}

static void seed_of_buffer(const char *dir)
{
	struct head head = { .door = RECEIVE, .nfds = 1, .kind = { SEALED_BUFFER }, .fits = 2 };
	struct pinion_buffer *buf;
	unsigned int nfds;
	char message[256];
	int pair[2], fd;
	ssize_t n;

	EXPECT(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	EXPECT(!pinion_buffer_alloc(here.ctx, BUFFER, NULL, &buf) && !pinion_buffer_send(buf, pair[0], PINION_READ));
	n = share_recv(pair[1], message, sizeof(message), &fd, 1, &nfds);
	EXPECT(n > 0 && nfds == 1);
	save_seed(dir, "buffer", head, message, n, -1);
	close(fd);
	close(pair[0]);
	close(pair[1]);
	pinion_buffer_unref(buf);
}

static void make_seeds(const char *dir)
{
	struct head model = { .door = ATTACH, .kind = { SEALED_BUFFER, INDEX }, .fits = 3 };
	struct head store = { .door = OPEN, .kind = { CONTENTS }, .fits = 2 };

	seed_of_buffer(dir);
	save_seed(dir, "import", (struct head){ .door = IMPORT, .nfds = 1, .kind = { CONTENTS } }, "", 1, here.buffer);
	seed_of(dir, "model", MODEL, NAME_ATTACH, model, ASK_READY);
	seed_of(dir, "store", STORE, NAME_ATTACH, store, ASK_READY);
	store.door = OPEN_PATH;
	seed_of(dir, "path", STORE, NAME_ATTACH, store, ASK_READY);
	seed_of(dir, "loading", UNREADY, NAME_ATTACH, (struct head){ .door = ATTACH }, ASK_UNREADY);
	seed_of(dir, "show", MODEL, NAME_SHOW, (struct head){ .door = SHOW }, ASK_READY);
	seed_of(dir, "show-loading", UNREADY, NAME_SHOW, (struct head){ .door = SHOW }, ASK_UNREADY);
	seed_of(dir, "remove", UNREADY, NAME_REMOVE, (struct head){ .door = REMOVE }, ASK_UNREADY);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char zeros[BUFFER];
	const struct fuzz_input none = { (const uint8_t *)zeros, sizeof(zeros) };

	fuzz_place();
	EXPECT(!pinion_open(NULL, &here.ctx));
	make_model();
	open_ready();
	open_unready();
	EXPECT(!pinion_storage_create_named(here.ctx, STORE, PINION_DTYPE_F32, ELEMENTS, NULL, &here.store));
	here.buffer = contents(&none, BUFFER, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
	atexit(take_down);
	if (*argc == 3 && !strcmp((*argv)[1], "--seeds")) {
		make_seeds((*argv)[2]);
		exit(0);
	}
	return 0;
}
