/* SPDX-License-Identifier: MIT */
/*
 * reservation: an atomic claim on a device's budget and capacity, held by a descriptor. Passing the descriptor hands the
 * claim over; the last close, by whatever death, gives it back. It is a claim on what the processes of the user agreed on,
 * not on the device's memory.
 */
#ifndef PINION_RESERVATION_H
#define PINION_RESERVATION_H

#include <pinion/device.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_context;
struct pinion_device;
struct pinion_reservation;

struct pinion_reserve_opts {
	size_t size;
	uint64_t bytes; /* of the budget */
	uint32_t units; /* of the capacity */
	bool exclusive; /* the whole device: nobody else holds a claim on it, and nobody gets one meanwhile */
};

struct pinion_reservation_info {
	size_t size; /* set by the caller */
	char key[PINION_KEY_MAX + 1];
	uint64_t generation; /* of the device */
	uint64_t bytes;
	uint32_t units;
	bool exclusive;
};

/*
 * Claims what @opts says, all of it or nothing. A device without a budget of its own has its memory's total for one.
 * The caller owns *@out. Errors: -ENOSPC not so much is left (the sentence says what is and who holds the most); -EBUSY an
 * exclusive claim stands, or is asked for while others do; -EINVAL nothing is asked for; -ENODATA the device has no budget or
 * capacity to claim from; -ESTALE; -EAGAIN 1024 claims stand; -EMFILE; -ETIMEDOUT (see pinion_device_find()).
 */
int pinion_device_reserve(struct pinion_device *dev, const struct pinion_reserve_opts *opts, struct pinion_reservation **out);

/* The descriptor that holds the claim: to be sent, or inherited by a child. Borrowed; close-on-exec. */
int pinion_reservation_fd(const struct pinion_reservation *r);

/* A claim received as @fd, which stays the caller's. The caller owns *@out. -EINVAL no claim of this directory; -ETIMEDOUT. */
int pinion_reservation_adopt(struct pinion_context *ctx, int fd, struct pinion_reservation **out);

int pinion_reservation_info(const struct pinion_reservation *r, struct pinion_reservation_info *info);

/*
 * The claim's device, borrowed until pinion_close(). A device is neither removed nor dropped while a claim stands on it; -ESTALE:
 * this claim's descriptor was closed behind the library, and the device is gone.
 */
int pinion_reservation_device(const struct pinion_reservation *r, struct pinion_device **out);

/* Closes this holder's descriptor; the claim ends with the last one. */
void pinion_reservation_free(struct pinion_reservation *r);

/* Writes a line about the claim, cut to @n bytes with the final 0, and returns its full length as snprintf() does. */
int pinion_reservation_describe(const struct pinion_reservation *r, char *buf, size_t n);

#ifdef __cplusplus
}
#endif
#endif
