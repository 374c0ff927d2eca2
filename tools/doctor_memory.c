/* SPDX-License-Identifier: MIT */
/* What memory can be had and held, as doctor sees it. */
#include "doctor.h"

#include "format.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define THP_DIR	 "/sys/kernel/mm/transparent_hugepage/"
#define NODE_DIR "/sys/devices/system/node"

/* ---- the machine and the control groups ---------------------------------------------------------------------------- */

struct rooms {
	struct doctor *doctor;
	unsigned int groups;
};

static void look_at_machine(struct doctor *d, const struct pinion_room *room)
{
	if (d->need > room->available)
		doctor_advise(d, FINDING_NO_ROOM, "memory", PINION_ADVICE_MEMORY, NULL,
			      "%s are asked for, %s of %s are free (MemAvailable)", size_text(d->need).s,
			      size_text(room->available).s, size_text(room->limit).s);
	else
		doctor_say(d, FINDING_OK, "memory", "%s of %s are free (MemAvailable)", size_text(room->available).s,
			   size_text(room->limit).s);
}

static int look_at_room(void *arg, const struct pinion_room *room)
{
	struct rooms *rooms = arg;
	struct doctor *d = rooms->doctor;
	char enough[24];

	if (!strcmp(room->file, "/proc/meminfo")) {
		look_at_machine(d, room);
		return 0;
	}
	rooms->groups++;
	snprintf(enough, sizeof(enough), "%" PRIu64, (room->used > room->cache ? room->used - room->cache : 0) + d->need);
	if (d->need > room->available)
		doctor_advise(d, FINDING_NO_ROOM, "cgroup", PINION_ADVICE_CGROUP, enough,
			      "%s are asked for, %s is %s, of which %s are in use (%s of it page cache) and %s are left",
			      size_text(d->need).s, room->file, size_text(room->limit).s, size_text(room->used).s,
			      size_text(room->cache).s, size_text(room->available).s);
	else
		doctor_say(d, FINDING_OK, "cgroup", "%s is %s, of which %s are in use (%s of it page cache) and %s are left",
			   room->file, size_text(room->limit).s, size_text(room->used).s, size_text(room->cache).s,
			   size_text(room->available).s);
	return 0;
}

static const char *cgroup_version(void)
{
	if (!access("/sys/fs/cgroup/cgroup.controllers", F_OK))
		return "version 2";
	return access("/sys/fs/cgroup/memory", F_OK) ? "no memory controller is mounted" : "version 1";
}

static void look_at_rooms(struct doctor *d)
{
	struct rooms rooms = { .doctor = d };

	if (pinion_room_list(look_at_room, &rooms))
		doctor_say_error(d, FINDING_WARN, "memory");
	else if (!rooms.groups)
		doctor_say(d, FINDING_OK, "cgroup", "no control group of this process has a memory limit (%s)", cgroup_version());
}

/* ---- RLIMIT_MEMLOCK ------------------------------------------------------------------------------------------------ */

/* The capability that lifts the limit, which counts in the first user namespace only. */
static bool may_lock(void)
{
	char caps[32], map[64];
	uint32_t outside = 0, inside = 0, count = 0;

	if (!doctor_field("/proc/self/status", "CapEff", caps, sizeof(caps)) || !(strtoull(caps, NULL, 16) >> CAP_IPC_LOCK & 1))
		return false;
	return doctor_read("/proc/self/uid_map", map, sizeof(map)) &&
	       sscanf(map, "%" SCNu32 " %" SCNu32 " %" SCNu32, &inside, &outside, &count) == 3 && count == UINT32_MAX;
}

static uint64_t kib_field(const char *path, const char *key)
{
	char value[48];

	return doctor_field(path, key, value, sizeof(value)) ? strtoull(value, NULL, 10) * 1024 : 0;
}

/* What this user's processes have locked (mlock) or pinned (io_uring and others). What belongs to no process is not seen. */
static uint64_t locked_bytes(void)
{
	struct dirent *entry;
	uint64_t sum = 0;
	DIR *dir = opendir("/proc");

	while (dir && (entry = readdir(dir))) {
		char path[300], uid[64];

		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/status", entry->d_name);
		if (doctor_field(path, "Uid", uid, sizeof(uid)) && strtoul(uid, NULL, 10) == getuid())
			sum += kib_field(path, "VmLck") + kib_field(path, "VmPin");
	}
	if (dir)
		closedir(dir);
	return sum;
}

static struct text limit_text(uint64_t limit)
{
	return limit == RLIM_INFINITY ? (struct text){ "unlimited" } : size_text(limit);
}

static void look_at_memlock(struct doctor *d)
{
	uint64_t used = locked_bytes(), left;
	struct rlimit lim;

	if (getrlimit(RLIMIT_MEMLOCK, &lim))
		return;
	left = lim.rlim_cur > used ? lim.rlim_cur - used : 0;
	if (lim.rlim_cur == RLIM_INFINITY || may_lock())
		doctor_say(d, FINDING_OK, "memlock", "%s soft, %s hard, %s used by this user's processes%s",
			   limit_text(lim.rlim_cur).s, limit_text(lim.rlim_max).s, size_text(used).s,
			   lim.rlim_cur == RLIM_INFINITY ? "" : "; it does not bind this process (CAP_IPC_LOCK)");
	else if (d->need > left)
		doctor_advise(d, FINDING_WARN, "memlock", PINION_ADVICE_MEMLOCK, NULL,
			      "%s are asked for, the limit is %s soft, %s hard, %s used by this user's processes: on memfd so "
			      "much is not "
			      "held in RAM; the module does not need it",
			      size_text(d->need).s, limit_text(lim.rlim_cur).s, limit_text(lim.rlim_max).s, size_text(used).s);
	else if (!d->need && left < UINT64_C(1) << 30)
		doctor_advise(d, FINDING_WARN, "memlock", PINION_ADVICE_MEMLOCK, NULL,
			      "%s soft, %s hard, %s used by this user's processes: larger buffers on memfd may be swapped",
			      limit_text(lim.rlim_cur).s, limit_text(lim.rlim_max).s, size_text(used).s);
	else
		doctor_say(d, FINDING_OK, "memlock", "%s soft, %s hard, %s used by this user's processes",
			   limit_text(lim.rlim_cur).s, limit_text(lim.rlim_max).s, size_text(used).s);
}

/* ---- huge pages ---------------------------------------------------------------------------------------------------- */

static void look_at_thp(struct doctor *d, struct pinion_context *ctx)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	char choice[32], shmem[32];

	doctor_choice(THP_DIR "enabled", choice, sizeof(choice));
	doctor_choice(THP_DIR "shmem_enabled", shmem, sizeof(shmem));
	if (!*choice)
		doctor_say(d, FINDING_WARN, "THP", "this kernel has no transparent huge pages");
	else if (!strcmp(choice, "never"))
		doctor_advise(d, FINDING_WARN, "THP", PINION_ADVICE_THP_OFF, NULL, "never: anonymous memory gets small pages");
	else
		doctor_say(d, FINDING_OK, "THP", "%s, for anonymous memory", choice);
	if (!ctx || pinion_context_info(ctx, &info))
		return;
	if (info.huge_size)
		doctor_say(d, FINDING_OK, "shmem THP", "%s: buffers get huge pages of %s: %s", *shmem ? shmem : "not there",
			   size_text(info.huge_size).s, info.huge_why);
	else if (*choice)
		doctor_advise(d, FINDING_WARN, "shmem THP", PINION_ADVICE_SHMEM_THP_OFF, NULL,
			      "%s: buffers on memfd get small pages", *shmem ? shmem : "not there");
	else
		doctor_say(d, FINDING_WARN, "shmem THP", "none: %s", info.huge_why);
}

static uint64_t number_at(const char *dir, const char *file)
{
	char path[640], text[32];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return doctor_read(path, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

/* "2 MiB 0 of 512 free, 1 GiB 0 of 0 free" of one node's pool of each size. */
static void describe_pools(const char *dir, char *out, size_t room)
{
	struct dirent *entry;
	size_t n = 0;
	DIR *pools = opendir(dir);

	*out = 0;
	while (pools && (entry = readdir(pools))) {
		unsigned int kib;
		char path[600];

		if (sscanf(entry->d_name, "hugepages-%ukB", &kib) != 1)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		n += snprintf(out + n, n < room ? room - n : 0, "%s%s %" PRIu64 " of %" PRIu64 " free", n ? ", " : "",
			      size_text((uint64_t)kib << 10).s, number_at(path, "free_hugepages"),
			      number_at(path, "nr_hugepages"));
	}
	if (pools)
		closedir(pools);
}

/* What the control groups allow of a pool. */
struct pool_rooms {
	struct doctor *doctor;
	uint64_t page;
	bool any; /* the pool has pages, or gets them when they are wanted */
	unsigned int groups;
};

static int look_at_pool_room(void *arg, const struct pinion_room *room)
{
	struct pool_rooms *rooms = arg;
	struct doctor *d = rooms->doctor;
	char enough[24];

	rooms->groups++;
	snprintf(enough, sizeof(enough), "%" PRIu64, room->used + (d->need ? d->need : rooms->page));
	if (rooms->any && (d->need > room->available || room->available < rooms->page))
		doctor_advise(d, FINDING_WARN, "hugetlb cgroup", PINION_ADVICE_CGROUP_HUGE, enough,
			      "%s is %s, of which %s are left: %s in pages of %s", room->file, size_text(room->limit).s,
			      size_text(room->available).s, d->need ? "what is asked for is not had" : "no buffer is had",
			      size_text(rooms->page).s);
	else
		doctor_say(d, FINDING_OK, "hugetlb cgroup", "%s is %s, of which %s are left", room->file,
			   size_text(room->limit).s, size_text(room->available).s);
	return 0;
}

static void look_at_pool_rooms(struct doctor *d)
{
	static const uint64_t page[] = { UINT64_C(2) << 20, UINT64_C(1) << 30 };
	struct pool_rooms rooms = { .doctor = d };
	char dir[96];

	for (size_t i = 0; i < sizeof(page) / sizeof(page[0]); i++) {
		snprintf(dir, sizeof(dir), "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB", page[i] >> 10);
		rooms.page = page[i];
		rooms.any = number_at(dir, "nr_hugepages") || number_at(dir, "nr_overcommit_hugepages");
		if (pinion_room_list_huge(page[i], look_at_pool_room, &rooms))
			doctor_say_error(d, FINDING_WARN, "hugetlb cgroup");
	}
	if (!rooms.groups)
		doctor_say(d, FINDING_OK, "hugetlb cgroup", "no control group of this process limits huge pages");
}

/* ---- nodes --------------------------------------------------------------------------------------------------------- */

static int is_node(const struct dirent *entry)
{
	return !strncmp(entry->d_name, "node", 4) && isdigit((unsigned char)entry->d_name[4]);
}

/* "Node 0 MemFree:  123 kB" */
static uint64_t node_bytes(const char *dir, const char *key)
{
	char path[512], line[128];
	uint64_t kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/meminfo", dir);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, key);

		if (at && at[strlen(key)] == ':')
			kib = strtoull(at + strlen(key) + 1, NULL, 10);
	}
	if (f)
		fclose(f);
	return kib * 1024;
}

static void look_at_node(struct doctor *d, const char *name, uint64_t *most)
{
	char dir[300], path[320], pools[256];
	uint64_t left, total;

	snprintf(dir, sizeof(dir), NODE_DIR "/%s", name);
	snprintf(path, sizeof(path), "%s/hugepages", dir);
	left = node_bytes(dir, "MemFree") + node_bytes(dir, "FilePages") - node_bytes(dir, "Shmem");
	total = node_bytes(dir, "MemTotal");
	*most = left > *most ? left : *most;
	doctor_say(d, FINDING_OK, "NUMA", "node %s: %s of %s are free or page cache", name + 4, size_text(left).s,
		   size_text(total).s);
	describe_pools(path, pools, sizeof(pools));
	doctor_say(d, FINDING_OK, "hugetlb", "node %s: %s", name + 4, *pools ? pools : "this kernel keeps no pool of huge pages");
}

static void look_at_nodes(struct doctor *d)
{
	struct dirent **node = NULL;
	uint64_t most = 0;
	char pools[256];
	int n = scandir(NODE_DIR, &node, is_node, versionsort);

	if (n <= 0) {
		describe_pools("/sys/kernel/mm/hugepages", pools, sizeof(pools));
		doctor_say(d, FINDING_OK, "NUMA", "one node: this kernel was built without NUMA");
		doctor_say(d, FINDING_OK, "hugetlb", "%s", *pools ? pools : "this kernel keeps no pool of huge pages");
	}
	for (int i = 0; i < n; i++) {
		look_at_node(d, node[i]->d_name, &most);
		free(node[i]);
	}
	free(node);
	if (n > 1 && d->need > most)
		doctor_advise(d, FINDING_WARN, "NUMA", PINION_ADVICE_MEMORY, NULL,
			      "%s are asked for, no node has more than %s: they will lie on several", size_text(d->need).s,
			      size_text(most).s);
}

void doctor_memory(struct doctor *d, struct pinion_context *ctx)
{
	look_at_rooms(d);
	look_at_memlock(d);
	look_at_thp(d, ctx);
	look_at_nodes(d);
	look_at_pool_rooms(d);
}
