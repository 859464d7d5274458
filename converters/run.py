"""One run of packing, from a listing to a published pack.

The plan gives every sample its place from its size alone. A worker that meets a file which cannot
be a sample reports it and goes on; if there were any, the plan is made again without them, and what
was written is moved into new files. The result is the same as if those files had never been there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fastconv.converters.encoding import Encoding
from fastconv.converters.engines.choice import Engine
from fastconv.converters.engines.inline import InlineEngine
from fastconv.converters.engines.local import Answer, Task
from fastconv.converters.indexes.kinds import index_files, write_files
from fastconv.converters.indexes.pack import IndexedPack
from fastconv.converters.journal import Journal, Plan, has_records
from fastconv.converters.outputs import Output
from fastconv.converters.plan import Cut, cut_parts, new_table, placed, without
from fastconv.converters.report import PackFailedError, PackReport, Progress, ProgressCallback
from fastconv.converters.structure import other_bytes
from fastconv.converters.system import copy_ranges, need_space
from fastconv.converters.target import Target
from fastconv.converters.writer import Layout, Rows, SealedWriter, Writer
from fastconv.loaders.arrays import Array, dump_arrays
from fastconv.loaders.errors import UsageError, printable
from fastconv.loaders.filenames import extension_of
from fastconv.loaders.files import inode_at
from fastconv.loaders.identity import pack_id
from fastconv.loaders.index import META_KEY
from fastconv.loaders.kinds import EXTENSIONS
from fastconv.loaders.listing import Listing
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.raw import common_shape
from fastconv.loaders.reader import Found
from fastconv.loaders.sample import BadFile, Reason
from fastconv.loaders.table import SampleTable

__all__ = [
    "Check",
    "Notice",
    "Origin",
    "Run",
    "Source",
    "described",
    "index_block",
    "kept_note",
    "nothing_found",
    "take_up",
    "taken_from",
    "with_data_files",
]

Check = Literal["fast", "decode"]

Notice = Callable[[str], None]

Source = Callable[[SampleTable, Cut], tuple[dict[str, Any], dict[str, Array]]]
"""Gives what a part's task says of where its fields come from."""

Origin = Callable[[Rows], Source]
"""Gives that for some rows of a source."""


def nothing_found(root: str, bad: Sequence[BadFile]) -> str:
    """Returns the sentence for a source without a single usable sample."""
    if bad:
        first = bad[0]
        return (
            f"no usable image in {printable(root)}: all {len(bad)} are bad, the first is "
            f"{printable(first.path)}: {first.message}"
        )
    known = " ".join(
        f".{name}"
        for name in ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "avif", "ppm")
    )
    more = f"{len(EXTENSIONS) - 10} more extensions"
    return f"no images found in {printable(root)} (looked for: {known} and {more})"


def kept_note(target: Target) -> str:
    """Returns the line about what is left of a run that failed."""
    return (
        f"{printable(target.partial)} keeps what is finished: the same command goes on with it, "
        "--restart begins anew"
    )


def take_up(target: Target, plan: Plan, restart: bool, keep: Sequence[str] = ()) -> None:
    """Lets what an earlier run has finished stay, or notes what this one is about; `keep` are names
    that belong to it already.

    Raises:
        UsageError: The earlier run was about something else.
    """
    path = target.path("plan")
    differences = None if restart else plan.differences(path)
    if differences == []:
        return
    if differences and has_records(target.partial):
        more = f" (and {len(differences) - 3:,} more)" if len(differences) > 3 else ""
        raise UsageError(
            f"{printable(target.partial)}: holds an unfinished run, and not all is as it was: "
            f"{', '.join(differences[:3])}{more}: undo that, or begin anew with --restart (in "
            "Python restart=True)"
        )
    target.start_over(*keep)
    plan.write(path)


class Run:
    """One run of packing, from a listing to a published pack.

    Attributes:
        bad: Files that could not be samples, as far as they are known.
        escaped: (row, bytes) of images that take more than their own bytes.
        about: What was published; empty before.
    """

    target: Target
    plan: Plan
    journal: Journal

    def __init__(
        self, root: str, listing: Listing, output: Output, engine: Engine,
        check: Check, max_pixels: int, progress: ProgressCallback | None, notice: Notice,
        origin: Source | None = None, encoding: Encoding | None = None,
    ) -> None:  # fmt: skip
        self.root = root
        self.encoding = encoding
        self.origin = origin or self.folder_source
        self.listing = listing
        self.output = output
        self.writer: Writer = output.writer
        self.engine = engine
        self.check = check
        self.max_pixels = max_pixels
        self.progress = progress
        self.notice = notice
        self.inode = None if origin else [*(inode_at(root) or ())]
        self.bad = list(listing.bad)
        self.escaped: list[tuple[int, int]] = []
        self.about: dict[str, Any] = {}
        self.hopeless = False

    def begin(self, target: Target, plan: Plan, restart: bool, keep: Sequence[str] = ()) -> None:
        """Takes up what an earlier run has finished, or notes what this one is about; `keep` are
        names that belong to it already.

        Raises:
            UsageError: The earlier run was about something else.
        """
        self.target, self.plan = target, plan
        take_up(target, plan, restart, keep)
        self.journal = Journal(target.partial)

    def give_up(self, target: Target, error: BaseException) -> None:
        """Keeps what is finished, for the same command to go on with, and notes that on the error.

        Where nothing is, or nothing can come of it, or it is soon done again, OUT.partial goes.
        """
        told = isinstance(error, PackFailedError | UsageError)  # these say themselves what is kept
        if hasattr(self, "journal"):
            self.journal.close()
            soon = isinstance(self.engine, InlineEngine) and not told
            keep = self.journal.count > 0 and not self.hopeless and not soon
        else:  # what an earlier run has left was not looked at, or is about something else
            keep = has_records(target.partial)
        if not keep:
            target.discard()
            return
        target.keep()
        if not told:
            error.add_note(kept_note(target))

    def write(self, strict: bool) -> tuple[SampleTable, Layout, PackMeta, str]:
        """Writes all parts; plans again without what turned out to be bad.

        Returns:
            The final table, its layout, the pack's description, and the folder of its data files.

        Raises:
            PackFailedError: Nothing can be packed, or `strict` and something was bad.
        """
        table = new_table(self.listing)
        if self.encoding is None:
            layout, meta, folder = self.lay_out(0, table)
            if 0 not in self.journal.complete:
                self.make_files(0, table, layout, folder)
        else:
            table = replace(table, size=tuple(size.copy() for size in table.size))
            layout, meta, folder = self.lay_out_encoded(table)
        found = self.run_parts(0, table, layout, folder, self.origin)
        table = self.resized(table)
        dropped = self.drop(table, found)
        if dropped.all():
            self.hopeless = True
            raise PackFailedError(nothing_found(self.root, self.bad), self.report(time.monotonic()))
        if strict and self.bad:
            raise PackFailedError(
                f"{len(self.bad)} bad file{'' if len(self.bad) == 1 else 's'}, and --strict allows "
                "none: nothing was published: mend or remove what is bad and run it again with "
                f"--restart; what was written is in {printable(self.target.partial)}",
                self.report(time.monotonic()),
            )
        changed = {row for row, *_ in found} | {row for row, _ in self.escaped}
        if not changed and self.encoding is None:
            return (*self.finished(table, layout, meta), folder)
        # What is moved away from the first pass is not looked at again.
        self.journal.end_pass(0, [os.path.join(folder, shard.name) for shard in layout.shards])
        old, old_folder, rows = placed(table, layout), folder, np.flatnonzero(~dropped)
        table = without(self.retold(table, dropped), dropped)
        new_layout, meta, folder = self.lay_out(1, table)
        gone = int(dropped.argmax()) if dropped.any() else len(old)
        kept = self.keep_shards(layout, old_folder, new_layout, folder, changed, gone)
        self.make_files(1, table, new_layout, folder, kept)
        files = [os.path.join(old_folder, shard.name) for shard in layout.shards]
        moved = taken_from("files", old, files, rows)
        self.run_parts(1, table, new_layout, folder, moved, kept)
        return (*self.finished(table, new_layout, meta), folder)

    def drop(
        self, table: SampleTable, found: Sequence[tuple[int, int, Reason, str]]
    ) -> npt.NDArray[np.bool_]:
        """Notes what cannot be packed; returns which rows go, bool (N,). Of others a sidecar
        goes."""
        dropped = np.zeros(len(table), bool)
        for row, slot, reason, message in sorted(found):
            name = table.names(row)[slot]
            if slot:
                table.size[slot][row], table.checksum[slot][row] = -1, 0
            else:
                dropped[row] = True
            if slot == 0 and reason == "not_an_image" and self.listing.kind[row] == 0:
                # Only a guess, with --any-extension: its name does not say that it is an image.
                self.listing.ignored.extension[extension_of(os.path.basename(name))] += 1
            else:
                self.bad.append(BadFile(name, reason, message))
        return dropped

    def resized(self, table: SampleTable) -> SampleTable:
        """Returns the table with what images take besides their own bytes."""
        if not self.escaped:
            return table
        rows, extra = zip(*self.escaped, strict=True)
        column = np.zeros(len(table), np.uint32)
        column[list(rows)] = extra
        return replace(table, extra=column)

    def lay_out(self, number: int, table: SampleTable) -> tuple[Layout, PackMeta, str]:
        """Plans the places of all rows in a pass, and makes the folder for its files."""
        folder = self.target.path(f"pack{number}")
        meta = described(self.listing, self.writer, table)
        place = folder
        if os.path.isdir(folder):
            # What a library makes must not touch what an earlier run has written.
            place = self.target.path(f"again{number}")
            self.target.remove(place)
        os.mkdir(place)
        layout = self.writer.lay_out(place, self.output.stem, self.output.sharding, meta, table)
        return layout, meta, folder

    def lay_out_encoded(self, table: SampleTable) -> tuple[Layout, PackMeta, str]:
        """Plans the first pass of a run that encodes: what an earlier one has lost of its files is
        not finished."""
        from fastconv.converters.reencoding import part_files

        layout = part_files(table)
        folder = self.target.path("encoded")
        os.makedirs(folder, exist_ok=True)
        known = self.journal.records.get(0, {})
        lost = []
        for part, record in known.items():
            file = os.path.join(folder, layout.shards[part].name)
            size = os.path.getsize(file) if os.path.exists(file) else 0
            if size < record.answer.content["size"]:
                lost.append(part)
        self.journal.forget(0, lost)
        for part in lost:
            del known[part]
        self.anew = np.zeros(len(table), np.bool_)
        return layout, described(self.listing, self.writer, table), folder

    def retold(self, table: SampleTable, dropped: npt.NDArray[np.bool_]) -> SampleTable:
        """Returns the table with paths that fit what images have become, and says how many have
        become something else."""
        if self.encoding is None:
            return table
        from fastconv.converters.reencoding import renamed

        anew = int(np.count_nonzero(self.anew & ~dropped))
        same = int(np.count_nonzero(~dropped)) - anew
        self.listing.notices.append(
            f"encoded anew: {anew:,} of {anew + same:,} images, the others are as they were"
        )
        if self.encoding.encode == "raw" and common_shape(without(table, dropped)) is None:
            self.listing.notices.append(
                "raw pixels of several shapes: they are no single array, and batches need a crop: "
                "--resize WIDTHxHEIGHT --enlarge makes them one"
            )
        return renamed(table, self.anew & ~dropped)

    def make_files(
        self, number: int, table: SampleTable, layout: Layout, folder: str,
        kept: Collection[int] = (),
    ) -> None:  # fmt: skip
        """Makes the data files of a pass, but for those that are kept, with room for everything.

        Those of an earlier run get what a library put between their samples once more; of one that
        is shorter than it was, no part counts as written.
        """
        files = {
            shard: os.path.join(folder, data_file.name)
            for shard, data_file in enumerate(layout.shards)
            if shard not in kept
        }
        need = sum(layout.shards[shard].size for shard in files)
        for file in files.values():
            if os.path.exists(file):
                need -= os.stat(file).st_blocks * 512
        need_space(folder, need)
        known = self.journal.records.get(number, {})
        cuts = self.cuts(table, layout, kept)
        for shard, file in files.items():
            size = layout.shards[shard].size
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if os.fstat(fd).st_size < size:
                    lost = [part for part in known if cuts[part].shard == shard]
                    self.journal.forget(number, lost)
                    for part in lost:
                        del known[part]
                os.truncate(fd, size)
                made = self.target.path(f"again{number}", layout.shards[shard].name)
                if os.path.exists(made):
                    copy_ranges(made, fd, other_bytes(placed(table, layout), size))
            finally:
                os.close(fd)

    def cuts(self, table: SampleTable, layout: Layout, kept: Collection[int]) -> list[Cut]:
        """Returns the parts of all shards that are not kept."""
        return [cut for cut in cut_parts(table, layout) if cut.shard not in kept]

    def run_parts(
        self, number: int, table: SampleTable, layout: Layout, folder: str | None,
        source: Source, kept: Collection[int] = (),
    ) -> list[tuple[int, int, Reason, str]]:  # fmt: skip
        """Writes the parts of all shards that are not kept, as far as no earlier run has; fills
        the table with what is found out.

        Without a folder nothing is written: all is read, and that is all.

        Args:
            number: Of the pass.
            table: Its rows.
            layout: Their places.
            folder: Of its data files.
            source: Where the bytes come from.
            kept: Shards that are there already.

        Returns:
            (row, slot, reason, message) of each field that cannot be packed.
        """
        cuts = self.cuts(table, layout, kept)
        files = (
            []
            if folder is None
            else [os.path.join(folder, layout.shards[cut.shard].name) for cut in cuts]
        )
        bad: list[tuple[int, int, Reason, str]] = []
        weight = sum((np.maximum(size, 0) for size in table.size), np.zeros(len(table), np.int64))
        done, total = [0, 0], [len(table), int(np.sum(weight))]

        def take(answer: Answer) -> None:
            _, start, stop = cuts[answer.number]
            for name in ("kind", "width", "height"):
                if name in answer.arrays:
                    getattr(table, name)[start:stop] = answer.arrays[name]
            for name, column in zip(table.fields, table.checksum, strict=True):
                if f"checksum/{name}" in answer.arrays:
                    column[start:stop] = answer.arrays[f"checksum/{name}"]
            if "anew" in answer.arrays:  # sizes and places are known now, too
                self.anew[start:stop] = answer.arrays["anew"]
                for slot, name in enumerate(table.fields):
                    table.size[slot][start:stop] = answer.arrays[f"size/{name}"]
                    layout.offset[slot][start:stop] = answer.arrays[f"place/{name}"]
            bad.extend(
                (start + row, slot, reason, message)
                for row, slot, reason, message in answer.content["bad"]
            )
            self.escaped.extend(
                (start + row, extra) for row, extra in answer.content.get("resized", ())
            )
            done[0] += stop - start
            done[1] += int(np.sum(weight[start:stop]))
            if self.progress is not None:
                self.progress(Progress(done[0], total[0], done[1], total[1]))

        known = self.known_parts(number, files) if files else {}
        if known and number == 0:
            self.notice(
                f"going on with an unfinished run: {len(known):,} of {len(cuts):,} parts are done"
            )
        for answer in known.values():
            take(answer)
        for answer in self.engine.run(self.tasks(cuts, table, layout, folder, source, known)):
            if files:
                self.journal.add(number, answer, files[answer.number])
            take(answer)
        return bad

    def known_parts(self, number: int, files: Sequence[str]) -> dict[int, Answer]:
        """Returns what an earlier run found out in the parts of a pass that it has finished.

        Those whose bytes may not have reached the disk are read again; those with bad files are
        done again, as long as no second pass is built on them: the files may be good now.

        Args:
            number: Of the pass.
            files: The file of each part.
        """
        records = {
            part: record
            for part, record in self.journal.records.pop(number, {}).items()
            if number in self.journal.complete or not record.answer.content["bad"]
        }
        doubtful = [
            Task(
                part,
                {"run": "check", "out": files[part]}
                | {name: record.answer.content[name] for name in ("written", "digest")},
                {},
                partial(printable, files[part]),
            )
            for part, record in records.items()
            if not record.sure
        ]
        lost = []
        for answer in self.engine.run(doubtful):
            if answer.content["same"]:
                self.journal.keep(files[answer.number])
            else:
                lost.append(answer.number)
                del records[answer.number]
        self.journal.forget(number, lost)
        return {part: record.answer for part, record in records.items()}

    def tasks(
        self, cuts: Sequence[Cut], table: SampleTable, layout: Layout, folder: str | None,
        source: Source, known: Container[int],
    ) -> Iterator[Task]:  # fmt: skip
        """Yields a task for each part that is not known."""
        encoding = self.encoding if source is self.origin and folder is not None else None
        framed = folder is not None and type(self.writer).frame is not Writer.frame
        if encoding is not None:
            framed = False
        for number, cut in enumerate(cuts):
            if number in known:
                continue
            shard, start, stop = cut
            content = {
                "run": "pack" if encoding is None else "encode",
                "out": None if folder is None else os.path.join(folder, layout.shards[shard].name),
                "writer": self.writer.name if framed or encoding else None,
                "encoding": encoding.to_json() if encoding else None,
                "options": self.writer.settings(),
                "check": self.check,
                "max_pixels": self.max_pixels,
                "first_row": start,
                "fields": table.fields,
                "samples": len(table),
            }
            arrays: dict[str, Array] = {
                "label": table.label[start:stop],
                "kind": table.kind[start:stop],
                "width": table.width[start:stop],
                "height": table.height[start:stop],
            }
            if framed and isinstance(self.writer, SealedWriter):
                arrays["extra"] = table.extra_bytes(slice(start, stop))
            for name, size, offset, base in zip(
                table.fields, table.size, layout.offset, layout.base, strict=True
            ):
                arrays[f"size/{name}"] = size[start:stop]
                arrays[f"place/{name}"] = offset[start:stop].astype(np.int64) + base
            own = self.writer.part(layout, start, stop) if framed else {}
            arrays |= {f"own/{name}": array for name, array in own.items()}
            more, columns = source(table, cut)

            def about(start: int = start, stop: int = stop) -> str:
                names = [printable(table.path(row)) for row in (start, stop - 1)]
                return f"the files {names[0]} to {names[1]} ({stop - start} samples)"

            yield Task(number, content | more, arrays | columns, about)

    def folder_source(
        self, table: SampleTable, cut: Cut
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Returns what a task says of the files that its rows come from."""
        start, stop = cut.start, cut.stop
        first, last = int(table.path_offset[start]), int(table.path_offset[stop])
        arrays: dict[str, Array] = {
            "path": table.path_bytes[first:last],
            "path_offset": table.path_offset[start : stop + 1] - np.uint64(first),
        }
        for name, (data, ends) in self.listing.generated.items():
            first, last = int(ends[start]), int(ends[stop])
            arrays[f"generated/{name}"] = data[first:last]
            arrays[f"generated_end/{name}"] = (ends[start : stop + 1] - np.uint64(first)).astype(
                np.int64
            )
        where = {"root": os.path.abspath(self.root), "inode": self.inode}
        return {"source": "folder", **where}, arrays

    def keep_shards(
        self,
        layout: Layout,
        old_folder: str,
        new: Layout,
        folder: str,
        changed: Collection[int],
        first_gone: int,
    ) -> frozenset[int]:
        """Takes over the shards that are the same in both layouts.

        Args:
            layout, old_folder: Those of the first pass.
            new, folder: Those of the second one.
            changed: Rows of the first pass that are not as they were.
            first_gone: The first row that has gone; the ones behind it have other keys now.

        Returns:
            Their numbers in the new layout.
        """
        old_rows, new_rows = layout.shard_row, new.shard_row
        same_keys = len(str(int(old_rows[-1]) - 1)) == len(str(int(new_rows[-1]) - 1))
        cut = type(self.writer).sharded and self.output.stem is not None
        if not same_keys or not cut or self.encoding is not None:
            return frozenset()
        numbers = {rows: number for number, rows in enumerate(pairwise(old_rows.tolist()))}
        rows_changed = np.sort(np.fromiter(changed, np.int64, len(changed)))
        kept = set()
        for shard, (start, stop) in enumerate(pairwise(new_rows.tolist())):
            first, last = np.searchsorted(rows_changed, (start, stop))
            if stop > first_gone or first != last or (start, stop) not in numbers:
                continue
            old_path = os.path.join(old_folder, layout.shards[numbers[start, stop]].name)
            if os.path.exists(old_path):  # else an earlier run has moved it
                os.rename(old_path, os.path.join(folder, new.shards[shard].name))
            kept.add(shard)
        return frozenset(kept)

    def finished(
        self, table: SampleTable, layout: Layout, meta: PackMeta
    ) -> tuple[SampleTable, Layout, PackMeta]:
        """Returns the final table, its layout and the description with the pack's id."""
        table = placed(table, layout)
        meta = with_data_files(meta, self.writer, layout, self.output.stem)
        return table, layout, meta.with_id(pack_id(meta, table))

    def publish(self, folder: str, meta: PackMeta, table: SampleTable, overwrite: bool) -> None:
        """Writes the table where it lies beside the data, and publishes both; of an older report of
        bad files nothing stays."""
        index = os.path.join(folder, "index.safetensors")
        if not self.writer.table_inside:
            with open(index, "wb") as file:
                for block in index_block(table, meta):
                    file.write(block)
        if self.output.is_file:
            final = os.path.join(folder, self.writer.finished("data"))
            made = [final] if self.writer.table_inside else [final, index]
        else:
            final, made = folder, [entry.path for entry in os.scandir(folder)]
        indexes = self.write_indexes(folder, meta, table)
        about = {
            "plan": self.plan.digest,
            "id": meta.id,
            "samples": len(table),
            "bytes": table.bytes,
            "size": sum(map(os.path.getsize, made)),
            "bad": [bad.to_json() for bad in self.bad],
        }
        report = self.target.path("bad.jsonl")
        if self.bad:
            with open(report, "w", encoding="ascii") as text:
                text.writelines(json.dumps(bad.to_json()) + "\n" for bad in self.bad)
        files: dict[str, str | None] = {".bad.jsonl": report if self.bad else None}
        if self.output.is_file and not self.writer.table_inside:
            files[".index.safetensors"] = index
        if self.output.is_file:
            files |= dict.fromkeys((f"/{name}" for name in self.output.stale), None)
            files |= {f"/{name}": path for name, path in indexes.items()}
        files[""] = final
        self.journal.close()
        self.engine.close()  # so that an interrupt that comes later finds nothing left to stop
        self.target.publish(files, overwrite, about)
        for line in self.output.notes:
            self.notice(line)
        self.about = about

    def write_indexes(self, folder: str, meta: PackMeta, table: SampleTable) -> dict[str, str]:
        """Writes the index files that the pack is to have; returns by their names where they
        are."""
        output = self.output
        names = tuple(shard.name for shard in meta.shards)
        if output.is_file:
            folder, names = self.target.path("indexes"), (os.path.basename(output.out),)
            self.target.remove(folder)
        pack = IndexedPack(self.writer, meta, table, folder, names, output.is_file)
        files = index_files(pack, output.tools)
        write_files(folder, files)
        return {name: os.path.join(folder, name) for name in files}

    def report(self, began: float) -> PackReport:
        """Returns what was done."""
        listing, about = self.listing, self.about
        return PackReport(
            output=self.output.out,
            format=self.writer.name,
            id=about.get("id", ""),
            samples=about.get("samples", 0),
            classes=listing.classes,
            fields=listing.fields,
            bytes=about.get("bytes", 0),
            size=about.get("size", 0),
            bad=[BadFile(**bad) for bad in about["bad"]] if about else self.bad,
            ignored=listing.ignored,
            warnings=listing.warnings,
            notices=listing.notices,
            seconds=time.monotonic() - began,
        )


def described(listing: Listing, writer: Writer, table: SampleTable) -> PackMeta:
    """Returns what a pack of these rows of a listing says of itself, before its id is known."""
    return PackMeta(
        format=writer.name,
        samples=len(table),
        fields=table.fields,
        generated=tuple(sorted(listing.generated)),
        labels=listing.labels,
        classes=listing.classes,
        settings=writer.settings(),
        encoding=listing.encoding,
    )


def with_data_files(meta: PackMeta, writer: Writer, layout: Layout, stem: str | None) -> PackMeta:
    """Returns the description with the data files, where the table lies beside them and must know
    them.

    Args:
        stem: What shards are called after; None: the pack is a single file, which may be called
            anything.
    """
    if writer.table_inside:
        return meta
    return meta.with_shards(
        layout.shards if stem else tuple(replace(shard, name="") for shard in layout.shards)
    )


def index_block(table: SampleTable, meta: PackMeta) -> list[memoryview]:
    """Returns the bytes of a table that lies beside its data, in pieces."""
    return dump_arrays(table.arrays(), {META_KEY: meta.to_json()})


def taken_from(
    kind: Literal["files", "pack"],
    old: SampleTable,
    files: Sequence[str],
    rows: Rows,
    found: Sequence[Found] = (),
) -> Source:
    """Returns what says where in data files the bytes of a part are.

    Args:
        kind: "files" that were just written are not looked at again, those of a "pack" are.
        old: The table of the data files.
        files: Their paths.
        rows: Which of its rows the new ones are.
        found: The files of a pack, as they were when it was opened.
    """

    def source(table: SampleTable, cut: Cut) -> tuple[dict[str, Any], dict[str, Array]]:
        mine = rows[cut.start : cut.stop]
        shards = np.searchsorted(old.shard_row, mine, side="right") - 1
        needed, number = np.unique(shards, return_inverse=True)
        arrays: dict[str, Array] = {"from": number.astype(np.int64)}
        for name, offset, base in zip(old.fields, old.offset, old.base, strict=True):
            arrays[f"from/{name}"] = offset[mine].astype(np.int64) + base
        if kind == "pack":
            for name, checksum in zip(old.fields, old.checksum, strict=False):
                arrays[f"known/{name}"] = checksum[mine]
        about: dict[str, Any] = {"files": [files[shard] for shard in needed.tolist()]}
        if kind == "pack":
            about["found"] = [found[shard] for shard in needed.tolist()]
        return {"source": kind, **about}, arrays

    return source
