// SPDX-License-Identifier: MIT
/* Rights of slices, tried by every way round them: mappings, descriptors, other processes, importers. */
#define _GNU_SOURCE
#include "bytes.h"
#include "import.h"
#include "vgem.h"

#include <sys/ptrace.h>
#include <sys/uio.h>

#define BUFFER (8 * PAGE)

static int dev, buffer;
static char *whole;

static int try_map(int fd, int prot, off_t offset, void **at)
{
	void *p = mmap(NULL, BUFFER, prot, MAP_SHARED, fd, offset);

	if (p == MAP_FAILED)
		return -errno;
	if (at)
		*at = p;
	else
		munmap(p, BUFFER);
	return 0;
}

/* ---- one process --------------------------------------------------------------------------------------------------- */

static void read_only_descriptor(int slice)
{
	char path[64];
	void *p = NULL;
	int fd;

	expect((fcntl(slice, F_GETFL) & O_ACCMODE) == O_RDONLY ? 0 : -EINVAL, 0, "opened for reading");
	expect(try_map(slice, PROT_READ | PROT_WRITE, 0, NULL), -EACCES, "a writable mapping");
	expect(try_map(slice, PROT_WRITE, 0, NULL), -EACCES, "a mapping for writing alone");
	if (expect(try_map(slice, PROT_READ, 0, &p), 0, "MAP_SHARED for reading")) {
		is_painted(p, 1, 0, BUFFER / PAGE, "the slice");
		expect(mprotect(p, BUFFER, PROT_READ | PROT_WRITE) ? -errno : 0, -EACCES, "mprotect");
		if (touch(p, true) != SIGSEGV)
			wrong("a write does not fault");
		munmap(p, BUFFER);
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", slice);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		wrong("opened again for writing");
		close(fd);
	}
	expect(fcntl(slice, F_SETFL, O_RDWR) ? -errno : 0, 0, "F_SETFL");
	expect(try_map(slice, PROT_READ | PROT_WRITE, 0, NULL), -EACCES, "a writable mapping after F_SETFL");
	if (write(slice, whole, PAGE) >= 0)
		wrong("write() to the descriptor works");
}

static void never_more(int slice, uint32_t rights)
{
	for (uint32_t want = 0; want <= PINION_RIGHTS; want++) {
		bool less = !(want & ~(rights | PINION_RIGHT_READ));
		int fd = dev_slice(dev, slice, 0, BUFFER, want);
		struct pinion_bufinfo info;

		expect(fd, less ? 0 : -EACCES, "rights %u of %u", want, rights);
		if (fd < 0)
			continue;
		if (dev_bufinfo(dev, fd, &info) || info.rights != (want | PINION_RIGHT_READ))
			wrong("rights %u of %u: BUFINFO says %u", want, rights, info.rights);
		/* And from there, again. */
		for (uint32_t more = 0; more <= PINION_RIGHTS; more++) {
			int again = dev_slice(dev, fd, 0, BUFFER, more);

			expect(again, more & ~(want | PINION_RIGHT_READ) ? -EACCES : 0, "rights %u of %u of %u", more, want,
			       rights);
			if (again >= 0)
				close(again);
		}
		close(fd);
	}
}

static void slices(void)
{
	uint32_t rights;

	for (rights = 0; rights <= PINION_RIGHTS; rights++) {
		int slice = dev_slice(dev, buffer, 0, BUFFER, rights);

		if (!expect(slice, 0, "rights %u", rights))
			continue;
		if (!(rights & PINION_RIGHT_WRITE))
			read_only_descriptor(slice);
		else
			expect(try_map(slice, PROT_READ | PROT_WRITE, 0, NULL), 0, "rights %u: a writable mapping", rights);
		never_more(slice, rights | PINION_RIGHT_READ);
		close(slice);
	}
	point("rights", "a slice without WRITE is not written, whatever is tried");
}

/* ---- other processes ----------------------------------------------------------------------------------------------- */

struct victim {
	pid_t pid;
	char *at;
};

/* A child that has the slice mapped for reading and waits to be killed. */
static struct victim victim_start(int slice)
{
	struct victim v = { .at = MAP_FAILED };
	void *p = NULL;

	if (!expect(try_map(slice, PROT_READ, 0, &p), 0, "MAP_SHARED for reading"))
		return v;
	v.at = p;
	touch(p, false);
	v.pid = fork();
	if (!v.pid)
		for (;;)
			pause();
	return v;
}

static void victim_end(struct victim *v)
{
	kill(v->pid, SIGKILL);
	waitpid(v->pid, NULL, 0);
	munmap(v->at, BUFFER);
}

static void by_vm_writev(struct victim *v)
{
	char bytes[16] = "not to be seen";
	struct iovec from = { bytes, sizeof(bytes) }, to = { v->at, sizeof(bytes) };

	if (process_vm_writev(v->pid, &from, 1, &to, 1, 0) > 0)
		wrong("process_vm_writev writes");
	expect(process_vm_readv(v->pid, &from, 1, &to, 1, 0) == sizeof(bytes) ? 0 : -EIO, 0, "process_vm_readv");
	if (memcmp(bytes, v->at, sizeof(bytes)))
		wrong("process_vm_readv reads something else");
}

static void by_mem(struct victim *v)
{
	char path[64], byte = 'x';
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", v->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		wrong("%s: %s", path, strerror(errno));
	else if (pwrite(fd, &byte, 1, (off_t)(uintptr_t)v->at) == 1)
		wrong("/proc/PID/mem writes");
	close(fd);
	fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		wrong("/proc/self/mem: %s", strerror(errno));
	else if (pwrite(fd, &byte, 1, (off_t)(uintptr_t)v->at) == 1)
		wrong("/proc/self/mem writes");
	close(fd);
}

static void by_ptrace(struct victim *v)
{
	int status;

	if (ptrace(PTRACE_ATTACH, v->pid, NULL, NULL) || waitpid(v->pid, &status, 0) != v->pid) {
		wrong("PTRACE_ATTACH: %s", strerror(errno));
		return;
	}
	if (!ptrace(PTRACE_POKEDATA, v->pid, v->at, (void *)0x78787878))
		wrong("PTRACE_POKEDATA writes");
	ptrace(PTRACE_DETACH, v->pid, NULL, NULL);
}

static void other_processes(void)
{
	int slice = dev_slice(dev, buffer, 0, BUFFER, PINION_RIGHT_DMA_RW);
	struct victim v = victim_start(slice);

	if (v.pid > 0) {
		by_vm_writev(&v);
		by_mem(&v);
		by_ptrace(&v);
		is_painted(whole, 1, 0, BUFFER / PAGE, "the buffer");
		victim_end(&v);
	}
	close(slice);
	point("rights", "no other process, debugger or mem file writes a read-only slice");
}

/* Passing on changes nothing: who has the descriptor has its rights. */
static bool in_child(void *data)
{
	void *p = NULL;
	int slice = *(int *)data;

	return try_map(slice, PROT_READ | PROT_WRITE, 0, NULL) == -EACCES && !try_map(slice, PROT_READ, 0, &p) &&
	       is_page(p, 1, 0) && touch(p, true) == SIGSEGV && mprotect(p, PAGE, PROT_WRITE) && errno == EACCES;
}

static bool as_nobody(void *data)
{
	return !setgid(65534) && !setuid(65534) && in_child(data) && open(PINION_DEVICE, O_RDONLY) < 0;
}

static void inherited(void)
{
	int slice = dev_slice(dev, buffer, 0, BUFFER, PINION_RIGHT_READ);

	if (!child(in_child, &slice))
		wrong("in a child");
	if (!child(as_nobody, &slice))
		wrong("in a child of another user");
	close(slice);
	point("rights", "a child, and another user's process, have the rights of the descriptor");
}

/* ---- importers ----------------------------------------------------------------------------------------------------- */

/* Where DRM shows its objects; the first is the lowest. */
#define DRM_OFFSET 0x100000000LL

static void by_vgem(void)
{
	int vgem = vgem_open(), ro, slice;
	uint32_t handle = 0;
	void *p = NULL;

	if (vgem < 0) {
		tap_skip("rights: a graphics driver has no more rights", VGEM_DEVICE ": %s", strerror(-vgem));
		return;
	}
	ro = dev_slice(dev, buffer, 0, BUFFER, PINION_RIGHT_READ);
	slice = dev_slice(dev, buffer, 0, BUFFER, PINION_RIGHT_DMA_RW);
	expect(vgem_import(vgem, ro, &handle), -EACCES, "import without DMA_RW");
	if (expect(vgem_import(vgem, slice, &handle), 0, "import with DMA_RW")) {
		expect(try_map(vgem, PROT_READ | PROT_WRITE, DRM_OFFSET, NULL), -EACCES, "a writable mapping of the object");
		if (expect(try_map(vgem, PROT_READ, DRM_OFFSET, &p), 0, "a mapping of the object")) {
			is_painted(p, 1, 0, BUFFER / PAGE, "the object");
			expect(mprotect(p, BUFFER, PROT_READ | PROT_WRITE) ? -errno : 0, -EACCES, "mprotect of the object");
			munmap(p, BUFFER);
		}
		expect(vgem_drop(vgem, handle), 0, "drop");
	}
	if (expect(vgem_import(vgem, buffer, &handle), 0, "import of the buffer")) {
		if (expect(try_map(vgem, PROT_READ | PROT_WRITE, DRM_OFFSET, &p), 0,
			   "a writable mapping of the buffer's object")) {
			paint(p, 2, 0, 1);
			is_painted(whole, 2, 0, 1, "the buffer");
			paint(p, 1, 0, 1);
			munmap(p, BUFFER);
		}
		expect(vgem_drop(vgem, handle), 0, "drop");
	}
	close(ro);
	close(slice);
	close(vgem);
	point("rights", "a graphics driver has no more rights");
}

static void one_importer(uint32_t rights, uint32_t direction, uint32_t flags)
{
	/* A dynamic importer is mapped both ways by the core. */
	bool may = rights & PINION_RIGHT_DMA_RW || (direction == IMPORTER_TO_DEVICE && !(flags & IMPORTER_DYNAMIC));
	int slice = dev_slice(dev, buffer, 0, BUFFER, rights), fd;
	struct pinion_bufinfo info = { 0 };
	void *p = NULL;

	fd = import_by(0, slice, direction, flags);
	expect(fd, may ? 0 : -EACCES, "rights %u, direction %u, flags %u", rights, direction, flags);
	dev_bufinfo(dev, slice, &info);
	if (info.attachments != (fd >= 0))
		wrong("rights %u, direction %u, flags %u: %u attachments", rights, direction, flags, info.attachments);
	if (fd >= 0) {
		expect(try_map(fd, PROT_READ | PROT_WRITE, 0, NULL), rights & PINION_RIGHT_WRITE ? 0 : -EACCES,
		       "rights %u: a writable mapping by the importer", rights);
		if (expect(try_map(fd, PROT_READ, 0, &p), 0, "rights %u: a mapping by the importer", rights)) {
			is_painted(p, 1, 0, BUFFER / PAGE, "by the importer");
			expect(mprotect(p, BUFFER, PROT_READ | PROT_WRITE) ? -errno : 0,
			       rights & PINION_RIGHT_WRITE ? 0 : -EACCES, "rights %u: mprotect", rights);
			munmap(p, BUFFER);
		}
		expect(import_call(fd, IMPORTER_VMAP), -EINVAL, "a mapping in the kernel");
		close(fd);
	}
	close(slice);
}

static void by_importer(void)
{
	if (!import_is_there()) {
		tap_skip("rights: an importer writes only with DMA_RW", "no importer module");
		return;
	}
	for (uint32_t rights = PINION_RIGHT_READ; rights <= PINION_RIGHTS; rights += 2)
		for (uint32_t direction = IMPORTER_TO_DEVICE; direction <= IMPORTER_BOTH_WAYS; direction++) {
			one_importer(rights, direction, 0);
			one_importer(rights, direction, IMPORTER_DYNAMIC);
		}
	point("rights", "an importer writes only with DMA_RW");
}

int main(void)
{
	struct state start;
	void *p = NULL;

	dev = dev_open(O_RDWR);
	start = state_now(dev);
	buffer = dev_alloc(dev, BUFFER, 0);
	expect(try_map(buffer, PROT_READ | PROT_WRITE, 0, &p), 0, "mmap");
	if (!point("rights", "a buffer to slice"))
		return tap_end();
	whole = p;
	paint(whole, 1, 0, BUFFER / PAGE);
	slices();
	other_processes();
	inherited();
	by_vgem();
	by_importer();
	is_painted(whole, 1, 0, BUFFER / PAGE, "the buffer");
	munmap(whole, BUFFER);
	close(buffer);
	state_same(dev, &start);
	point("rights", "bytes, buffers and descriptors are what they were");
	return tap_end();
}
