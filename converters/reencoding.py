"""Packing images anew: a first pass encodes them, a second one lays them in their places.

How many bytes an image will have is known when it is encoded, not before. So the parts of the
first pass are files of their own, in which images and sidecars follow each other; then all is
planned, and the second pass copies.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from fastconv.converters.encoding import Encoding
from fastconv.converters.part import (
    SOURCES,
    WINDOW,
    Bad,
    Look,
    Results,
    Window,
    read_part,
    write_large,
)
from fastconv.converters.pixels import Encoded, Encoder
from fastconv.converters.plan import cut_parts, repeated_paths
from fastconv.converters.sniff import BadImage, Sniffed
from fastconv.converters.writer import WRITERS, Layout, Writer
from fastconv.loaders.arrays import Array
from fastconv.loaders.kinds import KINDS, kind_code, kind_of_name
from fastconv.loaders.meta import Shard
from fastconv.loaders.table import SampleTable

__all__ = ["encode_part", "part_files", "renamed"]

SHARE = 8
"""Parts are so many times smaller: decoding and encoding takes that much longer than copying."""


def part_files(table: SampleTable) -> Layout:
    """Returns a layout in which each part is a file of its own; places are to be filled in, and how
    large the files are is known in the end."""
    count = len(table)
    nowhere = tuple(np.zeros(count, np.uint64) for _ in table.fields)
    whole = Layout((), np.array([0, count], np.int64), nowhere, (0,) * len(nowhere))
    bounds = [0, *(cut.stop for cut in cut_parts(table, whole, SHARE))]
    files = tuple(Shard(f"{number:06d}", 0) for number in range(len(bounds) - 1))
    return replace(whole, shards=files, shard_row=np.array(bounds, np.int64))


def encode_part(
    task: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Encodes the images of a part; returns what was found out.

    Args:
        task: What `fastconv.converters.part.pack_part` takes, `encoding` and the format's `writer`
            besides; the file `out` is made.
        arrays: The columns of the part and of its source.
    """
    part = read_part(arrays, task)
    kind = WRITERS.load(task["writer"])
    writer = kind(kind.Options(**task["options"]))
    encoder = Encoder(Encoding(**task["encoding"]), task["max_pixels"])
    results = Results(part)  # of the source
    look = Look(results, False, task["max_pixels"])
    count = len(part)
    size = [column.copy() for column in part.size]
    place = [np.zeros(count, np.int64) for _ in part.fields]
    anew = np.zeros(count, np.bool_)
    made = Results(part)
    with ExitStack() as stack:
        source = SOURCES[task["source"]](task, arrays, part)
        stack.callback(source.close)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(os.fsencode(task["out"]), flags, 0o666)
        stack.callback(os.close, fd)
        window, at, memory = Window(fd), 0, memoryview(bytearray(WINDOW))
        for row, slot in ((row, slot) for row in range(count) for slot in range(len(size))):
            length = int(part.size[slot][row])
            if length < 0:
                continue
            place[slot][row] = at
            try:
                if slot and length > WINDOW:  # only images have to be held whole
                    window.flush()
                    write_large(row, slot, length, at, source, window, look)
                    made.checksum[slot][row] = results.checksum[slot][row]
                    at += length
                    continue
                if length > memory.nbytes:
                    memory = memoryview(bytearray(length))
                data = memory[:length]
                source.fill(row, slot, data)
                look(row, slot, data, length)
                if slot == 0:
                    encoded = encoder(data, found_of(results, row))
                    if encoded is not None:
                        anew[row], data = True, memoryview(encoded.data)
                    note_image(made, row, data, encoded or found_of(results, row), writer)
                made.checksum[slot][row] = xxhash.xxh3_64_intdigest(data)
            except (Bad, BadImage) as error:
                results.bad.append((row, slot, error.reason, error.message))
                continue
            size[slot][row] = data.nbytes
            if data.nbytes <= WINDOW:
                window.room(at, data.nbytes, data.nbytes)[:] = data
            else:
                window.flush()
                window.write(data, at)
            at += data.nbytes
        window.flush()
        source.judge(results)
    content = {
        "bad": results.bad,
        "written": window.written,
        "digest": window.digest(),
        "resized": made.resized,
        "size": at,
    }
    found_out: dict[str, Array] = {
        "kind": made.kind, "width": made.width, "height": made.height, "anew": anew.view(np.uint8),
    }  # fmt: skip
    for name, *columns in zip(part.fields, made.checksum, size, place, strict=True):
        for column, values in zip(("checksum", "size", "place"), columns, strict=True):
            found_out[f"{column}/{name}"] = values
    return content, found_out


def found_of(results: Results, row: int) -> Sniffed:
    """Returns what the header of an image said."""
    kind, width, height = results.kind, results.width, results.height
    return Sniffed(KINDS[kind[row]], int(width[row]), int(height[row]))


def note_image(
    made: Results, row: int, data: memoryview, found: Encoded | Sniffed, writer: Writer
) -> None:
    """Notes what an image has become, and what it takes besides its bytes in a format."""
    made.kind[row] = kind_code(found.kind)
    made.width[row], made.height[row] = found.width, found.height
    if extra := writer.extra(data):
        made.resized.append((row, extra))


def renamed(table: SampleTable, anew: npt.NDArray[np.bool_]) -> SampleTable:
    """Returns the table with paths whose endings tell the formats of images that were encoded anew.

    "a.png" that is a JPEG now becomes "a.jpg", or "a.png.jpg" where there is an "a.jpg" already.

    Args:
        table: Its kinds are those of now.
        anew: Which images are, bool (N,).
    """
    endings = {code: "npy" if name == "raw" else name for code, name in enumerate(KINDS)}
    kinds = table.kind.tolist()
    paths: dict[int, str] = {}
    for row in np.flatnonzero(anew).tolist():
        path = table.path(row)
        if kind_of_name(path) != KINDS[kinds[row]]:
            paths[row] = f"{os.path.splitext(path)[0]}.{endings[kinds[row]]}"
    if not paths:
        return table
    made, tries = table.with_paths(paths), Counter[int]()
    while same := repeated_paths(made):
        for first, later in same:  # one of them at least has a new path
            row = later if later in paths else first
            more = f"_{tries[row]}" if tries[row] else ""
            paths[row] = f"{table.path(row)}{more}.{endings[kinds[row]]}"
            tries[row] += 1
        made = table.with_paths(paths)
    return made
