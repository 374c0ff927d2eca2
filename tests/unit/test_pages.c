/* SPDX-License-Identifier: MIT */
/* Which pages a buffer is made of, on which node, and how they come to be there. */
#include "ground.h"
#include "group.h"
#include "harness.h"
#include "setting.h"

#include "machine/cpus.h"
#include "memory/buffer.h"
#include "provider/populate.h"

#include <numa.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#define MIB	  (UINT64_C(1) << 20)
#define GIB	  (UINT64_C(1) << 30)
#define BOTH	  (PINION_READ | PINION_WRITE)
#define POOL_2M	  "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define POOL_1G	  "/sys/kernel/mm/hugepages/hugepages-1048576kB/"
#define SHMEM_THP "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

static struct pinion_context *ctx;
static struct setting set;
static unsigned int fds_before;

/* The kinds of pages here are those of a memfd, so on both grounds that is what is asked for. */
static int open_memfd(struct pinion_context **out)
{
	struct pinion_open_opts opts = { .size = sizeof(opts), .ground = "memfd" };

	return pinion_open(&opts, out);
}

static void setup(void)
{
	set = (struct setting){ .alive = -1, .lock = -1 };
	ck_ok(open_memfd(&ctx));
	fds_before = fds_open();
}

static void teardown(void)
{
	setting_end(&set);
	ck_assert_uint_eq(fds_open(), fds_before);
	pinion_close(ctx);
}

static uint64_t number_in(const char *path)
{
	char text[64];

	return setting_read(path, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

static uint64_t free_2m(void)
{
	return number_in(POOL_2M "free_hugepages") - number_in(POOL_2M "resv_hugepages");
}

/* So many pages more in a pool than there are; false where that cannot be. */
static bool grow(const char *pool, uint64_t pages)
{
	char path[128], value[32];
	uint64_t before;

	snprintf(path, sizeof(path), "%snr_hugepages", pool);
	before = number_in(path);
	snprintf(value, sizeof(value), "%llu", (unsigned long long)(before + pages));
	if (access(path, W_OK) || !setting_begin(&set, path, value))
		return false;
	if (number_in(path) == before + pages)
		return true;
	setting_end(&set);
	return false;
}

#define NEED_POOL(pool, pages)                                                     \
	do {                                                                       \
		if (!grow(pool, pages))                                            \
			SKIP("the pool of huge pages cannot be made larger here"); \
	} while (0)

static int alloc(enum pinion_pages pages, bool prefer, uint64_t bytes, struct pinion_buffer **buf)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .pages = pages, .prefer_pages = prefer };

	return pinion_buffer_alloc(ctx, bytes, &opts, buf);
}

static struct pinion_buffer_info info_of(struct pinion_buffer *buf)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };

	ck_ok(pinion_buffer_info(buf, &info));
	return info;
}

/* A line of the entry of /proc/self/smaps whose mapping begins at @addr, in kB. */
static uint64_t smaps_kb(const void *addr, const char *key)
{
	char line[512], head[32];
	uint64_t kb = 0;
	bool here = false;
	FILE *f = fopen("/proc/self/smaps", "r");

	snprintf(head, sizeof(head), "%lx-", (unsigned long)addr);
	while (fgets(line, sizeof(line), f)) {
		here = here ? strncmp(line, "VmFlags:", 8) != 0 : !strncmp(line, head, strlen(head));
		if (here && !strncmp(line, key, strlen(key)))
			kb = strtoull(line + strlen(key) + 1, NULL, 10);
	}
	fclose(f);
	return kb;
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

/* What is in a buffer of the pool: that it is of such pages, and shared, written and sealed as any other. */
static void use(struct pinion_buffer *buf, uint64_t size)
{
	struct pinion_buffer_info info = info_of(buf);
	struct pinion_buffer *other = NULL;
	int sock[2];
	char *w, *r;

	ck_assert_uint_eq(info.page_size, size);
	ck_assert_uint_eq(info.huge_bytes, info.bytes);
	ck_assert_int_eq(info.pages, size == GIB ? PINION_PAGES_1G : PINION_PAGES_2M);
	ck_assert_str_eq(info.pages_why, "");
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	ck_assert_uint_eq(smaps_kb(w, "KernelPageSize:"), size / 1024);
	ck_assert_uint_eq((uintptr_t)w % size, 0);
	for (uint64_t at = 0; at < info.bytes; at += MIB)
		ck_assert_int_eq(w[at], 0);
	w[info.bytes - 1] = 'z';
	ck_ok(pinion_buffer_unmap(buf, BOTH));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	ck_ok(pinion_buffer_send(buf, sock[0], PINION_READ));
	ck_ok(pinion_buffer_recv(ctx, sock[1], &other));
	close(sock[0]);
	close(sock[1]);
	ck_ok(pinion_buffer_map(other, PINION_READ, (void **)&r));
	ck_assert_int_eq(r[info.bytes - 1], 'z');
	ck_assert_int_eq(pinion_buffer_map(other, BOTH, (void **)&w), -EPERM);
	ck_assert_uint_eq(info_of(other).page_size, size);
	ck_assert_int_eq(info_of(other).pages, info.pages);
	pinion_buffer_unref(other);
}

START_TEST(pages_of_2_mib_come_from_the_pool_and_go_back)
{
	struct pinion_buffer *buf = NULL;
	uint64_t before;

	NEED_POOL(POOL_2M, 8);
	before = free_2m();
	ck_ok(alloc(PINION_PAGES_2M, false, 3 * 2 * MIB + 1, &buf));
	ck_assert_uint_eq(pinion_buffer_size(buf), 8 * MIB);
	ck_assert_uint_eq(free_2m(), before - 4);
	use(buf, 2 * MIB);
	pinion_buffer_unref(buf);
	for (int i = 0; i < 1000 && free_2m() != before; i++)
		usleep(20000);
	ck_assert_uint_eq(free_2m(), before);
}
END_TEST

START_TEST(pages_of_1_gib_come_from_the_pool)
{
	struct pinion_buffer *buf = NULL;

	NEED_POOL(POOL_1G, 1);
	ck_ok(alloc(PINION_PAGES_1G, false, 1, &buf));
	ck_assert_uint_eq(pinion_buffer_size(buf), GIB);
	use(buf, GIB);
	pinion_buffer_unref(buf);
}
END_TEST

/* Report daqiri#56, row 40 of the reports: what failed leaves nothing that blocks the next. */
START_TEST(row_40_a_pool_that_is_short_is_refused_with_the_line_to_type_and_a_small_one_works)
{
	struct pinion_buffer *buf = NULL;
	const char *line;
	char words[64], cmd[256];
	uint64_t before;

	NEED_POOL(POOL_2M, 4);
	before = free_2m();
	ck_assert_int_eq(alloc(PINION_PAGES_2M, false, (before + 20) * 2 * MIB, &buf), -ENOMEM);
	ck_assert_ptr_null(buf);
	snprintf(words, sizeof(words), "needs %llu huge pages of 2 MiB, %llu of", (unsigned long long)before + 20,
		 (unsigned long long)before);
	ck_assert_msg(strstr(pinion_error(), words) != NULL, "%s", pinion_error());
	line = strstr(pinion_error(), "as root: ");
	ck_assert_ptr_nonnull(line);
	snprintf(cmd, sizeof(cmd), "%.*s", (int)strcspn(line + strlen("as root: "), ";"), line + strlen("as root: "));
	ck_assert_uint_eq(free_2m(), before);
	ck_ok(alloc(PINION_PAGES_2M, false, 2 * MIB, &buf));
	pinion_buffer_unref(buf);
	buf = NULL;
	/* The line that it says, typed; again where the kernel had not as much in one piece. */
	for (int i = 0; i < 50 && (!i || free_2m() < before + 20); i++) {
		usleep(i ? 100000 : 0);
		ck_assert_msg(!system(cmd), "%s", cmd);
	}
	if (free_2m() < before + 20)
		SKIP("the kernel has not as much memory in pieces of 2 MiB");
	ck_ok(alloc(PINION_PAGES_2M, false, (before + 20) * 2 * MIB, &buf));
	pinion_buffer_unref(buf);
}
END_TEST

START_TEST(a_pool_that_is_empty_is_refused_with_the_line_to_type)
{
	struct pinion_buffer *buf = NULL;
	int ret = alloc(PINION_PAGES_1G, false, (number_in(POOL_1G "nr_hugepages") + 1) * GIB, &buf);

	ck_assert_ptr_null(buf);
	ck_assert_msg(ret == -EOPNOTSUPP || ret == -ENOMEM, "%d", ret);
	ck_assert_msg(strstr(pinion_error(), access(POOL_1G, X_OK) ? "no pool" : "echo ") != NULL, "%s", pinion_error());
}
END_TEST

START_TEST(pages_that_are_preferred_are_had_or_the_next_best_with_the_reason)
{
	struct pinion_buffer *buf = NULL;
	struct pinion_buffer_info info;
	uint64_t have;

	NEED_POOL(POOL_2M, 4);
	have = free_2m();
	ck_ok(alloc(PINION_PAGES_2M, true, 4 * MIB, &buf));
	use(buf, 2 * MIB);
	pinion_buffer_unref(buf);
	ck_ok(alloc(PINION_PAGES_2M, true, (have + 1) * 2 * MIB, &buf));
	info = info_of(buf);
	ck_assert_msg(info.pages == PINION_PAGES_SMALL || info.pages == PINION_PAGES_THP, "%d", info.pages);
	ck_assert_msg(strstr(info.pages_why, "nr_hugepages") != NULL, "%s", info.pages_why);
	pinion_buffer_unref(buf);
	ck_ok(alloc(PINION_PAGES_1G, true, 1, &buf));
	ck_assert_msg(strstr(info_of(buf).pages_why, "1 GiB") != NULL, "%s", info_of(buf).pages_why);
	ck_assert_int_eq(info_of(buf).pages, PINION_PAGES_2M);
	pinion_buffer_unref(buf);
	ck_ok(alloc(PINION_PAGES_SMALL, true, 1, &buf));
	ck_assert_int_eq(info_of(buf).pages, PINION_PAGES_SMALL);
	ck_assert_str_eq(info_of(buf).pages_why, "");
	pinion_buffer_unref(buf);
}
END_TEST

/* Report sglang#34972, row 14: free huge pages count, whatever else is free. */
START_TEST(row_14_huge_pages_of_either_kind_do_where_huge_ones_are_asked_for)
{
	struct pinion_buffer *buf = NULL;

	NEED_POOL(POOL_2M, 4);
	ck_ok(alloc(PINION_PAGES_HUGE, false, 4 * 2 * MIB, &buf));
	use(buf, 2 * MIB);
	pinion_buffer_unref(buf);
}
END_TEST

/* As an ordinary user with little RLIMIT_MEMLOCK, of which pages of the pool take none. The number of what went wrong. */
static int hold_pages_of_the_pool(void)
{
	struct rlimit lim = { 65536, 65536 };
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_context *own;
	struct pinion_buffer *buf;
	void *addr;

	if (setrlimit(RLIMIT_MEMLOCK, &lim) || (!geteuid() && (setgid(65534) || setuid(65534))))
		return 1;
	if (open_memfd(&own))
		return 2;
	ctx = own;
	if (alloc(PINION_PAGES_2M, false, 4 * MIB, &buf) || pinion_buffer_info(buf, &info))
		return 3;
	if (info.hold != PINION_HOLD_LOCKED)
		return 4;
	if (pinion_buffer_seal(buf) || pinion_buffer_info(buf, &info))
		return 5;
	if (info.hold != PINION_HOLD_LOCKED || !strstr(info.hold_why, "never swapped"))
		return fprintf(stderr, "%s\n", info.hold_why), 6;
	if (pinion_buffer_map(buf, PINION_READ, &addr) || buffer_lock_mapping(buf, PINION_READ))
		return 7;
	pinion_buffer_unref(buf);
	pinion_close(own);
	return 0;
}

START_TEST(pages_of_the_pool_are_held_however_little_may_be_locked_and_sealed_too)
{
	char dir[PATH_MAX];
	int status;
	pid_t pid;

	NEED_POOL(POOL_2M, 4);
	snprintf(dir, sizeof(dir), "%s/dir-XXXXXX", test_tmp());
	ck_assert_ptr_nonnull(mkdtemp(dir));
	if (!geteuid())
		ck_assert_int_eq(chown(dir, 65534, 65534), 0);
	pid = fork();
	if (!pid) {
		/* The user may not come through what is above. */
		if (chdir(dir) || setenv("PINION_DIR", ".", 1))
			_exit(20);
		_exit(hold_pages_of_the_pool());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(a_killed_owner_gives_the_pool_its_pages_back)
{
	struct pinion_buffer *buf;
	uint64_t before;
	int ready[2];
	pid_t pid;
	char c;

	NEED_POOL(POOL_2M, 4);
	before = free_2m();
	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		struct pinion_context *own;

		if (open_memfd(&own))
			_exit(1);
		ctx = own;
		if (alloc(PINION_PAGES_2M, false, 8 * MIB, &buf) || write(ready[1], "r", 1) != 1)
			_exit(2);
		for (;;)
			pause();
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	close(ready[0]);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	/* A ring that pins pages is undone a moment later. */
	for (int i = 0; i < 1000 && free_2m() != before; i++)
		usleep(20000);
	ck_assert_uint_eq(free_2m(), before);
}
END_TEST

/* ---- transparent ones -------------------------------------------------------------------------------------------- */

/* On a machine that is the test's own they may be given to everyone. */
static bool give_thp(void)
{
	struct pinion_context_info info = { .size = sizeof(info) };

	if (getenv("PINION_TEST_OWN_MACHINE"))
		setting_begin(&set, SHMEM_THP, "advise");
	ck_ok(pinion_context_info(ctx, &info));
	return info.huge_size;
}

START_TEST(transparent_huge_pages_are_all_of_it_or_an_error)
{
	struct pinion_buffer *buf = NULL;
	struct pinion_buffer_info info;

	if (!give_thp()) {
		ck_assert_int_eq(alloc(PINION_PAGES_THP, false, 1, &buf), -EOPNOTSUPP);
		ck_assert_ptr_null(buf);
		SKIP("shmem_enabled gives no huge pages");
	}
	ck_ok(alloc(PINION_PAGES_THP, false, 4 * MIB + 1, &buf));
	info = info_of(buf);
	ck_assert_int_eq(info.pages, PINION_PAGES_THP);
	ck_assert_uint_eq(info.huge_bytes, info.bytes);
	ck_assert_str_eq(info.pages_why, "");
	pinion_buffer_unref(buf);
	ck_ok(alloc(PINION_PAGES_AUTO, false, 4 * MIB, &buf));
	ck_assert_int_eq(info_of(buf).pages, PINION_PAGES_THP);
	pinion_buffer_unref(buf);
	/* Preferred, what fills none is small. */
	ck_ok(alloc(PINION_PAGES_THP, true, 4096, &buf));
	ck_assert_int_eq(info_of(buf).pages, PINION_PAGES_SMALL);
	pinion_buffer_unref(buf);
}
END_TEST

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static int alloc_on(enum pinion_numa numa, unsigned int node, uint64_t bytes, struct pinion_buffer **buf)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .numa = numa, .node = node };

	return pinion_buffer_alloc(ctx, bytes, &opts, buf);
}

static bool has_memory(unsigned int node)
{
	if (numa_available() < 0)
		return node == 0;
	return node <= (unsigned int)numa_max_node() && numa_node_size64(node, NULL) > 0;
}

/* Pages of the mapping at @addr that are on other nodes, as the kernel's own table has it. */
static unsigned int pages_elsewhere(const void *addr, unsigned int node)
{
	char line[1024], head[32], *at, *save;
	unsigned int other = 0;
	FILE *f = fopen("/proc/self/numa_maps", "r");

	if (!f)
		return 0;
	snprintf(head, sizeof(head), "%lx ", (unsigned long)addr);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, head, strlen(head)))
			continue;
		for (at = strtok_r(line, " \n", &save); at; at = strtok_r(NULL, " \n", &save)) {
			unsigned int n, pages;

			if (sscanf(at, "N%u=%u", &n, &pages) == 2 && n != node)
				other += pages;
		}
	}
	fclose(f);
	return other;
}

/* Report ROCm/hip#3351, row 29. */
START_TEST(row_29_memory_is_on_the_node_that_was_asked_for)
{
	enum pinion_numa numa;

	for (unsigned int node = 0; node < 8; node++)
		for (numa = PINION_NUMA_PREFERRED; has_memory(node) && numa <= PINION_NUMA_STRICT; numa++) {
			struct pinion_buffer *buf = NULL;
			void *addr;

			ck_ok(alloc_on(numa, node, 16 * MIB + 4096, &buf));
			ck_assert_uint_eq(info_of(buf).node_bytes, info_of(buf).bytes);
			ck_ok(pinion_buffer_map(buf, BOTH, &addr));
			ck_assert_uint_eq(pages_elsewhere(addr, node), 0);
			pinion_buffer_unref(buf);
		}
}
END_TEST

START_TEST(row_29_a_node_that_is_not_there_is_refused_by_name)
{
	enum pinion_numa numa;
	char name[32];
	unsigned int node = 7;

	while (has_memory(node))
		node++;
	snprintf(name, sizeof(name), "NUMA node %u", node);
	for (numa = PINION_NUMA_PREFERRED; numa <= PINION_NUMA_STRICT; numa++) {
		struct pinion_buffer *buf = NULL;

		ck_assert_int_eq(alloc_on(numa, node, MIB, &buf), -EINVAL);
		ck_assert_ptr_null(buf);
		ck_assert_msg(strstr(pinion_error(), name) != NULL, "%s", pinion_error());
		ck_assert_ptr_nonnull(strstr(pinion_error(), "0"));
		ck_assert_int_eq(alloc_on(numa, UINT32_MAX, MIB, &buf), -EINVAL);
	}
	ck_assert_int_eq(alloc_on(PINION_NUMA_ANY, 1, MIB, &(struct pinion_buffer *){ NULL }), -EINVAL);
	ck_assert_int_eq(alloc_on(PINION_NUMA_STRICT + 1, 0, MIB, &(struct pinion_buffer *){ NULL }), -EINVAL);
}
END_TEST

static uint64_t node_total(unsigned int node)
{
	long long bytes = numa_available() < 0 ? -1 : numa_node_size64(node, NULL);

	return bytes > 0 ? bytes : 0;
}

static uint64_t shmem_kb(void)
{
	char line[256];
	uint64_t kb = 0;
	FILE *f = fopen("/proc/meminfo", "r");

	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "Shmem:", 6))
			kb = strtoull(line + 6, NULL, 10);
	fclose(f);
	return kb;
}

START_TEST(more_than_a_node_has_is_refused_with_its_room_or_goes_to_another)
{
	unsigned int least = 0, nodes = 0;
	struct pinion_buffer *buf = NULL;
	bool back = false;
	uint64_t bytes;

	for (unsigned int n = 0; n < 8; n++)
		if (has_memory(n) && ++nodes && node_total(n) <= node_total(least))
			least = n;
	if (nodes < 2)
		SKIP("a machine with one node");
	bytes = node_total(least) + 32 * MIB;
	/* What others do moves the machine's figure, but not each time. */
	for (int i = 0; i < 10 && !back; i++) {
		uint64_t shmem = shmem_kb();

		ck_assert_int_eq(alloc_on(PINION_NUMA_STRICT, least, bytes, &buf), -ENOMEM);
		ck_assert_ptr_null(buf);
		ck_assert_msg(strstr(pinion_error(), "/meminfo") || strstr(pinion_error(), "MemAvailable"), "%s", pinion_error());
		back = shmem_kb() <= shmem + 8192;
	}
	ck_assert(back);
	ck_ok(alloc_on(PINION_NUMA_PREFERRED, least, bytes, &buf));
	ck_assert_uint_gt(info_of(buf).node_bytes, 0);
	ck_assert_uint_lt(info_of(buf).node_bytes, info_of(buf).bytes);
	pinion_buffer_unref(buf);
}
END_TEST

START_TEST(pages_of_the_pool_are_on_the_node_that_was_asked_for)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .pages = PINION_PAGES_2M, .numa = PINION_NUMA_STRICT };
	struct pinion_buffer *buf = NULL;

	NEED_POOL("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/", 4);
	ck_ok(pinion_buffer_alloc(ctx, 8 * MIB, &opts, &buf));
	ck_assert_uint_eq(info_of(buf).node_bytes, 8 * MIB);
	pinion_buffer_unref(buf);
	ck_assert_int_eq(pinion_buffer_alloc(ctx, UINT64_C(1) << 40, &opts, &buf), -ENOMEM);
}
END_TEST

struct told {
	uint64_t done, total;
	unsigned int calls, until; /* says no at that one */
};

static int tell(void *arg, uint64_t done, uint64_t total)
{
	struct told *t = arg;

	ck_assert_uint_gt(done, t->done);
	ck_assert_uint_le(done, total);
	t->done = done;
	t->total = total;
	return ++t->calls == t->until;
}

START_TEST(memory_of_the_module_is_placed_and_made_as_asked_too)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts) };
	struct pinion_context *module = NULL;
	struct pinion_buffer *buf = NULL, *part = NULL;
	struct told told = { 0 };
	unsigned int absent_node = 7;

	ck_ok(pinion_open(NULL, &module));
	if (!on_module(module)) {
		pinion_close(module);
		SKIP("the context stands on memfd");
	}
	while (has_memory(absent_node))
		absent_node++;
	for (opts.numa = PINION_NUMA_PREFERRED; opts.numa <= PINION_NUMA_STRICT; opts.numa++) {
		for (opts.node = 0; opts.node < 8; opts.node++) {
			if (!has_memory(opts.node))
				continue;
			ck_ok(pinion_buffer_alloc(module, 5 * MIB, &opts, &buf));
			ck_assert_uint_eq(info_of(buf).node_bytes, 5 * MIB);
			ck_ok(pinion_buffer_slice(buf, 4 * MIB, MIB, PINION_READ, &part));
			ck_assert_uint_eq(info_of(part).node_bytes, MIB);
			ck_assert_int_eq(info_of(part).pages, info_of(part).huge_bytes ? PINION_PAGES_HUGE : PINION_PAGES_SMALL);
			pinion_buffer_unref(part);
			pinion_buffer_unref(buf);
		}
		buf = NULL;
		opts.node = absent_node;
		ck_assert_int_eq(pinion_buffer_alloc(module, MIB, &opts, &buf), -EINVAL);
		ck_assert_ptr_null(buf);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "NUMA node"));
	}
	/* Its own huge pages, of which it says how many there were. */
	opts = (struct pinion_buffer_opts){
		.size = sizeof(opts), .pages = PINION_PAGES_2M, .prefer_pages = true, .progress = tell, .progress_arg = &told
	};
	ck_ok(pinion_buffer_alloc(module, 8 * MIB, &opts, &buf));
	ck_assert_uint_eq(told.done, 8 * MIB);
	ck_assert_int_eq(info_of(buf).pages, info_of(buf).huge_bytes ? PINION_PAGES_HUGE : PINION_PAGES_SMALL);
	ck_assert_int_eq(*info_of(buf).pages_why == 0, info_of(buf).huge_bytes == 8 * MIB);
	pinion_buffer_unref(buf);
	buf = NULL;
	told = (struct told){ .until = 1 };
	ck_assert_int_eq(pinion_buffer_alloc(module, 8 * MIB, &opts, &buf), -ECANCELED);
	ck_assert_ptr_null(buf);
	pinion_close(module);
}
END_TEST

/* ---- how they come to be there ------------------------------------------------------------------------------------- */

/* A file in memory, not there yet. */
static char *absent(uint64_t bytes)
{
	int fd = memfd_create("absent", MFD_CLOEXEC);
	char *addr;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, bytes), 0);
	addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(addr, MAP_FAILED);
	close(fd);
	return addr;
}

static uint64_t present(const char *addr, uint64_t bytes)
{
	unsigned char *there = malloc(bytes / 4096);
	uint64_t n = 0;

	ck_assert_int_eq(mincore((void *)addr, bytes, there), 0);
	for (uint64_t i = 0; i < bytes / 4096; i++)
		n += (there[i] & 1) * 4096;
	free(there);
	return n;
}

START_TEST(any_number_of_threads_makes_every_page_present)
{
	static const uint64_t sizes[] = { 4096, 2 * MIB + 4096, 64 * MIB, 130 * MIB + 12288 };

	for (unsigned int threads = 0; threads <= 20; threads += 1 + threads / 3)
		for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			struct told told = { 0 };
			struct populate p = { .addr = absent(sizes[i]),
					      .bytes = sizes[i],
					      .missing = sizes[i],
					      .threads = threads,
					      .progress = tell,
					      .progress_arg = &told };

			ck_ok(populate(&p));
			ck_assert_uint_eq(present(p.addr, sizes[i]), sizes[i]);
			ck_assert_uint_eq(told.done, sizes[i]);
			ck_assert_uint_eq(told.calls, (sizes[i] + 64 * MIB - 1) / (64 * MIB));
			munmap(p.addr, sizes[i]);
		}
}
END_TEST

/* What is left when the room is looked at, in order; says no at the last. */
static uint64_t asked[4];
static unsigned int asks;

static int no_room_at_the_second(const struct populate *p, uint64_t need)
{
	(void)p;
	asked[asks++] = need;
	return asks == 2 ? -ENOMEM : 0;
}

START_TEST(a_files_pages_may_be_made_before_they_are_mapped)
{
	const uint64_t bytes = 66 * MIB + 4096;

	for (unsigned int threads = 1; threads <= 3; threads++) {
		struct populate p = { .bytes = bytes, .missing = bytes, .threads = threads };
		struct stat st;

		p.file = memfd_create("absent", MFD_CLOEXEC);
		ck_assert_int_eq(ftruncate(p.file, bytes), 0);
		p.addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p.file, 0);
		ck_ok(populate(&p));
		ck_assert_uint_eq(present(p.addr, bytes), bytes);
		ck_assert_int_eq(fstat(p.file, &st), 0);
		ck_assert_uint_eq(st.st_blocks * UINT64_C(512), bytes);
		ck_assert_uint_ge(smaps_kb(p.addr, "Rss:"), bytes / 1024);
		/* What the file cannot do the mapping does. */
		munmap(p.addr, bytes);
		close(p.file);
		p.file = open("/dev/null", O_RDWR | O_CLOEXEC);
		p.addr = absent(bytes);
		ck_ok(populate(&p));
		ck_assert_uint_eq(present(p.addr, bytes), bytes);
		munmap(p.addr, bytes);
		close(p.file);
	}
}
END_TEST

/* Longer than a look holds. */
static int wait_a_little(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	(void)done;
	(void)total;
	return usleep(11000);
}

START_TEST(the_room_is_looked_at_again_after_a_while)
{
	const uint64_t bytes = 200 * MIB;
	struct populate p = { .addr = absent(bytes),
			      .bytes = bytes,
			      .missing = bytes,
			      .threads = 3,
			      .room = no_room_at_the_second,
			      .progress = wait_a_little };

	asks = 0;
	ck_assert_int_eq(populate(&p), -ENOMEM);
	ck_assert_uint_eq(asks, 2);
	ck_assert_uint_eq(asked[0], bytes - 64 * MIB);
	ck_assert_uint_eq(asked[1], bytes - 128 * MIB);
	ck_assert_uint_eq(present(p.addr, bytes), 128 * MIB);
	munmap(p.addr, bytes);
}
END_TEST

static int no_room(const struct populate *p, uint64_t need)
{
	(void)p;
	asked[0] = need;
	return -ENOMEM;
}

/* The pages are there already, so that it may go faster than a look grows old. */
START_TEST(the_room_is_looked_at_again_after_so_much_however_fast)
{
	const uint64_t bytes = 320 * MIB;
	struct populate p = { .addr = absent(bytes), .bytes = bytes, .missing = bytes };

	ck_ok(populate(&p));
	p.room = no_room;
	asked[0] = 0;
	ck_assert_int_eq(populate(&p), -ENOMEM);
	ck_assert_uint_ge(asked[0], bytes - 256 * MIB);
	munmap(p.addr, bytes);
}
END_TEST

START_TEST(a_page_that_cannot_be_had_is_an_error_of_any_thread)
{
	const uint64_t bytes = 64 * MIB;
	int empty = memfd_create("empty", MFD_CLOEXEC);

	for (uint64_t hole = 0; hole < bytes; hole += 16 * MIB) {
		struct populate p = { .addr = absent(bytes), .bytes = bytes, .missing = bytes, .threads = 4 };

		ck_assert_ptr_ne(mmap(p.addr + hole, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, empty, 0), MAP_FAILED);
		ck_assert_int_eq(populate(&p), -ENOMEM);
		munmap(p.addr, bytes);
	}
	close(empty);
}
END_TEST

static bool is_mapped(const char *name)
{
	char line[512];
	bool found = false;
	FILE *f = fopen("/proc/self/maps", "r");

	while (fgets(line, sizeof(line), f))
		found |= strstr(line, name) != NULL;
	fclose(f);
	return found;
}

START_TEST(a_program_is_told_of_progress_and_may_call_it_off)
{
	struct told told = { .until = 2 };
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .progress = tell, .progress_arg = &told };
	struct pinion_buffer *buf = NULL;
	unsigned int fds = fds_open();

	ck_assert_int_eq(pinion_buffer_alloc(ctx, 160 * MIB, &opts, &buf), -ECANCELED);
	ck_assert_ptr_null(buf);
	ck_assert_uint_eq(told.calls, 2);
	ck_assert_uint_eq(told.done, 128 * MIB);
	ck_assert_uint_eq(told.total, 160 * MIB);
	ck_assert_uint_eq(fds_open(), fds);
	ck_assert(!is_mapped("memfd:pinion"));
	told = (struct told){ 0 };
	ck_ok(pinion_buffer_alloc(ctx, 160 * MIB, &opts, &buf));
	ck_assert_uint_eq(told.done, pinion_buffer_size(buf));
	ck_assert(is_mapped("memfd:pinion"));
	pinion_buffer_unref(buf);
}
END_TEST

/* Says so, and goes on when it is heard: what is looked at meanwhile does not move. */
static int say_so_and_wait(void *arg, uint64_t done, uint64_t total)
{
	char c;

	(void)done;
	(void)total;
	return write(*(int *)arg, "p", 1) != 1 || read(*(int *)arg, &c, 1) != 1;
}

static void take_and_take(int told, const char *group)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .progress = say_so_and_wait, .progress_arg = &told };
	struct pinion_buffer *buf;
	struct pinion_context *own;

	if (group_set(group, "cgroup.procs", "0") && !open_memfd(&own))
		while (!pinion_buffer_alloc(own, 512 * MIB, &opts, &buf))
			pinion_buffer_unref(buf);
	_exit(1);
}

/* In a group of its own, because others take memory and give it back meanwhile. */
START_TEST(who_is_killed_while_pages_come_leaves_none)
{
	char group[GROUP_PATH], file[GROUP_PATH + 64], use[GROUP_PATH + 64];
	int told[2];
	pid_t pid;
	char c;

	if (!group_of_memory("1073741824", group, file))
		SKIP("no control group that limits memory can be made");
	snprintf(use, sizeof(use), "%s/%s", group, strstr(file, "memory.max") ? "memory.current" : "memory.usage_in_bytes");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, told), 0);
	pid = fork();
	if (!pid)
		take_and_take(told[1], group);
	close(told[1]);
	ck_assert_int_eq(read(told[0], &c, 1), 1);
	ck_assert_uint_ge(number_in(use), 64 * MIB);
	ck_assert_int_eq(write(told[0], "go on", 5), 5);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(told[0]);
	for (int i = 0; i < 1000 && number_in(use) > 8 * MIB; i++)
		usleep(100000);
	ck_assert_uint_le(number_in(use), 8 * MIB);
	for (int i = 0; i < 200 && rmdir(group) && errno == EBUSY; i++)
		usleep(100000);
}
END_TEST

static pthread_t tester;
static volatile unsigned int alarms, strays;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
	strays += !pthread_equal(pthread_self(), tester);
}

START_TEST(signals_neither_end_it_nor_reach_its_threads)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval each = { { 0, 2000 }, { 0, 2000 } }, none = { 0 };
	const uint64_t bytes = 128 * MIB;

	tester = pthread_self();
	sigaction(SIGALRM, &sa, NULL);
	for (int i = 0; i < 50 && (!alarms || !i); i++) {
		struct populate p = { .addr = absent(bytes), .bytes = bytes, .missing = bytes, .threads = 4 };

		setitimer(ITIMER_REAL, &each, NULL);
		ck_ok(populate(&p));
		setitimer(ITIMER_REAL, &none, NULL);
		ck_assert_uint_eq(present(p.addr, bytes), bytes);
		munmap(p.addr, bytes);
	}
	ck_assert_uint_gt(alarms, 0);
	ck_assert_uint_eq(strays, 0);
}
END_TEST

START_TEST(no_more_threads_run_than_the_affinity_mask_allows)
{
	cpu_set_t before, one;
	int cpu = sched_getcpu();

	ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	ck_assert_uint_ge(cpus_usable(), 1);
	ck_assert_uint_le(cpus_usable(), CPU_COUNT(&before));
	CPU_ZERO(&one);
	CPU_SET(cpu < 0 ? 0 : cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_uint_eq(cpus_usable(), 1);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(before), &before), 0);
}
END_TEST

/* ---- control groups ------------------------------------------------------------------------------------------------ */

/* In a group below one with 64 MiB. */
static int short_of_memory(const char *group)
{
	struct pinion_buffer *buf = NULL;
	struct pinion_context *own;
	char file[640];

	snprintf(file, sizeof(file), "%s/memory.limit_in_bytes is 67108864 of which ", group);
	if (open_memfd(&own))
		return 1;
	ctx = own;
	if (alloc(PINION_PAGES_AUTO, false, 128 * MIB, &buf) != -ENOMEM || buf)
		return 2;
	if (!strstr(pinion_error(), file) || !strstr(pinion_error(), "needs 134217728 bytes"))
		return fprintf(stderr, "%s\n", pinion_error()), 3;
	if (alloc(PINION_PAGES_AUTO, false, 16 * MIB, &buf))
		return 4;
	pinion_buffer_unref(buf);
	return 0;
}

START_TEST(a_group_of_version_1_that_is_short_is_named_and_nobody_is_killed)
{
	char group[512];

	if (!group_make("/sys/fs/cgroup/memory", "memory", group))
		SKIP("no control group of version 1 for memory can be made");
	if (!group_set(group, "memory.limit_in_bytes", "67108864")) {
		rmdir(group);
		SKIP("the memory of a control group cannot be limited");
	}
	ck_assert_int_eq(group_run(group, short_of_memory), 0);
}
END_TEST

struct seen {
	unsigned int n;
	char file[GROUP_PATH + 64]; /* of the group that is looked for */
	bool group;
	unsigned int wrong; /* the one whose figures disagree, from 1 on */
};

static int see_room(void *arg, const struct pinion_room *room)
{
	uint64_t used = room->used > room->cache ? room->used - room->cache : 0;
	struct seen *seen = arg;
	bool sound;

	seen->n++;
	sound = room->size == sizeof(*room) && room->limit;
	if (seen->n == 1)
		sound = sound && !strcmp(room->file, "/proc/meminfo") && room->available <= room->limit;
	else
		sound = sound && room->available == (room->limit > used ? room->limit - used : 0);
	if (!sound && !seen->wrong)
		seen->wrong = seen->n;
	seen->group = seen->group || (!strcmp(room->file, seen->file) && room->limit == 64 * MIB);
	return 0;
}

static int leave_at_once(void *arg, const struct pinion_room *room)
{
	(void)room;
	return ++*(int *)arg;
}

static int list_room(const char *group)
{
	struct seen seen = { 0 };
	struct stat st;
	int calls = 6;

	snprintf(seen.file, sizeof(seen.file), "%s/memory.max", group);
	if (stat(seen.file, &st))
		snprintf(seen.file, sizeof(seen.file), "%s/memory.limit_in_bytes", group);
	if (pinion_room_list(see_room, &seen))
		return 1;
	if (!seen.group || seen.wrong)
		return fprintf(stderr, "%s, of %u number %u\n", seen.file, seen.n, seen.wrong), 2;
	return pinion_room_list(leave_at_once, &calls) == 7 && calls == 7 ? 0 : 3;
}

START_TEST(the_room_of_the_machine_and_of_each_group_is_shown_in_figures_that_agree)
{
	char group[GROUP_PATH], file[GROUP_PATH + 64];

	if (!group_of_memory("67108864", group, file))
		SKIP("no control group for memory can be made");
	ck_assert_int_eq(group_run(group, list_room), 0);
}
END_TEST

static int half_a_cpu(const char *group)
{
	(void)group;
	return cpus_usable() != 1;
}

START_TEST(no_more_threads_run_than_a_groups_quota_allows)
{
	char group[512];

	if (!group_make("/sys/fs/cgroup/cpu", "cpu", group))
		SKIP("no control group of version 1 for CPUs can be made");
	if (!group_set(group, "cpu.cfs_quota_us", "50000")) {
		rmdir(group);
		SKIP("the CPU time of a control group cannot be limited");
	}
	ck_assert_int_eq(group_run(group, half_a_cpu), 0);
}
END_TEST

/* ---- control groups that limit huge pages -------------------------------------------------------------------------- */

#define UNIFIED "/sys/fs/cgroup/unified"

/* A group of version 2 that limits huge pages. */
struct pool_group {
	char path[GROUP_PATH];
	char control[640]; /* the root's file that gives the controller to groups */
	bool given;	   /* it did before */
};

static void pool_group_end(const struct pool_group *g)
{
	rmdir(g->path);
	if (!g->given)
		setting_write(g->control, "-hugetlb");
}

static bool pool_group_begin(struct pool_group *g)
{
	const char *root = access(UNIFIED, X_OK) ? "/sys/fs/cgroup" : UNIFIED;
	char text[256], file[640];

	snprintf(g->control, sizeof(g->control), "%s/cgroup.subtree_control", root);
	g->given = setting_read(g->control, text, sizeof(text)) && strstr(text, "hugetlb");
	if (!g->given && !setting_write(g->control, "+hugetlb"))
		return false;
	if (group_make(root, "", g->path)) {
		/* As long as those of a session's programs are. */
		rmdir(g->path);
		snprintf(g->path + strlen(g->path), sizeof(g->path) - strlen(g->path), "-%0120d", 0);
		snprintf(file, sizeof(file), "%s/hugetlb.2MB.rsvd.max", g->path);
		if (!mkdir(g->path, 0755) && !access(file, W_OK))
			return true;
	}
	pool_group_end(g);
	return false;
}

#define NEED_POOL_GROUP(g)                                                                         \
	do {                                                                                       \
		if (!pool_group_begin(g))                                                          \
			SKIP("no control group of version 2 limits huge pages, and reservations"); \
	} while (0)

/* The last sentence names @file of @group, @figures, and what to type. */
static bool names_limit(const char *group, const char *file, const char *figures)
{
	char text[GROUP_PATH + 64];

	snprintf(text, sizeof(text), "%s/%s is ", group, file);
	if (strstr(pinion_error(), text) && strstr(pinion_error(), figures) && pinion_error_advice() == PINION_ADVICE_CGROUP_HUGE)
		return true;
	fprintf(stderr, "%s\n", pinion_error());
	return false;
}

/* A memfd of 8 MiB of pages of the pool, none of which is there. */
static int import_of_holes(struct pinion_buffer **buf)
{
	struct pinion_import_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_NONE };
	int fd = memfd_create("holes", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | 21u << 26), ret;

	if (fd < 0 || ftruncate(fd, 8 * MIB) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE))
		return -errno;
	ret = pinion_buffer_import(ctx, fd, &opts, buf);
	close(fd);
	return ret;
}

static int see_limit(void *arg, const struct pinion_room *room)
{
	struct seen *seen = arg;

	seen->n++;
	if (!strcmp(room->file, seen->file))
		seen->group = room->size == sizeof(*room) && room->limit == 4 * MIB && !room->used && !room->cache &&
			      room->available == 4 * MIB;
	return 0;
}

/* In a group below @group, whose limit @name is 4 MiB. */
static int short_of_huge_pages(const char *group, const char *name)
{
	struct pinion_buffer *buf = NULL;
	struct seen seen = { 0 };

	if (open_memfd(&ctx))
		return 1;
	if (alloc(PINION_PAGES_2M, false, 8 * MIB, &buf) != -ENOMEM || buf)
		return 2;
	if (!names_limit(group, name, "is 4194304 of which 4194304 are left") || !strstr(pinion_error(), "echo 8388608 > FILE"))
		return 3;
	/* Two kinds would do: what is said of both is cut, and still ends in what to type. */
	if (!alloc(PINION_PAGES_HUGE, false, 8 * MIB, &buf))
		pinion_buffer_unref(buf);
	else if (pinion_error_advice() != PINION_ADVICE_CGROUP_HUGE)
		return 4;
	if (import_of_holes(&buf) != -ENOMEM || !names_limit(group, name, "is 4194304 of which 4194304 are left"))
		return 5;
	snprintf(seen.file, sizeof(seen.file), "%s/%s", group, name);
	if (pinion_room_list_huge(2 * MIB, see_limit, &seen) || !seen.group ||
	    pinion_room_list_huge(MIB + 1, see_limit, &seen) != -EINVAL)
		return 6;
	if (alloc(PINION_PAGES_2M, false, 4 * MIB, &buf))
		return 7;
	pinion_buffer_unref(buf);
	pinion_close(ctx);
	return 0;
}

static int short_of_pages_that_are_there(const char *group)
{
	return short_of_huge_pages(group, "hugetlb.2MB.max");
}

static int short_of_pages_that_are_reserved(const char *group)
{
	return short_of_huge_pages(group, "hugetlb.2MB.rsvd.max");
}

/* What @fn returns in a group below @g. */
static int run_below(const struct pool_group *g, int (*fn)(const char *group))
{
	char below[GROUP_PATH + 8];
	int ret, status = 0;
	pid_t pid;

	snprintf(below, sizeof(below), "%s/below", g->path);
	ck_assert_int_eq(mkdir(below, 0755), 0);
	pid = fork();
	if (!pid)
		_exit(group_set(below, "cgroup.procs", "0") ? fn(g->path) : 99);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ret = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	for (int i = 0; i < 200 && rmdir(below) && errno == EBUSY; i++)
		usleep(100000);
	return ret;
}

/* Version 2 counts pages that are there, and those that are reserved. */
START_TEST(a_group_that_may_have_fewer_huge_pages_is_named_and_nobody_is_killed)
{
	struct pool_group g;
	int there, reserved;

	NEED_POOL(POOL_2M, 8);
	NEED_POOL_GROUP(&g);
	group_set(g.path, "hugetlb.2MB.max", "4194304");
	there = run_below(&g, short_of_pages_that_are_there);
	group_set(g.path, "hugetlb.2MB.max", "max");
	group_set(g.path, "hugetlb.2MB.rsvd.max", "4194304");
	reserved = run_below(&g, short_of_pages_that_are_reserved);
	pool_group_end(&g);
	ck_assert_int_eq(there, 0);
	ck_assert_int_eq(reserved, 0);
}
END_TEST

static const char *lowered; /* the group */

/* After the first part, which is there, the group may have nothing more. */
static int lower_the_limit(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	(void)total;
	return done == 64 * MIB && !group_set(lowered, "hugetlb.2MB.max", "67108864");
}

static int lowered_meanwhile(const char *group)
{
	struct pinion_buffer_opts opts = {
		.size = sizeof(opts), .pages = PINION_PAGES_2M, .hold = PINION_HOLD_NONE, .progress = lower_the_limit
	};
	struct pinion_buffer *buf = NULL;

	lowered = group;
	if (open_memfd(&ctx))
		return 1;
	if (pinion_buffer_alloc(ctx, 128 * MIB, &opts, &buf) != -ENOMEM || buf)
		return 2;
	if (!names_limit(group, "hugetlb.2MB.max", "needs 67108864 bytes in huge pages"))
		return 3;
	pinion_close(ctx);
	return 0;
}

/* The kernel refuses the page by a bus fault where it is touched, and by an error where it is made present. */
START_TEST(a_groups_limit_on_huge_pages_that_is_lowered_meanwhile_is_named_and_nobody_is_killed)
{
	struct pool_group g;
	int ret;

	NEED_POOL(POOL_2M, 64);
	NEED_POOL_GROUP(&g);
	ret = run_below(&g, lowered_meanwhile);
	pool_group_end(&g);
	ck_assert_int_eq(ret, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pages");
	TCase *pools = tcase_create("pools"), *thp = tcase_create("transparent"), *nodes = tcase_create("nodes"),
	      *coming = tcase_create("coming"), *groups = tcase_create("groups");

	tcase_add_checked_fixture(pools, setup, teardown);
	tcase_set_timeout(pools, 60);
	tcase_add_test(pools, pages_of_2_mib_come_from_the_pool_and_go_back);
	tcase_add_test(pools, pages_of_1_gib_come_from_the_pool);
	tcase_add_test(pools, row_40_a_pool_that_is_short_is_refused_with_the_line_to_type_and_a_small_one_works);
	tcase_add_test(pools, a_pool_that_is_empty_is_refused_with_the_line_to_type);
	tcase_add_test(pools, pages_that_are_preferred_are_had_or_the_next_best_with_the_reason);
	tcase_add_test(pools, row_14_huge_pages_of_either_kind_do_where_huge_ones_are_asked_for);
	tcase_add_test(pools, pages_of_the_pool_are_held_however_little_may_be_locked_and_sealed_too);
	tcase_add_test(pools, a_killed_owner_gives_the_pool_its_pages_back);
	suite_add_tcase(s, pools);
	tcase_add_checked_fixture(thp, setup, teardown);
	tcase_add_test(thp, transparent_huge_pages_are_all_of_it_or_an_error);
	suite_add_tcase(s, thp);
	tcase_add_checked_fixture(nodes, setup, teardown);
	tcase_set_timeout(nodes, 60);
	tcase_add_test(nodes, row_29_memory_is_on_the_node_that_was_asked_for);
	tcase_add_test(nodes, row_29_a_node_that_is_not_there_is_refused_by_name);
	tcase_add_test(nodes, more_than_a_node_has_is_refused_with_its_room_or_goes_to_another);
	tcase_add_test(nodes, memory_of_the_module_is_placed_and_made_as_asked_too);
	tcase_add_test(nodes, pages_of_the_pool_are_on_the_node_that_was_asked_for);
	suite_add_tcase(s, nodes);
	tcase_add_checked_fixture(coming, setup, teardown);
	tcase_set_timeout(coming, 60);
	tcase_add_test(coming, any_number_of_threads_makes_every_page_present);
	tcase_add_test(coming, a_files_pages_may_be_made_before_they_are_mapped);
	tcase_add_test(coming, the_room_is_looked_at_again_after_a_while);
	tcase_add_test(coming, the_room_is_looked_at_again_after_so_much_however_fast);
	tcase_add_test(coming, a_page_that_cannot_be_had_is_an_error_of_any_thread);
	tcase_add_test(coming, a_program_is_told_of_progress_and_may_call_it_off);
	tcase_add_test(coming, who_is_killed_while_pages_come_leaves_none);
	tcase_add_test(coming, signals_neither_end_it_nor_reach_its_threads);
	tcase_add_test(coming, no_more_threads_run_than_the_affinity_mask_allows);
	suite_add_tcase(s, coming);
	tcase_add_checked_fixture(groups, setup, teardown);
	tcase_set_timeout(groups, 60);
	tcase_add_test(groups, a_group_of_version_1_that_is_short_is_named_and_nobody_is_killed);
	tcase_add_test(groups, the_room_of_the_machine_and_of_each_group_is_shown_in_figures_that_agree);
	tcase_add_test(groups, no_more_threads_run_than_a_groups_quota_allows);
	tcase_add_test(groups, a_group_that_may_have_fewer_huge_pages_is_named_and_nobody_is_killed);
	tcase_add_test(groups, a_groups_limit_on_huge_pages_that_is_lowered_meanwhile_is_named_and_nobody_is_killed);
	suite_add_tcase(s, groups);
	return s;
}

PINION_TEST_MAIN(suite)
