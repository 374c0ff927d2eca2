// SPDX-License-Identifier: MIT
/* Claims: races for the last of a budget, exclusive ones, claims that are handed over and outlive who made them, their figures.
 */
#define _GNU_SOURCE
#include "counts_calls.h"
#include "until.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

#define RACERS 8

static int dev;
static struct pinion_dev device;

static struct pinion_reading reading(void)
{
	struct pinion_reading row;

	expect(dev_reading(dev, &device, &row), 0, "READ");
	return row;
}

static void claimed(uint64_t bytes, uint32_t units, uint32_t claims, const char *what)
{
	static const struct pinion_info_head *head;
	const struct pinion_info_device *line;
	struct pinion_reading row = reading();

	if (!head)
		head = dev_info_page(dev_open(O_RDONLY));
	line = (void *)(head + 1 + device.index);
	if (row.claimed_bytes != bytes || row.claimed_units != units || row.claims != claims)
		wrong("%s: claims of %llu bytes and %u units, %u of them, not %lu, %u, %u", what, row.claimed_bytes,
		      row.claimed_units, row.claims, bytes, units, claims);
	if (line->claimed_bytes != bytes || line->claimed_units != units || line->claims != claims ||
	    line->budget != row.budget || line->capacity != row.capacity || line->generation != device.generation)
		wrong("%s: the info page says %llu bytes and %u units, %u of them", what, line->claimed_bytes,
		      line->claimed_units, line->claims);
	if (rows_there(dev, PINION_LIST_RESERVATIONS) != (int)claims)
		wrong("%s: %d rows of %u claims", what, rows_there(dev, PINION_LIST_RESERVATIONS), claims);
}

/* ---- races ------------------------------------------------------------------------------------------------------------- */

/* Shared by the racers: where they are, and who of them won. */
static struct track {
	uint32_t round, there, done, won[RACERS], holders, collisions;
	uint32_t error;
} * track;

#define NEXT(word) __atomic_add_fetch(&track->word, 1, __ATOMIC_SEQ_CST)

static void until(const uint32_t *word, uint32_t value)
{
	for (int i = 0; __atomic_load_n(word, __ATOMIC_SEQ_CST) < value; i++)
		if (i < 2)
			sched_yield();
		else
			usleep(50);
}

/* The next child that ends. */
static bool ended_badly(void)
{
	int status;

	return wait(&status) < 0 || status;
}

/* Each round: all at once, then all hold what they got until the judge has seen it. */
static void racer(int who, uint32_t rounds, uint64_t bytes, uint32_t units)
{
	int fd = dev_open(O_RDWR);

	for (uint32_t round = 1; round <= rounds; round++) {
		int claim;

		NEXT(there);
		until(&track->round, 2 * round - 1);
		claim = dev_reserve(fd, &device, bytes, units, 0);
		track->won[who] = claim >= 0;
		if (claim < 0 && claim != -ENOSPC)
			track->error = -claim;
		NEXT(done);
		until(&track->round, 2 * round);
		if (claim >= 0)
			close(claim);
	}
	NEXT(there);
	_exit(0);
}

static void race(uint32_t rounds, uint64_t bytes, uint32_t units, const char *what)
{
	memset(track, 0, sizeof(*track));
	for (int i = 0; i < RACERS; i++)
		if (!fork())
			racer(i, rounds, bytes, units);
	for (uint32_t round = 1; round <= rounds; round++) {
		uint32_t won = 0;

		until(&track->there, RACERS * round);
		claimed(0, 0, 0, "between rounds");
		__atomic_store_n(&track->round, 2 * round - 1, __ATOMIC_SEQ_CST);
		until(&track->done, RACERS * round);
		for (int i = 0; i < RACERS; i++)
			won += track->won[i];
		if (won != 4)
			wrong("round %u: %u won", round, won);
		claimed(4 * bytes, 4 * units, 4, "in a round");
		__atomic_store_n(&track->round, 2 * round, __ATOMIC_SEQ_CST);
	}
	if (track->error)
		wrong("a claim ended with %s", strerror(track->error));
	until(&track->there, RACERS * (rounds + 1));
	for (int i = 0; i < RACERS; i++)
		if (ended_badly())
			wrong("a racer failed");
	claimed(0, 0, 0, "at the end");
	point("claims", what);
}

/* Whoever has it exclusively is alone; some ask for a part in between. */
static void exclusive_racer(uint32_t rounds, bool part)
{
	int fd = dev_open(O_RDWR);

	for (uint32_t won = 0, tries = 0; won < rounds;) {
		int claim = part ? dev_reserve(fd, &device, PAGE, 0, 0) :
				   dev_reserve(fd, &device, 0, 0, PINION_RESERVE_EXCLUSIVE);

		if (claim == -EBUSY) {
			if (++tries % 16)
				sched_yield();
			else
				usleep(50);
			continue;
		}
		if (claim < 0) {
			track->error = -claim;
			_exit(1);
		}
		won++;
		/* A holder of all counts as 1000 of a part. */
		if (part ? __atomic_add_fetch(&track->holders, 1, __ATOMIC_SEQ_CST) >= 1000 :
			   __atomic_add_fetch(&track->holders, 1000, __ATOMIC_SEQ_CST) != 1000)
			NEXT(collisions);
		if (won % 4 == 0)
			sched_yield();
		__atomic_sub_fetch(&track->holders, part ? 1 : 1000, __ATOMIC_SEQ_CST);
		close(claim);
		if (won % 16 == 0)
			usleep(100);
	}
	_exit(0);
}

static void exclusive_race(void)
{
	memset(track, 0, sizeof(*track));
	for (int i = 0; i < RACERS; i++)
		if (!fork())
			exclusive_racer(500 / RACERS + 1, i >= 6);
	for (int i = 0; i < RACERS; i++)
		if (ended_badly())
			wrong("a racer failed: %s", strerror(track->error));
	if (track->collisions || track->holders)
		wrong("%u collisions, %u holders at the end", track->collisions, track->holders);
	claimed(0, 0, 0, "at the end");
	point("claims", "exclusive ones never meet another in 500 rounds");
}

/* ---- figures ----------------------------------------------------------------------------------------------------------- */

static int reserve_most(const struct pinion_dev *of, uint64_t bytes, uint32_t units, uint64_t most_bytes, uint32_t most_units)
{
	struct pinion_reserve r = { .size = sizeof(r),
				    .index = of->index,
				    .units = units,
				    .generation = of->generation,
				    .bytes = bytes,
				    .most_bytes = most_bytes,
				    .most_units = most_units };
	int ret = dev_call(dev, PINION_IOC_RESERVE, &r);

	return ret ? ret : r.fd;
}

static void is_claim(int fd, uint64_t bytes, uint32_t units, uint32_t flags)
{
	struct pinion_reserve r = { .size = sizeof(r), .fd = fd };

	expect(dev_call(dev, PINION_IOC_CLAIMINFO, &r), 0, "CLAIMINFO");
	if (r.bytes != bytes || r.units != units || r.flags != flags || r.generation != device.generation ||
	    r.index != device.index || r.fd != fd || r.most_bytes || r.most_units)
		wrong("CLAIMINFO says %llu bytes, %u units, flags %x", r.bytes, r.units, r.flags);
}

static void figures(void)
{
	const uint64_t all = device.budget;
	int a, b, c;

	a = reserve_most(&device, all / 2, 1, 0, 0);
	claimed(all / 2, 1, 1, "half");
	is_claim(a, all / 2, 1, 0);
	expect(reserve_most(&device, all / 2 + 1, 0, 0, 0), -ENOSPC, "a byte more than the rest");
	expect(reserve_most(&device, 0, 4, 0, 0), -ENOSPC, "a unit more than the rest");
	expect(reserve_most(&device, all / 2, 4, 0, 0), -ENOSPC, "bytes that fit with units that do not");
	claimed(all / 2, 1, 1, "refused ones change nothing");
	b = reserve_most(&device, all / 2, 3, 0, 0);
	claimed(all, 4, 2, "all of it");
	expect(reserve_most(&device, 1, 0, 0, 0), -ENOSPC, "a byte of none");
	expect(reserve_most(&device, 0, 1, 0, 0), -ENOSPC, "a unit of none");
	close(a);
	claimed(all / 2, 3, 1, "half of it given back");
	/* dup() is the same claim. */
	c = dup(b);
	close(b);
	claimed(all / 2, 3, 1, "a duplicate holds it");
	is_claim(c, all / 2, 3, 0);
	close(c);
	claimed(0, 0, 0, "the last close");
	point("claims", "fit into the budget and the capacity, or not");

	a = reserve_most(&device, PAGE, 2, 3 * PAGE, 3);
	expect(a, 0, "within one's own bounds");
	is_claim(a, PAGE, 2, 0);
	expect(reserve_most(&device, 2 * PAGE + 1, 0, 3 * PAGE, 0), -ENOSPC, "over one's own bytes");
	expect(reserve_most(&device, 0, 2, 0, 3), -ENOSPC, "over one's own units");
	expect(b = reserve_most(&device, 2 * PAGE, 1, 3 * PAGE, 3), 0, "up to one's own bounds");
	close(b);
	/* They tighten, and do not widen. */
	expect(reserve_most(&device, all, 0, 2 * all, 0), -ENOSPC, "one's own bytes above the budget");
	expect(reserve_most(&device, 0, 3, 0, 100), -ENOSPC, "one's own units above the capacity");
	expect(b = reserve_most(&device, all - PAGE, 2, ~0ULL, ~0U), 0, "all that is left");
	close(b);
	close(a);
	point("claims", "most_bytes and most_units tighten what there is");

	a = dev_reserve(dev, &device, 0, 0, PINION_RESERVE_EXCLUSIVE);
	claimed(~0ULL, 0, 1, "exclusive");
	is_claim(a, 0, 0, PINION_RESERVE_EXCLUSIVE);
	expect(dev_reserve(dev, &device, 1, 0, 0), -EBUSY, "a byte beside it");
	expect(dev_reserve(dev, &device, 0, 1, 0), -EBUSY, "a unit beside it");
	expect(dev_reserve(dev, &device, 0, 0, PINION_RESERVE_EXCLUSIVE), -EBUSY, "another beside it");
	expect(dev_reserve(dev, &device, 2 * all, 0, 0), -EBUSY, "too much beside it");
	close(a);
	a = dev_reserve(dev, &device, all, 4, PINION_RESERVE_EXCLUSIVE);
	claimed(~0ULL, 4, 1, "exclusive, with figures of its own");
	close(a);
	expect(dev_reserve(dev, &device, all + 1, 0, PINION_RESERVE_EXCLUSIVE), -ENOSPC, "exclusive, and more than there is");
	claimed(0, 0, 0, "after exclusive ones");
	point("claims", "exclusive: the device and nobody else");
}

static int add_with(const char *key, uint64_t budget, uint32_t capacity, struct pinion_dev *out)
{
	*out = (struct pinion_dev){ .size = sizeof(*out), .budget = budget, .capacity = capacity };
	strcpy(out->key, key);
	return dev_call(dev, PINION_IOC_DEV_ADD, out);
}

static void none_to_claim(void)
{
	struct pinion_dev no_budget, no_capacity, none;
	struct pinion_reading row;
	int a, b;

	expect(add_with("no-budget", 0, 2, &no_budget), 0, "DEV_ADD");
	expect(add_with("no-capacity", PAGE, 0, &no_capacity), 0, "DEV_ADD");
	expect(add_with("none", 0, 0, &none), 0, "DEV_ADD");
	expect(dev_reserve(dev, &no_budget, 1, 0, 0), -ENODATA, "bytes of no budget");
	expect(dev_reserve(dev, &no_budget, 1, 1, 0), -ENODATA, "bytes of no budget, and units");
	expect(dev_reserve(dev, &no_capacity, 0, 1, 0), -ENODATA, "units of no capacity");
	expect(a = dev_reserve(dev, &no_budget, 0, 2, 0), 0, "units without a budget");
	expect(b = dev_reserve(dev, &no_capacity, PAGE, 0, 0), 0, "bytes without a capacity");
	close(a);
	close(b);
	/* Exclusive needs neither. */
	expect(a = dev_reserve(dev, &none, 0, 0, PINION_RESERVE_EXCLUSIVE), 0, "exclusive without either");
	expect(dev_reserve(dev, &none, 0, 0, PINION_RESERVE_EXCLUSIVE), -EBUSY, "twice");
	close(a);
	/* A bound of one's own is one where the device has none. */
	expect(a = reserve_most(&none, PAGE, 0, PAGE, 0), 0, "one's own bound alone");
	close(a);
	point("claims", "ENODATA where there is nothing to claim from");

	/* A budget that shrinks below what is claimed takes nothing away. */
	expect(a = dev_reserve(dev, &no_capacity, PAGE, 0, 0), 0, "all of a budget");
	no_capacity.set = PINION_SET_BUDGET;
	no_capacity.budget = PAGE / 2;
	no_capacity.flags = 0;
	expect(dev_call(dev, PINION_IOC_DEV_SET, &no_capacity), 0, "DEV_SET");
	expect(dev_reading(dev, &no_capacity, &row), 0, "READ");
	if (row.claimed_bytes != PAGE || row.budget != PAGE / 2)
		wrong("%llu claimed of %llu", row.claimed_bytes, row.budget);
	expect(dev_reserve(dev, &no_capacity, 1, 0, 0), -ENOSPC, "a byte of less than nothing");
	close(a);
	expect(a = dev_reserve(dev, &no_capacity, PAGE / 2, 0, 0), 0, "all of the smaller budget");
	close(a);
	dev_del(dev, &no_budget, 0);
	dev_del(dev, &no_capacity, 0);
	dev_del(dev, &none, 0);
	point("claims", "a budget that shrinks takes nothing away");
}

/* ---- who holds it ------------------------------------------------------------------------------------------------------ */

static int send_fd(int socket, int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec one = { "x", 1 };
	struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return sendmsg(socket, &m, 0) == 1 ? 0 : -errno;
}

static int receive_fd(int socket)
{
	char bytes[CMSG_SPACE(sizeof(int))], c;
	struct iovec one = { &c, 1 };
	struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1, .msg_control = bytes, .msg_controllen = sizeof(bytes) };
	int fd = -1;

	if (recvmsg(socket, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

/* A child claims half, sends it to @socket and waits to be killed. If it cannot, nobody is at the other end. */
static pid_t router(int *socket, bool sends)
{
	int pair[2], fd, claim;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		wrong("socketpair: %s", strerror(errno));
	*socket = pair[0];
	pid = fork();
	if (pid) {
		close(pair[1]);
		return pid;
	}
	close(pair[0]);
	fd = dev_open(O_RDWR);
	claim = dev_reserve(fd, &device, device.budget / 2, 2, 0);
	if (claim < 0 || (sends ? send_fd(pair[1], claim) : write(pair[1], "x", 1) != 1))
		_exit(1);
	pause();
	_exit(1);
}

static void handed_over(void)
{
	const uint64_t half = device.budget / 2;
	struct pinion_list_claim row[4];
	int socket, claim, n;
	pid_t pid;

	pid = router(&socket, true);
	claim = receive_fd(socket);
	n = list_rows(dev, PINION_LIST_RESERVATIONS, row, sizeof(row[0]), 4);
	if (n != 1 || row[0].pid != pid || row[0].uid || row[0].bytes != half || row[0].units != 2 || row[0].claims != 1 ||
	    row[0].generation != device.generation || row[0].index != device.index || row[0].flags || !row[0].made_ns)
		wrong("its row: %d rows, pid %d, %llu bytes", n, row[0].pid, row[0].bytes);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	claimed(half, 2, 1, "its maker was killed");
	is_claim(claim, half, 2, 0);
	n = list_rows(dev, PINION_LIST_RESERVATIONS, row, sizeof(row[0]), 4);
	if (n != 1 || row[0].pid != pid || row[0].bytes != half)
		wrong("its row after that: %d rows, pid %d", n, row[0].pid);
	close(claim);
	close(socket);
	claimed(0, 0, 0, "the receiver closed it");

	/* On its way it is held by nobody's table. */
	pid = router(&socket, true);
	if (poll(&(struct pollfd){ .fd = socket, .events = POLLIN }, 1, PATIENCE_MS) != 1)
		wrong("nothing is sent");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	claimed(half, 2, 1, "on its way");
	claim = receive_fd(socket);
	is_claim(claim, half, 2, 0);
	close(claim);
	claimed(0, 0, 0, "after its way");
	close(socket);
	point("claims", "handed over, one outlives its maker");
}

/* The last holder is killed: free when waitpid() returns. */
static void killed(void)
{
	int socket, late = 0, never = 0;
	char c;

	for (int i = 0; i < 100; i++) {
		pid_t pid = router(&socket, false);

		if (read(socket, &c, 1) != 1)
			wrong("no claim");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(socket);
		if (!reading().claims)
			continue;
		late++;
		never += !eventually(!reading().claims);
	}
	printf("# of 100 holders killed, the claim of %d was there when waitpid() returned\n", late);
	if (late || never)
		wrong("%d times it was there when waitpid() returned, %d times %d s later", late, never, PATIENCE_S);
	claimed(0, 0, 0, "at the end");
	point("claims", "the last holder is killed: free when waitpid() returns");
}

/* A child that forked holds it too; exec closes it. */
static void inherited(void)
{
	int claim = dev_reserve(dev, &device, PAGE, 0, 0);
	pid_t pid = fork();

	if (!pid) {
		pause();
		_exit(0);
	}
	close(claim);
	claimed(PAGE, 0, 1, "a child holds it");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	claimed(0, 0, 0, "the child was killed");
	point("claims", "a child holds what its parent had");
}

/* Who waits for a change sees a claim come and go. */
static void change_is_seen(void)
{
	struct pinion_reading row = reading();
	int watch = dev_watch(dev, &device, PINION_SCOPE_EVERY, PINION_COND_CHANGED, row.cookie), claim;
	struct pollfd p = { .fd = watch, .events = POLLIN };
	struct pinion_event event;

	if (poll(&p, 1, 0))
		wrong("something changed before");
	claim = dev_reserve(dev, &device, PAGE, 0, 0);
	if (poll(&p, 1, PATIENCE_MS) != 1 || read(watch, &event, sizeof(event)) != sizeof(event) || event.cookie == row.cookie)
		wrong("a claim is no change");
	if (poll(&p, 1, 0))
		wrong("something changed after");
	close(claim);
	if (poll(&p, 1, PATIENCE_MS) != 1)
		wrong("the end of a claim is no change");
	close(watch);
	point("claims", "come and go as changes");
}

int main(void)
{
	dev = dev_open(O_RDWR);
	track = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	expect(dev, 0, "open");
	expect(dev_add(dev, "claims", &device), 0, "DEV_ADD");
	if (!point("start", "a device"))
		return tap_end();
	figures();
	none_to_claim();
	race(200, device.budget / 4, 0, "of 8 that want a quarter each 4 win, 200 rounds");
	race(200, 0, device.capacity / 4, "of 8 that want a unit of 4 each 4 win, 200 rounds");
	exclusive_race();
	handed_over();
	killed();
	inherited();
	change_is_seen();
	close(dev);
	nothing_left();
	return tap_end();
}
