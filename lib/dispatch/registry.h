/* SPDX-License-Identifier: MIT */
/* registry: the devices that the backends have in this process, found out once. */
#ifndef PINION_LIB_REGISTRY_H
#define PINION_LIB_REGISTRY_H

#include "backend.h"

/* The device of that key; NULL: no backend has one. Stays for as long as the process. */
const struct backend_device *registry_find(const char *key);

/* The i-th device, in the order of the table of backends; NULL past the end. */
const struct backend_device *registry_at(size_t i);

/*
 * Why there is no device of that name: it, or what is before a ':' in it, is a backend's that found none, or it is a reserved
 * one. 0: nothing is known about it; else -errno and its sentence.
 */
int registry_why_not(const char *name);

/* -EOPNOTSUPP and a sentence: no device may be called so. */
int registry_reserved(const char *name);

/* What a device has that was added by its key alone: every op is the default. */
extern const struct backend_device registry_nobody;

/* Fills the holes of @own from the defaults. */
struct backend_ops backend_ops_complete(const struct backend_ops *own);

extern const struct backend_ops backend_defaults;

/* The device's kernel for @op with results of @dtype. -EOPNOTSUPP. */
int kernel_find(const struct backend_device *dev, enum pinion_op op, enum pinion_dtype dtype,
		const struct backend_kernel **out);

#endif
