"""Packs a folder of images: scan, plan, write the parts in parallel, publish.

The plan gives every sample its place from its size alone. A worker that meets a file which cannot
be a sample reports it and goes on; if there were any, the plan is made again without them, and what
was written is moved into new files. The result is the same as if those files had never been there.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fastconv.converters.check import MAX_PIXELS
from fastconv.converters.engines.choice import Engine, engine_for
from fastconv.converters.engines.local import Task
from fastconv.converters.outputs import Output, choose_output
from fastconv.converters.plan import Cut, cut_parts, new_table, pack_id, placed, without
from fastconv.converters.report import PackFailedError, PackReport, Progress, ProgressCallback
from fastconv.converters.sources.folder import scan
from fastconv.converters.system import held_signals
from fastconv.converters.target import Target
from fastconv.converters.writer import Layout, Sharding, Writer
from fastconv.loaders.arrays import Array, dump_arrays
from fastconv.loaders.classes import ClassOrder
from fastconv.loaders.errors import FastconvError, UsageError, printable
from fastconv.loaders.filenames import extension_of
from fastconv.loaders.index import META_KEY
from fastconv.loaders.kinds import EXTENSIONS
from fastconv.loaders.listing import Listing
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.sample import BadFile, Reason
from fastconv.loaders.table import SampleTable

__all__ = ["Check", "pack"]

Check = Literal["fast", "decode"]

Notice = Callable[[str], None]

Source = Callable[[SampleTable, Cut], tuple[dict[str, Any], dict[str, Array]]]
"""Gives what a part's task says of where its fields come from."""


def pack(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    sharding: Sharding | None = None,
    workers: int | None = None,
    check: Check = "fast",
    max_pixels: int = MAX_PIXELS,
    strict: bool = False,
    overwrite: bool = False,
    labels: bool | str | os.PathLike[str] = True,
    classes: Sequence[str] | None = None,
    class_order: ClassOrder = "sorted",
    sidecars: Sequence[str] = (),
    any_extension: bool = False,
    progress: ProgressCallback | None = None,
    notice: Notice | None = None,
) -> PackReport:
    """Packs a folder of images and returns what was done.

    Works in a script without `if __name__ == "__main__"`: workers are processes of their own.

    Args:
        source: A folder, as torchvision's ImageFolder reads it.
        out: The pack to make; its ending tells the format.
        format: Name of the format, where the ending does not tell it: a folder of shards.
        options: The format's own settings.
        sharding: How to cut a folder of shards (default: 256 MB each).
        workers: Number of processes; by default one a core, or none where the work is done sooner
            in this process.
        check: "fast" looks at each image's signature and header, "decode" decodes all its pixels.
        max_pixels: Larger images are bad, when they are decoded.
        strict: A single bad file makes it fail, and nothing is published.
        overwrite: Replaces a pack at `out`, in one step, when the new one is whole.
        labels: False for none; a path of a CSV or JSON Lines file with `file_name` and `label`.
        classes: Names of the classes, whose ids are their positions; an unknown class is an error.
        class_order: "sorted" as torchvision sorts them, "natural" compares digits as numbers.
        sidecars: Suffixes of files beside the images that become fields, such as "txt".
        any_extension: Files of any name are looked at.
        progress: Called now and then, in this thread.
        notice: Called with each line that a user should see at once.

    Raises:
        UsageError: An argument is wrong; nothing was done.
        PackFailedError: Nothing usable was found, or `strict` and something was bad.
        FastconvError: Something failed; nothing is left at `out` that was not there before.
    """
    began = time.monotonic()
    root, final = source_folder(source), os.fsdecode(out)
    notice = notice or (lambda line: None)
    check_arguments(workers, check)
    if os.path.realpath(root) == os.path.realpath(final):
        raise UsageError(f"{printable(final)}: is the folder that is packed: name another OUT")
    output = choose_output(final, format, options, sharding, overwrite)
    output.refuse_inside(root)
    listing = scan(
        root, labels=labels, classes=classes, class_order=class_order, sidecars=sidecars,
        any_extension=any_extension,
    )  # fmt: skip
    with engine_for(workers, len(listing), listing.bytes, check == "decode") as engine:
        run = Run(root, listing, output, engine, check, max_pixels, progress)
        if not len(listing):
            raise PackFailedError(nothing_found(root, listing.bad), run.report(began))
        with translated_errors(final):
            target = Target(output.out, notice)
            engine.lock = target.path("workers")
            keep = False
            try:
                table, layout, meta, folder = run.write(target)
                if strict and run.bad:
                    keep = True
                    raise PackFailedError(
                        f"{len(run.bad)} bad files, and --strict allows none: nothing was "
                        "published, "
                        f"what was written is in {printable(target.partial)}",
                        run.report(began),
                    )
                output.writer.finish(folder, layout, meta, table)
                run.publish(target, folder, meta, table, overwrite)
            except BaseException:
                with held_signals():  # a second Ctrl-C does not stop the clean-up half-way
                    engine.close()
                    (target.keep if keep else target.discard)()
                raise
        return run.report(began, meta, table)


def source_folder(source: str | os.PathLike[str]) -> str:
    """Returns the path of the folder to be packed.

    Raises:
        UsageError: It is none.
    """
    root = os.fsdecode(source)
    if not os.path.isdir(root):
        what = "is not a folder of images" if os.path.exists(root) else "no such folder"
        raise UsageError(f"{printable(root)}: {what}")
    return root


def check_arguments(workers: int | None, check: Check) -> None:
    """Checks how many workers are asked for, and what they are to look at.

    Raises:
        UsageError: There are none, or there is no such check.
    """
    if check not in get_args(Check):
        raise UsageError(f"check is 'fast' or 'decode', not {check!r}")
    if workers is not None and workers < 1:
        raise UsageError(f"at least one worker is needed, not {workers}")


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


class translated_errors:
    """Turns errors of the system into one line that names the place."""

    def __init__(self, out: str) -> None:
        self.out = out

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if not isinstance(error, OSError) or isinstance(error, FastconvError):
            return
        place = (
            printable(os.fsdecode(error.filename))
            if isinstance(error.filename, str | bytes)
            else printable(self.out)
        )
        words = {
            errno.ENOSPC: "no space left on the device: free some, or choose another place",
            errno.EDQUOT: "no space left in your quota: free some, or choose another place",
            errno.EFBIG: "no space left for a file this large, by the file system or ulimit -f",
            errno.EROFS: "the file system is read-only: choose another place",
            errno.EACCES: "no permission to write there",
            errno.EMFILE: "too many open files: raise the limit (ulimit -n) or use fewer workers",
        }
        message = words.get(
            error.errno or 0, f"{os.strerror(error.errno) if error.errno else error}"
        )
        raise FastconvError(f"{place}: {message}; nothing was made") from error


class Run:
    """One run of packing, from a listing to a published pack."""

    def __init__(
        self, root: str, listing: Listing, output: Output, engine: Engine,
        check: Check, max_pixels: int, progress: ProgressCallback | None,
    ) -> None:  # fmt: skip
        self.root = root
        self.listing = listing
        self.output = output
        self.writer: Writer = output.writer
        self.engine = engine
        self.check = check
        self.max_pixels = max_pixels
        self.progress = progress
        self.bad = list(listing.bad)
        self.layouts = 0
        self.size = 0

    def write(self, target: Target) -> tuple[SampleTable, Layout, PackMeta, str]:
        """Writes all parts; plans again without what turned out to be bad.

        Returns:
            The final table, its layout, the pack's description, and the folder of its data files.
        """
        table = new_table(self.listing)
        layout, meta, folder = self.lay_out(target, table)
        found = self.run_parts(table, layout, folder, self.folder_source)
        if not found:
            return (*self.finished(table, layout, meta), folder)
        dropped = self.drop(table, found)
        if dropped.all():
            raise PackFailedError(nothing_found(self.root, self.bad), self.report(time.monotonic()))
        old, old_folder, rows = placed(table, layout), folder, np.flatnonzero(~dropped)
        first_change = min(row for row, *_ in found)
        table = without(table, dropped)
        new_layout, meta, folder = self.lay_out(target, table)
        kept = self.keep_shards(old, layout, old_folder, new_layout, folder, first_change)
        self.run_parts(
            table, new_layout, folder, moved_from(old, layout, old_folder, rows), skip=kept
        )
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

    def lay_out(self, target: Target, table: SampleTable) -> tuple[Layout, PackMeta, str]:
        """Plans the places of all rows, and makes the files that they are in."""
        folder = target.path(f"pack{self.layouts or ''}")
        os.mkdir(folder)
        self.layouts += 1
        meta = described(self.listing, self.writer, table)
        layout = self.writer.lay_out(folder, self.output.stem, self.output.sharding, meta, table)
        space = os.statvfs(folder)
        need = sum(shard.size for shard in layout.shards)
        if space.f_bavail * space.f_frsize < need:
            raise OSError(errno.ENOSPC, f"{need} bytes are needed", folder)
        for shard in layout.shards:
            fd = os.open(
                os.path.join(folder, shard.name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666
            )
            try:
                os.truncate(fd, shard.size)
            finally:
                os.close(fd)
        return layout, meta, folder

    def run_parts(
        self, table: SampleTable, layout: Layout, folder: str | None,
        source: Source, skip: int = 0,
    ) -> list[tuple[int, int, Reason, str]]:  # fmt: skip
        """Writes the parts of all shards but the first `skip`; fills the table with what is found
        out.

        Without a folder nothing is written: all is read, and that is all.

        Returns:
            (row, slot, reason, message) of each field that cannot be packed.
        """
        cuts = [cut for cut in cut_parts(table, layout) if cut.shard >= skip]
        bad: list[tuple[int, int, Reason, str]] = []
        weight = sum((np.maximum(size, 0) for size in table.size), np.zeros(len(table), np.int64))
        done, total = [0, 0], [len(table), int(np.sum(weight))]
        for answer in self.engine.run(self.tasks(cuts, table, layout, folder, source)):
            _, start, stop = cuts[answer.number]
            for name in ("kind", "width", "height"):
                if name in answer.arrays:
                    getattr(table, name)[start:stop] = answer.arrays[name]
            for name, column in zip(table.fields, table.checksum, strict=True):
                if f"checksum/{name}" in answer.arrays:
                    column[start:stop] = answer.arrays[f"checksum/{name}"]
            bad += [
                (start + row, slot, reason, message)
                for row, slot, reason, message in answer.content["bad"]
            ]
            done[0] += stop - start
            done[1] += int(np.sum(weight[start:stop]))
            if self.progress is not None:
                self.progress(Progress(done[0], total[0], done[1], total[1]))
        return bad

    def tasks(
        self, cuts: Sequence[Cut], table: SampleTable, layout: Layout, folder: str | None,
        source: Source,
    ) -> Iterator[Task]:  # fmt: skip
        """Yields a task for each part."""
        framed = folder is not None and type(self.writer).frame is not Writer.frame
        for number, cut in enumerate(cuts):
            shard, start, stop = cut
            content = {
                "run": "pack",
                "out": None if folder is None else os.path.join(folder, layout.shards[shard].name),
                "writer": self.writer.name if framed else None,
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
            }
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
        return {"source": "folder", "root": os.path.abspath(self.root)}, arrays

    def keep_shards(
        self,
        old: SampleTable,
        layout: Layout,
        old_folder: str,
        new: Layout,
        folder: str,
        first_change: int,
    ) -> int:
        """Takes over the shards before the first change that are the same in both layouts.

        Returns:
            How many: the first ones.
        """
        same_keys = len(str(len(old) - 1)) == len(str(int(new.shard_row[-1]) - 1))
        kept = 0
        if same_keys and type(self.writer).sharded and self.output.stem is not None:
            bounds = zip(layout.shard_row[1:].tolist(), new.shard_row[1:].tolist(), strict=False)
            for shard, (old_stop, new_stop) in enumerate(bounds):
                if old_stop != new_stop or old_stop > first_change:
                    break
                name = new.shards[shard].name
                os.rename(
                    os.path.join(old_folder, layout.shards[shard].name), os.path.join(folder, name)
                )
                kept += 1
        return kept

    def finished(
        self, table: SampleTable, layout: Layout, meta: PackMeta
    ) -> tuple[SampleTable, Layout, PackMeta]:
        """Returns the final table, its layout and the description with the pack's id."""
        table = placed(table, layout)
        meta = with_data_files(meta, self.writer, layout, self.output.stem)
        return table, layout, meta.with_id(pack_id(meta, table))

    def publish(
        self, target: Target, folder: str, meta: PackMeta, table: SampleTable, overwrite: bool
    ) -> None:
        """Writes the table where it lies beside the data, and publishes both; of an older report of
        bad files nothing stays."""
        index = os.path.join(folder, "index.safetensors")
        if not self.writer.table_inside:
            with open(index, "wb") as file:
                for block in index_block(table, meta):
                    file.write(block)
        self.size = sum(entry.stat().st_size for entry in os.scandir(folder))
        report = target.path("bad.jsonl")
        if self.bad:
            lines = "".join(json.dumps(bad.to_json()) + "\n" for bad in self.bad)
            with open(report, "w", encoding="ascii") as text:
                text.write(lines)
        files: dict[str, str | None] = {".bad.jsonl": report if self.bad else None}
        if self.output.is_file and not self.writer.table_inside:
            files[".index.safetensors"] = index
        files[""] = os.path.join(folder, "data") if self.output.is_file else folder
        self.engine.close()  # so that an interrupt that comes later finds nothing left to stop
        target.publish(files, overwrite)

    def report(
        self, began: float, meta: PackMeta | None = None, table: SampleTable | None = None
    ) -> PackReport:
        """Returns what was done."""
        listing = self.listing
        made = meta is not None and table is not None
        return PackReport(
            output=self.output.out,
            format=self.writer.name,
            id=meta.id if meta else "",
            samples=len(table) if table is not None else 0,
            classes=listing.classes,
            fields=listing.fields,
            bytes=table.bytes if table is not None else 0,
            size=self.size if made else 0,
            bad=self.bad,
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


def moved_from(
    old: SampleTable, layout: Layout, folder: str, rows: npt.NDArray[np.int64]
) -> Source:
    """Returns the source of a second pass: the data files of the first.

    Args:
        old: The table of the first pass, with its places.
        layout: Its layout.
        folder: Where its data files are.
        rows: Which of its rows the new ones are.
    """
    files = [os.path.join(folder, shard.name) for shard in layout.shards]

    def source(table: SampleTable, cut: Cut) -> tuple[dict[str, Any], dict[str, Array]]:
        mine = rows[cut.start : cut.stop]
        shards = np.searchsorted(layout.shard_row, mine, side="right") - 1
        needed, number = np.unique(shards, return_inverse=True)
        arrays: dict[str, Array] = {"from": number.astype(np.int64)}
        for name, offset, base in zip(old.fields, old.offset, old.base, strict=True):
            arrays[f"from/{name}"] = offset[mine].astype(np.int64) + base
        return {"source": "files", "files": [files[shard] for shard in needed.tolist()]}, arrays

    return source
