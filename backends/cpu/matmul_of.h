/* SPDX-License-Identifier: MIT */
/*
 * The product of two matrices for one dtype, included by matmul.c for each:
 *   STORED       an element in memory
 *   REAL         what is added in
 *   WIDEN(x)     from STORED to REAL
 *   NARROW(x)    back, rounding once
 *   OF(name)     the name for this dtype
 *
 * The result is made in blocks of ROWS x COLUMNS, each summed over all of k in memory of its own. For each stretch of
 * k the block's part of both matrices is packed: elements in the order they are used in, as REAL, whatever strides and
 * dtype they came with; then a tile of TALL x WIDE sums at a time stays in registers. What sticks out is packed as
 * zeros.
 */

/* A vector among other elements. The ones used are aligned: blocks and tiles begin at multiples of 64 bytes. */
struct OF(vec) {
	REAL lane __attribute__((vector_size(32)));
} __attribute__((may_alias));

#define LANES  (32 / sizeof(REAL))
#define WIDE   (2 * LANES)
#define VEC(p) (((struct OF(vec) *)(p))->lane)

/* acc[i][j] += sum of a[p][i] * b[p][j]. By name, because an array of sums would live in memory. */
static inline __attribute__((always_inline)) void OF(tile)(const REAL *a, const REAL *b, size_t depth, REAL *acc)
{
	REAL __attribute__((vector_size(32))) l0, l1, l2, l3, l4, l5, r0, r1, r2, r3, r4, r5, left, right;

#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#define LOAD_ROW(i)                                                                                                    \
	l##i = VEC(acc + (i) * COLUMNS);                                                                               \
	r##i = VEC(acc + (i) * COLUMNS + LANES);
#define ADD_ROW(i)                                                                                                     \
	l##i += a[i] * left;                                                                                           \
	r##i += a[i] * right;
#define STORE_ROW(i)                                                                                                   \
	VEC(acc + (i) * COLUMNS) = l##i;                                                                               \
	VEC(acc + (i) * COLUMNS + LANES) = r##i;

	EACH_ROW(LOAD_ROW)
	for (size_t p = 0; p < depth; p++, a += TALL, b += WIDE) {
		left = VEC(b);
		right = VEC(b + LANES);
		EACH_ROW(ADD_ROW)
	}
	EACH_ROW(STORE_ROW)

#undef EACH_ROW
#undef LOAD_ROW
#undef ADD_ROW
#undef STORE_ROW
}

static void OF(tile_plain)(const REAL *a, const REAL *b, size_t depth, REAL *acc)
{
	OF(tile)(a, b, depth, acc);
}

#ifdef __x86_64__
static __attribute__((target("avx2,fma"))) void OF(tile_avx2)(const REAL *a, const REAL *b, size_t depth, REAL *acc)
{
	OF(tile)(a, b, depth, acc);
}
#endif

/*
 * Packs @count lines of @depth elements into groups of @group lines, side by side: a line is a row of the left matrix
 * or a column of the right one.
 */
static void OF(pack)(const STORED *from, int64_t line_step, int64_t depth_step, size_t count, size_t depth,
		     size_t group, REAL *to)
{
	for (size_t line = 0; line < count; line += group) {
		for (size_t p = 0; p < depth; p++) {
			for (size_t i = 0; i < group; i++, to++) {
				int64_t at = (int64_t)(line + i) * line_step + (int64_t)p * depth_step;

				*to = line + i < count ? WIDEN(from[at]) : 0;
			}
		}
	}
}

struct OF(scratch) {
	REAL acc[ROWS * COLUMNS];
	REAL a[ROWS * DEPTH];
	REAL b[COLUMNS * DEPTH];
};

/* The block of the result that starts at @row and @column. */
static void OF(block)(const struct matrices *x, size_t row, size_t column, struct OF(scratch) *s)
{
	void (*tile)(const REAL *a, const REAL *b, size_t depth, REAL *acc) = OF(tile_plain);
	size_t rows = least(x->m - row, ROWS), columns = least(x->n - column, COLUMNS);
	const STORED *a = (const STORED *)x->a + (int64_t)row * x->a_row;
	const STORED *b = (const STORED *)x->b + (int64_t)column * x->b_column;
	STORED *c = (STORED *)x->c + row * x->n + column;

#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		tile = OF(tile_avx2);
#endif
	memset(s->acc, 0, sizeof(s->acc));
	for (size_t k = 0; k < x->k; k += DEPTH) {
		size_t depth = least(x->k - k, DEPTH);

		OF(pack)(a + (int64_t)k * x->a_column, x->a_row, x->a_column, rows, depth, TALL, s->a);
		OF(pack)(b + (int64_t)k * x->b_row, x->b_column, x->b_row, columns, depth, WIDE, s->b);
		for (size_t i = 0; i < rows; i += TALL)
			for (size_t j = 0; j < columns; j += WIDE)
				tile(s->a + i * depth, s->b + j * depth, depth, s->acc + i * COLUMNS + j);
	}
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < columns; j++)
			c[i * x->n + j] = NARROW(s->acc[i * COLUMNS + j]);
}

static void OF(multiply)(const struct matrices *x, void *scratch)
{
	for (size_t row = 0; row < x->m; row += ROWS)
		for (size_t column = 0; column < x->n; column += COLUMNS)
			OF(block)(x, row, column, scratch);
}

#undef LANES
#undef WIDE
#undef VEC
#undef STORED
#undef REAL
#undef WIDEN
#undef NARROW
#undef OF
