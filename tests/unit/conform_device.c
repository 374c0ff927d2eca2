/* SPDX-License-Identifier: MIT */
#include "conform_device.h"

char keys[KEYS_MAX][PINION_KEY_MAX + 1];
int key_count;

void read_keys(void)
{
	const char *env = getenv("PINION_CONFORM_DEVICES");
	char *list = strdup(env && *env ? env : "cpu,hostio,reference"), *save, *key;

	key_count = 0;
	for (key = strtok_r(list, ",", &save); key && key_count < KEYS_MAX; key = strtok_r(NULL, ",", &save))
		snprintf(keys[key_count++], sizeof(keys[0]), "%s", key);
	free(list);
}

uint64_t scale(void)
{
	unsigned int percent = test_scale();

	return percent > 100 ? percent / 100 : 1;
}

struct pinion_context *ctx;
struct pinion_device *dev, *reference;

/* A run that is meant for one ground must not pass on another. */
static void check_ground(void)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	const char *env = getenv("PINION_CONFORM_GROUND");

	ck_ok(pinion_context_info(ctx, &info));
	if (env && *env)
		ck_assert_str_eq(info.ground, env);
}

void setup(int i)
{
	ck_ok(pinion_open(NULL, &ctx));
	check_ground();
	ck_ok(pinion_device_find(ctx, keys[i], &dev));
	ck_ok(pinion_device_find(ctx, "reference", &reference));
}

void teardown(void)
{
	pinion_close(ctx);
}

uint64_t at_most(uint64_t n)
{
	uint64_t most = pinion_device_caps(dev)->extent_max;

	return n < most ? n : most;
}

const enum pinion_dtype dtypes[DTYPES] = {
	PINION_DTYPE_U8,     PINION_DTYPE_I8,	  PINION_DTYPE_U32,    PINION_DTYPE_I16,  PINION_DTYPE_I32,
	PINION_DTYPE_I64,    PINION_DTYPE_BF16,	  PINION_DTYPE_F16,    PINION_DTYPE_F32,  PINION_DTYPE_F64,
	PINION_DTYPE_F8E4M3, PINION_DTYPE_F8E5M2, PINION_DTYPE_F8E8M0, PINION_DTYPE_BOOL,
};

static uint64_t seed;

uint64_t any(void)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return seed >> 16;
}

struct pinion_view host(enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	struct pinion_view view;
	uint64_t n = 1, bytes;

	for (uint32_t a = 0; a < rank; a++)
		n *= shape[a];
	ck_ok(pinion_dtype_size(dtype, n, &bytes));
	ck_ok(pinion_view_init(&view, calloc(1, bytes + 1), bytes, dtype, rank, shape, NULL, 0));
	return view;
}

struct pinion_view host_like(const struct pinion_view *view)
{
	return host(view->dtype, view->rank, view->shape);
}

struct pinion_view any_bits(enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	struct pinion_view view = host(dtype, rank, shape);

	for (uint64_t i = 0; i < view.bytes; i++)
		((uint8_t *)view.data)[i] = dtype == PINION_DTYPE_BOOL ? any() & 1 : any();
	return view;
}

struct pinion_array *uploaded_to(struct pinion_device *to, const struct pinion_view *view)
{
	struct pinion_array *array;

	ck_ok(pinion_array_upload(to, view, &array));
	return array;
}

struct pinion_array *uploaded(const struct pinion_view *view)
{
	return uploaded_to(dev, view);
}

struct pinion_view downloaded(const struct pinion_array *array)
{
	struct pinion_view view = host_like(pinion_array_view(array));

	ck_ok(pinion_array_download(array, NULL, &view));
	return view;
}

void check_elements(const struct pinion_array *array, const struct pinion_view *view)
{
	struct pinion_view got = downloaded(array), want = host_like(view);

	ck_ok(pinion_view_copy(&want, view));
	ck_assert_uint_eq(got.rank, want.rank);
	ck_assert_mem_eq(got.shape, want.shape, want.rank * sizeof(*want.shape));
	ck_assert_uint_eq(got.bytes, want.bytes);
	ck_assert_mem_eq(got.data, want.data, want.bytes);
	free(got.data);
	free(want.data);
}

bool layout_at(const struct pinion_view *v, int i, struct pinion_view *out)
{
	*out = *v;
	switch (i) {
	case 0:
		return true;
	case 1:
		ck_ok(pinion_view_transpose(v, 0, 2, out));
		return true;
	case 2:
		ck_ok(pinion_view_narrow(v, 1, 1, v->shape[1] - 1, out));
		return true;
	case 3:
		ck_ok(pinion_view_flip(v, 2, out));
		return true;
	case 4:
		ck_ok(pinion_view_narrow(v, 0, 1, 1, out));
		ck_ok(pinion_view_broadcast(out, 3, (uint64_t[]){ 5, v->shape[1], v->shape[2] }, out));
		return true;
	case 5:
		ck_ok(pinion_view_narrow(v, 2, 1, 0, out));
		return true;
	case 6:
		if (pinion_device_caps(dev)->rank_max < 4)
			return false;
		ck_ok(pinion_view_unsqueeze(v, 1, out));
		return true;
	default:
		return false;
	}
}

const uint64_t box[3] = { 3, 4, 5 };
