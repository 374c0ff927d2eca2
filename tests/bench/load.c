/* SPDX-License-Identifier: MIT */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GIB ((double)(1 << 30))

/*
 * A load makes the buffer, by several threads, then reads, then seals. The last report of nothing read comes with the first
 * request; behind the last of all only the calling thread still does something.
 */
struct cpu {
	double first;	 /* of all threads */
	double last_own; /* of the calling one */
};

static int note_progress(void *arg, uint64_t done, uint64_t total)
{
	struct cpu *cpu = arg;

	(void)total;
	if (!done || cpu->first == 0)
		cpu->first = process_cpu_ns();
	cpu->last_own = thread_cpu_ns();
	return 0;
}

static int get_ready(const struct loading *l)
{
	return l->cold ? model_file_cool(l->file) : 0;
}

int load_way(void *arg, struct sample *out)
{
	const struct loading *l = arg;
	struct cpu cpu = { 0, 0 };
	struct pinion_load_opts opts = { .size = sizeof(opts), .progress = note_progress, .progress_arg = &cpu };
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct pinion_model *m;
	double start, all, own;
	int ret = get_ready(l);

	if (ret)
		return ret;
	start = now_ns();
	ret = pinion_model_load(l->ctx, l->file->path, &opts, &m);
	if (ret)
		return broke_pinion(ret, "pinion_model_load");
	out->of[WHOLE] = now_ns() - start;
	own = thread_cpu_ns();
	all = process_cpu_ns();
	pinion_model_load_stats(m, &stats);
	pinion_model_free(m);
	out->of[TIME] = stats.read_ns;
	out->of[CPU] = all - cpu.first - (own - cpu.last_own);
	for (unsigned int i = 0; i < MEASURES; i++)
		out->of[i] *= GIB / stats.bytes_read;
	return 0;
}

static int open_for(const struct loading *l)
{
	int fd = open(l->file->path, O_RDONLY | O_CLOEXEC | (l->cold ? O_DIRECT : 0));

	return fd < 0 ? broke(errno, "%s%s: %s", l->file->path, l->cold ? ", O_DIRECT" : "", strerror(errno)) : fd;
}

/* Reads the file in requests; each to its place, or, where there is staging, to its halves in turn and then there. */
static int read_all(const struct loading *l, int fd, char *to, char *staging)
{
	for (uint64_t at = 0, turn = 0; at < l->file->bytes; turn++) {
		char *place = staging ? staging + turn % 2 * READ_BYTES : to + at;
		ssize_t n = pread(fd, place, READ_BYTES, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return broke(n ? errno : ENODATA, "pread of %s: %s", l->file->path,
				     n ? strerror(errno) : "it ends early");
		if (staging)
			memcpy(to + at, place, n);
		at += n;
	}
	return 0;
}

/* Where whole requests fit, behind them staging where it is wanted. */
static int measure_read(const struct loading *l, bool moved, struct sample *out)
{
	uint64_t whole = (l->file->bytes + READ_BYTES - 1) / READ_BYTES * READ_BYTES;
	struct touched to;
	double begin, start, cpu;
	int ret = get_ready(l), fd;

	if (ret)
		return ret;
	fd = open_for(l);
	if (fd < 0)
		return fd;
	begin = now_ns();
	ret = touched_open(l->ctx, whole + (moved ? 2 * READ_BYTES : 0), &to);
	if (ret)
		goto out;
	cpu = thread_cpu_ns();
	start = now_ns();
	ret = read_all(l, fd, to.addr, moved ? to.addr + whole : NULL);
	out->of[WHOLE] = now_ns() - begin;
	out->of[TIME] = now_ns() - start;
	out->of[CPU] = thread_cpu_ns() - cpu;
	for (unsigned int i = 0; i < MEASURES; i++)
		out->of[i] *= GIB / l->file->bytes;
	touched_close(&to);
out:
	close(fd);
	return ret;
}

int load_pread(void *arg, struct sample *out)
{
	return measure_read(arg, false, out);
}

int load_moved(void *arg, struct sample *out)
{
	return measure_read(arg, true, out);
}

int load_mmap(void *arg, struct sample *out)
{
	const struct loading *l = arg;
	int fd = open_for(l);
	double start, cpu;
	void *p;

	if (fd < 0)
		return fd;
	cpu = thread_cpu_ns();
	start = now_ns();
	p = mmap(NULL, l->file->bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	out->of[TIME] = (now_ns() - start) * GIB / l->file->bytes;
	out->of[CPU] = (thread_cpu_ns() - cpu) * GIB / l->file->bytes;
	close(fd);
	if (p == MAP_FAILED)
		return broke(errno, "mmap of %s: %s", l->file->path, strerror(errno));
	munmap(p, l->file->bytes);
	return 0;
}

int load_look(struct loading *l, char pages[PAGES_TEXT], char *note, size_t room)
{
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct pinion_tensor first;
	struct pinion_model *m;
	uint64_t cached = 0;
	int ret = get_ready(l);

	if (!ret) {
		ret = pinion_model_load(l->ctx, l->file->path, NULL, &m);
		if (ret)
			return broke_pinion(ret, "pinion_model_load");
	}
	if (ret)
		return ret;
	pinion_model_load_stats(m, &stats);
	/* What is mapped by huge pages shows only once it is touched. */
	if (!pinion_model_tensor_at(m, 0, &first))
		pages_touch((const char *)first.data - first.offset, pinion_buffer_size(pinion_model_buffer(m)));
	pages_of_buffer(pages, pinion_model_buffer(m));
	pinion_model_free(m);
	ret = model_file_cached(l->file, &cached);
	snprintf(note, room, "%.0f MiB: %.1f past the page cache, %.1f through it, %.1f moved; it then holds %.1f",
		 l->file->bytes / 1048576.0, stats.direct_bytes / 1048576.0, stats.buffered_bytes / 1048576.0,
		 stats.moved_bytes / 1048576.0, cached / 1048576.0);
	return ret;
}
