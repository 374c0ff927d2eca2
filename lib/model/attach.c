/* SPDX-License-Identifier: MIT */
/* attach: takes the same pages and the same index as everyone else who attached to a name. */
#include "model.h"

#include "../error.h"
#include "../memory/buffer.h"
#include "../memory/name.h"
#include "../memory/share.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maps the index and believes nothing of it unchecked: the holder may be of another version, or hostile. */
static int map_index(int fd, uint64_t bytes, struct index_block **out)
{
	int ret, seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	void *p;

	if (seals < 0 || !(seals & F_SEAL_WRITE) || !(seals & F_SEAL_SHRINK))
		return fail(EPROTO, "the index received is not sealed, so it could change under us");
	if (fstat(fd, &st))
		return fail_errno(errno, "the index received");
	if ((uint64_t)st.st_size != bytes)
		return fail(EPROTO, "the index received is said to have %llu bytes and has %lld", (unsigned long long)bytes,
			    (long long)st.st_size);
	p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return fail_errno(errno, "mapping an index of %llu bytes", (unsigned long long)bytes);
	ret = index_check(p, bytes);
	if (ret) {
		munmap(p, bytes);
		return ret;
	}
	*out = p;
	return 0;
}

/* The buffer of the answer; @fd is its own on success. */
static int adopt(const struct name_answer *answer, int fd, struct pinion_buffer **out)
{
	struct pages pages;
	int ret = pages_adopt(fd, answer->bytes, answer->page_size, &pages);

	if (!ret && !pages.sealed)
		ret = fail(EPROTO, "the buffer received can still be written to");
	if (!ret)
		ret = buffer_new(&pages, NULL, out);
	return ret;
}

/* Consumes @fds. */
static int make_model(const struct name_answer *answer, const int fds[2], struct pinion_model **out)
{
	struct pinion_buffer *buf = NULL;
	struct index_block *block = NULL;
	int ret = map_index(fds[1], answer->index_bytes, &block);

	close(fds[1]);
	if (ret) {
		close(fds[0]);
		return ret;
	}
	ret = adopt(answer, fds[0], &buf);
	if (ret)
		close(fds[0]);
	if (!ret && block->buffer_bytes > pinion_buffer_size(buf))
		ret = fail(EPROTO, "the index received speaks of %llu bytes, the buffer has %llu",
			   (unsigned long long)block->buffer_bytes, (unsigned long long)pinion_buffer_size(buf));
	if (!ret)
		ret = model_new(block, true, buf, out);
	if (ret) {
		munmap(block, answer->index_bytes);
		pinion_buffer_unref(buf);
	}
	return ret;
}

/* A storage has no index. Consumes @fds when it fails. */
static int check_model(const char *name, const struct name_answer *answer, const int *fds, unsigned int nfds)
{
	if (nfds == 2)
		return 0;
	share_close(fds, nfds);
	return fail(EPROTO, answer->index_bytes ? "the holder of '%s' gave an answer without an index" :
						  "'%s' is a storage, not a model; pinion_storage_open_named() opens it", name);
}

/* Where only the holder's mapping is locked, ours is too, and the holder hears of it. */
static void lock_as_held(struct pinion_model *m, const struct name_answer *answer)
{
	struct name_request req = { .magic = NAME_MAGIC, .op = NAME_LOCKED };

	if (answer->hold == PINION_HOLD_LOCKED && !buffer_lock_mapping(m->buf, PINION_READ))
		share_send(m->sock, &req, sizeof(req), NULL, 0);
}

PINION_API int pinion_model_attach(struct pinion_context *ctx, const char *name, const struct pinion_attach_opts *opts,
				   struct pinion_model **out)
{
	struct pinion_attach_opts own = { .size = sizeof(own) };
	struct name_answer answer;
	struct pinion_model *m;
	unsigned int nfds;
	int fds[2], sock, ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&own, sizeof(own), opts, "pinion_attach_opts");
	if (!ret)
		ret = name_attach(ctx, name, own.deadline_ns, &answer, fds, &nfds, &sock);
	if (ret)
		return ret;
	ret = check_model(name, &answer, fds, nfds);
	if (!ret)
		ret = make_model(&answer, fds, &m);
	if (ret) {
		close(sock);
		return ret;
	}
	m->sock = sock;
	lock_as_held(m, &answer);
	*out = m;
	return 0;
}
