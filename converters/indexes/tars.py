"""Index files of WebDataset shards.

DALI, `NAME.idx` for `NAME.tar`, as its own `wds2idx` writes it: a line `v1.2 SAMPLES`, then a line
a sample with `EXTENSION PLACE SIZE MEMBER` for each of its members, where PLACE is that of the
data.

Megatron Energon, `NAME.tar.idx`: uint64 places of each sample's first header, and of the end mark;
in the folder `.nv-meta` what `energon prepare` asks for: `.info.json`, `split.yaml`,
`dataset.yaml`. The database that it makes besides serves joined datasets only.

timm, `_info.json`, and wids (in webdataset before 1.0), `index.json`: the shards and how many
samples each has. The MD5 sums that wids writes are not read by it, and left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fastconv.converters.columns import Column, chosen, constant, decimals, lines, where
from fastconv.converters.indexes.pack import DataFile, Files, IndexedPack, blocks
from fastconv.converters.writer import key_width
from fastconv.loaders.formats.webdataset import BLOCK
from fastconv.loaders.kinds import KINDS

__all__ = ["FOLDERS", "SETTINGS", "dali", "energon", "timm", "wids"]

SETTINGS = (".nv-meta/split.yaml", ".nv-meta/dataset.yaml", "_info.json")
"""What people are to change as they need it."""


def dali(pack: IndexedPack) -> Files:
    """Returns the index files of NVIDIA DALI's `readers.webdataset`."""
    return {file.beside(".idx"): partial(dali_index, pack, file) for file in pack.files()}


def dali_index(pack: IndexedPack, file: DataFile) -> Iterator[bytes]:
    """Yields the index file of a shard."""
    yield b"v1.2 %d\n" % (file.stop - file.start)
    for start, stop in blocks(file.start, file.stop):
        yield lines(dali_lines(pack, start, stop))


def dali_lines(pack: IndexedPack, start: int, stop: int) -> list[Column]:
    """Returns the lines of some samples."""
    meta, table, count = pack.meta, pack.table, stop - start
    key = decimals(np.arange(start, stop), key_width(meta.samples))
    space, end = constant(b" ", count), constant(b"\n", count)

    def member(extension: Column, place: npt.NDArray[Any], size: npt.NDArray[Any]) -> list[Column]:
        numbers = [decimals(place), space, decimals(size)]
        return [extension, space, *numbers, space, key, constant(b".", count), extension]

    def places(slot: int) -> npt.NDArray[np.int64]:
        return table.offset[slot][start:stop].astype(np.int64) + table.base[slot]

    kinds, choice = np.unique(table.kind[start:stop], return_inverse=True)
    image, size = places(0), table.size[0][start:stop]
    columns = member(chosen([KINDS[kind].encode() for kind in kinds.tolist()], choice), image, size)
    label = table.label[start:stop]
    if meta.labels != "none":
        digits = decimals(label).kept.sum(axis=1)
        place = image + (size + BLOCK - 1) // BLOCK * BLOCK + BLOCK  # right behind the image
        has = (label >= 0) | (meta.labels == "int")
        columns += where(has, [space, *member(constant(b"cls", count), place, digits)])
    for slot, name in enumerate(table.fields[1:], 1):
        size = table.size[slot][start:stop]
        extension = constant(name.encode(), count)
        columns += where(size >= 0, [space, *member(extension, places(slot), np.maximum(size, 0))])
    return [*columns, end]


def energon(pack: IndexedPack) -> Files:
    """Returns the index files of Megatron Energon."""
    files = list(pack.files())
    counts = {file.name: file.stop - file.start for file in files}
    split = {"split_parts": {split_of(pack): list(counts)}, "exclude": []}
    return {
        **{f"{file.name}.idx": partial(energon_index, pack, file) for file in files},
        ".nv-meta/.info.json": partial(dumped, {"shard_counts": counts}),
        # JSON is YAML.
        SETTINGS[0]: partial(dumped, split),
        SETTINGS[1]: partial(dumped, energon_dataset(pack)),
    }


def energon_index(pack: IndexedPack, file: DataFile) -> Iterator[bytes]:
    """Yields the index file of a shard."""
    places = pack.table.offset[0][file.start : file.stop].astype("<i8")
    yield (places + (pack.table.base[0] - BLOCK)).tobytes()
    yield (file.size - 2 * BLOCK).to_bytes(8, "little")


def energon_dataset(pack: IndexedPack) -> dict[str, Any]:
    """Returns which of Energon's samples those of a pack are, and of what they are made."""
    kinds = [KINDS[kind] for kind in np.unique(pack.table.kind).tolist()]
    fields = {"image": ",".join(kinds)}
    if pack.meta.labels != "none":
        name, fields["label"] = "ImageClassificationSample", "cls"
    elif "txt" in pack.table.fields:
        name, fields["caption"] = "CaptioningSample", "txt"
    else:
        name = "ImageSample"
    kind = {"__module__": "megatron.energon", "__class__": name}
    return {"sample_type": kind, "field_map": fields}


def timm(pack: IndexedPack) -> Files:
    """Returns the index file of timm's reader for WebDataset."""
    name = {"val": "validation"}.get(split_of(pack), split_of(pack))
    split = {
        "name": name,
        "num_samples": pack.meta.samples,
        "filenames": list(pack.names),
        "shard_lengths": [file.stop - file.start for file in pack.files()],
        "alt_label": "",
    }
    return {SETTINGS[2]: partial(dumped, {"splits": {name: split}})}


def wids(pack: IndexedPack) -> Files:
    """Returns the index file of wids."""
    shards = [
        {"url": file.name, "nsamples": file.stop - file.start, "filesize": file.size}
        for file in pack.files()
    ]
    index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}
    name = next(pack.files()).beside(".json") if pack.alone else "index.json"
    return {name: partial(dumped, index)}


def split_of(pack: IndexedPack) -> str:
    """Returns which part of a dataset a pack is, as its shards are called: train, val or test."""
    words = re.split("[^a-z]+", pack.names[0].lower())
    found = {"val": "val", "valid": "val", "validation": "val", "test": "test"}
    return next((found[word] for word in words if word in found), "train")


def dumped(value: object) -> list[bytes]:
    """Returns a JSON document."""
    return [json.dumps(value, indent=2).encode() + b"\n"]


FOLDERS = (energon, timm)
"""What needs a folder of its own."""
