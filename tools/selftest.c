/* SPDX-License-Identifier: MIT */
#include "selftest.h"

#include "format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB   (UINT64_C(1) << 20)
#define UNITS 100
/* How long something may take that happens at once. */
#define SOON_NS INT64_C(2000000000)

static void pause_ms(unsigned int ms)
{
	struct timespec t = { .tv_nsec = ms * 1000000L };

	nanosleep(&t, NULL);
}

/* Every 8 bytes say where they are. */
static void fill(uint64_t *word, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / 8; i++)
		word[i] = i * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

/* The first byte that is not as fill() made it, @bytes when all are. */
static uint64_t differs(const uint64_t *word, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / 8; i++)
		if (word[i] != i * UINT64_C(0x9e3779b97f4a7c15) + 1)
			return i * 8;
	return bytes;
}

static const char *hold_text(const struct pinion_buffer_info *info)
{
	switch (info->hold) {
	case PINION_HOLD_PINNED:
		return "pinned";
	case PINION_HOLD_REGISTERED:
		return "registered";
	case PINION_HOLD_LOCKED:
		return "locked";
	default:
		return "not held";
	}
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

/* Pages of @bytes at @addr that are not in RAM. */
static uint64_t absent(void *addr, uint64_t bytes)
{
	uint64_t page = sysconf(_SC_PAGESIZE), n = (bytes + page - 1) / page, missing = 0;
	unsigned char *seen = calloc(n, 1);

	if (!seen || mincore(addr, bytes, seen))
		missing = n;
	for (uint64_t i = 0; seen && missing < n && i < n; i++)
		missing += !(seen[i] & 1);
	free(seen);
	return missing;
}

static int look_at_buffer(struct selftest *t, struct pinion_buffer *buf, uint64_t bytes)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };
	const uint64_t *word;
	uint64_t missing;
	void *addr;

	if (pinion_buffer_info(buf, &info) || pinion_buffer_map(buf, PINION_READ, &addr))
		return selftest_refused(t, "looking at it");
	missing = absent(addr, bytes);
	if (missing)
		return selftest_fail(t, "%" PRIu64 " pages are not in RAM", missing);
	word = addr;
	for (uint64_t i = 0; i < bytes / 8; i++)
		if (word[i])
			return selftest_fail(t, "byte %" PRIu64 " of new memory is not 0", i * 8);
	pinion_buffer_unmap(buf, PINION_READ);
	snprintf(t->text, sizeof(t->text), "%s, pages of %s, %u %% in huge ones, %s%s%s", size_text(info.bytes).s,
		 size_text(info.page_size).s, percent(info.huge_bytes, info.bytes), hold_text(&info), *info.hold_why ? ": " : "",
		 info.hold_why);
	return 0;
}

static int check_allocate(struct selftest *t)
{
	struct pinion_buffer *buf;
	int ret;

	if (pinion_buffer_alloc(t->ctx, 64 * MIB, NULL, &buf))
		return selftest_refused(t, "64 MiB");
	ret = look_at_buffer(t, buf, 64 * MIB);
	pinion_buffer_unref(buf);
	return ret;
}

static int check_refuse(struct selftest *t)
{
	struct pinion_buffer *buf;
	int ret = pinion_buffer_alloc(t->ctx, UINT64_C(1) << 50, NULL, &buf);

	if (!ret)
		return selftest_fail(t, "1 PiB was given");
	if (ret != -ENOMEM || pinion_error_advice() == PINION_ADVICE_NONE)
		return selftest_refused(t, "1 PiB was refused without a reason");
	snprintf(t->text, sizeof(t->text), "%.480s", pinion_error());
	return 0;
}

/* The child reads what it was handed, and may not write. */
static int receive(struct selftest *t, int sock)
{
	struct pinion_buffer *buf;
	void *addr, *writable;
	uint64_t at;

	if (pinion_buffer_recv(t->ctx, sock, &buf) || pinion_buffer_map(buf, PINION_READ, &addr))
		return selftest_refused(t, "receiving it");
	at = differs(addr, 16 * MIB);
	if (at < 16 * MIB)
		return selftest_fail(t, "byte %" PRIu64 " differs in the other process", at);
	if (!pinion_buffer_map(buf, PINION_READ | PINION_WRITE, &writable))
		return selftest_fail(t, "a reader could map it writable");
	if (!mprotect(addr, 4096, PROT_READ | PROT_WRITE))
		return selftest_fail(t, "a reader could make its mapping writable");
	selftest_say(sock);
	return 0;
}

static int check_share(struct selftest *t)
{
	struct selftest_child child;
	struct pinion_buffer *buf;
	void *addr;
	int ret;

	if (selftest_start(t, &child, receive))
		return 1;
	if (pinion_buffer_alloc(t->ctx, 16 * MIB, NULL, &buf)) {
		selftest_kill(&child);
		return selftest_refused(t, "16 MiB");
	}
	ret = pinion_buffer_map(buf, PINION_READ | PINION_WRITE, &addr);
	if (!ret) {
		fill(addr, 16 * MIB);
		pinion_buffer_unmap(buf, PINION_READ | PINION_WRITE);
		ret = pinion_buffer_send(buf, child.sock, PINION_READ);
	}
	ret = ret ? selftest_refused(t, "handing it over") : selftest_hear(t, &child);
	selftest_kill(&child);
	pinion_buffer_unref(buf);
	if (!ret)
		snprintf(t->text, sizeof(t->text), "16 MiB, equal there, and not to be written");
	return ret;
}

/* ---- names --------------------------------------------------------------------------------------------------------- */

static int hold_name(struct selftest *t, int sock)
{
	struct pinion_storage *st;

	if (pinion_storage_create_named(t->ctx, t->name, PINION_DTYPE_U8, 4 * MIB, NULL, &st))
		return selftest_refused(t, "taking a name");
	selftest_say(sock);
	for (;;)
		pause();
}

static int check_kill(struct selftest *t)
{
	struct pinion_storage *st = NULL;
	struct selftest_child child;
	int64_t start;
	int ret;

	if (selftest_start(t, &child, hold_name))
		return 1;
	ret = selftest_hear(t, &child);
	if (!ret && pinion_storage_create_named(t->ctx, t->name, PINION_DTYPE_U8, 8, NULL, &st) != -EEXIST)
		ret = selftest_fail(t, "a name that a living process holds was given again");
	selftest_kill(&child);
	start = pinion_deadline_in(0);
	if (!ret && pinion_storage_create_named(t->ctx, t->name, PINION_DTYPE_U8, 8, NULL, &st))
		ret = selftest_refused(t, "the name of one who was killed");
	if (!ret)
		snprintf(t->text, sizeof(t->text), "taken again %" PRId64 " us after its holder's death",
			 (pinion_deadline_in(0) - start) / 1000);
	pinion_storage_free(st);
	return ret;
}

static int attach(struct selftest *t, int sock)
{
	struct pinion_storage_opts opts = { .size = sizeof(opts), .rights = PINION_READ };
	struct pinion_storage *st;

	if (pinion_storage_open_named(t->ctx, t->name, PINION_DTYPE_U8, 4 * MIB, &opts, &st))
		return selftest_refused(t, "opening it by name");
	selftest_say(sock);
	for (;;)
		pause();
}

static int attached(struct selftest *t, uint32_t *n)
{
	struct pinion_name_info info = { .size = sizeof(info) };

	if (pinion_name_show(t->ctx, t->name, &info, NULL, 0, NULL))
		return selftest_refused(t, "asking who is attached");
	*n = info.attached;
	return 0;
}

static int check_holders(struct selftest *t)
{
	int64_t end = pinion_deadline_in(SOON_NS);
	struct selftest_child child;
	struct pinion_storage *st;
	uint32_t with = 0, without = 1;
	int ret;

	if (pinion_storage_create_named(t->ctx, t->name, PINION_DTYPE_U8, 4 * MIB, NULL, &st))
		return selftest_refused(t, "taking a name");
	ret = selftest_start(t, &child, attach);
	if (!ret)
		ret = selftest_hear(t, &child);
	if (!ret)
		ret = attached(t, &with);
	selftest_kill(&child);
	while (!ret && without && pinion_deadline_in(0) < end) {
		ret = attached(t, &without);
		pause_ms(1);
	}
	pinion_storage_free(st);
	if (!ret && (with != 1 || without))
		ret = selftest_fail(t, "%" PRIu32 " were shown while 1 was attached, %" PRIu32 " after it was killed", with,
				    without);
	if (!ret)
		snprintf(t->text, sizeof(t->text), "1 while it lived, 0 after it was killed");
	return ret;
}

/* ---- counts and claims --------------------------------------------------------------------------------------------- */

static int begin_units(struct selftest *t, int sock)
{
	static struct pinion_ticket ticket[UNITS];
	struct pinion_device *dev;

	if (pinion_device_find(t->ctx, t->key, &dev))
		return selftest_refused(t, "finding the device");
	for (unsigned int i = 0; i < UNITS; i++)
		if (pinion_work_begin(dev, 1, &ticket[i]))
			return selftest_refused(t, "beginning a unit");
	selftest_say(sock);
	for (;;)
		pause();
}

static int count(struct selftest *t, struct pinion_device *dev, uint32_t wanted, const char *when)
{
	uint32_t n;

	if (pinion_device_pending(dev, PINION_SCOPE_ALL, &n))
		return selftest_refused(t, "reading the count");
	return n == wanted ? 0 : selftest_fail(t, "%" PRIu32 " units are in flight %s, not %" PRIu32, n, when, wanted);
}

static int check_count(struct selftest *t)
{
	struct pinion_device_info before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
	struct selftest_child child;
	struct pinion_device *dev;
	int ret;

	if (pinion_device_add(t->ctx, t->key, NULL, &dev) || pinion_device_info(dev, &before))
		return selftest_refused(t, "adding a device");
	ret = selftest_start(t, &child, begin_units);
	if (!ret)
		ret = selftest_hear(t, &child);
	if (!ret)
		ret = count(t, dev, UNITS, "while their owner lives");
	selftest_kill(&child);
	if (!ret)
		ret = count(t, dev, 0, "after their owner was killed");
	if (!ret && pinion_device_info(dev, &after))
		ret = selftest_refused(t, "reading the device");
	if (!ret)
		snprintf(t->text, sizeof(t->text), "%d while their owner lived, 0 once it was dead, %" PRIu64 " reclaimed", UNITS,
			 after.reclaimed - before.reclaimed);
	return ret;
}

static int claim_all(struct selftest *t, int sock)
{
	struct pinion_reserve_opts opts = { .size = sizeof(opts), .exclusive = true };
	struct pinion_reservation *r;
	struct pinion_device *dev;

	if (pinion_device_find(t->ctx, t->key, &dev) || pinion_device_reserve(dev, &opts, &r))
		return selftest_refused(t, "claiming the device");
	selftest_say(sock);
	for (;;)
		pause();
}

static int check_claim(struct selftest *t)
{
	struct pinion_reserve_opts opts = { .size = sizeof(opts), .exclusive = true };
	struct pinion_reservation *r = NULL;
	struct selftest_child child;
	struct pinion_device *dev;
	int ret;

	if (pinion_device_add(t->ctx, t->key, NULL, &dev))
		return selftest_refused(t, "adding a device");
	ret = selftest_start(t, &child, claim_all);
	if (!ret)
		ret = selftest_hear(t, &child);
	if (!ret && pinion_device_reserve(dev, &opts, &r) != -EBUSY)
		ret = selftest_fail(t, "a device was claimed twice");
	selftest_kill(&child);
	if (!ret && pinion_device_reserve(dev, &opts, &r))
		ret = selftest_refused(t, "the claim of one who was killed");
	pinion_reservation_free(r);
	if (!ret)
		snprintf(t->text, sizeof(t->text), "refused while its holder lived, given once it was dead");
	return ret;
}

/* One unit that is done in a moment, and then one that never is, which a flush does not wait for: it was begun later. */
static int work_a_moment(struct selftest *t, int sock)
{
	struct pinion_ticket first = { 0 }, second = { 0 };
	struct pinion_device *dev;

	if (pinion_device_find(t->ctx, t->key, &dev) || pinion_work_begin(dev, 1, &first))
		return selftest_refused(t, "beginning a unit");
	selftest_say(sock);
	pause_ms(50);
	if (pinion_work_begin(dev, 1, &second) || pinion_work_end(&first))
		return selftest_refused(t, "ending a unit");
	for (;;)
		pause();
}

static int check_flush(struct selftest *t)
{
	int64_t start = pinion_deadline_in(0);
	struct selftest_child child;
	struct pinion_device *dev;
	uint64_t lost = 0;
	int ret;

	if (pinion_device_add(t->ctx, t->key, NULL, &dev))
		return selftest_refused(t, "adding a device");
	ret = selftest_start(t, &child, work_a_moment);
	if (!ret)
		ret = selftest_hear(t, &child);
	if (!ret && pinion_device_flush(dev, PINION_SCOPE_ALL, pinion_deadline_in(SOON_NS), &lost))
		ret = selftest_refused(t, "waiting for another process's unit");
	if (!ret)
		ret = count(t, dev, 1, "after the flush, because one was begun during it");
	selftest_kill(&child);
	if (!ret)
		snprintf(t->text, sizeof(t->text),
			 "the unit before it was done after %" PRId64 " ms, the one after it was not waited for",
			 (pinion_deadline_in(0) - start) / 1000000);
	return ret;
}

static int check_fork(struct selftest *t)
{
	struct pinion_device *dev;
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid)
		_exit(pinion_device_find(t->ctx, "hostio", &dev) == -EOWNERDEAD ? 0 : 1);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return selftest_fail(t, "starting a process: %s", strerror(errno));
	if (status)
		return selftest_fail(t, "the child could use it, or was killed (status %d)", status);
	snprintf(t->text, sizeof(t->text), "refused in the child");
	return 0;
}

/* ---- a model ------------------------------------------------------------------------------------------------------- */

static void put32(FILE *f, uint32_t v)
{
	fwrite(&v, sizeof(v), 1, f);
}

static void put64(FILE *f, uint64_t v)
{
	fwrite(&v, sizeof(v), 1, f);
}

static void put_text(FILE *f, const char *text)
{
	put64(f, strlen(text));
	fwrite(text, strlen(text), 1, f);
}

/* GGUF 3 with one tensor "t" of f32, whose bytes are those of fill(). */
static bool write_model(const char *path, uint64_t bytes)
{
	uint64_t *word = malloc(bytes);
	FILE *f = fopen(path, "we");
	bool ok = word && f;

	if (ok) {
		fill(word, bytes);
		fwrite("GGUF", 4, 1, f);
		put32(f, 3);
		put64(f, 1);
		put64(f, 1);
		put_text(f, "general.architecture");
		put32(f, 8); /* a string */
		put_text(f, "selftest");
		put_text(f, "t");
		put32(f, 1);	     /* axis */
		put64(f, bytes / 4); /* elements */
		put32(f, 0);	     /* f32 */
		put64(f, 0);	     /* offset */
		while (ftell(f) % 32)
			fputc(0, f);
		fwrite(word, bytes, 1, f);
		/* Out of the page cache, so that it is read from where files are. */
		ok = !fflush(f) && !fdatasync(fileno(f)) && !ferror(f);
		posix_fadvise(fileno(f), 0, 0, POSIX_FADV_DONTNEED);
	}
	if (f && fclose(f))
		ok = false;
	free(word);
	return ok;
}

static int load(struct selftest *t, const char *path)
{
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct pinion_tensor tensor;
	struct pinion_model *m;
	uint64_t at = 0;
	int ret = 0;

	if (pinion_model_load(t->ctx, path, NULL, &m))
		return selftest_refused(t, "loading it");
	if (pinion_model_tensor(m, "t", &tensor) || pinion_model_load_stats(m, &stats))
		ret = selftest_refused(t, "finding its tensor");
	else
		at = differs(tensor.data, 16 * MIB);
	if (!ret && at < 16 * MIB)
		ret = selftest_fail(t, "byte %" PRIu64 " of the tensor is not the file's", at);
	if (!ret)
		snprintf(t->text, sizeof(t->text), "16 MiB equal to the file's, %u %% by direct I/O, %s",
			 percent(stats.direct_bytes, stats.bytes_read), rate_text(stats.bytes_read, stats.read_ns).s);
	pinion_model_free(m);
	return ret;
}

static int check_load(struct selftest *t)
{
	char path[600];
	int fd, ret;

	snprintf(path, sizeof(path), "%s/pinion-selftest.XXXXXX", t->folder);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return selftest_fail(t, "making a file in %s (TMPDIR): %s", t->folder, strerror(errno));
	/* So that it goes with this process, however that ends. */
	unlink(path);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ret = write_model(path, 16 * MIB) ? load(t, path) :
					    selftest_fail(t, "writing a file in %s (TMPDIR): %s", t->folder, strerror(errno));
	close(fd);
	return ret;
}

const struct selftest_check selftest_checks[] = {
	{ "allocate", "new memory is zero, and all of it in RAM", check_allocate },
	{ "refuse", "what does not fit is refused with the reason, and nobody is killed", check_refuse },
	{ "share", "another process has the same bytes and cannot write them", check_share },
	{ "kill", "a killed process leaves a free name", check_kill },
	{ "holders", "who is attached is known, and no longer when it is dead", check_holders },
	{ "count", "units of a killed process are not in flight", check_count },
	{ "claim", "a device is claimed once, and free when its holder is dead", check_claim },
	{ "flush", "a flush waits for what was begun before it and for nothing else", check_flush },
	{ "fork", "a child is told that its parent's context is not its own", check_fork },
	{ "load", "a model file is in memory, byte for byte", check_load },
};

const size_t selftest_count = sizeof(selftest_checks) / sizeof(selftest_checks[0]);
