"""Verifies a pack: every checksum, and every byte that is no sample.

What stands between the samples follows from the sample table, so it is made again and compared
(`fastconv.converters.structure`); the table itself is compared by the pack's id, a hash over it.

HDF5's own structures may differ from one version of its library to the next. What the library reads
in them must be what the table says (`Writer.problems`); other differences give a
warning only, and with `layout=vlen` are not looked for. In packs that are not fastconv's, or have
lost their table, there are no checksums: only places are looked at, and pixels when that is asked
for.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from fastconv.converters.against import Compared, not_in_pack
from fastconv.converters.check import MAX_PIXELS
from fastconv.converters.engines.choice import Engine, engine_for
from fastconv.converters.engines.local import Task
from fastconv.converters.findings import (
    BadPlace,
    NoDamage,
    VerifyFailedError,
    VerifyReport,
    bytes_differ,
)
from fastconv.converters.indexes.kinds import (
    every_index,
    index_files,
    missing,
    resembles,
    strays,
    tools_of,
    wrong,
)
from fastconv.converters.indexes.pack import IndexedPack
from fastconv.converters.packing import check_arguments, source_folder
from fastconv.converters.plan import Cut, cut_parts
from fastconv.converters.report import Progress, ProgressCallback
from fastconv.converters.run import index_block
from fastconv.converters.structure import (
    ShardStructure,
    columns_of,
    has_frames,
    laid_out,
    moved_fields,
    other_bytes,
    rows_of,
    shard_structure,
    writer_of,
)
from fastconv.converters.verify import WINDOW, DataFile, FieldCheck, differing
from fastconv.converters.writer import Layout, Rows, Writer
from fastconv.loaders.arrays import Array
from fastconv.loaders.draws import draws
from fastconv.loaders.errors import (
    CorruptPackError,
    FastconvError,
    PackError,
    SampleError,
    UsageError,
    printable,
)
from fastconv.loaders.files import open_file, unreadable
from fastconv.loaders.identity import pack_id
from fastconv.loaders.index import index_path
from fastconv.loaders.open import open_pack
from fastconv.loaders.reader import MappedReader, Reader, Wanted
from fastconv.loaders.sample import BadFile, Reason

__all__ = ["VerifyFailedError", "VerifyReport", "verify"]

BATCH = 64
"""Rows that are read at once from what is not mapped."""
CHOSEN = 256
"""Rows of a task where only some of all are looked at."""
MOST_NAMES = 3
"""Files of others that are named."""


def verify(
    pack: str | os.PathLike[str],
    *,
    format: str | None = None,
    image_key: str | None = None,
    label_key: str | None = None,
    decode: bool = False,
    max_pixels: int = MAX_PIXELS,
    against: str | os.PathLike[str] | None = None,
    sample: int | float | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> VerifyReport:
    """Checks a pack and returns what was found; nothing is changed or written beside it.

    With `sample` only some samples are looked at, and not the bytes between them. The sample table,
    what the pack says of itself, and whether its files are all there and long enough are checked
    all the same; in HDF5 what its library reads, too.

    Args:
        pack: A pack of any format, or a folder of images.
        format: Name of its format; by default its contents tell it.
        image_key, label_key: Of packs of others: what images and labels are called, see `convert`.
        decode: Every picture is decoded, too. Files that are not in the pack and cannot be decoded
            are not missed then.
        max_pixels: Larger pictures are bad, when they are decoded.
        against: The folder that was packed: files that it has and the pack lacks, and files that it
            lacks or has with other bytes, are bad.
        sample: Only so many samples are looked at, or, as a float up to 1, such a share of them:
            chosen by chance, the same for the same seed.
        seed: Chooses them.
        workers: Number of processes; by default one a core, or none where the work is done sooner
            in this process.
        progress: Called now and then, in this thread.

    Raises:
        UsageError: An argument is wrong.
        VerifyFailedError: There is no whole sample in it.
        FastconvError: It cannot be read at all, or is cut short.
    """
    began = time.monotonic()
    check_arguments(workers, "fast")
    check_sample(sample, against)
    source = None if against is None else source_folder(against)
    reader = open_pack(pack, format, Wanted((), image_key, label_key))
    if source is not None and reader.meta.encoding:
        raise UsageError(
            f"{printable(reader.path)}: its images were encoded anew when they were packed: they "
            f"cannot be compared with {printable(source)}: leave out --against"
        )
    rows = None if sample is None else chosen_rows(sample, seed, len(reader))
    size = bytes_of(reader, slice(None) if rows is None else rows)
    engine = engine_for(workers, len(reader) if rows is None else len(rows), size, decode)
    with one_line_errors(reader.path), engine:
        run = Verification(
            reader, engine, decode, max_pixels, progress, rows, rounds=1 if source is None else 2
        )
        run.check_table()
        run.check_samples(keep=source is not None)
        if source is not None:
            run.compare(source)
    report = run.report(source, None if rows is None else seed, began)
    if report.status == "failed":
        first = report.bad[0]
        raise VerifyFailedError(
            f"{printable(reader.path)}: no whole sample in it, the first bad record is "
            f"{printable(first.path)}: {first.reason}: {first.message}",
            report,
        )
    return report


def check_sample(sample: int | float | None, against: object) -> None:
    """Checks how many samples are to be looked at.

    Raises:
        UsageError: None, or more than all; or there is a folder to compare all with.
    """
    if sample is None:
        return
    most = 1 if isinstance(sample, float) else math.inf
    if isinstance(sample, bool) or not 0 < sample <= most:
        raise UsageError(
            "a quick look is at one sample or more, or at a share of them of more than 0 and no "
            f"more than 1 (100%), not at {sample}"
        )
    if against is not None:
        raise UsageError("a quick look is not compared with a folder: leave one of them out")


def chosen_rows(sample: int | float, seed: int, count: int) -> Rows:
    """Returns some of `count` rows, chosen by chance, in order, int64 (k,).

    Args:
        sample: How many, or as a float which share of them.
        seed: The same ones for the same seed; for a larger `sample` these and more.
        count: How many there are.
    """
    number = min(math.ceil(sample * count) if isinstance(sample, float) else sample, count)
    if number == count:
        return np.arange(count)
    chance = draws(seed, 0, np.arange(count), 1)[:, 0]
    return np.sort(np.argpartition(chance, number)[:number])


def bytes_of(reader: Reader, rows: slice | Rows) -> int:
    """Returns the bytes of all fields of some rows together."""
    return sum(int(np.maximum(column[rows], 0).sum()) for column in reader.table.size)


@contextmanager
def one_line_errors(pack: str) -> Iterator[None]:
    """Turns errors of the system into ours, with the name of the file.

    Raises:
        PackError: The system refused something.
    """
    try:
        yield
    except FastconvError:
        raise
    except OSError as error:
        name = error.filename if isinstance(error.filename, str | bytes) else pack
        raise PackError(f"{printable(os.fsdecode(name))}: {error.strerror or error}") from error


class Verification:
    """One run over one pack.

    Args:
        reader: The opened pack.
        engine: Runs the parts.
        decode, max_pixels, progress: As `verify` takes them.
        rows: The samples that are looked at; None: all, and the bytes between them.
        rounds: How often all samples are gone through.
    """

    def __init__(
        self, reader: Reader, engine: Engine, decode: bool, max_pixels: int,
        progress: ProgressCallback | None, rows: Rows | None, rounds: int,
    ) -> None:  # fmt: skip
        self.reader = reader
        self.engine = engine
        self.decode = decode
        self.max_pixels = max_pixels
        self.progress = progress
        self.rows = rows
        self.bad = list(reader.bad)
        self.warnings: list[str] = []
        self.notices: list[str] = []
        self.writer: Writer | None = None  # where all bytes are to be compared
        self.compared = True  # but where its library has put things
        self.sound = True
        self.checksum: Sequence[Array] = reader.table.checksum
        self.looked_at = len(reader) if rows is None else len(rows)
        size = bytes_of(reader, slice(None) if rows is None else rows)
        self.done = Progress(0, self.looked_at * rounds, 0, size * rounds)

    def report(self, source: str | None, seed: int | None, began: float) -> VerifyReport:
        """Returns what was found."""
        reader, meta = self.reader, self.reader.meta
        if self.rows is not None:
            rest = len(reader) - self.looked_at
            samples = f"{rest:,} of {len(reader):,} samples, and " if rest else ""
            self.notices.append(f"{samples}the bytes between samples were not looked at")
        if not len(reader) and not self.bad:
            self.warnings.append("the pack holds no samples (0 records)")
        return VerifyReport(
            pack=reader.path,
            format=meta.format,
            id=meta.id,
            samples=len(reader),
            bytes=bytes_of(reader, slice(None)),
            classes=meta.classes,
            fields=meta.fields,
            checksums=bool(reader.table.checksum),
            structure=self.writer is not None and self.compared,
            pixels=self.decode,
            source=source,
            looked_at=self.looked_at,
            seed=seed,
            bad=self.bad,
            warnings=self.warnings,
            notices=[*reader.notices, *self.notices],
            seconds=time.monotonic() - began,
        )

    def check_table(self) -> None:
        """Checks the sample table and what the pack says of itself."""
        reader, meta = self.reader, self.reader.meta
        index = index_path(reader.path)
        if reader.root:
            self.warnings.append("a folder of images, not a pack: it has no checksums")
            return
        writer = known_writer(reader)
        if not meta.id:
            # It has a table all the same, but one that does not fit its data.
            if os.path.isfile(index) or (reader.notices and writer and writer.table_inside):
                words = "; ".join(reader.notices) or f"the table {printable(index)} is damaged"
                self.place(os.path.basename(reader.path), words)
            elif writer is not None:
                for where, words in writer.problems(reader):
                    self.place(where, words)
            words = "" if self.decode else ", and its images were not decoded (--decode)"
            why = (
                "its checksums were not compared" if reader.notices else "no checksums in this pack"
            )
            self.warnings.append(f"{why}: damaged bytes are not noticed{words}")
            return
        found = pack_id(meta, reader.table)
        if found != meta.id:
            self.sound = False
            self.place(
                "the sample table", f"the hash over it is {found}, not the pack's id {meta.id}"
            )
        if not shards_fit(reader):
            raise CorruptPackError(
                f"{printable(reader.path)}: the shards of its sample table are damaged"
            )
        if writer is None:
            self.warnings.append(
                "this format is not written here: only the samples' bytes are compared"
            )
            return
        if not writer.table_inside and self.sound:
            self.check_index(index)
        if self.sound and isinstance(reader, MappedReader):
            self.writer = writer if self.rows is None else None
            problems = list(writer.problems(reader))
            for where, words in problems:
                self.place(where, words)
            indexed = IndexedPack.at(reader.path, reader.meta, reader.table)
            self.note_unknown_files(writer, indexed, {where for where, _ in problems})
            try:
                self.check_indexes(indexed)
            except PackError as error:
                self.refused(error)
            if self.rows is not None:
                self.check_lengths(reader)

    def check_lengths(self, reader: MappedReader) -> None:
        """Checks that no data file has bytes behind its end, where not all bytes are looked at."""
        for file, shard in zip(reader.files, reader.meta.shards, strict=True):
            size = os.path.getsize(file)
            if size != shard.size:
                self.place(os.path.basename(file), f"has {size} bytes, needs {shard.size}")

    def check_indexes(self, indexed: IndexedPack) -> None:
        """Compares the index files that are there with what they should be."""
        tools = tools_of(indexed)
        files = index_files(indexed, tools)
        for name in wrong(indexed.folder, files):
            words = f"{printable(name)} is not the index of this pack"
            if resembles(os.path.join(indexed.folder, name), files[name]()):
                self.place(name, words)
            else:
                words += ", nor what is left of it: move it away, fastconv index makes its own"
                where = printable(self.reader.path)
                self.bad.append(NoDamage(name, "bad_record", f"{where}: {words}"))
        others = strays(indexed, tools) if indexed.alone else {}
        for name, tool in others.items():
            self.notices.append(
                f"beside it lies the index of another pack, {printable(name)}: fastconv index "
                f"--for {tool} --overwrite makes its own"
            )
        if absent := missing(indexed.folder, files):
            more = f" and {len(absent) - MOST_NAMES} more" if len(absent) > MOST_NAMES else ""
            names = ", ".join(map(printable, absent[:MOST_NAMES]))
            self.notices.append(
                f"index files are missing: {names}{more}: fastconv index makes them"
            )

    def note_unknown_files(self, writer: Writer, indexed: IndexedPack, told: set[str]) -> None:
        """Takes note of visible files in a pack's folder that are not the pack's.

        Args:
            writer: Of its format.
            indexed: The pack.
            told: Names of those that were told of as problems.
        """
        reader = self.reader
        if not os.path.isdir(reader.path):
            return
        known = {*writer.own_files, *told, *indexed.names, *every_index(indexed)}
        others = sorted(
            name for name in os.listdir(reader.path) if name[0] != "." and name not in known
        )
        if others:
            more = f" and {len(others) - MOST_NAMES} more" if len(others) > MOST_NAMES else ""
            names = ", ".join(map(printable, others[:MOST_NAMES]))
            self.notices.append(f"in its folder lie files that are not the pack's: {names}{more}")

    def check_index(self, path: str) -> None:
        """Compares the header of a table that lies beside its data; the id covers its columns."""
        blocks = index_block(self.reader.table, self.reader.meta)
        header = bytes(blocks[0])
        with open(path, "rb") as file:
            same = file.read(len(header)) == header
            size = file.seek(0, os.SEEK_END)
        if not same or size != sum(block.nbytes for block in blocks):
            self.place(os.path.basename(path), "its header is not what fastconv writes")

    def check_samples(self, keep: bool) -> None:
        """Checks the fields of all samples, and the bytes between them.

        Args:
            keep: The checksums of the fields are wanted afterwards.
        """
        reader = self.reader
        keep = keep and not self.checksum
        if keep:
            self.checksum = [np.zeros(len(reader), np.uint64) for _ in reader.meta.fields]
        if not isinstance(reader, MappedReader):
            chosen = np.arange(len(reader)) if self.rows is None else self.rows
            for start in range(0, len(chosen), BATCH):
                rows = chosen[start : start + BATCH]
                self.check_rows(rows, keep)
                self.went_on(rows)
            return
        if self.rows is not None:
            self.check_chosen(reader, self.rows)
            return
        table = reader.table
        with ExitStack() as stack:
            scratch = None
            if self.writer is not None:
                scratch = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="fastconv-verify-")
                )
            cuts: list[Cut] = []
            found: dict[int, list[BadFile]] = {}
            for answer in self.engine.run(self.tasks(reader, cuts, scratch, keep)):
                cut = cuts[answer.number]
                for name, column in zip(table.fields, self.checksum, strict=False):
                    if f"checksum/{name}" in answer.arrays:
                        column[cut.start : cut.stop] = answer.arrays[f"checksum/{name}"]
                bad = [self.field(*entry) for entry in answer.content["bad"]]
                file = reader.files[cut.shard]
                bad += [bytes_differ(file, *place) for place in answer.content["places"]]
                found[answer.number] = bad
                self.went_on(slice(cut.start, cut.stop))
            for _, bad in sorted(found.items()):
                self.bad += bad

    def tasks(
        self, reader: MappedReader, cuts: list[Cut], scratch: str | None, keep: bool
    ) -> Iterator[Task]:
        """Yields a task for each part; adds the parts to `cuts`."""
        table, meta = reader.table, reader.meta
        layout = Layout(meta.shards, table.shard_row, table.offset, table.base)
        general = self.general(keep=keep)
        for shard, group in groupby(cut_parts(table, layout), key=lambda cut: cut.shard):
            parts = list(group)
            if not self.opens(reader.files[shard]):
                self.went_on(slice(parts[0].start, parts[-1].stop))
                continue
            structure = None
            if scratch is not None:
                structure = self.structure(reader, shard, parts, scratch)
            limits = structure.boundaries(parts) if structure is not None else []
            for number, cut in enumerate(parts):
                if structure is not None:
                    content, arrays = structure.task(cut, limits[number])
                else:
                    content, arrays = self.fields_task(
                        reader, shard, np.arange(cut.start, cut.stop)
                    )
                    content["first_row"] = cut.start

                def about(cut: Cut = cut) -> str:
                    return f"the samples {cut.start} to {cut.stop - 1} of {printable(reader.path)}"

                content |= {**general, "file": os.path.abspath(reader.files[shard])}
                cuts.append(cut)
                yield Task(len(cuts) - 1, content, arrays, about)

    def general(self, *, keep: bool = False, apart: bool = False) -> dict[str, Any]:
        """Returns what all tasks say."""
        return {
            "run": "verify",
            "fields": self.reader.table.fields,
            "decode": self.decode,
            "max_pixels": self.max_pixels,
            "keep": keep,
            "apart": apart,
        }

    def check_chosen(self, reader: MappedReader, rows: Rows) -> None:
        """Checks the fields of some samples."""
        chunks: list[Rows] = []
        found: dict[int, list[BadFile]] = {}
        for answer in self.engine.run(self.chosen_tasks(reader, rows, chunks)):
            mine = chunks[answer.number]
            bad = answer.content["bad"]
            found[answer.number] = [self.field(int(mine[row]), *words) for row, *words in bad]
            self.went_on(mine)
        for _, bad in sorted(found.items()):
            self.bad += bad

    def chosen_tasks(self, reader: MappedReader, rows: Rows, chunks: list[Rows]) -> Iterator[Task]:
        """Yields a task for each so many of some rows; adds these to `chunks`."""
        bounds = np.searchsorted(rows, reader.table.shard_row).tolist()
        for shard, (first, last) in enumerate(pairwise(bounds)):
            if first < last and not self.opens(reader.files[shard]):
                self.went_on(rows[first:last])
                continue
            for start in range(first, last, CHOSEN):
                mine = rows[start : min(start + CHOSEN, last)]
                content, arrays = self.fields_task(reader, shard, mine)
                content |= self.general(apart=True)
                content["file"] = os.path.abspath(reader.files[shard])

                def about(mine: Rows = mine) -> str:
                    return f"samples {mine[0]} to {mine[-1]} of {printable(reader.path)}"

                chunks.append(mine)
                yield Task(len(chunks) - 1, content, arrays, about)

    def opens(self, file: str) -> bool:
        """Returns whether a data file can be opened; one that cannot is bad as a whole."""
        try:
            os.close(open_file(file))
        except OSError as error:
            self.refused(error)
            return False
        return True

    def refused(self, error: OSError) -> None:
        """Takes note of a file that the system does not let us read."""
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        file = os.fsdecode(cause.filename or self.reader.path)
        kind = NoDamage if isinstance(cause, PermissionError) else BadPlace
        self.bad.append(kind(os.path.basename(file), "unreadable", str(unreadable(file, cause))))

    def structure(
        self, reader: MappedReader, shard: int, cuts: Sequence[Cut], scratch: str
    ) -> ShardStructure | None:
        """Returns what a data file should be; None where its parts cannot be compared."""
        assert self.writer is not None
        writer, file, first = self.writer, reader.files[shard], cuts[0].start
        table = reader.table
        if len(reader.files) > 1:
            table = rows_of(table, first, cuts[-1].stop)
        try:
            layout = laid_out(writer, reader.meta, table, scratch)
            moved = moved_fields(layout, table)
            framed = has_frames(writer)
            if wrong := sum(field.places for field in moved if framed or not field.all):
                self.place(os.path.basename(file), f"{wrong} of its fields are at other places")
                return None
            if any(field.all for field in moved):  # the library has put them there
                self.compared = False
                return None
            structure = shard_structure(writer, reader.meta, table, layout, first, scratch)
        except OSError as error:
            words = error.strerror or str(error)
            raise PackError(
                f"{printable(scratch)}: {words}: verify needs space for scratch files: set TMPDIR"
            ) from error
        size = os.path.getsize(file)
        if not has_frames(writer):
            self.check_library(file, structure, size)
            return None
        if size != structure.size:
            self.place(
                os.path.basename(file), f"has {size} bytes where fastconv writes {structure.size}"
            )
        return structure if size >= structure.size else None

    def check_library(self, file: str, structure: ShardStructure, size: int) -> None:
        """Warns of differences in what a library has written that no program has to notice."""
        if self.bad:
            return
        found = 0
        with DataFile(file) as actual, DataFile(structure.scratch) as expected:
            for start, stop in other_bytes(self.reader.table, min(size, structure.size)):
                for place in range(start, stop, WINDOW):
                    end = min(place + WINDOW, stop)
                    should = bytearray(expected.read(place, end))
                    found += len(differing(place, actual.read(place, end), should))
        if found or size != structure.size:
            places = f"{found} places" if found > 1 else "one place"
            self.warnings.append(
                f"{printable(file)}: the {structure.writer.title} library that is installed here "
                f"writes other bytes in {places} between the samples: damaged, or made "
                "by another version"
            )

    def fields_task(
        self, reader: MappedReader, shard: int, rows: Rows
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Returns what a worker must know to check the fields of some rows of a shard alone."""
        arrays = columns_of(reader.table, rows)
        if reader.table.extra is not None and (escaped := reader.table.extra[rows] > 0).any():
            self.check_rows(rows[escaped])  # the bytes of their images do not lie together
            for name in reader.table.fields:
                arrays[f"size/{name}"] = np.where(escaped, -1, arrays[f"size/{name}"])
        limit = reader.meta.shards[shard].size
        for slot, name in enumerate(reader.table.fields):
            size: Rows = arrays[f"size/{name}"].astype(np.int64)
            place: Rows = arrays[f"place/{name}"].astype(np.int64)
            outside = (size >= 0) & ((place < 0) | (size > limit - place))
            if outside.any():
                arrays[f"size/{name}"] = np.where(outside, -1, size)
                for row in rows[outside].tolist():
                    message = f"its place is outside {printable(reader.files[shard])}"
                    self.bad.append(self.field(row, slot, "bad_record", message))
        content: dict[str, Any] = {
            "scratch": None,
            "range": (0, 0),
            "writer": None,
            "options": {},
            "rows": (0, len(rows)),
            "first_row": 0,
            "samples": len(reader),
        }
        return content, arrays

    def check_rows(self, rows: Rows, keep: bool = False) -> None:
        """Checks the fields of some rows as the reader gives them, in this process."""
        reader = self.reader
        check = FieldCheck(reader.table, reader.table.checksum, self.decode, self.max_pixels)
        check.found = list(self.checksum) if keep else []
        reader.hint(rows, range(len(reader.meta.fields)))
        for row in rows.tolist():
            for slot in range(len(reader.meta.fields)):
                try:
                    data = reader.read(row, slot)
                    if data is not None:
                        check(row, slot, data)
                except SampleError as error:
                    reason: Reason = error.reason or "unreadable"  # type: ignore[assignment]
                    check.bad.append((row, slot, reason, str(error)))
        self.bad += [self.field(*entry) for entry in check.by_row(0)]

    def compare(self, source: str) -> None:
        """Compares the pack with the folder that was packed."""
        reader = self.reader
        if not self.sound:
            self.warnings.append(
                f"not compared with {printable(source)}: the sample table is damaged"
            )
            return
        others = not_in_pack(reader, source, self.decode, self.max_pixels)
        if not self.decode and any(file.reason == "missing_part" for file in others):
            self.notices.append(
                "what the pack lacks may be images that --check decode left out: with --decode "
                "(in Python decode=True) those are not missed"
            )
        compared = Compared(reader.table, reader.meta, self.checksum, source)
        cuts: list[Cut] = []
        found: dict[int, list[BadFile]] = {}
        for answer in self.engine.run(compared.tasks(cuts)):
            found[answer.number] = compared.bad(answer.content["bad"])
            cut = cuts[answer.number]
            self.went_on(slice(cut.start, cut.stop))
        differing = [file for _, bad in sorted(found.items()) for file in bad]
        told = {file.path for file in differing}
        self.bad += [file for file in others if file.path not in told] + differing

    def went_on(self, rows: slice | Rows) -> None:
        """Reports progress: these rows are done, too."""
        done = self.done
        self.done = Progress(
            done.samples + len(self.reader.table.label[rows]),
            done.samples_total,
            done.bytes + bytes_of(self.reader, rows),
            done.bytes_total,
        )
        if self.progress is not None:
            self.progress(self.done)

    def place(self, where: str, message: str) -> None:
        """Takes note of something wrong that belongs to no sample."""
        self.bad.append(BadPlace(where, "bad_record", f"{printable(self.reader.path)}: {message}"))

    def field(self, row: int, slot: int, reason: Reason, message: str) -> BadFile:
        """Returns a bad field; a damaged table may not even give it a name."""
        reader = self.reader
        try:
            path = reader.table.names(row)[slot] if slot else reader.table.path(row)
        except IndexError:
            path = reader.table.path(row)
        where = f"{printable(reader.path)}: sample {row}, key {printable(reader.key(row))}"
        beside = f", field {reader.meta.fields[slot]}" if slot else ""
        return BadFile(path, reason, f"{where}{beside}: {message}")


def known_writer(reader: Reader) -> Writer | None:
    """Returns what writes a pack's format; None where nothing does."""
    try:
        return writer_of(reader.meta)
    except UsageError:
        return None


def shards_fit(reader: Reader) -> bool:
    """Returns whether the table's shards are as many as there are, one after the other."""
    rows = reader.table.shard_row
    in_order = bool((np.diff(rows) >= 0).all()) and int(rows[0]) == 0
    return in_order and rows.shape[0] == len(reader.meta.shards) + 1
