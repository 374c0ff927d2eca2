#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the data beside this file, which says what numpy and ml_dtypes make of the formats that C has no type for.

    python3 -m venv VENV && VENV/bin/pip install numpy==2.4.6 ml_dtypes==0.6.0 && VENV/bin/python generate.py

The result is the same on every run. All numbers are little-endian.

FORMAT.f32    for each code from 0 on, the bits of its value as f32 (u32)
FORMAT.round  for each code from 0 on, one byte. Bit 0: the value of the code converts from f32 to the code itself. If the
              code and the next one, away from zero, are finite: bits 1 to 3 are set where the f32 just below the middle of
              the two, the middle and the f32 just above it convert to the next one, and clear where to the code.
FORMAT.cases  pairs of u32: the bits of an f32, the code it converts to. Special values, the middles beyond the least and
              the largest number with their neighbours, 500 f32 of random bits and 500 random ones in the format's range.
trunc.cases   a u64, the bits of an f64, and a u64, what it is as i64 (two's complement); only those that fit.

NaN comes in many bits; which of them a conversion gives is not what these files are for. Of f8e8m0, ml_dtypes 0.6.0 takes
every f32 between 2^-127 and 2^-126 to the larger, the nearer or not; pinion takes the nearest there as everywhere.
"""
import pathlib

import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20240229

FORMATS = {
    "f16": (np.float16, np.uint16),
    "bf16": (ml_dtypes.bfloat16, np.uint16),
    "f8e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
    "f8e5m2": (ml_dtypes.float8_e5m2, np.uint8),
    "f8e8m0": (ml_dtypes.float8_e8m0fnu, np.uint8),
}


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32)


def floats(values):
    return np.asarray(values, np.uint32).view(np.float32)


def rounding(dtype, code_type, values):
    """The bytes of FORMAT.round."""
    def convert(f32):
        return f32.astype(dtype).view(code_type)

    codes = np.arange(len(values), dtype=code_type)
    result = (convert(values) == codes).astype(np.uint8)
    # f8e8m0 has no sign: its codes are one run. In the others, the last code of a sign has no next one.
    with_next = np.isfinite(values[:-1]) & np.isfinite(values[1:]) & (np.signbit(values[:-1]) == np.signbit(values[1:]))
    lower = codes[:-1][with_next]
    middle64 = (values[:-1].astype(np.float64)[with_next] + values[1:].astype(np.float64)[with_next]) / 2
    middle = middle64.astype(np.float32)
    assert (middle.astype(np.float64) == middle64).all()
    for bit, step in ((1, -1), (2, 0), (3, 1)):
        to = convert(floats((bits(middle).astype(np.int64) + step).astype(np.uint32)))
        assert ((to == lower) | (to == lower + 1)).all()
        result[:-1][with_next] |= ((to == lower + 1) << bit).astype(np.uint8)
    return result


def specials(values):
    finite = np.unique(np.abs(values[np.isfinite(values)].astype(np.float64)))
    least, largest = finite[finite > 0][0], finite[-1]
    edges = [least / 2, largest + (largest - finite[-2]) / 2, largest, largest + (largest - finite[-2])]
    chosen = {0, 1, 0x007fffff, 0x00800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff, 0x3f800000}
    for edge in edges:
        if edge < 2.0 ** 128:
            chosen.update(int(bits(edge)) + step for step in (-1, 0, 1))
    chosen = sorted(c for c in chosen if c >= 0)
    return np.array(chosen + [c | 0x80000000 for c in chosen], np.uint32)


def cases(dtype, code_type, values):
    rng = np.random.default_rng(SEED)
    finite = np.abs(values[np.isfinite(values)].astype(np.float64))
    powers = np.frexp([finite[finite > 0].min() / 4, finite.max() * 2])[1]
    near = np.ldexp(rng.choice([-1, 1], 500) * rng.uniform(1, 2, 500), rng.integers(*powers, 500))
    given = np.concatenate([specials(values), rng.integers(0, 2 ** 32, 500, np.uint32), bits(near)])
    return np.stack([given, floats(given).astype(dtype).view(code_type).astype(np.uint32)], axis=1)


def truncations():
    edges = [0.0, 0.5, 1.0, 1.5, 2.5, 126.5, 127.0, 127.5, 128.0, 128.5, 129.0, 254.5, 255.0, 255.5, 256.0]
    for power in (15, 16, 31, 32, 52, 53, 62, 63):
        edge = 2.0 ** power
        edges += [edge - 1, edge - 0.5, edge, edge + 0.5, edge + 1, np.nextafter(edge, 0)]
    rng = np.random.default_rng(SEED)
    scaled = np.ldexp(rng.uniform(-1, 1, 1000), rng.integers(0, 64, 1000))
    given = np.concatenate([edges, -np.array(edges), scaled])
    given = given[(given >= -2.0 ** 63) & (given < 2.0 ** 63)]
    return np.stack([given.view(np.uint64), given.astype(np.int64).view(np.uint64)], axis=1)


def write(name, array, kind):
    (HERE / name).write_bytes(np.ascontiguousarray(array).astype(kind).tobytes())


def main():
    np.seterr(all="ignore")
    for name, (dtype, code_type) in FORMATS.items():
        codes = np.arange(2 ** (8 * np.dtype(code_type).itemsize), dtype=code_type)
        values = codes.view(dtype).astype(np.float32)
        write(name + ".f32", bits(values), "<u4")
        write(name + ".round", rounding(dtype, code_type, values), "u1")
        write(name + ".cases", cases(dtype, code_type, values), "<u4")
    write("trunc.cases", truncations(), "<u8")


if __name__ == "__main__":
    main()
