"""Packs and raw folders as map-style PyTorch Datasets, like torchvision's ImageFolder.

A Dataset's state is its path, its options, the pack's id and its length. The pack itself is opened
by whichever process first needs it: nothing of it is pickled, and nothing is held for each sample.
"""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NoReturn, SupportsIndex, get_args, overload

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from fastconv.loaders.decode import Mode, decode_pil, to_text
from fastconv.loaders.errors import (
    FastconvError,
    MissingDependencyError,
    PackChangedError,
    PackError,
    SampleError,
    UsageError,
    printable,
)
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.open import find_format
from fastconv.loaders.reader import READERS, Reader
from fastconv.loaders.sample import IMAGE
from fastconv.loaders.table import SampleTable

__all__ = ["Decode", "OnError", "PackDataset", "dataset_class", "dataset_named", "open_dataset"]

Decode = Literal["pil"] | None
OnError = Literal["raise", "skip"]
Transform = Callable[[Any], Any]

_DECODES = ("pil", None)
_BLOCK = 4096
"""Rows whose paths are made at once while somebody goes through `samples`."""

_log = logging.getLogger(__name__)


class PackDataset(Dataset[Any]):
    """The samples of one pack, as `(image, label)`.

    `dataset[i]` is `(image, label)`: the image as `PIL.Image.Image`, the label as int (-1 where
    there is none). It can be pickled and copied, used by threads, and made before or after worker
    processes start, whatever the start method; a copy that finds another pack at the path raises
    `PackChangedError`.

    Args:
        path: A pack, or a folder of images.
        transform: What to do to the image.
        target_transform: What to do to the label.
        decode: "pil" gives images as `PIL.Image.Image` and text as str; None gives every field as
            the bytes that are stored.
        fields: Fields to give in place of the image alone, before the label: "image", and the names
            of sidecars. A field that a sample lacks is None.
        mode: Of the image: "RGB", "L", or "unchanged" for the one it is stored with.
        exif_transpose: Whether to turn images as their EXIF data say.
        on_error: What to do with a sample that cannot be read or decoded: "raise", or "skip": then
            `dataset[i]` is None, batches lack it, and a warning is logged.

    Attributes:
        path: Where the pack lies, absolute.
        format: Name of its format.
        pack_id: The pack's id, "" where it was not made by fastconv.
        skipped: How many samples were skipped by this object, in this process.

    Raises:
        UsageError: An option is wrong, or the pack lacks a field, is empty or of another format.
        PackError: The pack cannot be read.
    """

    format: str = ""
    skipped: int = 0
    _reader: Reader | None = None
    _slots: tuple[int, ...]

    def __init__(
        self,
        path: str | os.PathLike[str],
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        decode: Decode = "pil",
        fields: Iterable[str] | None = None,
        mode: Mode = "RGB",
        exif_transpose: bool = False,
        on_error: OnError = "raise",
    ) -> None:
        _check("decode", decode, _DECODES)
        _check("mode", mode, get_args(Mode))
        _check("on_error", on_error, get_args(OnError))
        if isinstance(fields, str):
            raise UsageError(f"fields is a string: give a tuple of names, as ({fields!r},)")
        given = os.fsdecode(path)
        self.path = given if os.path.isabs(given) else os.path.join(os.getcwd(), given)
        self.format = self.format or find_format(self.path).name
        self.transform = transform
        self.target_transform = target_transform
        self.decode: Decode = decode
        self.fields = None if fields is None else tuple(fields)
        self.mode: Mode = mode
        self.exif_transpose = exif_transpose
        self.on_error: OnError = on_error
        if self.fields == ():
            raise UsageError("fields names no field: leave it out for the image alone")
        reader = _open(self.format, self.path, self.fields or ())
        self.pack_id = reader.meta.id
        self._fingerprint = _fingerprint(reader.meta)
        self._length = len(reader)
        self._adopt(reader)
        for notice in reader.notices:
            _log.warning("%s: %s", printable(self.path), notice)
        if reader.bad:
            first = reader.bad[0]
            _log.warning(
                "%s: left out as unreadable: %d, the first: %s: %s",
                printable(self.path), len(reader.bad), printable(first.path), first.message,
            )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        left_behind = ("_reader", "_slots", "skipped", "classes", "class_to_idx")
        return {name: value for name, value in self.__dict__.items() if name not in left_behind}

    def _adopt(self, reader: Reader) -> Reader:
        known = reader.table.fields
        for name in self.fields or ():
            if name not in known:
                raise _no_field(self.path, name, known)
        self._slots = tuple(known.index(name) for name in self.fields or (IMAGE,))
        self._reader = reader  # last: another thread may be looking
        return reader

    def _opened(self) -> Reader:
        """Returns the pack, opened in this process."""
        if self._reader is not None:
            return self._reader
        reader = _open(self.format, self.path, self.fields or ())
        if _fingerprint(reader.meta) != self._fingerprint or len(reader) != self._length:
            raise PackChangedError(
                f"{printable(self.path)}: was replaced since this dataset was made: make it again"
            )
        return self._adopt(reader)

    def _row(self, index: SupportsIndex) -> int:
        try:
            row = operator.index(index)
        except TypeError:
            raise TypeError(
                f"a dataset's index is an integer, not {type(index).__name__}; "
                "for several samples use torch.utils.data.Subset(dataset, indices)"
            ) from None
        if row < 0:
            row += self._length
        if not 0 <= row < self._length:
            raise IndexError(f"index {index} is outside the dataset of {self._length} samples")
        return row

    def _slot(self, reader: Reader, field: str) -> int:
        try:
            return reader.table.fields.index(field)
        except ValueError:
            raise _no_field(self.path, field, reader.table.fields) from None

    def _part(self, reader: Reader, row: int, slot: int) -> Any:
        """Returns one field of a sample, decoded; None where the sample lacks it."""
        data = reader.read(row, slot)
        if data is None:
            if slot == 0:
                _no_image(reader, row)
            return None
        if self.decode is None:
            return bytes(data)
        if slot:
            return to_text(reader.table.fields[slot], data)
        try:
            return decode_pil(data, self.mode, self.exif_transpose)
        except SampleError as error:
            raise SampleError(f"{reader.where(row)}: {error}", error.reason) from error

    def _sample(self, reader: Reader, row: int) -> tuple[Any, ...] | None:
        """Returns a sample, None where it cannot be read and is to be skipped."""
        try:
            parts = [self._part(reader, row, slot) for slot in self._slots]
        except SampleError as error:
            if self.on_error == "raise":
                raise
            self.skipped += 1
            _log.warning("skipped %s", error)
            return None
        if self.transform is not None:
            for place, slot in enumerate(self._slots):
                if slot == 0:
                    parts[place] = self.transform(parts[place])
        label = reader.table.label.item(row)
        return *parts, label if self.target_transform is None else self.target_transform(label)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Any:
        """Returns a sample: `(image, label)`, or its fields and the label; None if it was skipped.

        Raises:
            IndexError: There is no such sample.
            SampleError: It cannot be read or decoded.
            PackError: The pack cannot be read any more.
        """
        row = self._row(index)
        reader = self._opened()
        reader.check((row,))
        return self._sample(reader, row)

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Returns a batch of samples in the order asked for, without those that were skipped.

        The system is told about the whole batch first, which is quicker than sample by sample where
        the pack is not in memory yet.
        """
        rows = [self._row(index) for index in indices]
        if not rows:
            return []
        reader = self._opened()
        reader.check(rows)
        reader.hint(np.asarray(rows, np.int64), self._slots)
        samples = (self._sample(reader, row) for row in rows)
        return [sample for sample in samples if sample is not None]

    def __iter__(self) -> Iterator[Any]:
        # Spelt out, because an IndexError of a transform would end Python's own iteration silently.
        for row in range(self._length):
            yield self[row]

    @overload
    def read(self, index: SupportsIndex, field: Literal["image"] = ...) -> memoryview: ...
    @overload
    def read(self, index: SupportsIndex, field: str) -> memoryview | None: ...
    def read(self, index: SupportsIndex, field: str = IMAGE) -> memoryview | None:
        """Returns a field's stored bytes, not copied; None where the sample lacks the field.

        The view is read-only, and stays valid after the dataset is gone.

        Raises:
            IndexError: There is no such sample.
            UsageError: There is no such field.
            SampleError: The sample cannot be read, or has no image.
        """
        row = self._row(index)
        reader = self._reader if self._reader is not None else self._opened()
        if field != IMAGE:
            return reader.read(row, self._slot(reader, field))
        view = reader.read(row)
        return view if view is not None else _no_image(reader, row)

    @overload
    def read_many(
        self, indices: Iterable[SupportsIndex], field: Literal["image"] = ...
    ) -> list[memoryview]: ...
    @overload
    def read_many(
        self, indices: Iterable[SupportsIndex], field: str
    ) -> list[memoryview | None]: ...
    def read_many(
        self, indices: Iterable[SupportsIndex], field: str = IMAGE
    ) -> list[memoryview] | list[memoryview | None]:
        """Returns the stored bytes of several samples, after telling the system about all of them.

        Raises:
            IndexError: There is no such sample.
            UsageError: There is no such field.
            SampleError: A sample cannot be read, or has no image.
            PackError: The pack cannot be read any more.
        """
        rows = [self._row(index) for index in indices]
        reader = self._opened()
        slot = self._slot(reader, field)
        reader.check(rows)
        views = [view for (view,) in reader.read_many(rows, (slot,))]
        if slot == 0 and None in views:
            _no_image(reader, rows[views.index(None)])
        return views

    @property
    def meta(self) -> PackMeta:
        """What the pack says of itself."""
        return self._opened().meta

    @property
    def table(self) -> SampleTable:
        """Where every sample lies, and what is known of it."""
        return self._opened().table

    @cached_property
    def classes(self) -> list[str]:
        """The classes' names; the label is the position."""
        return list(self.meta.classes)

    @cached_property
    def class_to_idx(self) -> dict[str, int]:
        """Name of a class -> its label."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def targets(self) -> npt.NDArray[np.int64]:
        """The labels, int64, (N,), -1 for none: a read-only view, before `target_transform`."""
        view = self.table.label.view()
        view.flags.writeable = False
        return view

    @property
    def samples(self) -> Sequence[tuple[str, int]]:
        """The (path, label) of every sample, each made when it is asked for.

        The path is relative to what was packed; of a raw folder it is that of the file.
        """
        reader = self._opened()
        return _Samples(reader.table, reader.root)

    @property
    def imgs(self) -> Sequence[tuple[str, int]]:
        """The same as `samples`, by ImageFolder's other name for it."""
        return self.samples

    def __repr__(self) -> str:
        lines = [
            f"Dataset {type(self).__name__}",
            f"    Number of datapoints: {self._length}",
            f"    Root location: {printable(self.path)}",
        ]
        if self.fields is not None:
            lines.append(f"    Fields: {', '.join(self.fields)}")
        for title, transform in (
            ("Transform", self.transform),
            ("Target transform", self.target_transform),
        ):
            if transform is not None:
                text = repr(transform).replace("\n", "\n" + " " * (len(title) + 6))
                lines.append(f"    {title}: {text}")
        return "\n".join(lines)


class _Samples(Sequence[tuple[str, int]]):
    """The (path, label) of every sample of a table.

    Args:
        table: The table.
        root: What to join the paths to.
    """

    def __init__(self, table: SampleTable, root: str) -> None:
        self._table = table
        self._root = root

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, index: SupportsIndex) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> tuple[str, int] | list[tuple[str, int]]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        return os.path.join(self._root, self._table.path(row)), self._table.label.item(row)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for start in range(0, len(self), _BLOCK):
            stop = min(start + _BLOCK, len(self))
            labels = self._table.label[start:stop].tolist()
            for path, label in zip(self._table.paths(start, stop), labels, strict=True):
                yield os.path.join(self._root, path), label

    def __repr__(self) -> str:
        return f"<{len(self)} samples as (path, label)>"


def _check(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}: it can be {', '.join(map(repr, allowed))}")


def _no_field(path: str, name: str, known: Sequence[str]) -> UsageError:
    return UsageError(
        f"{printable(path)}: has no field {name!r}: its fields are {', '.join(known)}"
    )


def _no_image(reader: Reader, row: int) -> NoReturn:
    raise SampleError(f"{reader.where(row)}: has no image", "missing_part")


def _fingerprint(meta: PackMeta) -> str:
    """Returns the pack's id; of a pack without one, a hash of what is known of it."""
    if meta.id:
        return meta.id
    from xxhash import xxh3_128_hexdigest

    return xxh3_128_hexdigest(meta.to_json().encode())


def _open(format: str, path: str, fields: Sequence[str]) -> Reader:
    """Returns the opened pack; where it is of another format, the error says which."""
    expected = READERS.load(format)
    if not os.path.lexists(path):
        raise PackError(f"{printable(path)}: no such file or folder")
    try:
        reader = expected.open_with(path, fields)
        if len(reader):
            return reader
        raise UsageError(f"{printable(path)}: holds no samples")
    except FastconvError as error:
        if expected.recognises(path):
            raise
        try:
            found = find_format(path)
        except PackError:
            raise error from None
        raise UsageError(
            f"{printable(path)}: its format is {found.name}, not {expected.name}: "
            f"use open_dataset or {found.dataset}"
        ) from error


_CLASSES: dict[str, type[PackDataset]] = {}


def dataset_class(format: str) -> type[PackDataset]:
    """Returns the Dataset of one format: a `PackDataset` that opens no other.

    Raises:
        UsageError: There is no format of that name.
        MissingDependencyError: It needs a package that is not installed.
    """
    reader = READERS.load(format)
    if format not in _CLASSES:
        body = {
            "__doc__": f"The samples of one {reader.title}: see `PackDataset`.",
            "__module__": "fastconv.loaders",  # where pickle finds it again
            "format": format,
        }
        _CLASSES.setdefault(format, type(reader.dataset, (PackDataset,), body))
    return _CLASSES[format]


def dataset_named(name: str) -> type[PackDataset] | None:
    """Returns the Dataset of that name, None where no format has one.

    Only formats with a name like it are imported, unless it is not among them.

    Raises:
        MissingDependencyError: It needs a package that is not installed.
    """
    stem = name.removesuffix("Dataset").lower()
    formats = READERS.names()
    for format in (likely := [format for format in formats if stem.endswith(format)]):
        if READERS.load(format).dataset == name:
            return dataset_class(format)
    for format in formats:
        if format not in likely:
            try:
                found = READERS.load(format).dataset
            except MissingDependencyError:
                continue
            if found == name:
                return dataset_class(format)
    return None


def open_dataset(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    transform: Transform | None = None,
    target_transform: Transform | None = None,
    decode: Decode = "pil",
    fields: Iterable[str] | None = None,
    mode: Mode = "RGB",
    exif_transpose: bool = False,
    on_error: OnError = "raise",
) -> PackDataset:
    """Returns the Dataset of what lies at the path, a pack or a folder of images.

    Args:
        path: A pack, or a folder of images.
        format: Name of its format; by default it is told by its contents.
        transform: What to do to the image.
        target_transform: What to do to the label.
        decode: "pil", or None for the stored bytes; see `PackDataset`, as for what follows.
        fields: Fields to give in place of the image alone, before the label.
        mode: Of the image: "RGB", "L" or "unchanged".
        exif_transpose: Whether to turn images as their EXIF data say.
        on_error: What to do with a sample that cannot be read or decoded: "raise" or "skip".

    Raises:
        UsageError: An option is wrong, or the pack lacks a field, is empty or of another format.
        PackError: The pack cannot be read.
    """
    return dataset_class(format or find_format(path).name)(
        path,
        transform,
        target_transform,
        decode=decode,
        fields=fields,
        mode=mode,
        exif_transpose=exif_transpose,
        on_error=on_error,
    )
