// SPDX-License-Identifier: MIT
/* Devices: their tables, what they and the CPU see of each other, with bounce buffers too, and every order of letting go. */
#define _GNU_SOURCE
#include "bytes.h"
#include "import.h"

#include <linux/dma-buf.h>
#include <pthread.h>

static int dev;
static bool bounce; /* the kernel was told to bounce everything */

static char *map(int fd, size_t bytes)
{
	char *p = dev_map_aligned(fd, bytes, PROT_READ | PROT_WRITE);

	if (p == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	return p;
}

/* The CPU's access begins or ends, as a user of dma-bufs says it. */
static void cpu(int fd, uint64_t flags)
{
	struct dma_buf_sync s = { .flags = flags };

	expect(ioctl(fd, DMA_BUF_IOCTL_SYNC, &s) ? -errno : 0, 0, "DMA_BUF_IOCTL_SYNC %llu", (unsigned long long)flags);
}

#define LOOK	(DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ)
#define LOOKED	(DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ)
#define WRITE	(DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE)
#define WRITTEN (DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE)

/* Page @page of the buffer as the device has it becomes page @page of a pattern. */
static void device_paints(int import, uint64_t seed, uint64_t page)
{
	static char bytes[PAGE] __attribute__((aligned(8)));

	paint(bytes, seed, page, 1);
	expect(import_write(import, page * PAGE, bytes, PAGE), 0, "the device writes page %llu", (unsigned long long)page);
}

static bool device_has(int import, uint64_t seed, uint64_t page, const char *what)
{
	static char bytes[PAGE] __attribute__((aligned(8)));

	return expect(import_read(import, page * PAGE, bytes, PAGE), 0, "the device reads page %llu", (unsigned long long)page) &&
	       is_painted(bytes, seed, page, 1, what);
}

/* ---- tables -------------------------------------------------------------------------------------------------------- */

/* Entries of a run that begins at @first: a huge page each, cut where the device takes no more at once. */
static uint64_t entries(uint64_t first, uint64_t pages, uint64_t max)
{
	uint64_t n = 0, part;

	for (max /= PAGE; pages; pages -= part, first += part, n++) {
		part = HUGE / PAGE - first % (HUGE / PAGE);
		part = part < pages ? part : pages;
		part = part < max ? part : max;
	}
	return n;
}

static void table_of(int device, int fd, uint64_t first, uint64_t pages)
{
	struct importer_table table = { 0 };
	int slice = dev_slice(dev, fd, first * PAGE, pages * PAGE, PINION_RIGHT_DMA_RW), at;
	uint64_t want;

	at = import_by(device, slice, IMPORTER_BOTH_WAYS, 0);
	if (expect(at, 0, "import of %llu pages at %llu", (unsigned long long)pages, (unsigned long long)first) &&
	    expect(import_table(at, &table), 0, "table")) {
		want = entries(first, pages, table.max_mapping_bytes);
		if (table.bytes != pages * PAGE || table.pages_entries != want || table.device_entries != want ||
		    table.most_bytes > table.max_mapping_bytes)
			wrong("%llu pages at %llu: %u entries, %u of the device, not %llu; %llu bytes, the longest entry %llu of "
			      "%llu",
			      (unsigned long long)pages, (unsigned long long)first, table.pages_entries, table.device_entries,
			      (unsigned long long)want, (unsigned long long)table.bytes, (unsigned long long)table.most_bytes,
			      (unsigned long long)table.max_mapping_bytes);
		if (device ? table.max_mapping_bytes != 64 << 10 : bounce != (table.max_mapping_bytes < HUGE))
			wrong("the device maps %llu at once, bouncing %d", (unsigned long long)table.max_mapping_bytes, bounce);
	}
	close(at);
	close(slice);
}

static void tables(void)
{
	const uint64_t pages = 8 * (1UL << 20) / PAGE;
	int fd = dev_alloc(dev, pages * PAGE, PINION_ALLOC_HUGE_REQUIRE);

	expect(fd, 0, "ALLOC");
	table_of(0, fd, 0, pages);
	point("dma", bounce ? "entries are as long as a bounce buffer" : "an entry for each huge page");
	table_of(1, fd, 0, pages);
	point("dma", "entries are as long as a device takes them");
	for (int device = 0; device < IMPORTER_DEVICES; device++) {
		table_of(device, fd, 3, pages - 5);
		table_of(device, fd, 511, 2);
		table_of(device, fd, 512, 512);
		table_of(device, fd, 100, 1);
	}
	point("dma", "tables of slices");
	close(fd);
}

/* Pages of every size: the device's first to last byte is the buffer's. */
static void kind(int fd, uint64_t pages, const char *what)
{
	char *p = map(fd, pages * PAGE), *bytes = malloc(pages * PAGE);
	int at;

	if (p == MAP_FAILED)
		goto out;
	paint(p, 3, 0, pages);
	at = import(fd, IMPORTER_BOTH_WAYS);
	if (expect(at, 0, "import of %s", what) && expect(import_read(at, 0, bytes, pages * PAGE), 0, "read"))
		is_painted(bytes, 3, 0, pages, what);
	close(at);
	munmap(p, pages * PAGE);
out:
	free(bytes);
	close(fd);
}

static void kinds(void)
{
	const uint64_t pages = HUGE / PAGE + 37;
	struct pinion_info info;
	int memfd = memfd_create("dma", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	kind(dev_alloc(dev, pages * PAGE, 0), pages, "a buffer");
	kind(dev_alloc(dev, pages * PAGE, PINION_ALLOC_HUGE_NEVER), pages, "a buffer of small pages");
	if (!dev_info(dev, &info) && info.features & PINION_FEATURE_SHMEM)
		kind(dev_alloc(dev, pages * PAGE, PINION_ALLOC_SHMEM), pages, "a buffer of shared memory");
	if (ftruncate(memfd, pages * PAGE) || fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		wrong("memfd: %s", strerror(errno));
	kind(dev_pin_fd(dev, memfd, 0, pages * PAGE, NULL), pages, "a memfd");
	close(memfd);
	point("dma", "every kind of buffer is what the device reads");
}

/* ---- who sees what -------------------------------------------------------------------------------------------------- */

#define BUFFER (HUGE + 16 * PAGE)
#define LAST   (BUFFER / PAGE - 1)

static void to_cpu(int fd, char *p)
{
	int at = import(fd, IMPORTER_BOTH_WAYS);
	uint64_t page[] = { 0, 1, 300, 511, 512, LAST };

	paint(p, 1, 0, BUFFER / PAGE);
	cpu(fd, WRITTEN);
	for (size_t i = 0; i < sizeof(page) / sizeof(page[0]); i++) {
		device_paints(at, 2, page[i]);
		if (is_page(p + page[i] * PAGE, 2, page[i]) == bounce)
			wrong("page %llu: bouncing is %d", (unsigned long long)page[i], !bounce);
	}
	cpu(fd, LOOK);
	for (size_t i = 0; i < sizeof(page) / sizeof(page[0]); i++)
		is_painted(p + page[i] * PAGE, 2, page[i], 1, "the CPU");
	is_painted(p + 2 * PAGE, 1, 2, 298, "what the device left alone");
	/* It goes on while the CPU looks; a CPU that only looked takes nothing of that away. */
	device_paints(at, 4, 7);
	cpu(fd, LOOKED);
	device_has(at, 4, 7, "after a look");
	cpu(fd, LOOK);
	is_painted(p + 7 * PAGE, 4, 7, 1, "the CPU, again");
	cpu(fd, LOOKED);
	close(at);
	point("dma", "what a device writes is there when the CPU's access begins");
}

static void to_device(int fd, char *p)
{
	int at = import(fd, IMPORTER_BOTH_WAYS), reader = import_by(1, fd, IMPORTER_TO_DEVICE, 0);

	device_paints(at, 5, 1);
	cpu(fd, WRITE);
	/* The CPU writes one page: the device's other one must survive the way there and back. */
	paint(p, 6, 0, 1);
	cpu(fd, WRITTEN);
	device_has(at, 6, 0, "the device");
	device_has(at, 5, 1, "the device's own");
	device_has(reader, 6, 0, "another device");
	device_has(reader, 5, 1, "another device, of the first");
	is_painted(p + PAGE, 5, 1, 1, "the CPU");
	close(at);
	close(reader);
	point("dma", "what the CPU writes is there for every device when its access ends");
}

struct looker {
	int fd;
	long failed;
	pthread_t thread;
};

/* Where all bytes go through bounce buffers each call copies them. */
static int times(void)
{
	return bounce ? 200 : 4000;
}

static void *looks(void *data)
{
	static const uint64_t steps[] = { LOOK, LOOKED, WRITE, WRITTEN };
	struct looker *l = data;

	for (int i = 0; i < times(); i++) {
		struct dma_buf_sync s = { .flags = steps[i % 4] };

		l->failed += ioctl(l->fd, DMA_BUF_IOCTL_SYNC, &s) != 0;
	}
	return NULL;
}

/* Two threads say so at once, of one buffer: each is answered for itself, and the bytes stay what they are. */
static void at_once(int fd, char *p)
{
	int slice = dev_slice(dev, fd, 0, BUFFER, PINION_RIGHT_READ | PINION_RIGHT_WRITE), at = import(fd, IMPORTER_BOTH_WAYS);
	struct looker l[2] = { { .fd = fd }, { .fd = slice } };

	cpu(fd, WRITE);
	paint(p, 3, 0, BUFFER / PAGE);
	cpu(fd, WRITTEN);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&l[i].thread, NULL, looks, &l[i]))
			wrong("no thread");
	for (int i = 0; i < 2; i++) {
		pthread_join(l[i].thread, NULL);
		if (l[i].failed)
			wrong("%ld of %d calls of thread %d failed", l[i].failed, times(), i);
	}
	is_painted(p, 3, 0, BUFFER / PAGE, "the CPU");
	device_has(at, 3, 0, "the device");
	device_has(at, 3, LAST, "the device");
	close(at);
	close(slice);
	point("dma", "accesses of two threads at once, each answered for itself");
}

/* The memory is one, whatever slice it is spoken of by. */
static void by_slice(int fd, char *p)
{
	int slice = dev_slice(dev, fd, 3 * PAGE, PAGE, PINION_RIGHT_READ), at = import(fd, IMPORTER_BOTH_WAYS);

	device_paints(at, 7, 3);
	cpu(slice, LOOK);
	is_painted(p + 3 * PAGE, 7, 3, 1, "the CPU");
	cpu(slice, LOOKED);
	/* One that cannot write has nothing to give to a device, whatever it says: what the device wrote since is not undone. */
	device_paints(at, 8, 3);
	cpu(slice, WRITTEN);
	device_has(at, 8, 3, "after a reader said that it wrote");
	cpu(slice, LOOK);
	is_painted(p + 3 * PAGE, 8, 3, 1, "the CPU, again");
	cpu(slice, LOOKED);
	close(at);
	close(slice);
	point("dma", "an access to one slice is one to all, and no reader's undoes what a device wrote");
}

static void at_unmap(int fd, char *p)
{
	int at;

	paint(p, 1, 0, BUFFER / PAGE);
	at = import(fd, IMPORTER_FROM_DEVICE);
	device_paints(at, 8, 513);
	close(at);
	is_painted(p + 513 * PAGE, 8, 513, 1, "the CPU");
	is_painted(p, 1, 0, 513, "before it");
	is_painted(p + 514 * PAGE, 1, 514, LAST - 513, "behind it");
	at = import(fd, IMPORTER_BOTH_WAYS);
	device_paints(at, 9, 0);
	import_call(at, IMPORTER_UNMAP);
	is_painted(p, 9, 0, 1, "the CPU, of a device that reads too");
	close(at);
	/* A device that only reads gives nothing back. */
	at = import(fd, IMPORTER_TO_DEVICE);
	paint(p, 2, 0, 1);
	close(at);
	is_painted(p, 2, 0, 1, "the CPU, of a device that only reads");
	point("dma", "what a device wrote is there when it lets go");
}

/* The importer's call in a thread of its own, while the CPU's access begins or ends. */
struct changer {
	int import;
	unsigned long call;
	int ret;
	pthread_barrier_t *start;
	pthread_t thread;
};

static void *changes(void *data)
{
	struct changer *c = data;

	pthread_barrier_wait(c->start);
	c->ret = import_call(c->import, c->call);
	return NULL;
}

/* An attachment's mapping comes or goes while the CPU's access is under way: what either wrote is with the other after it. */
static void meanwhile(int fd, char *p)
{
	const int rounds = 200;
	int at = import_by(0, fd, IMPORTER_BOTH_WAYS, IMPORTER_LAZY), lost_by_cpu = 0, lost_by_device = 0;
	static char bytes[PAGE] __attribute__((aligned(8)));
	pthread_barrier_t start;

	pthread_barrier_init(&start, NULL, 2);
	for (int i = 0; i < rounds; i++) {
		struct changer c = { .import = at, .call = IMPORTER_MAP, .start = &start };

		if (pthread_create(&c.thread, NULL, changes, &c))
			wrong("no thread");
		pthread_barrier_wait(&start);
		/* From before the mapping copies to after it, or so. */
		usleep(i % 20 * 50);
		cpu(fd, WRITE);
		paint(p, i, 0, 1);
		cpu(fd, WRITTEN);
		pthread_join(c.thread, NULL);
		expect(c.ret, 0, "map");
		expect(import_read(at, 0, bytes, PAGE), 0, "read");
		lost_by_cpu += !is_page(bytes, i, 0);

		device_paints(at, i, LAST);
		c.call = IMPORTER_UNMAP;
		if (pthread_create(&c.thread, NULL, changes, &c))
			wrong("no thread");
		pthread_barrier_wait(&start);
		usleep(i % 20 * 50);
		cpu(fd, LOOK);
		lost_by_device += !is_page(p + LAST * PAGE, i, LAST);
		cpu(fd, LOOKED);
		pthread_join(c.thread, NULL);
		expect(c.ret, 0, "unmap");
	}
	pthread_barrier_destroy(&start);
	close(at);
	if (lost_by_cpu || lost_by_device)
		wrong("of %d times the device had not what the CPU wrote %d times, the CPU not what the device wrote %d times",
		      rounds, lost_by_cpu, lost_by_device);
	point("dma", "nothing is lost where a device's mapping comes or goes during the CPU's access");
}

static void views(void)
{
	int fd = dev_alloc(dev, BUFFER, 0);
	char *p = map(fd, BUFFER);

	if (p != MAP_FAILED) {
		to_cpu(fd, p);
		to_device(fd, p);
		by_slice(fd, p);
		at_once(fd, p);
		meanwhile(fd, p);
		at_unmap(fd, p);
		munmap(p, BUFFER);
	}
	close(fd);
}

/* ---- two, and the order of letting go -------------------------------------------------------------------------------- */

static unsigned int attachments(int fd)
{
	struct pinion_bufinfo info = { 0 };

	expect(dev_bufinfo(dev, fd, &info), 0, "BUFINFO");
	return info.attachments;
}

static void two(void)
{
	struct importer_table ta = { 0 }, tb = { 0 }, tc = { 0 };
	int fd = dev_alloc(dev, 8 * PAGE, 0), a, b, c;
	char *p = map(fd, 8 * PAGE);

	paint(p, 1, 0, 8);
	a = import_by(0, fd, IMPORTER_BOTH_WAYS, 0);
	b = import_by(1, fd, IMPORTER_BOTH_WAYS, 0);
	c = import_by(0, fd, IMPORTER_BOTH_WAYS, IMPORTER_DYNAMIC);
	expect(import_table(a, &ta), 0, "first table");
	expect(import_table(b, &tb), 0, "second table");
	expect(import_table(c, &tc), 0, "third table");
	if (ta.table == tb.table || tb.table == tc.table || ta.table == tc.table)
		wrong("one table for two");
	if (attachments(fd) != 3)
		wrong("%u attachments", attachments(fd));
	/* The first does to its table what it likes. */
	expect(import_call(a, IMPORTER_SPOIL), 0, "spoil");
	for (uint64_t i = 0; i < 8; i++) {
		device_has(b, 1, i, "the second");
		device_has(c, 1, i, "the third");
	}
	expect(import_call(a, IMPORTER_SPOIL), 0, "mend");
	close(a);
	for (uint64_t i = 0; i < 8; i++) {
		device_has(b, 1, i, "the second, alone");
		device_has(c, 1, i, "the third, without the first");
	}
	if (attachments(fd) != 2)
		wrong("%u attachments without the first", attachments(fd));
	close(c);
	close(b);
	if (attachments(fd))
		wrong("%u attachments without any", attachments(fd));
	munmap(p, 8 * PAGE);
	close(fd);
	point("dma", "importers have tables of their own");
}

/* Attached once, mapped again and again. */
static void again(void)
{
	int fd = dev_alloc(dev, 4 * PAGE, 0), at = import_by(0, fd, IMPORTER_BOTH_WAYS, IMPORTER_LAZY);
	char *p = map(fd, 4 * PAGE);

	for (uint64_t seed = 1; seed < 9; seed++) {
		if (attachments(fd))
			wrong("%u attachments before a map", attachments(fd));
		paint(p, seed, 0, 4);
		expect(import_call(at, IMPORTER_MAP), 0, "map");
		device_has(at, seed, 3, "the device");
		if (attachments(fd) != 1)
			wrong("%u attachments with a map", attachments(fd));
		expect(import_call(at, IMPORTER_UNMAP), 0, "unmap");
	}
	close(at);
	munmap(p, 4 * PAGE);
	close(fd);
	point("dma", "mapped again and again");
}

/* Whoever holds last keeps the memory: descriptor, mapping, device, device that maps. All orders. */
static void orders(void)
{
	static const char *const order[] = { "fmda", "fmad", "fdma", "fdam", "famd", "fadm", "mfda", "mfad",
					     "mdfa", "mdaf", "mafd", "madf", "dfma", "dfam", "dmfa", "dmaf",
					     "dafm", "damf", "afmd", "afdm", "amfd", "amdf", "adfm", "admf" };
	uint64_t bytes = dev_bytes(dev), buffers = dev_buffers(dev);

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		int fd = dev_alloc(dev, 4 * PAGE, 0), a = import(fd, IMPORTER_TO_DEVICE),
		    d = import_by(1, fd, IMPORTER_BOTH_WAYS, 0);
		char *p = map(fd, 4 * PAGE), *own = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, d, 0);

		paint(p, 1, 0, 4);
		is_painted(own, 1, 0, 4, "the importer's mapping");
		cpu(fd, WRITTEN);
		for (const char *o = order[i]; *o; o++) {
			if (dev_bytes(dev) != bytes + 4 * PAGE || dev_buffers(dev) != buffers + 1)
				wrong("%s: gone before %c", order[i], *o);
			if (*o == 'f') {
				close(fd);
			} else if (*o == 'm') {
				munmap(p, 4 * PAGE);
			} else if (*o == 'a') {
				device_has(a, 1, 2, order[i]);
				close(a);
			} else {
				device_has(d, 1, 3, order[i]);
				close(d);
				is_painted(own, 1, 0, 4, order[i]);
				munmap(own, 4 * PAGE);
			}
		}
		if (dev_bytes(dev) != bytes || dev_buffers(dev) != buffers)
			wrong("%s: not given back", order[i]);
	}
	point("dma", "memory stays for the last who holds it, in every order");
}

/* More than there are bounce buffers: refused, and nothing is left. */
static void too_much(void)
{
	int fd, at;

	if (!bounce)
		return;
	fd = dev_alloc(dev, 128UL << 20, 0);
	at = import(fd, IMPORTER_BOTH_WAYS);
	if (fd < 0 || at >= 0)
		wrong("ALLOC %d, import %d", fd, at);
	if (attachments(fd))
		wrong("%u attachments", attachments(fd));
	close(fd);
	point("dma", "a device that cannot map all maps nothing");
}

int main(void)
{
	struct state start;
	char *cmdline = file_get("/proc/cmdline");

	bounce = strstr(cmdline, "swiotlb=force");
	free(cmdline);
	if (bounce && access("/sys/kernel/debug/swiotlb", F_OK)) {
		tap_skip("dma: with bounce buffers", "this kernel has none");
		bounce = false;
	}
	dev = dev_open(O_RDWR);
	start = state_now(dev);
	tables();
	kinds();
	views();
	two();
	again();
	orders();
	too_much();
	state_same(dev, &start);
	point("dma", "bytes, buffers and descriptors are what they were");
	return tap_end();
}
