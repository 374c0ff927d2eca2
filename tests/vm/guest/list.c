// SPDX-License-Identifier: MIT
/* LIST: cursors, counts and sizes of rows; what a read-only open sees of others; walks while buffers come and go. */
#define _GNU_SOURCE
#include "state.h"
#include "until.h"

#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

#define MANY   150 /* more rows than the module gathers at once, four times over */
#define NOBODY 65534
#define FILL   0xa5

static int dev;
static int held[MANY];
static uint64_t ids[MANY];

/* All rows above @cursor in pieces of @count; how many there were, or -errno. *@cursor is left where the walk ended. */
static int walk(int at, uint64_t *cursor, unsigned int count, struct pinion_list_buffer *rows, int room)
{
	struct pinion_list l = { .size = sizeof(l), .kind = PINION_LIST_BUFFERS, .cursor = *cursor, .row_size = sizeof(rows[0]) };
	int have = 0, ret;

	do {
		l.count = count < (unsigned int)(room - have) ? count : (unsigned int)(room - have);
		if (!l.count)
			return -ELOOP;
		l.rows = (uintptr_t)(rows + have);
		l.out_count = 0;
		ret = dev_call(at, PINION_IOC_LIST, &l);
		if (ret)
			return ret;
		have += l.out_count;
	} while (l.out_count == l.count);
	*cursor = l.cursor;
	return have;
}

static void check_row(const struct pinion_list_buffer *row, int i)
{
	struct pinion_bufinfo info;

	expect(dev_bufinfo(dev, held[i], &info), 0, "BUFINFO");
	if (row->id != ids[i] || row->pages_id != info.pages_id || row->offset != info.offset || row->bytes != info.bytes ||
	    row->pages_bytes != info.pages_bytes || row->huge_bytes != info.huge_bytes || row->kind != info.kind ||
	    row->rights != info.rights || row->attachments || row->buffers != 1 || row->uid || row->pid != getpid() ||
	    strcmp(row->name, info.name))
		wrong("row %d is not what BUFINFO says: id %llu uid %u pid %d name %.32s", i, row->id, row->uid, row->pid,
		      row->name);
}

static void pieces(void)
{
	static const unsigned int counts[] = { 1, 2, 7, 35, 36, 37, 72, MANY - 1, MANY, MANY + 1, 4 * MANY };
	static struct pinion_list_buffer rows[4 * MANY];
	uint64_t cursor, made = 0;
	int n;

	for (unsigned int c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		cursor = 0;
		n = walk(dev, &cursor, counts[c], rows, 4 * MANY);
		if (n != MANY || cursor != ids[MANY - 1])
			wrong("pieces of %u: %d rows, cursor %lu", counts[c], n, cursor);
		for (int i = 0; i < n && i < MANY; i++) {
			check_row(&rows[i], i);
			if (rows[i].made_ns < made)
				wrong("row %d was made before the one before it", i);
			made = rows[i].made_ns;
		}
		made = 0;
	}
	point("LIST", "the same rows in pieces of every size");

	for (int i = 0; i < MANY; i++) {
		cursor = ids[i];
		n = walk(dev, &cursor, 4 * MANY, rows, 4 * MANY);
		if (n != MANY - 1 - i || (n && rows[0].id != ids[i + 1]))
			wrong("after row %d: %d rows", i, n);
	}
	for (int bit = 40; bit < 64; bit++) {
		cursor = 1ULL << bit;
		n = walk(dev, &cursor, 4, rows, 4);
		if (n || cursor != 1ULL << bit)
			wrong("after 2^%d: %d rows, cursor %#lx", bit, n, cursor);
	}
	cursor = ~0ULL;
	n = walk(dev, &cursor, 4, rows, 4);
	if (n || cursor != ~0ULL)
		wrong("after the last number: %d rows", n);
	point("LIST", "from every cursor");
}

static void sizes_of_rows(void)
{
	const size_t room = 8 * PAGE;
	unsigned char *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const size_t known = sizeof(struct pinion_list_buffer);

	munmap(at + room - PAGE, PAGE);
	for (unsigned int size = 0; size <= PAGE + 8; size++) {
		struct pinion_list l = { .size = sizeof(l),
					 .kind = PINION_LIST_BUFFERS,
					 .rows = (uintptr_t)at,
					 .count = 3,
					 .row_size = size },
				   was = l;
		int ret;

		memset(at, FILL, room - PAGE);
		ret = dev_call(dev, PINION_IOC_LIST, &l);
		if (!expect(ret, size < known ? -EINVAL : size > PAGE ? -E2BIG : 0, "rows of %u bytes", size))
			break;
		if (ret && (memcmp(&l, &was, sizeof(l)) || *at != FILL))
			wrong("rows of %u bytes: something was written", size);
		if (ret)
			continue;
		for (int i = 0; i < 3; i++)
			check_row((void *)(at + i * size), i);
		for (size_t i = 0; i < 4 * size && i < room - PAGE; i++)
			if (i >= 3 * size ? at[i] != FILL : i % size >= known && at[i])
				wrong("rows of %u bytes: byte %zu is %#x", size, i, at[i]);
	}
	point("LIST", "every size of a row");

	/* The memory ends within the rows. */
	for (unsigned int rows = 0; rows < 5; rows++)
		for (unsigned int size = known; size < known + 24; size += 8) {
			struct pinion_list l = { .size = sizeof(l), .kind = PINION_LIST_BUFFERS, .count = 5, .row_size = size },
					   was;

			l.rows = (uintptr_t)(at + room - PAGE) - rows * size - 4;
			was = l;
			expect(dev_call(dev, PINION_IOC_LIST, &l), -EFAULT, "%u rows of %u bytes and an end", rows, size);
			if (memcmp(&l, &was, sizeof(l)))
				wrong("the struct was written to");
			/* Exactly so many fit. */
			l.count = rows;
			l.rows += 4;
			expect(dev_call(dev, PINION_IOC_LIST, &l), rows ? 0 : -EINVAL, "%u rows of %u bytes", rows, size);
		}
	munmap(at, room - PAGE);
	point("LIST", "rows at the end of the memory");
}

static void arguments(void)
{
	static struct pinion_list_buffer rows[4];
	struct pinion_list l = { .size = sizeof(l), .count = 4, .row_size = sizeof(rows[0]), .rows = (uintptr_t)rows };

	for (unsigned int i = 0; i < 33; i++) {
		l.kind = i ? 1U << (i - 1) : 0;
		/* Rows of sessions are longer than these, those of watches are not. */
		expect(dev_call(dev, PINION_IOC_LIST, &l),
		       l.kind == PINION_LIST_BUFFERS || l.kind == PINION_LIST_WATCHES ? 0 : -EINVAL, "kind %#x", l.kind);
		l.cursor = 0;
	}
	l.kind = PINION_LIST_BUFFERS;
	for (unsigned int i = 0; i < 4; i++) {
		l.rows = (uint64_t[]){ 0, 1, 0xffff888000000000, ~0ULL }[i];
		expect(dev_call(dev, PINION_IOC_LIST, &l), -EFAULT, "rows at %#llx", l.rows);
	}
	l.count = ~0U;
	l.row_size = PAGE;
	expect(dev_call(dev, PINION_IOC_LIST, &l), -EFAULT, "2^44 bytes of rows at the end of numbers");
	/* Announced rows that are not there are not looked at. */
	l.rows = (uintptr_t)rows;
	l.row_size = sizeof(rows[0]);
	l.cursor = ids[MANY - 1];
	expect(dev_call(dev, PINION_IOC_LIST, &l), 0, "2^32 - 1 rows, none to fill");
	if (l.out_count || l.cursor != ids[MANY - 1])
		wrong("%u rows after the last", l.out_count);
	point("LIST", "kinds, counts and addresses");
}

/* ---- other users ----------------------------------------------------------------------------------------------------- */

/* Runs @body as nobody (the group stays root's, which may open the device), or as root in what @body makes itself. */
static void in_child(void (*body)(void), uid_t uid, const char *what)
{
	int fds[2];
	pid_t pid;
	int status;

	if (pipe2(fds, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (setresuid(uid, uid, uid))
			wrong("setresuid: %s", strerror(errno));
		body();
		if (write(fds[1], state_wrong, strlen(state_wrong)) < 0)
			_exit(3);
		_exit(!!*state_wrong);
	}
	close(fds[1]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) > 1) {
		wrong("%s: the child did not end well", what);
	} else if (WEXITSTATUS(status)) {
		char why[sizeof(state_wrong)] = { 0 };

		if (read(fds[0], why, sizeof(why) - 1) < 0)
			why[0] = 0;
		wrong("%s", why);
	}
	close(fds[0]);
}

static uint64_t root_bytes, root_buffers;

/* A read-only open: one's own, then the others in one row, once, whatever the count. */
static void nobody_looks(void)
{
	static struct pinion_list_buffer rows[64];
	int rw = dev_open(O_RDWR), ro = dev_open(O_RDONLY), mine[5], n;
	const struct pinion_list_buffer *o;

	expect(rw, 0, "open as nobody");
	expect(ro, 0, "open read-only as nobody");
	for (int i = 0; i < 5; i++) {
		mine[i] = i ? dev_slice(rw, mine[0], PAGE * (i % 2), PAGE, 0) : dev_alloc(rw, 2 * PAGE, 0);
		expect(mine[i], 0, "buffer %d of nobody", i);
	}
	for (unsigned int count = 1; count < 9; count++) {
		uint64_t cursor = 0;

		n = walk(ro, &cursor, count, rows, 64);
		if (n != 6) {
			wrong("pieces of %u: %d rows, not 5 and one of the others", count, n);
			continue;
		}
		for (int i = 0; i < 5; i++)
			if (rows[i].uid != NOBODY || rows[i].pid != getpid() || !rows[i].id || rows[i].buffers != 1)
				wrong("row %d: uid %u pid %d id %llu", i, rows[i].uid, rows[i].pid, rows[i].id);
		o = &rows[5];
		if (o->id || o->pages_id || o->uid != PINION_UID_OTHERS || o->pid || o->name[0] || o->made_ns || o->attachments)
			wrong("the others: id %llu uid %u pid %d", o->id, o->uid, o->pid);
		if (o->buffers != root_buffers || o->bytes != root_bytes || o->pages_bytes != root_bytes)
			wrong("the others: %u buffers of %llu bytes, not %lu of %lu", o->buffers, o->bytes, root_buffers,
			      root_bytes);
	}
	for (int i = 4; i >= 0; i--)
		close(mine[i]);
	for (unsigned int count = 1; count < 3; count++) {
		uint64_t cursor = 0;

		n = walk(ro, &cursor, count, rows, 64);
		if (n != 1 || rows[0].uid != PINION_UID_OTHERS)
			wrong("with none of one's own, pieces of %u: %d rows", count, n);
	}
	close(ro);
	close(rw);
}

static void nobody_writes(void)
{
	static struct pinion_list_buffer rows[2 * MANY];
	uint64_t cursor = 0;
	int rw = dev_open(O_RDWR), n = walk(rw, &cursor, 10, rows, 2 * MANY);

	if (n != MANY)
		wrong("%d rows", n);
	for (int i = 0; i < n; i++)
		if (rows[i].uid || rows[i].pid != getppid())
			wrong("row %d: uid %u pid %d", i, rows[i].uid, rows[i].pid);
	close(rw);
}

/* The opener's credentials count, not those of whoever calls. */
static void nobody_with_roots_open(void)
{
	static struct pinion_list_buffer rows[2 * MANY];
	struct pinion_info before, after;
	uint64_t cursor = 0;
	int fd, n;

	expect(dev_info(dev, &before), 0, "INFO");
	fd = dev_alloc(dev, 3 * PAGE, 0);
	expect(fd, 0, "ALLOC by root's open");
	expect(dev_info(dev, &after), 0, "INFO");
	if (after.user_bytes != before.user_bytes + 3 * PAGE || after.user_buffers != before.user_buffers + 1)
		wrong("root is charged %llu bytes more", after.user_bytes - before.user_bytes);
	n = walk(dev, &cursor, 50, rows, 2 * MANY);
	if (n != MANY + 1 || rows[n - 1].uid || rows[n - 1].pid != getpid())
		wrong("%d rows, the last of uid %u and pid %d", n, rows[n - 1].uid, rows[n - 1].pid);
	close(fd);
}

static void other_users(void)
{
	static struct pinion_list_buffer rows[2 * MANY];
	int ro = dev_open(O_RDONLY), n;
	uint64_t cursor = 0;

	root_bytes = dev_bytes(dev);
	root_buffers = dev_buffers(dev);
	in_child(nobody_looks, NOBODY, "nobody, read-only");
	point("LIST", "a read-only open sees the others as one row");
	in_child(nobody_writes, NOBODY, "nobody");
	point("LIST", "an open for writing sees every row");
	in_child(nobody_with_roots_open, NOBODY, "nobody with an open of root");
	point("LIST", "what is made is the opener's");

	n = walk(ro, &cursor, 11, rows, 2 * MANY);
	if (n != MANY)
		wrong("%d rows where there are no others", n);
	close(ro);
	point("LIST", "no others, no row of them");
}

static void in_namespaces(void)
{
	static struct pinion_list_buffer rows[2 * MANY];
	uint64_t cursor = 0;
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) {
		wrong("unshare: %s", strerror(errno));
		return;
	}
	pid = fork();
	if (!pid) {
		int n = walk(dev, &cursor, 20, rows, 2 * MANY);

		for (int i = 0; i < n; i++)
			if (rows[i].uid != NOBODY || rows[i].pid)
				wrong("row %d: uid %u pid %d", i, rows[i].uid, rows[i].pid);
		if (*state_wrong)
			fprintf(stderr, "%s\n", state_wrong);
		_exit(n != MANY || *state_wrong);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		wrong("a row tells more than the namespaces do");
}

/* ---- while buffers come and go --------------------------------------------------------------------------------------- */

static _Noreturn void churn(int seed)
{
	int fds[8] = { 0 };

	for (unsigned int i = seed;; i++) {
		unsigned int at = i * 2654435761U >> 29;

		if (fds[at] > 0)
			close(fds[at]);
		fds[at] = i % 3 ? dev_slice(dev, held[0], 0, PAGE, 0) : dev_alloc(dev, PAGE * (1 + i % 5), 0);
	}
}

static void while_they_change(void)
{
	static struct pinion_list_buffer rows[4 * MANY];
	unsigned long seen = 0, rounds = 0;
	double late = until_clock() + PATIENCE_S;
	pid_t pid[3];

	for (int i = 0; i < 3; i++)
		if (!(pid[i] = fork()))
			churn(i);
	/* Until something came, at the least. */
	for (int round = 0; round < 400 || (seen == rounds * MANY && until_clock() < late); round++) {
		uint64_t cursor = 0, last = 0;
		int n = walk(dev, &cursor, 1 + round % 80, rows, 4 * MANY), mine = 0;

		if (n < MANY)
			wrong("round %d: %d rows", round, n);
		for (int i = 0; i < n; i++) {
			if (rows[i].id <= last || rows[i].uid || !rows[i].bytes || rows[i].bytes > 5 * PAGE)
				wrong("round %d: id %llu after %lu, %llu bytes", round, rows[i].id, last, rows[i].bytes);
			last = rows[i].id;
			mine += rows[i].pid == getpid();
		}
		if (mine != MANY)
			wrong("round %d: %d rows of those that stay", round, mine);
		seen += n;
		rounds++;
	}
	for (int i = 0; i < 3; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	if (seen <= rounds * MANY)
		wrong("nothing came or went");
	point("LIST", "a walk while buffers come and go sees those that stay, once");
}

int main(void)
{
	struct state start;

	dev = dev_open(O_RDWR);
	if (!tap_ok(dev >= 0, "open", "%s", strerror(-dev)))
		return tap_end();
	start = state_now(dev);
	for (int i = 0; i < MANY; i++) {
		struct pinion_bufinfo info = { 0 };

		held[i] = i % 10 == 0 ? dev_alloc(dev, (1 + i / 10 % 4) * PAGE, 0) :
					dev_slice(dev, held[i - i % 10], 0, PAGE, i % 2 ? PINION_RIGHT_WRITE : 0);
		expect(held[i], 0, "buffer %d", i);
		expect(dev_bufinfo(dev, held[i], &info), 0, "BUFINFO");
		ids[i] = info.id;
		if (i && ids[i] <= ids[i - 1])
			wrong("id %lu after %lu", ids[i], ids[i - 1]);
	}
	point("ids", "only grow");
	pieces();
	sizes_of_rows();
	arguments();
	other_users();
	in_child(in_namespaces, 0, "other namespaces");
	point("LIST", "users and processes as the reader's namespaces show them");
	while_they_change();
	for (int i = 0; i < MANY; i++)
		close(held[i]);
	state_same(dev, &start);
	point("end", "bytes, buffers and descriptors are what they were");
	close(dev);
	return tap_end();
}
