"""The id of a pack: what its Dataset, and its table, know it by."""

from __future__ import annotations

import numpy as np
from xxhash import xxh3_128

from fastconv.loaders.meta import NO_ID, PackMeta
from fastconv.loaders.table import SampleTable

__all__ = ["pack_id"]


def pack_id(meta: PackMeta, table: SampleTable) -> str:
    """Returns the id of a pack: xxh3-128 of the columns of its table and of what it says of itself.

    Places do not count, they follow from the rest; nor do the names of shards, a pack may be called
    anything.
    """
    digest = xxh3_128()
    digest.update(meta.with_id(NO_ID).with_shards(()).to_json().encode())
    for name, column in sorted(table.arrays().items()):
        if name.startswith("offset/"):
            continue
        digest.update(f"\0{name}\0".encode())
        digest.update(np.ascontiguousarray(column).view(np.uint8).data)
    return digest.hexdigest()
