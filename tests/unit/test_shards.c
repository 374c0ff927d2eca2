/* SPDX-License-Identifier: MIT */
/* Models in several files: safetensors by their list, GGUF parts; whole, or refused with the file and what is wrong. */
#include "index_files.h"

#include <pinion/pinion.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LIST "m.safetensors.index.json"
#define SHARDS "{\"weight_map\":{\"a0\":\"a.st\",\"a1\":\"a.st\",\"b0\":\"b.st\"}"

static char folder[PATH_MAX];
static struct pinion_context *ctx;

static void setup(void)
{
	snprintf(folder, sizeof(folder), "%s/model-%d", test_tmp(), (int)getpid());
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

static const char *in_folder(const char *name)
{
	static char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void keep(const char *name, const void *data, size_t bytes)
{
	FILE *out = fopen(in_folder(name), "w");

	ck_assert_ptr_nonnull(out);
	ck_assert_uint_eq(bytes ? fwrite(data, 1, bytes, out) : 0, bytes);
	ck_assert_int_eq(fclose(out), 0);
}

static void keep_text(const char *name, const char *text)
{
	keep(name, text, strlen(text));
}

/* What the bytes of a tensor are is a matter of its name. */
static unsigned char pattern(const char *name, uint64_t i)
{
	return name[0] * 59 + name[1] * 17 + i * 31 + (i >> 8) * 7 + (i >> 16);
}

static void put_pattern(struct file *f, const char *name, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++) {
		unsigned char byte = pattern(name, i);

		put(f, &byte, 1);
	}
}

/* A safetensors file of U8 tensors X0, X1, ... of these sizes, with @spaces in its header. */
static void keep_shard(const char *name, char x, const uint64_t *bytes, unsigned int count, unsigned int spaces)
{
	char header[4096], tensor[16];
	struct file f = { 0 };
	uint64_t at = 0;
	int len = 0;

	for (unsigned int i = 0; i < count; i++) {
		len += sprintf(header + len, "%c\"%c%u\":{\"dtype\":\"U8\",\"shape\":[%lu],\"data_offsets\":[%lu,%lu]}", i ? ',' : '{', x,
			       i, bytes[i], at, at + bytes[i]);
		at += bytes[i];
	}
	sprintf(header + len, "}%*s", (int)spaces, "");
	put_string(&f, header);
	for (unsigned int i = 0; i < count; i++) {
		sprintf(tensor, "%c%u", x, i);
		put_pattern(&f, tensor, bytes[i]);
	}
	keep(name, f.data, f.bytes);
	free(f.data);
}

/* a.st with a0 and a1, b.st with b0: what the lists below speak of. */
static void keep_two(void)
{
	static const uint64_t bytes[] = { 64, 3 };

	keep_shard("a.st", 'a', bytes, 2, 0);
	keep_shard("b.st", 'b', bytes, 1, 0);
}

static void check_patterns(const struct pinion_model *m)
{
	struct pinion_tensor t;

	for (uint64_t i = 0; !pinion_model_tensor_at(m, i, &t); i++)
		for (uint64_t k = 0; k < t.bytes; k++)
			if (((const unsigned char *)t.data)[k] != pattern(t.name, k))
				ck_abort_msg("%s: byte %lu is wrong", t.name, k);
}

static void folder_refused(const char *name, int err, const char *why)
{
	struct pinion_index *ix = NULL;
	struct pinion_model *m = NULL;
	int ret = pinion_index_open(in_folder(name), &ix);

	ck_assert_msg(ret == -err && !ix, "%s: %d (%s), wanted: %s", name, ret, ret ? pinion_error() : "loads", why);
	ck_assert_msg(strstr(pinion_error(), why) != NULL, "'%s' lacks '%s'", pinion_error(), why);
	ck_assert_int_eq(pinion_model_load(ctx, in_folder(name), NULL, &m), -err);
	ck_assert_ptr_null(m);
}

/* ---- safetensors by their list ------------------------------------------------------------------------------------- */

static const enum pinion_io all_io[] = { PINION_IO_AUTO, PINION_IO_BUFFERED, PINION_IO_DIRECT };

/* Three files: one whose tensors stay, one whose move, one with both. */
static void keep_three(void)
{
	static const uint64_t stay[] = { 64, 2 << 20, 0, 4096 }, move[] = { 1, 3000001, 77 }, both[] = { 100, 3 << 20, 33, 5 };

	for (unsigned int pad = 0; pad < 64; pad++) {
		struct index_block *block;
		uint64_t data;

		keep_shard("m-1.st", 'x', stay, 4, pad);
		block = loads(in_folder("m-1.st"));
		data = index_shards(block)->data_offset;
		free(block);
		if (data % 64 == 0)
			break;
	}
	keep_shard("m-2.st", 'y', move, 3, 1);
	keep_shard("m-3.st", 'z', both, 4, 2);
	keep_text(LIST, "{\"metadata\": {\"total_size\": 8246137.0, \"by\": [{\"x\": null}]},\n"
			"\"weight_map\": {\"z0\":\"m-3.st\",\"z1\":\"m-3.st\",\"z2\":\"m-3.st\",\"z3\":\"m-3.st\",\"y0\":\"m-2.st\","
			"\"y1\":\"m-2.st\",\"y2\":\"m-2.st\",\"x0\":\"m-1.st\",\"x1\":\"m-1.st\",\"x2\":\"m-1.st\",\"x3\":\"m-1.st\"}}\n");
}

#define THREE_BYTES (64 + (2 << 20) + 4096 + 1 + 3000001 + 77 + 100 + (3 << 20) + 33 + 5)

static void check_three(const struct pinion_model *m)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_shard shard = { .size = sizeof(shard) };
	uint64_t first = 0, file_bytes = 0;
	struct pinion_tensor t;

	check_patterns(m);
	ck_ok(pinion_model_info(m, &info));
	ck_assert_uint_eq(info.shards, 3);
	ck_assert_uint_eq(info.tensors, 11);
	ck_assert_uint_eq(info.tensor_bytes, THREE_BYTES);
	ck_assert_uint_eq(info.claimed_bytes, 8246137);
	for (uint64_t i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "m-%lu.st", i + 1);
		ck_ok(pinion_model_shard_at(m, i, &shard));
		ck_assert_str_eq(shard.file, name);
		ck_assert_uint_eq(shard.first, first);
		ck_assert_uint_eq(shard.outside, 0);
		for (; first < shard.first + shard.tensors; first++) {
			ck_ok(pinion_model_tensor_at(m, first, &t));
			ck_assert_uint_eq(t.shard, i);
			ck_assert_int_eq(t.name[0], "xyz"[i]);
		}
		file_bytes += shard.file_bytes;
	}
	ck_assert_uint_eq(first, 11);
	ck_assert_uint_eq(file_bytes, info.file_bytes);
	ck_assert_int_eq(pinion_model_shard_at(m, 3, &shard), -ENOENT);
}

START_TEST(listed_files_load_as_one_model_by_every_way_of_reading)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .io = all_io[_i] };
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct pinion_model *m;

	keep_three();
	free(loads(in_folder(LIST)));
	ck_ok(pinion_model_load(ctx, in_folder(LIST), &opts, &m));
	check_three(m);
	ck_ok(pinion_model_load_stats(m, &stats));
	ck_assert_uint_ge(stats.bytes_read, THREE_BYTES);
	pinion_model_free(m);
	/* The folder may be where one is. */
	ck_assert_int_eq(chdir(folder), 0);
	ck_ok(pinion_model_load(ctx, LIST, &opts, &m));
	check_three(m);
	pinion_model_free(m);
}
END_TEST

START_TEST(another_process_attaches_to_all_files_at_once)
{
	struct pinion_context *own;
	struct pinion_holder *h;
	struct pinion_model *m;
	int status;

	keep_three();
	ck_ok(pinion_holder_open(ctx, "three", in_folder(LIST), &h));
	ck_ok(pinion_model_load(ctx, in_folder(LIST), NULL, &m));
	ck_ok(pinion_holder_publish(h, m));
	if (fork() == 0) {
		ck_ok(pinion_open(NULL, &own));
		ck_ok(pinion_model_attach(own, "three", NULL, &m));
		check_three(m);
		_exit(0);
	}
	wait(&status);
	ck_assert_int_eq(status, 0);
	pinion_holder_free(h);
	pinion_model_free(m);
}
END_TEST

static const struct {
	const char *list;
	int err;
	const char *why;
} bad_lists[] = {
	/* What the files have is what the list says, both ways. */
	{ "{\"weight_map\":{\"a0\":\"a.st\",\"a1\":\"a.st\",\"b0\":\"c.st\"}}", ENOENT, "c.st of the same folder cannot be opened" },
	{ "{\"weight_map\":{\"a0\":\"a.st\",\"a1\":\"b.st\",\"b0\":\"b.st\"}}", EBADMSG, "tensor 'a1' should be in b.st, and is in a.st" },
	{ "{\"weight_map\":{\"a0\":\"a.st\",\"a1\":\"a.st\",\"b0\":\"b.st\",\"c\":\"b.st\"}}", EBADMSG,
	  "tensor 'c' should be in b.st, and no file of the weight_map has it" },
	{ "{\"weight_map\":{\"a0\":\"a.st\",\"b0\":\"b.st\"}}", EBADMSG, "tensor 'a1' is in a.st, and the weight_map does not have it" },
	{ "{\"weight_map\":{\"a0\":\"a.st\",\"a1\":\"a.st\",\"a0\":\"a.st\"}}", EBADMSG, "tensor 'a0' is in the weight_map twice" },
	{ "{\"weight_map\":{\"a0\":\"a.st\",\"a1\":\"copy.st\"}}", EBADMSG, "tensor 'a0' is in" },
	{ "{\"weight_map\":{\"a0\":\"a.st\",\"a1\":\"link.st\"}}", EBADMSG, "tensor 'a0' is in" },
	/* Only files of the folder. */
	{ "{\"weight_map\":{\"a0\":\"../a.st\"}}", EBADMSG, "tensor 'a0': its file '../a.st' is refused" },
	{ "{\"weight_map\":{\"a0\":\"/etc/passwd\"}}", EBADMSG, "its file '/etc/passwd' is refused" },
	{ "{\"weight_map\":{\"a0\":\"sub/a.st\"}}", EBADMSG, "its file 'sub/a.st' is refused" },
	{ "{\"weight_map\":{\"a0\":\"..\"}}", EBADMSG, "its file '..' is refused" },
	{ "{\"weight_map\":{\"a0\":\".\"}}", EBADMSG, "its file '.' is refused" },
	{ "{\"weight_map\":{\"a0\":\"\"}}", EBADMSG, "its file '' is refused" },
	{ "{\"weight_map\":{\"a0\":\"a\\u001b[2J\"}}", EBADMSG, "its file 'a?[2J' is refused" },
	{ "{\"weight_map\":{\"a0\":\"a.st\\u0000\"}}", EBADMSG, "tensor 'a0': the name of a file" },
	{ "{\"weight_map\":{\"a0\":\"folder\"}}", EINVAL, "folder: it is a directory" },
	/* Cycles. */
	{ "{\"weight_map\":{\"a0\":\"" LIST "\"}}", EBADMSG, LIST ": it is no safetensors file" },
	{ "{\"weight_map\":{\"a0\":\"loop.st\"}}", ELOOP, "loop.st of the same folder cannot be opened" },
	{ "{\"weight_map\":{\"a0\":\"part.gguf\"}}", EBADMSG, "part.gguf: it is no safetensors file" },
	{ "{\"weight_map\":{\"a0\":\"empty.st\"}}", EBADMSG, "empty.st: the file is empty" },
	{ "{\"weight_map\":{\"a0\":\"short.st\"}}", EBADMSG, "short.st: tensor 'a1': needs 3 bytes" },
	/* What no list looks like. */
	{ "{\"weight_map\":[]}", EBADMSG, "the JSON has byte 0x5b at offset 14 of the file where '{' is needed" },
	{ "{\"weight_map\":{\"a0\":7}}", EBADMSG, "tensor 'a0': the JSON has byte 0x37" },
	{ "{\"weight_map\":{\"a0\":{}}}", EBADMSG, "where the name of a file is needed" },
	{ "{\"weight_map\":{\"\":\"a.st\"}}", EBADMSG, "the length of its name is 0" },
	{ "{\"weight_map\":{\"a\\n\":\"a.st\"}}", EBADMSG, "tensor 'a?': its name has a control character" },
	{ "{\"weight_map\":{\"\xff\":\"a.st\"}}", EBADMSG, "the weight_map: a tensor's name at offset" },
	{ "{\"weight_map\":{}}", EBADMSG, "its weight_map is empty" },
	{ "{\"metadata\":{\"total_size\":7}}", EBADMSG, "it is JSON without a weight_map" },
	{ "{\"model_type\":\"llama\",\"layers\":[1,2,{\"x\":true}]}", EBADMSG, "it is JSON without a weight_map" },
	{ "{}", EBADMSG, "it is JSON without a weight_map" },
	{ "{", EBADMSG, "the JSON ends at offset 1" },
	{ SHARDS, EBADMSG, "the JSON ends at offset" },
	{ SHARDS "}x", EBADMSG, "where nothing but white space is needed" },
	{ SHARDS ",\"weight_map\":{}}", EBADMSG, "weight_map is there twice" },
	{ SHARDS ",\"metadata\":{},\"metadata\":{}}", EBADMSG, "metadata is there twice" },
	{ SHARDS ",\"metadata\":{\"total_size\":1,\"total_size\":1}}", EBADMSG, "metadata.total_size is there twice" },
	/* Numbers. */
	{ SHARDS ",\"metadata\":{\"total_size\":-1}}", EBADMSG, "metadata.total_size is -1" },
	{ SHARDS ",\"metadata\":{\"total_size\":0.5}}", EBADMSG, "metadata.total_size is 0.5" },
	{ SHARDS ",\"metadata\":{\"total_size\":1e300}}", EBADMSG, "metadata.total_size is 1e+300" },
	{ SHARDS ",\"metadata\":{\"total_size\":1e999}}", EBADMSG, "metadata.total_size: a number" },
	{ SHARDS ",\"metadata\":{\"total_size\":99999999999999999999}}", EBADMSG, "metadata.total_size: a number" },
	{ SHARDS ",\"metadata\":{\"total_size\":\"67\"}}", EBADMSG, "metadata.total_size: the JSON has byte 0x22" },
	{ SHARDS ",\"metadata\":{\"total_size\":111111111111111111111111111111111111111111111111111111111111111111111}}", EBADMSG,
	  "metadata.total_size: a number at offset" },
};

START_TEST(a_list_that_is_not_its_files_is_refused_by_name)
{
	static const uint64_t bytes[] = { 64, 3 };
	struct file f = { 0 };

	keep_two();
	keep_shard("copy.st", 'a', bytes, 2, 0);
	ck_assert_int_eq(symlink("a.st", in_folder("link.st")), 0);
	ck_assert_int_eq(symlink("loop.st", in_folder("loop.st")), 0);
	ck_assert_int_eq(mkdir(in_folder("folder"), 0700), 0);
	gguf(&f, 3, 1, 0);
	end_gguf(&f);
	keep("part.gguf", f.data, f.bytes);
	free(f.data);
	keep("empty.st", "", 0);
	load_file(in_folder("a.st"), &f);
	keep("short.st", f.data, f.bytes - 1);
	free(f.data);
	keep_text(LIST, bad_lists[_i].list);
	folder_refused(LIST, bad_lists[_i].err, bad_lists[_i].why);
	keep_text(LIST, SHARDS "}");
	free(loads(in_folder(LIST)));
}
END_TEST

/* Deep, long and many: what a value that is not looked at may cost is bounded, and so is the number of files. */
START_TEST(a_hostile_list_costs_little)
{
	struct file f = { 0 };
	char entry[64];
	long kib, ns;
	FILE *out;

	keep_two();
	/* By itself, because a child's peak begins with what its parent had. */
	out = fopen(in_folder(LIST), "w");
	ck_assert_ptr_nonnull(out);
	fputs("{\"x\":", out);
	for (unsigned int i = 0; i < 30000000; i++)
		putc_unlocked('[', out);
	ck_assert_int_eq(fclose(out), 0);
	if (!SANITIZED) {
		kib = refuse_kib(in_folder(LIST), &ns);
		printf("a list of 30 MB that nests: %ld KiB, %ld us\n", kib, ns / 1000);
		ck_assert_int_le(kib, 33 << 10);
	}
	folder_refused(LIST, EBADMSG, "maximum parsing depth reached");
	put(&f, "{\"weight_map\":{\"a0\":\"a.st\"", 26);
	for (unsigned int i = 0; i < INDEX_SHARDS_MAX; i++) {
		int len = snprintf(entry, sizeof(entry), ",\"%u\":\"f%u\"", i, i);

		put(&f, entry, len);
	}
	put(&f, "}}", 2);
	keep(LIST, f.data, f.bytes);
	folder_refused(LIST, EBADMSG, "the weight_map names more than 65535 files");
	put_zeros(&f, 65 << 20);
	keep(LIST, f.data, f.bytes);
	folder_refused(LIST, EBADMSG, "at most 67108864 are read");
	free(f.data);
}
END_TEST

START_TEST(a_wrong_total_size_is_told)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_index *ix;

	keep_two();
	keep_text(LIST, SHARDS ",\"metadata\":{\"total_size\":999}}");
	ck_ok(pinion_index_open(in_folder(LIST), &ix));
	ck_ok(pinion_index_info(ix, &info));
	ck_assert_uint_eq(info.claimed_bytes, 999);
	ck_assert_uint_eq(info.tensor_bytes, 64 + 3 + 64);
	pinion_index_free(ix);
}
END_TEST

/* As the cache of a model hub has it: every name is a link to a folder of contents, and the folder is that of the names. */
START_TEST(links_out_of_the_folder_are_followed_and_said)
{
	struct pinion_shard shard = { .size = sizeof(shard) };
	char blobs[2 * PATH_MAX];
	struct pinion_model *m;

	keep_two();
	snprintf(blobs, sizeof(blobs), "%s/blobs", folder);
	ck_assert_int_eq(mkdir(blobs, 0700), 0);
	keep_text("blobs/list", SHARDS "}");
	snprintf(blobs, sizeof(blobs), "%s/blobs/a", folder);
	ck_assert_int_eq(rename(in_folder("a.st"), blobs), 0);
	ck_assert_int_eq(symlink("blobs/a", in_folder("a.st")), 0);
	ck_assert_int_eq(symlink("blobs/list", in_folder(LIST)), 0);
	ck_ok(pinion_model_load(ctx, in_folder(LIST), NULL, &m));
	check_patterns(m);
	ck_ok(pinion_model_shard_at(m, 0, &shard));
	ck_assert_uint_eq(shard.outside, 1);
	ck_ok(pinion_model_shard_at(m, 1, &shard));
	ck_assert_uint_eq(shard.outside, 0);
	pinion_model_free(m);
}
END_TEST

/* A process whose root the folder is; 77: it cannot be. */
static int look_from_root(void)
{
	struct pinion_shard shard = { .size = sizeof(shard) };
	struct pinion_index *ix;
	bool right;

	if (chroot(folder) && (unshare(CLONE_NEWUSER) || chroot(folder)))
		return 77;
	if (pinion_index_open("/" LIST, &ix)) {
		fprintf(stderr, "%s\n", pinion_error());
		return 1;
	}
	right = !pinion_index_shard_at(ix, 0, &shard) && shard.outside && !pinion_index_shard_at(ix, 1, &shard) && !shard.outside;
	pinion_index_free(ix);
	return right ? 0 : 2;
}

START_TEST(links_out_of_the_root_are_said_too)
{
	char blob[2 * PATH_MAX];
	int status;

	keep_two();
	keep_text(LIST, SHARDS "}");
	snprintf(blob, sizeof(blob), "%s/blobs", folder);
	ck_assert_int_eq(mkdir(blob, 0700), 0);
	snprintf(blob, sizeof(blob), "%s/blobs/a", folder);
	ck_assert_int_eq(rename(in_folder("a.st"), blob), 0);
	ck_assert_int_eq(symlink("blobs/a", in_folder("a.st")), 0);
	snprintf(blob, sizeof(blob), "%s/c.st", folder);
	ck_assert_int_eq(rename(in_folder("b.st"), blob), 0);
	ck_assert_int_eq(symlink("c.st", in_folder("b.st")), 0);
	if (fork() == 0)
		_exit(look_from_root());
	wait(&status);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		SKIP("neither chroot() nor a user namespace is allowed here");
	ck_assert_int_eq(status, 0);
}
END_TEST

static int truncate_second(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	(void)done;
	(void)total;
	ck_assert_int_eq(truncate(in_folder("m-2.st"), 4096), 0);
	return 0;
}

START_TEST(a_file_that_changes_after_its_header_was_read_is_named)
{
	struct pinion_load_opts opts = { .size = sizeof(opts), .progress = truncate_second };
	struct pinion_model *m = NULL;

	keep_three();
	ck_assert_int_eq(pinion_model_load(ctx, in_folder(LIST), &opts, &m), -EBADMSG);
	ck_assert_msg(strstr(pinion_error(), "m-2.st changed while it was read") != NULL, "%s", pinion_error());
	ck_assert_ptr_null(m);
}
END_TEST

/* Many files, of which none could have a descriptor for as long as the load takes. */
START_TEST(a_thousand_files_need_few_descriptors)
{
	const uint64_t bytes[] = { 100 };
	struct file f = { 0 };
	struct pinion_model *m;
	char name[16], entry[64];

	for (unsigned int i = 0; i < 1200; i++) {
		char header[128];
		struct file shard = { 0 };

		snprintf(name, sizeof(name), "%u.st", i);
		snprintf(header, sizeof(header), "{\"%04u\":{\"dtype\":\"U8\",\"shape\":[100],\"data_offsets\":[0,100]}}", i);
		put_string(&shard, header);
		snprintf(entry, sizeof(entry), "%04u", i);
		put_pattern(&shard, entry, bytes[0]);
		keep(name, shard.data, shard.bytes);
		free(shard.data);
		put(&f, entry, snprintf(entry, sizeof(entry), "%s\"%04u\":\"%u.st\"", i ? "," : "{\"weight_map\":{", i, i));
	}
	put(&f, "}}", 2);
	keep(LIST, f.data, f.bytes);
	free(f.data);
	ck_ok(pinion_model_load(ctx, in_folder(LIST), NULL, &m));
	check_patterns(m);
	pinion_model_free(m);
}
END_TEST

/* ---- GGUF parts ---------------------------------------------------------------------------------------------------- */

struct gguf_part {
	const char *name; /* of the file */
	uint16_t no, count;
	int32_t tensors;
	char x;		 /* its tensors are X0, X1, ... */
	uint32_t own;	 /* so many */
	const char *arch; /* NULL: not said */
	uint32_t align;	 /* 0: not said */
};

static void keep_gguf(const struct gguf_part *p)
{
	uint32_t align = p->align ? p->align : 32;
	struct file f = { 0 };
	char tensor[16];

	gguf(&f, 3, p->own, 3 + !!p->arch + !!p->align);
	if (p->arch)
		put_label(&f, "general.architecture", p->arch);
	if (p->align)
		put_key_u32(&f, "general.alignment", p->align);
	put_key(&f, "split.no", 2);
	put(&f, &p->no, 2);
	put_key(&f, "split.tensors.count", 5);
	put(&f, &p->tensors, 4);
	put_key(&f, "split.count", 2);
	put(&f, &p->count, 2);
	for (uint32_t i = 0; i < p->own; i++) {
		sprintf(tensor, "%c%u", p->x, i);
		put_tensor(&f, tensor, PINION_TYPE_I8, UINT64_C(8192) * i, 1, UINT64_C(5000));
	}
	pad(&f, align);
	for (uint32_t i = 0; i < p->own; i++) {
		sprintf(tensor, "%c%u", p->x, i);
		put_pattern(&f, tensor, 5000);
		put_zeros(&f, i + 1 < p->own ? 8192 - 5000 : 0);
	}
	keep(p->name, f.data, f.bytes);
	free(f.data);
}

#define PART(n) "m-0000" #n "-of-00003.gguf"

static const struct gguf_part good_parts[] = {
	{ PART(1), 0, 3, 5, 'p', 2, "llama", 128 },
	{ PART(2), 1, 3, 5, 'q', 0, NULL, 0 },
	{ PART(3), 2, 3, 5, 'r', 3, "llama", 8192 },
};

static void keep_parts(void)
{
	for (size_t i = 0; i < LENGTH(good_parts); i++)
		keep_gguf(&good_parts[i]);
}

START_TEST(any_part_opens_the_whole)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_shard shard = { .size = sizeof(shard) };
	struct pinion_model *m;

	keep_parts();
	for (size_t i = 0; i < LENGTH(good_parts); i++) {
		struct pinion_load_opts opts = { .size = sizeof(opts), .io = all_io[i] };

		free(loads(in_folder(good_parts[i].name)));
		ck_ok(pinion_model_load(ctx, in_folder(good_parts[i].name), &opts, &m));
		check_patterns(m);
		ck_ok(pinion_model_info(m, &info));
		ck_assert_uint_eq(info.shards, 3);
		ck_assert_uint_eq(info.tensors, 5);
		ck_assert_uint_eq(info.moved_bytes, 0);
		ck_assert_str_eq(info.architecture, "llama");
		ck_assert_uint_eq(info.alignment, 128);
		for (size_t k = 0; k < LENGTH(good_parts); k++) {
			ck_ok(pinion_model_shard_at(m, k, &shard));
			ck_assert_str_eq(shard.file, good_parts[k].name);
			ck_assert_uint_eq(shard.tensors, good_parts[k].own);
		}
		pinion_model_free(m);
	}
}
END_TEST

static const struct {
	struct gguf_part part; /* in the place of a good one */
	const char *given;     /* the file that is opened */
	int err;
	const char *why;
} bad_parts[] = {
	{ { PART(2), 2, 3, 5, 'q', 0, NULL, 0 }, PART(1), EBADMSG, PART(2) " says that it is part 3 of 3 (split.no 2)" },
	{ { PART(2), 2, 3, 5, 'q', 0, NULL, 0 }, PART(2), EBADMSG,
	  "it is part 3 of 3 (split.no 2) and is not called NAME-00003-of-00003.gguf" },
	{ { PART(2), 1, 4, 5, 'q', 0, NULL, 0 }, PART(1), EBADMSG, PART(2) " says that it is part 2 of 4" },
	{ { PART(2), 1, 4, 5, 'q', 0, NULL, 0 }, PART(2), EBADMSG, "not called NAME-00002-of-00004.gguf" },
	{ { PART(2), 0, 0, 5, 'q', 0, NULL, 0 }, PART(3), EBADMSG, PART(2) " says that it is part 1 of 1" },
	{ { PART(1), 1, 3, 5, 'p', 2, NULL, 0 }, PART(3), EBADMSG, PART(1) " says that it is part 2 of 3" },
	{ { PART(2), 1, 3, 6, 'q', 0, NULL, 0 }, PART(1), EBADMSG, PART(2) " is of another model than " PART(1) ": its split.tensors.count is 6" },
	{ { PART(3), 2, 3, 5, 'r', 3, "gemma", 0 }, PART(1), EBADMSG, "its general.architecture is 'gemma', not 'llama'" },
	{ { PART(3), 2, 3, 5, 'r', 2, NULL, 0 }, PART(2), EBADMSG, "the parts have 4 tensors, split.tensors.count is 5" },
	{ { PART(3), 2, 3, 5, 'p', 3, NULL, 0 }, PART(1), EBADMSG, "tensor 'p" },
	{ { PART(2), 7, 3, 5, 'q', 0, NULL, 0 }, PART(1), EBADMSG, PART(2) ": split.no is 7, of 3 parts" },
	{ { PART(2), 1, 3, -5, 'q', 0, NULL, 0 }, PART(1), EBADMSG, "key 'split.tensors.count' is negative" },
	{ { "m-00003-of-00009.gguf", 2, 9, 5, 'r', 3, NULL, 0 }, "m-00003-of-00009.gguf", ENOENT,
	  "m-00001-of-00009.gguf of the same folder cannot be opened" },
	{ { "whole.gguf", 0, 1, 5, 'r', 3, NULL, 0 }, "whole.gguf", EBADMSG, "the parts have 3 tensors, split.tensors.count is 5" },
	{ { "a\n-00001-of-00002.gguf", 0, 2, 5, 'r', 3, NULL, 0 }, "a\n-00001-of-00002.gguf", EBADMSG, "its name has a control character" },
};

START_TEST(parts_that_are_not_one_model_are_refused_by_name)
{
	keep_parts();
	keep_gguf(&bad_parts[_i].part);
	folder_refused(bad_parts[_i].given, bad_parts[_i].err, bad_parts[_i].why);
}
END_TEST

START_TEST(a_missing_part_is_named)
{
	for (size_t i = 0; i < LENGTH(good_parts); i++) {
		char why[128];

		keep_parts();
		ck_assert_int_eq(unlink(in_folder(good_parts[i].name)), 0);
		snprintf(why, sizeof(why), "%s of the same folder cannot be opened: No such file", good_parts[i].name);
		folder_refused(good_parts[(i + 1) % 3].name, ENOENT, why);
	}
	keep_parts();
	keep_shard(PART(2), 'q', (const uint64_t[]){ 3 }, 1, 0);
	folder_refused(PART(1), EBADMSG, PART(2) ": it is no GGUF file");
}
END_TEST

/* One in one file may say that it is part 1 of 1; then its name says nothing. */
START_TEST(a_split_into_one_is_a_file_like_any)
{
	keep_gguf(&(struct gguf_part){ "whole.gguf", 0, 1, 3, 'r', 3, NULL, 0 });
	free(loads(in_folder("whole.gguf")));
}
END_TEST

/* ---- layouts of several files -------------------------------------------------------------------------------------- */

START_TEST(layouts_of_several_files_keep_their_blocks_apart)
{
	unsigned int seed = _i + 1;
	struct file f = { 0 };

	put(&f, "{\"weight_map\":{", 15);
	for (char x = 'a'; x < 'g'; x++) {
		uint64_t bytes[8];
		char entry[32], name[] = { x, '.', 's', 't', 0 };

		for (unsigned int i = 0; i < 8; i++) {
			bytes[i] = (uint64_t)(rand_r(&seed) % 3000) * (rand_r(&seed) % 3 ? 512 : 1);
			put(&f, entry, sprintf(entry, "%s\"%c%u\":\"%c.st\"", x == 'a' && !i ? "" : ",", x, i, x));
		}
		keep_shard(name, x, bytes, 8, rand_r(&seed) % 64);
	}
	put(&f, "}}", 2);
	keep(LIST, f.data, f.bytes);
	free(f.data);
	free(loads(in_folder(LIST)));
}
END_TEST

static Suite *shards_suite(void)
{
	Suite *suite = suite_create("shards");
	TCase *tcase = tcase_create("shards");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, listed_files_load_as_one_model_by_every_way_of_reading, 0, LENGTH(all_io));
	tcase_add_test(tcase, another_process_attaches_to_all_files_at_once);
	tcase_add_loop_test(tcase, a_list_that_is_not_its_files_is_refused_by_name, 0, LENGTH(bad_lists));
	tcase_add_test(tcase, a_hostile_list_costs_little);
	tcase_add_test(tcase, a_wrong_total_size_is_told);
	tcase_add_test(tcase, links_out_of_the_folder_are_followed_and_said);
	tcase_add_test(tcase, links_out_of_the_root_are_said_too);
	tcase_add_test(tcase, a_file_that_changes_after_its_header_was_read_is_named);
	tcase_add_test(tcase, a_thousand_files_need_few_descriptors);
	tcase_add_test(tcase, any_part_opens_the_whole);
	tcase_add_loop_test(tcase, parts_that_are_not_one_model_are_refused_by_name, 0, LENGTH(bad_parts));
	tcase_add_test(tcase, a_missing_part_is_named);
	tcase_add_test(tcase, a_split_into_one_is_a_file_like_any);
	tcase_add_loop_test(tcase, layouts_of_several_files_keep_their_blocks_apart, 0, 20);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(shards_suite)
