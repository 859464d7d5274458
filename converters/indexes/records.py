"""Index files of TFRecord and RecordIO.

TFRecord, `NAME.tfrecord.idx`: a line `PLACE SIZE` a record, both with its framing, as DALI's and
the `tfrecord` package's tools write it. These take any name; `NAME.idx` is RecordIO's.

RecordIO, `NAME.idx` and `NAME.lst` for `NAME.rec`, as MXNet's `im2rec` writes them: a line
`ID<tab>PLACE` a record, and a line `ID<tab>LABEL<tab>PATH`. The id is the sample's number in the
pack; a tab or newline in a path is a `?` there. DALI reads several files by a single index,
`NAME.idx` for `NAME-000000.rec` and those that follow, whose places are those in all of them
together.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from fastconv.converters.columns import constant, decimals, lines, ragged
from fastconv.converters.indexes.pack import DataFile, Files, IndexedPack, blocks
from fastconv.converters.structure import laid_out, part_of, rows_of
from fastconv.converters.writer import SealedWriter

__all__ = ["joint_index", "recordio_index", "recordio_list", "tfrecord_index"]

Ints = npt.NDArray[np.int64]

SEPARATORS = bytes.maketrans(b"\t\n\r", b"???")


def tfrecord_index(pack: IndexedPack) -> Files:
    """Returns the index files of a pack in TFRecord."""
    return {f"{file.name}.idx": partial(tfrecord_lines, pack, file) for file in pack.files()}


def tfrecord_lines(pack: IndexedPack, file: DataFile) -> Iterator[bytes]:
    """Yields the index of a data file."""
    bounds = record_bounds(pack, file)
    for start, stop in blocks(0, file.stop - file.start):
        space, end = constant(b" ", stop - start), constant(b"\n", stop - start)
        place = bounds[start : stop + 1]
        yield lines([decimals(place[:-1]), space, decimals(np.diff(place)), end])


def recordio_index(pack: IndexedPack) -> Files:
    """Returns the index files of a pack in RecordIO."""
    return {file.beside(".idx"): partial(recordio_lines, pack, file) for file in pack.files()}


def joint_index(pack: IndexedPack) -> Files:
    """Returns the one index file of a pack in RecordIO for DALI."""
    if pack.alone:
        return recordio_index(pack)
    return {f"{pack.names[0].rpartition('-')[0]}.idx": partial(joint_lines, pack)}


def joint_lines(pack: IndexedPack) -> Iterator[bytes]:
    """Yields the index of all data files."""
    before = 0
    for file in pack.files():
        yield from recordio_lines(pack, file, before)
        before += file.size


def recordio_lines(pack: IndexedPack, file: DataFile, before: int = 0) -> Iterator[bytes]:
    """Yields the index of a data file, with so many bytes before it."""
    bounds = record_bounds(pack, file) + before
    for start, stop in blocks(file.start, file.stop):
        tab, end = constant(b"\t", stop - start), constant(b"\n", stop - start)
        place = decimals(bounds[start - file.start : stop - file.start])
        yield lines([decimals(np.arange(start, stop)), tab, place, end])


def recordio_list(pack: IndexedPack) -> Files:
    """Returns the lists of samples of a pack in RecordIO."""
    return {file.beside(".lst"): partial(list_lines, pack, file) for file in pack.files()}


def list_lines(pack: IndexedPack, file: DataFile) -> Iterator[bytes]:
    """Yields the list of a data file."""
    table = pack.table
    for start, stop in blocks(file.start, file.stop):
        tab, end = constant(b"\t", stop - start), constant(b"\n", stop - start)
        places = table.path_offset[start : stop + 1].astype(np.int64)
        # Paths alone: there are no sidecars, whose names might follow them.
        text = table.path_bytes[places[0] : places[-1]].tobytes().translate(SEPARATORS)
        bounds = places - places[0]
        path = ragged(np.frombuffer(text, np.uint8), bounds[:-1], bounds[1:])
        label = [decimals(table.label[start:stop]), constant(b".000000", stop - start)]
        yield lines([decimals(np.arange(start, stop)), tab, *label, tab, path, end])


def record_bounds(pack: IndexedPack, file: DataFile) -> Ints:
    """Returns where each record of a data file starts, and where the last one ends, int64
    (n + 1,)."""
    rows = rows_of(pack.table, file.start, file.stop)
    layout = laid_out(pack.writer, pack.meta, rows, "")
    samples = pack.meta.samples
    writer = pack.writer
    assert isinstance(writer, SealedWriter)  # those whose data files are records
    return writer.bounds(part_of(writer, layout, rows, file.start, 0, len(rows), samples))
