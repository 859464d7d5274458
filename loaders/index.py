"""The sample table beside packs whose format holds no flat arrays: a safetensors file.

`index.safetensors` inside a folder of shards, `OUT.index.safetensors` beside a single file. Its
metadata holds under `fastconv` what the pack says of itself (JSON), its tensors are the columns of
`fastconv.loaders.table`.
"""

from __future__ import annotations

import os

from fastconv.loaders.arrays import load_arrays
from fastconv.loaders.errors import CorruptPackError, printable
from fastconv.loaders.files import MappedFile, map_file
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.table import SampleTable

__all__ = ["META_KEY", "index_path", "is_being_published", "load_index"]

META_KEY = "fastconv"


def index_path(pack: str) -> str:
    """Returns where the sample table of a pack lies."""
    if os.path.isdir(pack):
        return os.path.join(pack, "index.safetensors")
    return f"{pack}.index.safetensors"


def is_being_published(pack: str) -> bool:
    """Returns whether a pack and what belongs beside it are changing places with others: a run of
    `fastconv pack` that has begun to publish keeps the list of what goes where until it is done."""
    paths = {pack.rstrip("/"), os.path.realpath(pack)}
    return any(os.path.lexists(f"{path}.partial/publish") for path in paths)


def load_index(pack: str) -> tuple[PackMeta, SampleTable, MappedFile] | None:
    """Returns what lies beside a pack, and the mapped file that it lies in; None where nothing
    does.

    Raises:
        CorruptPackError: It is damaged, cut short, or of a newer fastconv.
        PackError: The system does not let us read it, or it is no regular file.
    """
    path = index_path(pack)
    if not os.path.lexists(path):
        return None
    file = map_file(path)
    try:
        arrays, metadata = load_arrays(file.view)
        if META_KEY not in metadata:
            return None
        meta = PackMeta.from_json(metadata[META_KEY])
        return meta, SampleTable.from_arrays(meta.fields, arrays), file
    except ValueError as error:
        raise CorruptPackError(f"{printable(path)}: {error}") from error
