/* SPDX-License-Identifier: MIT */
/* conform device: what the tests of the conformance suite share: the devices, and arrays and views of any content. */
#ifndef PINION_TEST_CONFORM_DEVICE_H
#define PINION_TEST_CONFORM_DEVICE_H

#include <pinion/array.h>
#include <pinion/caps.h>
#include <pinion/device.h>
#include <pinion/pinion.h>
#include <stdbool.h>

#include "harness.h"

#define KEYS_MAX 16

/* $PINION_CONFORM_DEVICES, or the devices that every library has. Each test runs once for each: its _i. */
extern char keys[KEYS_MAX][PINION_KEY_MAX + 1];
extern int key_count;
void read_keys(void);

/* What multiplies the sizes of what is random: $PINION_TEST_SCALE above 100. */
uint64_t scale(void);

/* What each test begins with, a context with the device of that number, and what it ends with. */
extern struct pinion_context *ctx;
extern struct pinion_device *dev, *reference;
void setup(int i);
void teardown(void);

/* @n, or the most elements that the device takes along an axis. */
uint64_t at_most(uint64_t n);

/* All that have elements and an encoding. */
#define DTYPES 14
extern const enum pinion_dtype dtypes[DTYPES];

/* A small shape. */
extern const uint64_t box[3];

/* Host memory of its own for a row-major view, and the view. Freed with free(view.data). */
struct pinion_view host(enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape);
struct pinion_view host_like(const struct pinion_view *view);

/* Any bits, but those of a bool that are one. */
struct pinion_view any_bits(enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape);
uint64_t any(void);

/* To the device under test or another, and back. */
struct pinion_array *uploaded_to(struct pinion_device *to, const struct pinion_view *view);
struct pinion_array *uploaded(const struct pinion_view *view);
struct pinion_view downloaded(const struct pinion_array *array);

/* The elements that @view has are those of @array, to the bit. */
void check_elements(const struct pinion_array *array, const struct pinion_view *view);

/* The layouts that a view of three axes can have and the device takes. @i from 0; false after the last. */
bool layout_at(const struct pinion_view *v, int i, struct pinion_view *out);

/* Each adds its tests. */
void conform_caps(TCase *c);
void conform_memory(TCase *c);
void conform_copy(TCase *c);
void conform_transfer(TCase *c);
void conform_cast(TCase *c);
void conform_matmul(TCase *c);
void conform_signal(TCase *c);

#endif
