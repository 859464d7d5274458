"""Unpacks a pack: every packed file comes back under its path, byte for byte.

All is written into a folder of its own first and moved to its place in the end, so a run that fails
or is interrupted leaves nothing. Files are not forced to the disk one by one: the pack is still
there.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import numpy as np
import xxhash

from fastconv.converters.below import FolderWriter, RefusedError, move_tree
from fastconv.converters.packing import translated_errors
from fastconv.converters.report import Progress, ProgressCallback
from fastconv.converters.system import held_signals, rename_new
from fastconv.converters.target import Target
from fastconv.converters.whole import open_whole
from fastconv.loaders.errors import (
    CorruptPackError,
    FastconvError,
    SampleError,
    UsageError,
    printable,
)
from fastconv.loaders.reader import Reader, Wanted
from fastconv.loaders.sample import BadFile, Reason

__all__ = ["LABELS_FILE", "UnpackFailedError", "UnpackReport", "unpack"]

BATCH = 64
"""Rows read at once: the disk is told of all of them before the first is waited for."""

BLOCK = 4096
"""Rows whose labels are compared with their folders at once."""
LABELS_FILE = "metadata.jsonl"
"""What labels and other columns are written to, as Hugging Face `datasets` calls it."""

INSIDE = ".fastconv-unpack"
"""What a folder that is there already holds while it is unpacked into (with `.partial` behind)."""

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackReport:
    """What unpacking did.

    Attributes:
        output: The folder.
        pack: The pack's path.
        format: Name of its format.
        samples: How many have their image in the folder now.
        files: How many files were written, sidecars among them.
        bytes: Of all these files together.
        classes: Names of the classes.
        bad: Records and files that were not written.
        warnings: What is probably not as it was meant.
        notices: What to know besides.
        seconds: The run took.
    """

    output: str
    pack: str
    format: str
    samples: int = 0
    files: int = 0
    bytes: int = 0
    classes: tuple[str, ...] = ()
    bad: list[BadFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def status(self) -> Literal["done", "partial", "failed"]:
        """Whether all, some or none of the files were written."""
        if self.bad and not self.files:
            return "failed"
        return "partial" if self.bad else "done"

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `--json` prints."""
        return {
            "status": self.status,
            "output": self.output,
            "pack": self.pack,
            "format": self.format,
            "samples": self.samples,
            "files": self.files,
            "bytes": self.bytes,
            "classes": list(self.classes),
            "bad": [bad.to_json() for bad in self.bad],
            "warnings": self.warnings,
            "notices": self.notices,
            "seconds": round(self.seconds, 3),
        }


class UnpackFailedError(FastconvError):
    """Nothing was written, because all of it is bad; `report` has the details."""

    def __init__(self, message: str, report: UnpackReport | None = None) -> None:
        super().__init__(message)
        self.report = report


def unpack(
    pack: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    format: str | None = None,
    image_key: str | None = None,
    label_key: str | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    notice: Notice | None = None,
) -> UnpackReport:
    """Writes every packed file under its path below a folder, and returns what was done.

    A file whose path would lead out of the folder is not written, nor one whose bytes are not those
    that were packed. Labels that are not those of the folders, and the columns of a file of labels,
    are written to `metadata.jsonl`, from which `pack --labels` takes them again.

    Args:
        pack: A pack of any format.
        folder: Is made, or is empty.
        format: Name of the pack's format; by default its contents tell it.
        image_key, label_key: Of packs of others: what images and labels are called, see `convert`.
        overwrite: The folder may have something in it: files of the same paths are replaced, others
            stay.
        progress: Called now and then, in this thread.
        notice: Called with each line that a user should see at once.

    Raises:
        UsageError: There is something in the folder already, or it cannot be made there.
        UnpackFailedError: All of the pack's files are bad; nothing was made.
        FastconvError: Something failed; nothing was made.
    """
    began = time.monotonic()
    out = os.fsdecode(folder).rstrip("/") or "/"
    exists = check_folder(os.fsdecode(pack), out, overwrite)
    reader = open_whole(pack, format, Wanted((), image_key, label_key))
    if reader.root:
        raise UsageError(f"{printable(reader.path)}: a folder of files already, not a pack")
    if not len(reader) and not reader.bad:
        raise UnpackFailedError(f"{printable(reader.path)}: holds no samples (0 records)")
    with translated_errors(out), ExitStack() as stack:
        target = Target(os.path.join(out, INSIDE) if exists else out, notice or (lambda line: None))
        stack.callback(target.discard)
        target.start_over()
        files = target.path("files")
        os.mkdir(files)
        run = Unpacking(reader, FolderWriter(files, out if exists else None), progress)
        stack.callback(run.writer.close)
        run.write_all()
        report = UnpackReport(
            output=out,
            pack=reader.path,
            format=reader.meta.format,
            samples=run.samples,
            files=run.files,
            bytes=run.bytes,
            classes=reader.meta.classes,
            bad=run.bad,
            notices=list(reader.notices),
            seconds=time.monotonic() - began,
        )
        if report.status == "failed":
            first = run.bad[0]
            raise UnpackFailedError(
                f"{printable(reader.path)}: nothing was unpacked: all is bad, the first is "
                f"{printable(first.path)}: {first.reason}: {first.message}",
                report,
            )
        with held_signals():  # where files are moved one by one, all of them are
            publish(files, out, exists)
        return report


def publish(files: str, out: str, exists: bool) -> None:
    """Moves what was unpacked to its place.

    Raises:
        UsageError: The folder was made meanwhile.
        FastconvError: Some of the files could not be moved.
    """
    if not exists:
        try:
            rename_new(files, out)
        except FileExistsError as error:
            raise UsageError(f"{printable(out)}: somebody else has just made it") from error
        return
    try:
        move_tree(files, out)
    except OSError as error:
        raise FastconvError(
            f"{printable(out)}: some files are there now and others could not be moved "
            f"({error.strerror}): unpack again with --overwrite"
        ) from error


def check_folder(pack: str, out: str, overwrite: bool) -> bool:
    """Returns whether the folder is there already, and may be written to.

    Raises:
        UsageError: It may not, or cannot be made there.
    """
    parent = os.path.dirname(out) or "."
    if not os.path.isdir(parent):
        raise UsageError(f"{printable(parent)}: no such folder: make it first")
    if os.path.isdir(pack):
        inside = os.path.join(os.path.realpath(pack), "")
        if os.path.join(os.path.realpath(out), "").startswith(inside):
            raise UsageError(f"{printable(out)}: lies inside the pack: choose a place outside")
    if not os.path.lexists(out):
        return False
    if not os.path.isdir(out):
        raise UsageError(f"{printable(out)}: exists and is not a folder: choose another place")
    try:
        found = set(os.listdir(out)) - {f"{INSIDE}.partial"}
    except OSError as error:
        raise UsageError(f"{printable(out)}: cannot be read: {error.strerror}") from error
    if found and not overwrite:
        raise UsageError(f"{printable(out)}: is not empty: choose another folder or --overwrite")
    return True


def labels_are_folders(reader: Reader) -> bool:
    """Returns whether the label of each sample is the class of the folder that its path begins
    with, so that packing the files again gives it."""
    table, meta = reader.table, reader.meta
    if meta.labels != "class":
        return meta.labels == "none"
    classes = (*meta.classes, "")  # the last one is for -1, no label
    for start in range(0, len(table), BLOCK):
        labels = table.label[start : start + BLOCK].tolist()
        paths = table.paths(start, start + len(labels))
        for label, path in zip(labels, paths, strict=True):
            folder = path.partition("/")[0] if "/" in path else ""
            if not -1 <= label < len(meta.classes) or classes[label] != folder:
                return False
    return True


class Unpacking:
    """One run, from a pack to the files in a folder."""

    def __init__(
        self, reader: Reader, writer: FolderWriter, progress: ProgressCallback | None
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.progress = progress
        self.bad = list(reader.bad)
        self.samples = self.files = self.bytes = 0
        fields = reader.meta.fields
        self.generated = [fields.index(name) for name in reader.meta.generated]
        self.slots = [slot for slot in range(len(fields)) if slot not in self.generated]
        labels = reader.table.label
        # Integers where a name is lacking: all labels of a file are names, or none is.
        known = (labels >= 0) & (labels < len(reader.meta.classes))
        self.named = reader.meta.labels == "class" and bool(known.all())
        self.with_labels = bool(self.generated) or not labels_are_folders(reader)

    def write_all(self) -> None:
        """Writes the files of all samples, and their labels where their folders do not tell
        them."""
        reader, table = self.reader, self.reader.table
        total = sum(int(np.maximum(table.size[slot], 0).sum()) for slot in self.slots)
        with ExitStack() as stack:
            labels = stack.enter_context(self.labels_file()) if self.with_labels else None
            for start in range(0, len(reader), BATCH):
                rows = np.arange(start, min(start + BATCH, len(reader)), dtype=np.int64)
                reader.check(rows.tolist())
                reader.hint(rows, self.slots)
                for row in rows.tolist():
                    if self.write_row(row):
                        self.samples += 1
                        if labels is not None:
                            labels.write(self.label_line(row))
                if self.progress is not None:
                    self.progress(Progress(int(rows[-1]) + 1, len(reader), self.bytes, total))

    def write_row(self, row: int) -> bool:
        """Writes a sample's files; returns whether its image is there now."""
        table = self.reader.table
        names = [table.path(row)] if len(self.slots) == 1 else table.names(row)
        written = False
        for slot in self.slots:
            if slot and not names[slot]:
                continue
            name = names[slot]
            data = self.field(row, slot, name)
            if data is not None and not slot:
                name, data = self.as_file(row, name, data)
            if data is not None and self.write_file(name, data) and not slot:
                written = True
        return written

    def field(self, row: int, slot: int, name: str) -> memoryview | None:
        """Returns a field's bytes; None where there are none, or none that could be written."""
        try:
            data = self.reader.read(row, slot)
        except (CorruptPackError, SampleError) as error:
            reason = error.reason if isinstance(error, SampleError) else "bad_record"
            self.refuse(name, reason, str(error))  # type: ignore[arg-type]
            return None
        checksum = self.reader.table.checksum
        if data is None or not checksum:
            return data
        if xxhash.xxh3_64_intdigest(data) != checksum[slot].item(row):
            words = "the checksum differs, the bytes are damaged: not written"
            self.refuse(name, "corrupt", f"{self.where(row)}: {words}")
            return None
        return data

    def as_file(self, row: int, name: str, data: memoryview) -> tuple[str, memoryview | None]:
        """Returns an image's path and its file: of raw pixels that of an array, a `.npy`; None
        where there is none."""
        try:
            shape = self.reader.raw_shape(row)
        except SampleError as error:
            self.refuse(name, "bad_record", str(error))
            return name, None
        if shape is None:
            return name, data
        file = io.BytesIO()
        about = {
            "descr": "|u1",
            "fortran_order": False,
            "shape": shape if shape[2] > 1 else shape[:2],
        }
        np.lib.format.write_array_header_1_0(file, about)
        file.write(data)
        return name if name.endswith(".npy") else f"{name}.npy", file.getbuffer()

    def write_file(self, name: str, data: memoryview) -> bool:
        """Writes a file; returns whether it is there now."""
        try:
            if name.partition("/")[0] == f"{INSIDE}.partial":
                raise RefusedError("unsafe_path", "the name of what is being written: not written")
            if self.writer.write(name, data):
                self.files += 1
                self.bytes += data.nbytes
        except RefusedError as error:
            self.refuse(name, error.reason, error.message)
            return False
        return True

    def where(self, row: int) -> str:
        """Returns where a sample is, for messages that begin with its path."""
        return f"{printable(self.reader.path)}: sample {row}, key {printable(self.reader.key(row))}"

    def refuse(self, name: str, reason: Reason, message: str) -> None:
        """Takes note of a file that is not written."""
        self.bad.append(BadFile(name, reason, message))

    def labels_file(self) -> IO[str]:
        """Returns the new file of labels."""
        fd = self.writer.create(LABELS_FILE)
        self.files += 1
        return open(fd, "w", encoding="ascii")

    def label_line(self, row: int) -> str:
        """Returns a sample's line in the file of labels: file_name, label, packed columns."""
        table, meta = self.reader.table, self.reader.meta
        label: int | str = table.label.item(row)
        if self.named:
            label = meta.classes[table.label.item(row)]
        line: dict[str, Any] = {"file_name": table.path(row), "label": label}
        for slot in self.generated:
            data = self.field(row, slot, LABELS_FILE)
            try:
                columns = json.loads(bytes(data)) if data is not None else {}
                line = {**columns, **line}
            except (ValueError, TypeError):
                words = f"the field {meta.fields[slot]} is no JSON object: left out"
                self.refuse(LABELS_FILE, "bad_record", f"{self.where(row)}: {words}")
        return json.dumps(line) + "\n"
