/* SPDX-License-Identifier: MIT */
#include "harness.h"
#include "quant/decode.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pinion/context.h>
#include <pinion/type.h>

#define GOLDEN PINION_TEST_DATA "/golden/ggml/"
#define RANDOM_BLOCKS 400
#define CANARY 0x7fabcdefu

static uint16_t half_at(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

/* What a half is worth, by its definition; nothing of this comes from lib/quant/half.h. */
static double half_value(uint16_t half)
{
	int exponent = half >> 10 & 31, fraction = half & 1023;
	double value;

	if (exponent == 31)
		value = fraction ? NAN : INFINITY;
	else if (exponent)
		value = ldexp(1024 + fraction, exponent - 25);
	else
		value = ldexp(fraction, -24);
	return half & 0x8000 ? -value : value;
}

static double bf16_value(uint16_t bf16)
{
	int exponent = bf16 >> 7 & 255, fraction = bf16 & 127;
	double value;

	if (exponent == 255)
		value = fraction ? NAN : INFINITY;
	else if (exponent)
		value = ldexp(128 + fraction, exponent - 134);
	else
		value = ldexp(fraction, -133);
	return bf16 & 0x8000 ? -value : value;
}

static unsigned int bit_at(const uint8_t *p, unsigned int i)
{
	return p[i / 8] >> i % 8 & 1;
}

/*
 * Element @i of one block, evaluated in doubles from the place of each of its bits, without regard to speed. The terms
 * and their sum are exact in a double, so that the one rounding to float gives the bits a decoder must give.
 */
static double f32_at(const uint8_t *b, unsigned int i)
{
	float value;

	memcpy(&value, b + i * sizeof(value), sizeof(value));
	return value;
}

static double f16_at(const uint8_t *b, unsigned int i)
{
	return half_value(half_at(b + 2 * i));
}

static double bf16_at(const uint8_t *b, unsigned int i)
{
	return bf16_value(half_at(b + 2 * i));
}

static int nibble_at(const uint8_t *qs, unsigned int i)
{
	return i < 16 ? qs[i] % 16 : qs[i - 16] / 16;
}

static double q4_0_at(const uint8_t *b, unsigned int i)
{
	return half_value(half_at(b)) * (nibble_at(b + 2, i) - 8);
}

static double q4_1_at(const uint8_t *b, unsigned int i)
{
	return half_value(half_at(b)) * nibble_at(b + 4, i) + half_value(half_at(b + 2));
}

static double q5_0_at(const uint8_t *b, unsigned int i)
{
	int quant = nibble_at(b + 6, i) + 16 * (int)bit_at(b + 2, i);

	return half_value(half_at(b)) * (quant - 16);
}

static double q5_1_at(const uint8_t *b, unsigned int i)
{
	int quant = nibble_at(b + 8, i) + 16 * (int)bit_at(b + 4, i);

	return half_value(half_at(b)) * quant + half_value(half_at(b + 2));
}

static double q8_0_at(const uint8_t *b, unsigned int i)
{
	return half_value(half_at(b)) * (b[2 + i] < 128 ? b[2 + i] : b[2 + i] - 256);
}

/* The two bits of element @i where four rows of 32 share 32 bytes. */
static int crumb_at(const uint8_t *qs, unsigned int i)
{
	unsigned int byte = 32 * (i / 128) + i % 32, row = i / 32 % 4;

	return (int)(bit_at(qs + byte, 2 * row) + 2 * bit_at(qs + byte, 2 * row + 1));
}

static double q2_k_at(const uint8_t *b, unsigned int i)
{
	int scale = b[i / 16] % 16, min = b[i / 16] / 16;

	return half_value(half_at(b + 80)) * scale * crumb_at(b + 16, i) - half_value(half_at(b + 82)) * min;
}

static double q3_k_at(const uint8_t *b, unsigned int i)
{
	const uint8_t *hmask = b, *qs = b + 32, *s = b + 96;
	unsigned int g = i / 16;
	int quant = crumb_at(qs, i) + 4 * (int)bit_at(hmask + i % 32, i / 32);
	int scale = g < 8 ? s[g] % 16 : s[g - 8] / 16;

	scale += 16 * (int)bit_at(s + 8 + g % 4, g / 4 * 2) + 32 * (int)bit_at(s + 8 + g % 4, g / 4 * 2 + 1);
	return half_value(half_at(b + 108)) * (scale - 32) * (quant - 4);
}

static int k_scale(const uint8_t *s, unsigned int g)
{
	return g < 4 ? s[g] % 64 : s[g + 4] % 16 + 16 * (s[g - 4] / 64);
}

static int k_min(const uint8_t *s, unsigned int g)
{
	return g < 4 ? s[g + 4] % 64 : s[g + 4] / 16 + 16 * (s[g] / 64);
}

/* The nibble of element @i where two rows of 32 share 32 bytes. */
static int k_nibble_at(const uint8_t *qs, unsigned int i)
{
	uint8_t byte = qs[32 * (i / 64) + i % 32];

	return i / 32 % 2 ? byte / 16 : byte % 16;
}

static double q4_k_at(const uint8_t *b, unsigned int i)
{
	double d = half_value(half_at(b)), dmin = half_value(half_at(b + 2));

	return d * k_scale(b + 4, i / 32) * k_nibble_at(b + 16, i) - dmin * k_min(b + 4, i / 32);
}

static double q5_k_at(const uint8_t *b, unsigned int i)
{
	double d = half_value(half_at(b)), dmin = half_value(half_at(b + 2));
	int quant = k_nibble_at(b + 48, i) + 16 * (int)bit_at(b + 16 + i % 32, i / 32);

	return d * k_scale(b + 4, i / 32) * quant - dmin * k_min(b + 4, i / 32);
}

static double q6_k_at(const uint8_t *b, unsigned int i)
{
	uint8_t low = b[64 * (i / 128) + i % 64], scale = b[192 + i / 16];
	int quant = (i / 64 % 2 ? low / 16 : low % 16) + 16 * crumb_at(b + 128, i);

	return half_value(half_at(b + 208)) * (scale < 128 ? scale : scale - 256) * (quant - 32);
}

static const struct format {
	uint32_t type;
	double (*at)(const uint8_t *block, unsigned int i);
	unsigned int golden; /* rows of golden/ggml/index.tsv with a decoded file */
	int halves[2]; /* offsets in the block of the halves that scale it, -1: none */
} formats[] = {
	{ PINION_TYPE_F32, f32_at, 0, { -1, -1 } },	 { PINION_TYPE_F16, f16_at, 10, { -1, -1 } },
	{ PINION_TYPE_BF16, bf16_at, 10, { -1, -1 } },	 { PINION_TYPE_Q4_0, q4_0_at, 10, { 0, -1 } },
	{ PINION_TYPE_Q4_1, q4_1_at, 10, { 0, 2 } },	 { PINION_TYPE_Q5_0, q5_0_at, 10, { 0, -1 } },
	{ PINION_TYPE_Q5_1, q5_1_at, 10, { 0, 2 } },	 { PINION_TYPE_Q8_0, q8_0_at, 10, { 0, -1 } },
	{ PINION_TYPE_Q2_K, q2_k_at, 20, { 80, 82 } },	 { PINION_TYPE_Q3_K, q3_k_at, 20, { 108, -1 } },
	{ PINION_TYPE_Q4_K, q4_k_at, 20, { 0, 2 } },	 { PINION_TYPE_Q5_K, q5_k_at, 20, { 0, 2 } },
	{ PINION_TYPE_Q6_K, q6_k_at, 20, { 208, -1 } },
};
#define FORMATS ((int)(sizeof(formats) / sizeof(formats[0])))

static const struct format *format_of(uint32_t type)
{
	for (int i = 0; i < FORMATS; i++)
		if (formats[i].type == type)
			return &formats[i];
	return NULL;
}

/* A file of the golden folder, whole, in memory of exactly its size. */
static uint8_t *file_read(const char *name, size_t *size)
{
	char path[512];
	uint8_t *data;
	FILE *f;

	snprintf(path, sizeof(path), GOLDEN "%s", name);
	f = fopen(path, "rb");
	ck_assert_msg(f != NULL, "%s cannot be opened", path);
	ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
	*size = (size_t)ftell(f);
	rewind(f);
	data = malloc(*size);
	ck_assert_ptr_nonnull(data);
	ck_assert_uint_eq(fread(data, 1, *size, f), *size);
	fclose(f);
	return data;
}

static void golden_check(uint32_t type, uint64_t elems, const char *blocks_name, const char *decoded_name)
{
	size_t size, want_size;
	uint8_t *blocks = file_read(blocks_name, &size);
	uint8_t *want = file_read(decoded_name, &want_size);
	float *got = malloc(elems * sizeof(*got));
	uint64_t bytes;

	ck_assert_ptr_nonnull(got);
	ck_ok(pinion_type_bytes(type, elems, &bytes));
	ck_assert_uint_eq(size, bytes);
	ck_assert_uint_eq(want_size, elems * sizeof(*got));
	ck_ok(quant_decode(type, blocks, got, elems));
	for (uint64_t i = 0; i < elems; i++)
		ck_assert_msg(memcmp(&got[i], want + i * sizeof(*got), sizeof(*got)) == 0,
			      "%s: element %" PRIu64 " decodes to %a, which is not in %s", blocks_name, i,
			      (double)got[i], decoded_name);
	free(got);
	free(want);
	free(blocks);
}

struct golden_row {
	char kind[16], type[16], values[32], input[32], blocks[32], decoded[32], imatrix[32];
	uint32_t code;
	uint64_t elements;
};

/* Parses the next row of index.tsv that is not a product of matrices; false at the end. */
static bool golden_next(FILE *f, struct golden_row *r)
{
	char line[512];

	while (fgets(line, sizeof(line), f)) {
		int n = sscanf(line, "%15s %15s %" SCNu32 " %31s %" SCNu64 " %31s %31s %31s %31s", r->kind, r->type,
			       &r->code, r->values, &r->elements, r->input, r->blocks, r->decoded, r->imatrix);

		ck_assert_msg(n == 9, "not a row: %s", line);
		if (strcmp(r->kind, "matmul"))
			return true;
	}
	return false;
}

START_TEST(golden_vectors)
{
	unsigned int compared[64] = { 0 }, total = 0, blocks_only = 0;
	FILE *f = fopen(GOLDEN "index.tsv", "r");
	struct golden_row r;
	char head[256];

	ck_assert_msg(f != NULL, GOLDEN "index.tsv cannot be opened");
	ck_assert_ptr_nonnull(fgets(head, sizeof(head), f));
	ck_assert_str_eq(head, "kind\ttype\tcode\tcase\telements\tinput\tblocks\tdecoded\timatrix\n");
	while (golden_next(f, &r)) {
		ck_assert_ptr_nonnull(pinion_type_info(r.code));
		ck_assert_str_eq(pinion_type_info(r.code)->name, r.type);
		ck_assert_int_eq(quant_can_decode(r.code), strcmp(r.decoded, "-") != 0);
		if (!quant_can_decode(r.code)) {
			blocks_only++;
			continue;
		}
		golden_check(r.code, r.elements, r.blocks, r.decoded);
		compared[r.code]++;
		total++;
	}
	fclose(f);
	ck_assert_uint_eq(total, 170);
	ck_assert_uint_eq(blocks_only, 20);
	for (int i = 0; i < FORMATS; i++)
		ck_assert_msg(compared[formats[i].type] == formats[i].golden, "%s: %u rows compared, not %u",
			      pinion_type_info(formats[i].type)->name, compared[formats[i].type], formats[i].golden);
}
END_TEST

START_TEST(every_half)
{
	uint16_t *halves = malloc(65536 * sizeof(*halves));
	uint32_t *got = malloc(65536 * sizeof(*got));
	unsigned int nans = 0;

	ck_assert_ptr_nonnull(halves);
	ck_assert_ptr_nonnull(got);
	for (unsigned int i = 0; i < 65536; i++)
		halves[i] = (uint16_t)i;
	ck_ok(quant_decode(PINION_TYPE_F16, halves, (float *)got, 65536));
	for (unsigned int i = 0; i < 65536; i++) {
		float value = (float)half_value((uint16_t)i);
		uint32_t want;

		memcpy(&want, &value, sizeof(want));
		if (isnan(value)) {
			/* Its sign and payload, and quiet. */
			want = (i & 0x8000u) << 16 | 0x7fc00000 | (i & 0x3ff) << 13;
			nans++;
		}
		ck_assert_msg(got[i] == want, "half %#06x decodes to %#010" PRIx32 ", not %#010" PRIx32, i, got[i],
			      want);
	}
	ck_assert_uint_eq(nans, 2 * 1023);
	free(got);
	free(halves);
}
END_TEST

START_TEST(every_bf16)
{
	uint16_t *bf16s = malloc(65536 * sizeof(*bf16s));
	uint32_t *got = malloc(65536 * sizeof(*got));
	unsigned int nans = 0;

	ck_assert_ptr_nonnull(bf16s);
	ck_assert_ptr_nonnull(got);
	for (unsigned int i = 0; i < 65536; i++)
		bf16s[i] = (uint16_t)i;
	ck_ok(quant_decode(PINION_TYPE_BF16, bf16s, (float *)got, 65536));
	for (unsigned int i = 0; i < 65536; i++) {
		float value = (float)bf16_value((uint16_t)i);
		uint32_t want;

		memcpy(&want, &value, sizeof(want));
		if (isnan(value)) {
			want = i << 16;
			nans++;
		}
		ck_assert_msg(got[i] == want, "bf16 %#06x decodes to %#010" PRIx32 ", not %#010" PRIx32, i, got[i],
			      want);
	}
	ck_assert_uint_eq(nans, 2 * 127);
	free(got);
	free(bf16s);
}
END_TEST

/* xorshift64*: the same bytes in every run. */
static uint8_t random_byte(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint8_t)(*state * UINT64_C(0x2545f4914f6cdd1d) >> 56);
}

static void random_fill(uint8_t *p, size_t n, uint64_t seed)
{
	uint64_t state = 0x9e3779b97f4a7c15u + seed;
	bool seen[256] = { false };

	for (size_t i = 0; i < n; i++) {
		p[i] = random_byte(&state);
		seen[p[i]] = true;
	}
	for (int i = 0; i < 256; i++)
		ck_assert_msg(seen[i], "byte %d is not in the random blocks", i);
}

/* The scales that random bytes seldom hit: zeros, the ends of the subnormal and the normal range, infinities, NaN. */
static void special_scales(const struct format *fmt, uint8_t *blocks, size_t block_bytes)
{
	static const uint16_t special[] = { 0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400,
					    0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00 };
	const unsigned int n = sizeof(special) / sizeof(special[0]);

	for (unsigned int i = 0; i < n * n; i++)
		for (int k = 0; k < 2; k++)
			if (fmt->halves[k] >= 0)
				memcpy(blocks + i * block_bytes + fmt->halves[k], &special[k ? i / n : i % n], 2);
}

/* Which NaN it is depends on the order of the operands; that it is one does not. */
static void element_check(const struct format *fmt, uint64_t i, float got, float want)
{
	if (isnan(want))
		ck_assert_msg(isnan(got), "%s: element %" PRIu64 " decodes to %a, not to NaN",
			      pinion_type_info(fmt->type)->name, i, (double)got);
	else
		ck_assert_msg(memcmp(&got, &want, sizeof(got)) == 0, "%s: element %" PRIu64 " decodes to %a, not to %a",
			      pinion_type_info(fmt->type)->name, i, (double)got, (double)want);
}

START_TEST(random_blocks)
{
	const struct format *fmt = &formats[_i];
	const struct pinion_type_info *info = pinion_type_info(fmt->type);
	uint64_t blocks = info->block_elems == 1 ? RANDOM_BLOCKS * 64 : RANDOM_BLOCKS;
	uint64_t elems = blocks * info->block_elems;
	uint8_t *src = malloc(blocks * info->block_bytes);
	float *dst = malloc(elems * sizeof(*dst));
	uint64_t finite = 0;

	ck_assert_ptr_nonnull(src);
	ck_assert_ptr_nonnull(dst);
	random_fill(src, blocks * info->block_bytes, fmt->type);
	special_scales(fmt, src, info->block_bytes);
	ck_ok(quant_decode(fmt->type, src, dst, elems));
	for (uint64_t i = 0; i < elems; i++) {
		const uint8_t *block = src + i / info->block_elems * info->block_bytes;
		float want = (float)fmt->at(block, (unsigned int)(i % info->block_elems));

		element_check(fmt, i, dst[i], want);
		finite += isfinite(want) != 0;
	}
	/* Were most of them NaN, the comparison above would say little. */
	ck_assert_uint_gt(finite, elems / 2);
	free(dst);
	free(src);
}
END_TEST

START_TEST(floats_keep_their_bits)
{
	uint8_t src[4096];
	float dst[1024];

	random_fill(src, sizeof(src), 0);
	ck_ok(quant_decode(PINION_TYPE_F32, src, dst, 1024));
	ck_assert_mem_eq(dst, src, sizeof(src));
}
END_TEST

START_TEST(unaligned_source)
{
	const struct format *fmt = &formats[_i];
	const struct pinion_type_info *info = pinion_type_info(fmt->type);
	uint64_t blocks = 512 / info->block_elems + 1;
	uint64_t elems = blocks * info->block_elems, bytes = blocks * info->block_bytes;
	uint8_t *aligned = malloc(4096);
	float *want = malloc(elems * sizeof(*want));
	float *got = malloc(elems * sizeof(*got));

	ck_assert_ptr_nonnull(aligned);
	ck_assert_ptr_nonnull(want);
	ck_assert_ptr_nonnull(got);
	ck_assert_uint_le(bytes, 4096);
	random_fill(aligned, 4096, fmt->type);
	ck_ok(quant_decode(fmt->type, aligned, want, elems));
	for (unsigned int shift = 1; shift < 8; shift++) {
		/* Of exactly this size, so that a read beyond the last block is one beyond the allocation. */
		uint8_t *moved = malloc(shift + bytes);

		ck_assert_ptr_nonnull(moved);
		memcpy(moved + shift, aligned, bytes);
		ck_ok(quant_decode(fmt->type, moved + shift, got, elems));
		ck_assert_msg(memcmp(got, want, elems * sizeof(*got)) == 0, "%s at an address %u bytes off differs",
			      info->name, shift);
		free(moved);
	}
	free(got);
	free(want);
	free(aligned);
}
END_TEST

static bool untouched(const float *dst, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &dst[i], sizeof(bits));
		if (bits != CANARY)
			return false;
	}
	return true;
}

static void canaries_set(float *dst, unsigned int n)
{
	uint32_t bits = CANARY;

	for (unsigned int i = 0; i < n; i++)
		memcpy(&dst[i], &bits, sizeof(bits));
}

START_TEST(only_its_elements_are_written)
{
	const struct format *fmt = &formats[_i];
	unsigned int elems = pinion_type_info(fmt->type)->block_elems;
	static const uint8_t zeros[1024];
	float dst[256 + 16];

	canaries_set(dst, 256 + 16);
	ck_ok(quant_decode(fmt->type, zeros, dst + 8, elems));
	ck_assert(untouched(dst, 8));
	ck_assert(untouched(dst + 8 + elems, 8));
	for (unsigned int i = 0; i < elems; i++)
		ck_assert_msg(dst[8 + i] == 0, "element %u of a block of zeros is %a", i, (double)dst[8 + i]);
}
END_TEST

START_TEST(nothing_to_decode)
{
	for (int i = 0; i < FORMATS; i++)
		ck_ok(quant_decode(formats[i].type, NULL, NULL, 0));
}
END_TEST

static void decode_refused(uint32_t type, uint64_t elems, int err, const char *word)
{
	static const uint8_t zeros[1024];
	float dst[512];

	canaries_set(dst, 512);
	ck_assert_int_eq(quant_decode(type, zeros, dst, elems), err);
	ck_assert(untouched(dst, 512));
	ck_assert_msg(strstr(pinion_error(), word) != NULL, "\"%s\" does not say %s", pinion_error(), word);
}

START_TEST(partial_block)
{
	unsigned int refused = 0;

	for (int i = 0; i < FORMATS; i++) {
		const struct pinion_type_info *info = pinion_type_info(formats[i].type);

		if (info->block_elems == 1)
			continue;
		decode_refused(info->type, 1, -EINVAL, info->name);
		decode_refused(info->type, info->block_elems / 2, -EINVAL, info->name);
		decode_refused(info->type, info->block_elems - 1, -EINVAL, info->name);
		decode_refused(info->type, info->block_elems + 1, -EINVAL, info->name);
		refused++;
	}
	ck_assert_uint_eq(refused, 10);
}
END_TEST

START_TEST(too_many_elements)
{
	/* Bytes of the blocks and of the floats that wrap, and floats that do not but that no address space holds. */
	decode_refused(PINION_TYPE_F32, UINT64_MAX / 4 + 1, -EOVERFLOW, "f32");
	decode_refused(PINION_TYPE_Q8_0, UINT64_MAX - 31, -EOVERFLOW, "q8_0");
	decode_refused(PINION_TYPE_Q2_K, UINT64_C(1) << 62, -EOVERFLOW, "q2_K");
	decode_refused(PINION_TYPE_F16, UINT64_C(1) << 61, -EOVERFLOW, "f16");
}
END_TEST

START_TEST(what_is_not_decoded)
{
	unsigned int refused = 0;

	for (uint32_t type = 0; type < 1024; type++) {
		const struct pinion_type_info *info = pinion_type_info(type);
		char code[16];

		ck_assert_int_eq(quant_can_decode(type), format_of(type) != NULL);
		if (quant_can_decode(type))
			continue;
		snprintf(code, sizeof(code), "%" PRIu32, type);
		decode_refused(type, 256, -EOPNOTSUPP, info ? info->name : code);
		refused += info != NULL;
	}
	ck_assert_uint_eq(refused, 35 + 8 - 13);
	ck_assert(!quant_can_decode(UINT32_MAX));
	decode_refused(UINT32_MAX, 256, -EOPNOTSUPP, "4294967295");
}
END_TEST

static Suite *decode_suite(void)
{
	Suite *s = suite_create("decode");
	TCase *tc = tcase_create("decode");

	tcase_add_test(tc, golden_vectors);
	tcase_add_test(tc, every_half);
	tcase_add_test(tc, every_bf16);
	tcase_add_loop_test(tc, random_blocks, 0, FORMATS);
	tcase_add_test(tc, floats_keep_their_bits);
	tcase_add_loop_test(tc, unaligned_source, 0, FORMATS);
	tcase_add_loop_test(tc, only_its_elements_are_written, 0, FORMATS);
	tcase_add_test(tc, nothing_to_decode);
	tcase_add_test(tc, partial_block);
	tcase_add_test(tc, too_many_elements);
	tcase_add_test(tc, what_is_not_decoded);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(decode_suite)
