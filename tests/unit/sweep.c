/* SPDX-License-Identifier: MIT */
#include "sweep.h"

#include "harness.h"
#include "index_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <sys/mman.h>
#include <unistd.h>

#include "error.h"

#define KEY   "sweep"
#define NAME  "sweep"
#define BYTES (UINT64_C(256) << 10)

static char model_path[PATH_MAX], data_path[PATH_MAX], list_path[PATH_MAX];

/* Everything a walk builds, in the order it is built. */
struct built {
	struct pinion_context *ctx;
	struct pinion_device *dev;
	struct pinion_buffer *buf;
	void *at;
	int fd, file;
	struct pinion_stream *stream;
	struct pinion_model *loaded, *attached;
	struct pinion_holder *holder;
	struct pinion_ticket ticket;
	struct pinion_set *set;
	struct pinion_reservation *claim, *pick;
	struct pinion_index *index;
	struct pinion_feed *feed;
	struct pinion_model *listed;
	struct pinion_judge *judge;
	struct pinion_selector *selector;
	struct pinion_array *array;
	struct pinion_storage *storage;
};

/* A model in two files, whose tensors a load has to move. */
static void prepare_list(void)
{
	static const char *const names[] = { "sweep-1.safetensors", "sweep-2.safetensors" };
	static const char *const headers[] = {
		"{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[100],\"data_offsets\":[0,400]}}",
		"{\"b\":{\"dtype\":\"U8\",\"shape\":[10,40],\"data_offsets\":[0,400]}}",
	};
	static const char list[] = "{\"metadata\":{\"total_size\":800},\"weight_map\":{\"a\":\"sweep-1.safetensors\","
				   "\"b\":\"sweep-2.safetensors\"}}";
	struct file f = { 0 };

	for (size_t i = 0; i < LENGTH(names); i++) {
		safetensors(&f, headers[i], 400);
		save_as(names[i], &f);
		free(f.data);
		f = (struct file){ 0 };
	}
	put(&f, list, strlen(list));
	snprintf(list_path, sizeof(list_path), "%s", save_as("sweep.safetensors.index.json", &f));
	free(f.data);
}

void sweep_prepare(void)
{
	static unsigned char data[BYTES];
	struct file f = { 0 };
	FILE *out;

	prepare_list();
	gguf(&f, 3, 2, 1);
	put_label(&f, "general.architecture", "sweep");
	put_tensor(&f, "a", PINION_TYPE_F32, 0, 1, UINT64_C(1024));
	put_tensor(&f, "b", PINION_TYPE_F32, 4096, 1, UINT64_C(1024));
	pad(&f, 32);
	put_zeros(&f, 4096);
	for (uint32_t i = 0; i < 1024; i++)
		put_u32(&f, i);
	snprintf(model_path, sizeof(model_path), "%s", save(&f));
	free(f.data);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (unsigned char)(i * 31 + (i >> 8));
	snprintf(data_path, sizeof(data_path), "%s/data", test_tmp());
	out = fopen(data_path, "w");
	ck_assert(out && fwrite(data, 1, BYTES, out) == BYTES && !fclose(out));
}

/* ---- steps --------------------------------------------------------------------------------------------------------- */

static int open_context(struct built *b)
{
	return pinion_open(NULL, &b->ctx);
}

static int add_device(struct built *b)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 4, .budget = UINT64_C(1) << 30 };

	return pinion_device_add(b->ctx, KEY, &opts, &b->dev);
}

static int make_buffer(struct built *b)
{
	return pinion_buffer_alloc(b->ctx, BYTES, NULL, &b->buf);
}

static int map_buffer(struct built *b)
{
	return pinion_buffer_map(b->buf, PINION_READ | PINION_WRITE, &b->at);
}

static int make_stream(struct built *b)
{
	return pinion_stream_new(b->dev, NULL, &b->stream);
}

/* The file is the test's own, so a failure to open it is no failure of the library. */
static int read_file(struct built *b)
{
	uint64_t seq;
	int ret;

	b->file = open(data_path, O_RDONLY | O_CLOEXEC);
	if (b->file < 0)
		return fail_errno(errno, "the test's own open()");
	ret = pinion_stream_read(b->stream, b->buf, 0, b->file, 0, BYTES, &seq);
	if (!ret)
		ret = pinion_stream_wait(b->stream, seq, PINION_FOREVER);
	if (!ret && ((unsigned char *)b->at)[4097] != (unsigned char)(4097 * 31 + (4097 >> 8)))
		ck_abort_msg("what was read is wrong");
	return ret;
}

static int unmap_buffer(struct built *b)
{
	int ret = pinion_buffer_unmap(b->buf, PINION_READ | PINION_WRITE);

	if (!ret)
		b->at = NULL;
	return ret;
}

static int seal_buffer(struct built *b)
{
	return pinion_buffer_seal(b->buf);
}

static int export_buffer(struct built *b)
{
	int fd = pinion_buffer_export(b->buf);

	if (fd < 0)
		return fd;
	b->fd = fd;
	return 0;
}

static int take_name(struct built *b)
{
	return pinion_holder_open(b->ctx, NAME, model_path, &b->holder);
}

static int load_model(struct built *b)
{
	return pinion_model_load(b->ctx, model_path, NULL, &b->loaded);
}

static int publish(struct built *b)
{
	return pinion_holder_publish(b->holder, b->loaded);
}

static int attach(struct built *b)
{
	struct pinion_tensor t;
	int ret = pinion_model_attach(b->ctx, NAME, NULL, &b->attached);

	if (!ret)
		ret = pinion_model_tensor(b->attached, "b", &t);
	if (!ret && ((const uint32_t *)t.data)[1000] != 1000)
		ck_abort_msg("what was attached is wrong");
	return ret;
}

static int see_name(void *arg, const struct pinion_name_info *info)
{
	++*(int *)arg;
	(void)info;
	return 0;
}

static int list_names(struct built *b)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	struct pinion_name_user user[2];
	size_t n;
	int seen = 0, ret = pinion_name_list(b->ctx, see_name, &seen);

	if (!ret && seen != 1)
		ck_abort_msg("%d names are listed", seen);
	return ret ? ret : pinion_name_show(b->ctx, NAME, &info, user, 2, &n);
}

static int begin_work(struct built *b)
{
	uint32_t n;
	int ret = pinion_work_begin(b->dev, 3, &b->ticket);

	if (!ret)
		ret = pinion_device_pending(b->dev, PINION_SCOPE_ALL, &n);
	if (!ret && n != 1)
		ck_abort_msg("%u units are in flight", n);
	return ret;
}

static int rank(struct built *b)
{
	struct pinion_candidate c[2] = {
		{ .backend = PINION_BACKEND_CPU,
		  .device = { PINION_BACKEND_CPU, 0 },
		  .precision = pinion_precision_exact(),
		  .static_cost = { 1000, 1000, 10 } },
		{ .backend = PINION_BACKEND_CPU,
		  .device = { PINION_BACKEND_CPU, 0 },
		  .precision = pinion_precision_deterministic(),
		  .static_cost = { 10, 10, 10 } },
	};
	int ret = pinion_set_from(c, 2, &b->set);

	if (ret)
		return ret;
	pinion_set_rank(b->set);
	return pinion_set_winner(b->set)->static_cost.flops == 10 ? 0 : fail(EDOM, "the dearer candidate won");
}

static int claim(struct built *b)
{
	struct pinion_reserve_opts opts = { .size = sizeof(opts), .bytes = 4096, .units = 1 };

	return pinion_device_reserve(b->dev, &opts, &b->claim);
}

static int pick(struct built *b)
{
	static const char *const keys[] = { KEY };
	struct pinion_want want = { .size = sizeof(want), .bytes = 4096, .keys = keys, .key_count = 1 };
	struct pinion_pick_row row[2];
	size_t n;

	return pinion_pick_explain(b->ctx, &want, row, 2, &n, &b->pick);
}

static int end_work(struct built *b)
{
	return pinion_work_end(&b->ticket);
}

static int open_index(struct built *b)
{
	return pinion_index_open(list_path, &b->index);
}

static int open_feed(struct built *b)
{
	struct pinion_feed_opts opts = { .size = sizeof(opts), .buffers = 2, .buffer_bytes = 4096, .hash = true };

	return pinion_feed_open(b->ctx, list_path, &opts, &b->feed);
}

static int read_feed(struct built *b)
{
	struct pinion_chunk chunk = { .size = sizeof(chunk) };
	uint64_t bytes = 0;
	int ret;

	while (!(ret = pinion_feed_next(b->feed, &chunk))) {
		bytes += chunk.bytes;
		pinion_feed_done(b->feed, &chunk);
	}
	if (ret == -ENODATA && bytes != 800)
		ck_abort_msg("%" PRIu64 " bytes were fed", bytes);
	return ret == -ENODATA ? 0 : ret;
}

static int load_list(struct built *b)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .hash = true };

	return pinion_model_load(b->ctx, list_path, &opts, &b->listed);
}

static int make_judge(struct built *b)
{
	return pinion_judge_new(&b->judge);
}

/* More than there is room for at first. */
static int measure(struct built *b)
{
	struct pinion_measure one = { .ns = 10 };
	struct pinion_task task = { 0 };
	char source[16];
	int ret = 0;

	for (unsigned int i = 0; !ret && i < 100; i++) {
		snprintf(source, sizeof(source), "kernel-%u", i);
		ret = pinion_judge_put(b->judge, &task, PINION_BACKEND_CPU, source, &one);
	}
	return ret;
}

static int make_selector(struct built *b)
{
	struct pinion_selector_opts opts = { .size = sizeof(opts), .judge = b->judge };

	return pinion_selector_chained(&opts, &b->selector);
}

static int prune(struct built *b)
{
	return pinion_set_prune(b->set, 1);
}

/* Not as they lie in memory. */
static int upload(struct built *b)
{
	static float data[6] = { 1, 2, 3, 4, 5, 6 };
	struct pinion_device *cpu;
	struct pinion_view view, turned;
	int ret = pinion_device_find(b->ctx, "cpu", &cpu);

	if (!ret)
		ret = pinion_view_init(&view, data, sizeof(data), PINION_DTYPE_F32, 2, (const uint64_t[]){ 2, 3 }, NULL, 0);
	if (!ret)
		ret = pinion_view_transpose(&view, 0, 1, &turned);
	return ret ? ret : pinion_array_upload(cpu, &turned, &b->array);
}

static void keep(void *arg, void *data)
{
	(void)arg;
	(void)data;
}

static int adopt(struct built *b)
{
	static float data[4];

	return pinion_storage_adopt(data, PINION_DTYPE_F32, 4, keep, NULL, &b->storage);
}

static int see_leak(void *arg, const struct pinion_leak *leak)
{
	(void)arg;
	(void)leak;
	return 0;
}

static int list_leaks(struct built *b)
{
	return pinion_leak_list(b->ctx, false, see_leak, NULL);
}

#define AT(member) offsetof(struct built, member)
#define NONE	   SIZE_MAX

static const struct {
	const char *name;
	int (*run)(struct built *b);
	size_t out; /* the pointer it writes */
} steps[] = {
	{ "open", open_context, AT(ctx) },
	{ "device_add", add_device, AT(dev) },
	{ "buffer_alloc", make_buffer, AT(buf) },
	{ "buffer_map", map_buffer, AT(at) },
	{ "stream_new", make_stream, AT(stream) },
	{ "stream_read", read_file, NONE },
	{ "buffer_unmap", unmap_buffer, NONE },
	{ "buffer_seal", seal_buffer, NONE },
	{ "buffer_export", export_buffer, NONE },
	{ "holder_open", take_name, AT(holder) },
	{ "model_load", load_model, AT(loaded) },
	{ "holder_publish", publish, NONE },
	{ "model_attach", attach, AT(attached) },
	{ "name_list", list_names, NONE },
	{ "work_begin", begin_work, NONE },
	{ "set_from", rank, AT(set) },
	{ "device_reserve", claim, AT(claim) },
	{ "pick", pick, AT(pick) },
	{ "work_end", end_work, NONE },
	{ "index_open", open_index, AT(index) },
	{ "feed_open", open_feed, AT(feed) },
	{ "feed_next", read_feed, NONE },
	{ "model_load of a list", load_list, AT(listed) },
	{ "judge_new", make_judge, AT(judge) },
	{ "judge_put", measure, NONE },
	{ "selector_chained", make_selector, AT(selector) },
	{ "set_prune", prune, NONE },
	{ "array_upload", upload, AT(array) },
	{ "storage_adopt", adopt, AT(storage) },
	{ "leak_list", list_leaks, NONE },
};

static void take_down(struct built *b)
{
	pinion_storage_free(b->storage);
	pinion_array_free(b->array);
	pinion_selector_unref(b->selector);
	pinion_judge_free(b->judge);
	pinion_model_free(b->listed);
	pinion_feed_free(b->feed);
	pinion_index_free(b->index);
	pinion_reservation_free(b->pick);
	pinion_reservation_free(b->claim);
	pinion_set_free(b->set);
	if (b->ticket.state)
		pinion_work_end(&b->ticket);
	pinion_model_free(b->attached);
	pinion_holder_free(b->holder);
	pinion_model_free(b->loaded);
	pinion_stream_free(b->stream);
	if (b->at)
		pinion_buffer_unmap(b->buf, PINION_READ | PINION_WRITE);
	pinion_buffer_unref(b->buf);
	if (b->fd >= 0)
		close(b->fd);
	if (b->file >= 0)
		close(b->file);
	pinion_close(b->ctx);
}

int sweep_walk(struct sweep_walk *walk)
{
	struct built b = { .fd = -1, .file = -1 };

	*walk = (struct sweep_walk){ 0 };
	for (size_t i = 0; i < LENGTH(steps) && !walk->ret; i++) {
		sentence_set("");
		walk->ret = steps[i].run(&b);
		if (!walk->ret)
			continue;
		walk->step = steps[i].name;
		walk->wrote = steps[i].out != NONE && *(void **)((char *)&b + steps[i].out);
		snprintf(walk->why, sizeof(walk->why), "%s", pinion_error());
	}
	take_down(&b);
	return walk->ret;
}

/* ---- what is left -------------------------------------------------------------------------------------------------- */

static unsigned int entries(const char *folder)
{
	DIR *d = opendir(folder);
	unsigned int n = 0;

	ck_assert_msg(d != NULL, "%s", folder);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Only what shares memory or shows a file: what malloc() and stacks of threads keep may differ. */
static unsigned int maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	char line[512], mode[8];

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %7s", mode) == 1)
			n += mode[3] == 's';
	fclose(f);
	return n;
}

struct sweep_tally sweep_tally(void)
{
	return (struct sweep_tally){ .fds = entries("/proc/self/fd"), .maps = maps(), .files = entries(test_tmp()) };
}

const char *sweep_judge(const struct sweep_walk *walk)
{
	if (walk->ret >= 0 || walk->ret < -4095)
		return "no errno";
	if (!*walk->why)
		return "no sentence";
	if (walk->wrote)
		return "an output was written";
	return NULL;
}
