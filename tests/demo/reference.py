#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Usage: reference.py MODEL LIST REFERENCE (LIST and REFERENCE without .tsv and .f64; see product.h)

Says what products must give, from the file alone: GGUF is read and decoded by the package gguf, safetensors by its own
header; sums are in doubles. Nothing of pinion is used, except the list of what to multiply.
"""
import hashlib
import importlib.metadata
import json
import signal
import struct
import sys

import numpy as np

FLOATS = {"F32": "<f4", "F16": "<f2"}


def vector(n):
    """x of product.h, as floats."""
    j = np.arange(n, dtype=np.uint64) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)
    return (j.astype(np.float64) / 2147483648.0 - 1.0).astype(np.float32)


class Gguf:
    def __init__(self, path):
        import gguf
        self.gguf = gguf
        self.by = "the package gguf " + importlib.metadata.version("gguf")
        self.tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}

    def rows(self, name, first, count):
        """Rows as floats, and the tensor's type; no floats when the package does not decode the type."""
        t = self.tensors[name]
        stored = t.data.reshape(-1, t.data.shape[-1])[first:first + count]
        try:
            floats = self.gguf.quants.dequantize(np.ascontiguousarray(stored), t.tensor_type)
        except NotImplementedError:
            floats = None
        return floats, t.tensor_type.name


class Safetensors:
    by = "its own header"

    def __init__(self, path):
        with open(path, "rb") as f:
            (size,) = struct.unpack("<Q", f.read(8))
            self.header = json.loads(f.read(size))
        self.data = np.memmap(path, np.uint8, "r", offset=8 + size)

    def rows(self, name, first, count):
        t = self.header[name]
        begin, end = t["data_offsets"]
        stored = self.data[begin:end]
        if t["dtype"] == "BF16":
            values = (stored.view("<u2").astype(np.uint32) << 16).view(np.float32)
        elif t["dtype"] in FLOATS:
            values = stored.view(FLOATS[t["dtype"]]).astype(np.float32)
        else:
            return None, t["dtype"]
        return values.reshape(-1, t["shape"][-1] if t["shape"] else 1)[first:first + count], t["dtype"]


def result(model, line, out):
    """The line with its digest; the sums go to out."""
    name, kind, cols, first, rows = line.split("\t")[:5]
    floats, stored_as = model.rows(name, int(first), int(rows))
    if stored_as.lower() != kind.lower():
        sys.exit(f"{name} is {stored_as} in the file and {kind} in the list")
    digest = "-"
    sums = np.zeros((int(rows), 2))
    if floats is not None:
        w = np.ascontiguousarray(floats, dtype="<f4").reshape(int(rows), int(cols))
        digest = hashlib.sha256(w.tobytes()).hexdigest()
        terms = w.astype(np.float64) * vector(int(cols)).astype(np.float64)
        sums = np.stack([terms.sum(axis=1), np.abs(terms).sum(axis=1)], axis=1)
    sums.astype("<f8").tofile(out)
    return "\t".join([name, kind, cols, first, rows, digest])


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    model_path, list_prefix, reference_prefix = sys.argv[1:]
    with open(model_path, "rb") as f:
        is_gguf = f.read(4) == b"GGUF"
    model = Gguf(model_path) if is_gguf else Safetensors(model_path)
    with open(list_prefix + ".tsv", encoding="utf-8") as picks, open(reference_prefix + ".f64", "wb") as out, \
            open(reference_prefix + ".tsv", "w", encoding="utf-8") as reference:
        for line in picks:
            print(result(model, line.rstrip("\n"), out), file=reference)
    print(f"reference: the file read by {model.by} with numpy {np.__version__}, and sums in doubles")


if __name__ == "__main__":
    main()
