/* SPDX-License-Identifier: MIT */
#include "publish.h"

#include "../error.h"
#include "../machine/filesize.h"
#include "../machine/memfile.h"
#include "../memory/holder.h"
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The index in a memfd that nobody can change. */
static int share_index(const struct index_block *block, int *out)
{
	const char *at = (const char *)block;
	uint64_t left = block->bytes;
	int fd, err = filesize_check("the index", left);

	if (err)
		return err;
	fd = memfile_create("pinion-index", 0);
	if (fd < 0)
		return fail_errno(-fd, "memfd_create");
	while (left) {
		ssize_t n = write(fd, at, left);

		if (n < 0 && errno != EINTR)
			goto err_close;
		at += n > 0 ? n : 0;
		left -= n > 0 ? n : 0;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto err_close;
	*out = fd;
	return 0;

err_close:
	err = errno;
	close(fd);
	return fail_errno(err, "sharing the index of %llu bytes", (unsigned long long)block->bytes);
}

int model_publish(struct pinion_holder *h, struct pinion_model *m, bool keep)
{
	struct holder_offer offer = { .buf = m->buf,
				      .index_bytes = m->block->bytes,
				      .tensors = m->block->tensor_count,
				      .tensor_bytes = m->block->tensor_bytes };
	int ret = holder_check(h);

	offer.format = m->block->format == INDEX_GGUF ? "gguf" : "safetensors";
	/* What is handed out must be beyond anyone's writing. */
	if (!ret)
		ret = pinion_buffer_seal(m->buf);
	if (!ret)
		ret = share_index(m->block, &offer.index_fd);
	if (ret)
		return ret;
	if (!keep)
		model_unmap(m);
	ret = holder_publish(h, &offer);
	if (ret)
		close(offer.index_fd);
	return ret;
}

PINION_API int pinion_holder_publish(struct pinion_holder *h, struct pinion_model *m)
{
	return model_publish(h, m, false);
}
