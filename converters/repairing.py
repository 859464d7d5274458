"""Mends a pack with what the folder that was packed still has.

Where everything lies, and every byte that is no sample, follows from the sample table. So the pack
is written anew from its table into a copy: what stands between the samples as the format's `Writer`
makes it, each field from the pack where it still has its checksum, else from the folder where the
file there has it. The copy is verified, then takes the place of the pack in one step.

Where the table itself is damaged, `fastconv.converters.recovered` finds out what it was.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import numpy as np
import xxhash

from fastconv.converters.findings import (
    BadPlace,
    RepairFailedError,
    RepairReport,
    VerifyFailedError,
    VerifyReport,
)
from fastconv.converters.indexes.kinds import (
    SETTINGS,
    every_index,
    index_files,
    is_file,
    names_below,
    resembles,
    tools_of,
    with_settings,
    write_files,
)
from fastconv.converters.indexes.pack import IndexedPack
from fastconv.converters.packing import check_arguments, source_folder, translated_errors
from fastconv.converters.part import pread_all
from fastconv.converters.plan import cut_parts, placed
from fastconv.converters.recovered import Known, what_is_known
from fastconv.converters.report import Progress, ProgressCallback
from fastconv.converters.run import index_block
from fastconv.converters.structure import laid_out, part_of, rows_of, writer_of
from fastconv.converters.system import held_signals, need_space
from fastconv.converters.target import Target, exists_already
from fastconv.converters.verify import WINDOW, DataFile
from fastconv.converters.verifying import verify
from fastconv.converters.writer import Layout, Part, SealedWriter, Writer, pwrite_all
from fastconv.loaders.errors import (
    CorruptPackError,
    FastconvError,
    NotAPackError,
    PackChangedError,
    UsageError,
    printable,
)
from fastconv.loaders.files import unreadable
from fastconv.loaders.index import index_path, load_index
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.sample import BadFile, Reason
from fastconv.loaders.table import SampleTable

__all__ = ["RepairFailedError", "RepairReport", "repair"]

PAGE = 4096
"""Bytes of a field that no source has whole are read so many at a time: a disk loses no fewer."""

ABOUT = {"command": "repair"}
"""By which a next run knows what this one was about to publish."""

Notice = Callable[[str], None]


def repair(
    pack: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    classes: Sequence[str] | None = None,
    format: str | None = None,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
    notice: Notice | None = None,
) -> RepairReport:
    """Mends a pack and returns what was done.

    What is mended has the very bytes that were packed. The pack stays as it is until a whole copy,
    verified, takes its place. Fields that are damaged and not in the folder any more stay damaged
    in the copy, with all that can still be read of them; it is published where anything else was
    mended.

    Args:
        pack: A pack that fastconv made.
        source: The folder that was packed, or what is left of it.
        out: Where the mended pack is to be; by default it replaces the damaged one.
        classes: Names of the classes, where the pack was made with such: those without images are
            in its table alone, which may be lost.
        format: Name of the pack's format; by default its contents tell it.
        workers: Number of processes that verify.
        progress: Called now and then, in this thread: for verifying, mending, and verifying again.
        notice: Called with each line that a user should see at once.

    Raises:
        UsageError: An argument is wrong, or there are files in the pack's folder that are not its.
        RepairFailedError: Nothing could be mended.
        FastconvError: Something failed; the pack is as it was.
    """
    began = time.monotonic()
    check_arguments(workers, "fast")
    path, root = os.fsdecode(pack).rstrip("/") or "/", source_folder(source)
    final = path if out is None else os.fsdecode(out).rstrip("/")
    tell = notice or (lambda line: None)
    finish_publishing(final, tell)
    if out is not None:
        check_new(final)
    before = state_of(path)
    damage, checked = found_in(path, format, workers, progress)
    if checked is not None and not damage and checked.structure and not checked.warnings:
        return nothing_to_mend(checked, root, began)
    with translated_errors(final):
        known = what_is_known(path, root, format, classes)
        if known.meta.encoding:
            tell(
                f"{printable(path)}: its images were encoded anew when they were packed: "
                f"{printable(root)} does not have them, only what lies between them is mended"
            )
        if out is None:
            refuse_replacing(path, known)
        else:
            refuse_beside(final, path, known)
        target = Target(final, tell)
        try:
            if os.path.lexists(target.path("plan")):
                target.keep()
                raise UsageError(
                    f"{printable(target.partial)}: holds an unfinished run of packing: finish that "
                    "by its own command, or remove it"
                )
            target.start_over()
            if state_of(path) != before:
                raise PackChangedError(
                    f"{printable(path)}: was changed while it was looked at: run it again"
                )
            run = Mending(known, root, path, progress)
            copy = run.write(target)
            fits = known.fits or (2 * len(run.lost) <= run.fields and is_cut_short(path, copy))
            if not fits and 2 * len([*run.taken, *run.lost]) > run.fields:
                raise RepairFailedError(
                    f"{printable(path)}: is not the data of the table beside it, of which it has "
                    f"{run.fields - len(run.taken) - len(run.lost):,} of {run.fields:,} fields: "
                    "pack the folder again"
                )
            if checked is not None and not damage:
                damage = differences(path, copy)
                if not damage:
                    target.discard()
                    return nothing_to_mend(checked, root, began)
            check_copy(copy, known.meta.format, workers, progress, run.lost)
            report = run.report(final, damage, began)
            if run.lost and not (report.mended and fits):
                raise nothing_mended(replace(report, output=None, mended=()))
            publish(target, path, copy, overwrite=out is None)
        except BaseException:
            with held_signals():  # a second Ctrl-C does not stop the clean-up half-way
                target.discard()
            raise
    return report


def check_new(out: str) -> None:
    """Checks that a pack can be made at a place.

    Raises:
        UsageError: Something is there, or there is no folder to make it in.
    """
    parent = os.path.dirname(out) or "."
    if not os.path.isdir(parent):
        raise UsageError(f"{printable(parent)}: no such folder: make it first")
    for name in (out, f"{out}.index.safetensors"):
        if os.path.lexists(name):
            raise exists_already(name)


def finish_publishing(out: str, tell: Notice) -> None:
    """Finishes what a killed run of this command had begun to publish at a place, if one had."""
    if os.path.lexists(os.path.join(f"{out}.partial", "publish")):
        with translated_errors(out):
            target = Target(out, tell)
            if target.published is not None and target.published.about == ABOUT:
                target.discard()
            else:
                target.keep()


def found_in(
    pack: str, format: str | None, workers: int | None, progress: ProgressCallback | None
) -> tuple[list[BadFile], VerifyReport | None]:
    """Returns what is wrong with a pack, and the report; None where it cannot even be opened.

    Raises:
        UsageError: There is nothing at the path.
        PackError: The system does not let us read it.
    """
    try:
        report: VerifyReport | None = verify(
            pack, format=format, workers=workers, progress=progress
        )
    except VerifyFailedError as error:
        report = error.report
    except (CorruptPackError, NotAPackError, PackChangedError) as error:
        return [BadPlace(os.path.basename(pack), "bad_record", str(error))], None
    return ([*report.bad] if report is not None else []), report


def nothing_to_mend(checked: VerifyReport, root: str, began: float) -> RepairReport:
    """Returns what is reported of a pack that is whole."""
    return RepairReport(
        pack=checked.pack,
        format=checked.format,
        id=checked.id,
        source=root,
        samples=checked.samples,
        bytes=checked.bytes,
        classes=checked.classes,
        fields=checked.fields,
        notices=checked.notices,
        seconds=time.monotonic() - began,
    )


def nothing_mended(report: RepairReport) -> RepairFailedError:
    """Returns what to raise where no copy is better than the pack."""
    first = report.bad[0]
    return RepairFailedError(
        f"{printable(report.pack)}: nothing was changed: {printable(report.source)} lacks what is "
        f"damaged ({len(report.bad)}), the first is {printable(first.path)}: {first.message}",
        report,
    )


def state_of(pack: str) -> dict[str, tuple[int, int, int]]:
    """Returns which files a pack is, and how they are: inode, size, and time of the last change."""
    names = [pack, index_path(pack)]
    if os.path.isdir(pack):
        names += [os.path.join(pack, name) for name in os.listdir(pack)]
    found = {}
    for name in names:
        try:
            status = os.stat(name)
        except OSError:
            continue
        found[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def refuse_replacing(path: str, known: Known) -> None:
    """Refuses to replace what may be more than the pack.

    Raises:
        UsageError: It is a link, something else is called as one of its index files, there are
            other files in its folder, or in it what others wrote.
    """
    elsewhere = "name another place for the mended pack (--out)"
    if os.path.islink(path):
        real = printable(os.path.realpath(path))
        raise UsageError(f"{printable(path)}: is a link: name {real}, or {elsewhere}")
    if known.rewritten:
        raise UsageError(
            f"{printable(path)}: was written to since it was packed, or damage looks so, and would "
            f"be as it was packed again: {elsewhere}"
        )
    pack = IndexedPack.at(path, known.meta, known.table)
    if strange := next(strangers(path, pack, known), None):
        raise UsageError(
            f"{printable(strange)}: is in the way, and not what belongs to {printable(path)}: move "
            f"it away, or {elsewhere}"
        )
    if not os.path.isdir(path):
        return
    own = {*pack.writer.own_files, *(os.path.basename(file) for file in known.files)}
    own.update(every_index(pack))
    others = sorted(set(names_below(path)) - own)
    if others:
        raise UsageError(
            f"{printable(path)}: holds files that are not the pack's, such as "
            f"{printable(others[0])}: move them away, or {elsewhere}"
        )


def strangers(path: str, pack: IndexedPack, known: Known) -> Iterator[str]:
    """Yields the paths of what is called as the pack's table or one of its index files, and is not
    even what is left of that."""
    table = index_path(path)
    if not pack.writer.table_inside and os.path.lexists(table) and not is_table(table, path, known):
        yield table
    for name, make in index_files(pack, tools_of(pack)).items():
        file = os.path.join(pack.folder, name)
        ours = is_file(file) if name in SETTINGS else resembles(file, make())
        if os.path.lexists(file) and not ours:
            yield file


def is_table(file: str, pack: str, known: Known) -> bool:
    """Returns whether a file beside a pack is a table, or what is left of the pack's."""
    try:
        return is_file(file) and load_index(pack) is not None
    except CorruptPackError:
        return resembles(file, index_block(known.table, nameless(known.meta, pack)))


def nameless(meta: PackMeta, pack: str) -> PackMeta:
    """Returns the description for the table beside a pack: a single file may be called anything."""
    if os.path.isdir(pack):
        return meta
    return meta.with_shards(tuple(replace(shard, name="") for shard in meta.shards))


def refuse_beside(out: str, path: str, known: Known) -> None:
    """Refuses to put the index files of a new single file where others are.

    Raises:
        UsageError: Some are.
    """
    pack = IndexedPack.at(path, known.meta, known.table)
    if not pack.alone:
        return
    for name in index_files(IndexedPack.empty(out, pack.writer), tools_of(pack)):
        final = os.path.join(os.path.dirname(out), name)
        if os.path.lexists(final):
            raise exists_already(final)


# -- the copy


class Mending:
    """Writes a copy of a pack.

    Args:
        known: What the pack was.
        root: The folder that was packed.
        path: The pack's path.
        progress: As `repair` takes it.

    Attributes:
        fields: How many there are.
        taken: Those that were taken from the folder, and why.
        lost: Fields that are damaged in the copy, too.
    """

    def __init__(
        self, known: Known, root: str, path: str, progress: ProgressCallback | None
    ) -> None:
        self.known = known
        self.root = root
        self.path = path
        self.progress = progress
        self.writer = writer_of(known.meta)
        self.taken: list[BadFile] = []
        self.lost: list[BadFile] = []
        self.fields = sum(int((column >= 0).sum()) for column in known.table.size)
        self.done = Progress(0, len(known.table), 0, known.table.bytes)

    def write(self, target: Target) -> str:
        """Writes all data files, and what lies beside them; returns the path of the copy."""
        known = self.known
        meta, table = known.meta, known.table
        folder = target.path("pack")
        os.mkdir(folder)
        need_space(folder, table.bytes)
        alone = not os.path.isdir(self.path)
        layouts, shards = [], []
        for number, (start, stop) in enumerate(pairwise(table.shard_row.tolist())):
            layout = self.write_shard(folder, number, start, stop)
            (shard,) = layout.shards
            if not alone and known.files:
                name = os.path.basename(known.files[number])
                os.rename(os.path.join(folder, shard.name), os.path.join(folder, name))
                shard = replace(shard, name=name)
            layouts.append(layout)
            shards.append(shard)
        copy = os.path.join(folder, shards[0].name) if alone else folder
        if not self.writer.table_inside:
            offset = tuple(map(np.concatenate, zip(*(one.offset for one in layouts), strict=True)))
            table = replace(table, offset=offset, base=layouts[0].base)
            meta = nameless(meta.with_shards(tuple(shards)), copy)
            with open(index_path(copy), "wb") as file:
                for block in index_block(table, meta):
                    file.write(block)
            names = [os.path.basename(target.out)] if alone else [shard.name for shard in shards]
            self.write_indexes(
                target, IndexedPack(self.writer, meta, table, folder, tuple(names), alone)
            )
        return copy

    def write_indexes(self, target: Target, copy: IndexedPack) -> None:
        """Writes the index files that the pack has."""
        pack = IndexedPack.at(self.path, self.known.meta, self.known.table)
        files = with_settings(index_files(copy, tools_of(pack)), pack.folder)
        write_files(target.path("indexes") if copy.alone else copy.folder, files)

    def write_shard(self, folder: str, number: int, start: int, stop: int) -> Layout:
        """Writes a data file; returns its layout."""
        known, meta = self.known, self.known.meta
        rows = rows_of(known.table, start, stop)
        layout = laid_out(self.writer, meta, rows, folder)
        (shard,) = layout.shards
        path = os.path.join(folder, shard.name)
        with ExitStack() as stack:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, fd)
            os.truncate(fd, shard.size)
            old: DataFile | None = None
            try:
                old = stack.enter_context(DataFile(self.old_file(number, shard)))
            except PermissionError as error:  # which is no damage
                raise unreadable(self.old_file(number, shard), error) from error
            except OSError:
                pass  # missing: all is taken from the folder
            fields = Fields(rows, layout, old, fd, self.writer)
            for cut in cut_parts(rows, layout):
                part = part_of(
                    self.writer, layout, rows, start, cut.start, cut.stop, len(known.table)
                )
                for place, data in self.writer.frame(part, np.arange(len(part))).pieces():
                    pwrite_all(fd, data, place)
                lost = set()
                for row in range(cut.start, cut.stop):
                    known_lost = len(self.lost)
                    for slot in range(len(rows.fields)):
                        self.write_field(fields, start, row, slot)
                    if len(self.lost) > known_lost:
                        lost.add(row - cut.start)
                if isinstance(self.writer, SealedWriter):
                    seal_records(fd, self.writer, part, lost, old)
                self.went_on(rows, cut.start, cut.stop)
        self.writer.finish(folder, layout, meta.with_shards(()), placed(rows, layout))
        os.replace(os.path.join(folder, self.writer.finished(shard.name)), path)
        return layout

    def old_file(self, number: int, shard: Shard) -> str:
        """Returns where a data file of the damaged pack is, or should be."""
        if self.known.files:
            return self.known.files[number]
        return os.path.join(self.path, shard.name) if os.path.isdir(self.path) else self.path

    def write_field(self, fields: Fields, first: int, row: int, slot: int) -> None:
        """Writes a field: from the pack, else from the folder, else as it is."""
        size = int(fields.table.size[slot][row])
        if size <= 0 or fields.from_pack(row, slot, size):
            return
        name = fields.table.names(row)[slot]
        where = f"{printable(self.path)}: sample {first + row}"
        if slot:
            where += f", field {fields.table.fields[slot]}"
        reason, words = self.from_folder(fields, row, slot, size, name)
        if not reason:
            self.taken.append(BadFile(name, "corrupt", f"{where}: {words}"))
            return
        fields.as_it_is(row, slot, size)
        self.lost.append(BadFile(name, reason, f"{where}: the bytes are damaged, and {words}"))

    def from_folder(
        self, fields: Fields, row: int, slot: int, size: int, name: str
    ) -> tuple[Reason | Literal[""], str]:
        """Writes a field as the folder has it; returns why it has not, as a word, and words."""
        source = printable(self.root)
        if fields.table.fields[slot] in self.known.meta.generated:
            return "missing_part", "come from a file of labels, not from a folder"
        try:
            with DataFile(os.path.join(self.root, name)) as file:
                if os.fstat(file.fd).st_size != size:
                    return "changed", f"the file has another size in {source} now"
                if not fields.copied(file, 0, row, slot, size):
                    return "changed", f"the file has other bytes in {source} now"
        except FileNotFoundError:
            return "vanished", f"the file is not in {source}"
        except OSError as error:
            return "unreadable", f"the file in {source} cannot be read: {error.strerror or error}"
        return "", f"the bytes were damaged: taken from {source}"

    def went_on(self, rows: SampleTable, start: int, stop: int) -> None:
        """Reports progress: another part is done."""
        size = sum(int(np.maximum(column[start:stop], 0).sum()) for column in rows.size)
        done = self.done
        self.done = Progress(
            done.samples + stop - start, done.samples_total, done.bytes + size, done.bytes_total
        )
        if self.progress is not None:
            self.progress(self.done)

    def report(self, final: str, damage: Sequence[BadFile], began: float) -> RepairReport:
        """Returns what was done about what was found."""
        meta = self.known.meta
        lost = {file.path for file in self.lost}
        told = {file.path for file in damage}
        mended = [file for file in damage if file.path not in lost]
        mended += [file for file in self.taken if file.path not in told]
        return RepairReport(
            pack=self.path,
            format=meta.format,
            id=meta.id,
            source=self.root,
            output=final,
            mended=mended,
            from_source=len(self.taken),
            samples=len(self.known.table),
            bytes=self.known.table.bytes,
            classes=meta.classes,
            fields=meta.fields,
            bad=self.lost,
            seconds=time.monotonic() - began,
        )


def seal_records(
    fd: int, writer: SealedWriter, part: Part, lost: Collection[int], old: DataFile | None
) -> None:
    """Seals the records of a part whose frames and fields are written.

    Damaged ones stay as they are, where that can be read: with a new checksum over damaged bytes
    every other program would take them for whole.

    Args:
        fd: The copy.
        writer: Of its format.
        part: The records.
        lost: Which of them are damaged.
        old: The damaged file.
    """
    for row, (start, stop) in enumerate(pairwise(writer.bounds(part).tolist())):
        if row in lost:
            try:
                if old is not None:
                    pwrite_all(fd, old.read(start, stop), start)
            except OSError:  # what of it can be read stands there already, unsealed
                pass
            continue
        record = memoryview(bytearray(stop - start))
        pread_all(fd, record, start)
        writer.seal(part, row, record)
        pwrite_all(fd, record, start)


class Fields:
    """The fields of a data file, copied one by one.

    Args:
        table: The rows of the file.
        layout: Where they are in the copy.
        old: The damaged file; None where it is missing.
        fd: The copy.
        writer: Of the file's format.
    """

    def __init__(
        self, table: SampleTable, layout: Layout, old: DataFile | None, fd: int, writer: Writer
    ) -> None:
        self.writer = writer
        self.table = table
        self.layout = layout
        self.old = old
        self.fd = fd
        # A damaged table may have other places than the ones that it was written with.
        self.places = [
            (layout.offset, layout.base),
            (layout.offset, table.base),
        ]
        if table.offset:
            self.places.insert(0, (table.offset, table.base))

    def from_pack(self, row: int, slot: int, size: int) -> bool:
        """Copies a field from the damaged file; returns whether it has the right bytes there."""
        if self.old is None:
            return False
        places = [int(offset[slot][row]) + base[slot] for offset, base in self.places]
        for place in dict.fromkeys(places):
            try:
                if self.table.extra is not None and self.table.extra[row]:
                    if self.joined(self.old, place, row, slot):
                        return True
                elif self.copied(self.old, place, row, slot, size):
                    return True
            except (OSError, OverflowError):
                continue  # unreadable, or outside of the file
        return False

    def copied(self, file: DataFile, place: int, row: int, slot: int, size: int) -> bool:
        """Copies a field from a place of a file; returns whether it has its checksum."""
        digest = xxhash.xxh3_64()
        at = self.layout.base[slot] + int(self.layout.offset[slot][row])
        for done in range(0, size, WINDOW):
            data = file.read(place + done, place + min(done + WINDOW, size))
            digest.update(data)
            pwrite_all(self.fd, data, at + done)
        return digest.intdigest() == int(self.table.checksum[slot][row])

    def joined(self, file: DataFile, place: int, row: int, slot: int) -> bool:
        """Copies a field that does not lie together in a file; returns whether it has its
        checksum."""
        assert isinstance(self.writer, SealedWriter)  # in no other format a field is in pieces
        part = part_of(self.writer, self.layout, self.table, 0, row, row + 1, len(self.table))
        at, stop = int(part.place[slot][0]), int(self.writer.bounds(part)[-1])
        rest = file.read(place, place + stop - at)
        data = self.writer.field(part, 0, slot, memoryview(rest))
        if xxhash.xxh3_64_intdigest(data) != int(self.table.checksum[slot][row]):
            return False
        pwrite_all(self.fd, data, at)
        return True

    def as_it_is(self, row: int, slot: int, size: int) -> None:
        """Copies of a damaged field what can be read."""
        at = self.layout.base[slot] + int(self.layout.offset[slot][row])
        offset, base = self.places[0]
        place = int(offset[slot][row]) + base[slot]
        for done in range(0, size, PAGE):
            stop = min(done + PAGE, size)
            data = bytes(stop - done)
            try:
                if self.old is not None:
                    data = self.old.read(place + done, place + stop)
            except (OSError, OverflowError):
                pass
            pwrite_all(self.fd, data, at + done)


# -- what becomes of the copy


def files_of(pack: str) -> Iterator[tuple[str, str]]:
    """Yields what a pack's files are called, and where they are: "" is the pack as one file."""
    if os.path.isdir(pack):
        for name in sorted(os.listdir(pack)):
            yield name, os.path.join(pack, name)
        return
    yield "", pack
    if os.path.isfile(index_path(pack)):
        yield ".index.safetensors", index_path(pack)


def differences(pack: str, copy: str) -> list[BadFile]:
    """Returns which files of a copy are not as they are in the pack."""
    bad: list[BadFile] = []
    theirs = dict(files_of(pack))
    for name, path in files_of(copy):
        place = first_difference(theirs[name], path)
        if place is not None:
            where = f"{os.path.basename(theirs[name])} offset {place}"
            bad.append(BadPlace(where, "bad_record", "not what is written there now"))
    return bad


def first_difference(one: str, other: str) -> int | None:
    """Returns where two files begin to differ; None where they do not."""
    with DataFile(one) as a, DataFile(other) as b:
        sizes = os.fstat(a.fd).st_size, os.fstat(b.fd).st_size
        for start in range(0, min(sizes), WINDOW):
            stop = min(start + WINDOW, *sizes)
            left, right = a.read(start, stop), b.read(start, stop)
            if left != right:
                unlike = np.frombuffer(left, np.uint8) != np.frombuffer(right, np.uint8)
                return start + int(unlike.argmax())
    return None if sizes[0] == sizes[1] else min(sizes)


def is_cut_short(pack: str, copy: str) -> bool:
    """Returns whether the files of a pack hold nothing but the first bytes of their copies, with
    zeros behind them where the disk lost the rest: there is nothing else in them to be lost."""
    copies = dict(files_of(copy))
    return all(starts_like(path, copies[name]) for name, path in files_of(pack) if name in copies)


def starts_like(one: str, other: str) -> bool:
    """Returns whether a file holds nothing but the first bytes of another, and zeros."""
    with DataFile(one) as a, DataFile(other) as b:
        sizes = os.fstat(a.fd).st_size, os.fstat(b.fd).st_size
        ended = False
        for start in range(0, sizes[0], WINDOW):
            left = a.read(start, min(start + WINDOW, sizes[0]))
            kept = left.rstrip(b"\0")
            if ended and kept:
                return False
            right = b.read(min(start, sizes[1]), min(start + len(left), sizes[1]))
            if not right.startswith(kept):
                return False
            ended = left != right
    return True


def check_copy(
    copy: str, format: str, workers: int | None, progress: ProgressCallback | None,
    lost: Sequence[BadFile],
) -> None:  # fmt: skip
    """Verifies a copy.

    Raises:
        FastconvError: More is wrong with it than what could not be mended.
    """
    damage, _ = found_in(copy, format, workers, progress)
    if sorted(file.path for file in damage) != sorted(file.path for file in lost):
        words = damage[0].message if damage else "damaged fields are not noticed"
        raise FastconvError(f"the mended copy is not as it must be, nothing was changed: {words}")


def publish(target: Target, pack: str, copy: str, overwrite: bool) -> None:
    """Lets a copy take its place, readable for whom the pack was."""
    theirs = dict(files_of(pack))
    files: dict[str, str | None] = {}
    for name, path in files_of(copy):
        if os.path.isfile(theirs.get(name, "")):
            os.chmod(path, stat.S_IMODE(os.stat(theirs[name]).st_mode))
        if not os.path.isdir(copy):
            files[name] = path
    if os.path.isdir(copy):
        shutil.copymode(pack, copy)
        files[""] = copy
    else:
        folder = target.path("indexes")
        if os.path.isdir(folder):
            files |= {f"/{name}": os.path.join(folder, name) for name in os.listdir(folder)}
        files[""] = files.pop("")  # the last one
    target.publish(files, overwrite, ABOUT)
