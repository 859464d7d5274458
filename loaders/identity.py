"""Hashes over columns: the id of a pack, and what else tells one state of samples from another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xxhash import xxh3_128

from fastconv.loaders.arrays import Array
from fastconv.loaders.meta import NO_ID, PackMeta
from fastconv.loaders.table import SampleTable

__all__ = ["digest_of", "pack_id"]


def digest_of(text: str, columns: Mapping[str, Array]) -> str:
    """Returns the xxh3-128 of a text and of named columns: 32 hexadecimal digits."""
    digest = xxh3_128(text.encode())
    for name, column in sorted(columns.items()):
        digest.update(f"\0{name}\0".encode())
        digest.update(np.ascontiguousarray(column).view(np.uint8).data)
    return digest.hexdigest()


def pack_id(meta: PackMeta, table: SampleTable) -> str:
    """Returns the id of a pack: a hash of the columns of its table and of what it says of itself.

    Places do not count, they follow from the rest; nor do the names of shards, a pack may be called
    anything.
    """
    columns = {n: c for n, c in table.arrays().items() if not n.startswith("offset/")}
    return digest_of(meta.with_id(NO_ID).with_shards(()).to_json(), columns)
