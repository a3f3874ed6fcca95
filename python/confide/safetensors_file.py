"""Tensors of a safetensors file as float32 arrays: F32, F16 and BF16, nothing else.

Read here and not with the safetensors package, whose numpy face has no bf16 and which a CPU-only host may lack.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy

from .adapter_error import AdapterRefused

FILE_BYTES_MAX = 4 << 30
HEADER_BYTES_MAX = 4 << 20
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def read_tensors(path: Path) -> dict[str, numpy.ndarray]:
    """Reads a file's tensors by name as float32 arrays, values of 16 bits widened exactly."""
    if not path.is_file():
        raise AdapterRefused(f"{path}: cannot be read: it is not a plain file")
    if path.stat().st_size > FILE_BYTES_MAX:
        raise AdapterRefused(f"{path}: wanted at most {FILE_BYTES_MAX} bytes, got more")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise AdapterRefused(f"{path}: cannot be read: {error}") from error
    if raw[:4] == b"PK\x03\x04":
        raise AdapterRefused(
            f"{path}: wanted safetensors, got a zip archive, as torch writes pickles"
        )
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > min(HEADER_BYTES_MAX, len(raw) - 8):
        raise AdapterRefused(
            f"{path}: wanted a header of at most {HEADER_BYTES_MAX} bytes, got {length}"
        )
    try:
        header = json.loads(raw[8 : 8 + length])
        header.pop("__metadata__", None)
        body = memoryview(raw)[8 + length :]
        covered = sorted(tuple(entry["data_offsets"]) for entry in header.values())
        tensors = {name: _tensor(name, entry, body) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdapterRefused(f"{path}: wanted a safetensors header, got {error}") from error
    # The format leaves no holes and no overlap: bytes that no tensor names have no place.
    ends = [0] + [end for _, end in covered]
    if [begin for begin, _ in covered] != ends[:-1] or ends[-1] != len(body):
        raise AdapterRefused(f"{path}: wanted tensors that cover the file without gaps or overlaps")
    return tensors


def _tensor(name: str, entry: dict[str, Any], body: memoryview) -> numpy.ndarray:
    kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if kind not in _BYTES:
        raise AdapterRefused(f"{name}: wanted F32, F16 or BF16, got {kind}")
    count = 1
    for side in shape:
        count *= int(side)
    if not 0 <= begin <= end <= len(body) or end - begin != count * _BYTES[kind]:
        raise AdapterRefused(f"{name}: wanted {count * _BYTES[kind]} bytes, got {end - begin}")
    data = body[begin:end]
    if kind == "BF16":
        bits = numpy.frombuffer(data, "<u2").astype(numpy.uint32) << 16
        return bits.view(numpy.float32).reshape(shape)
    return (
        numpy.frombuffer(data, "<f4" if kind == "F32" else "<f2")
        .astype(numpy.float32)
        .reshape(shape)
    )
