"""Packs and raw folders as map-style PyTorch Datasets, like torchvision's ImageFolder.

A Dataset's state is its path, its options, the pack's id and its length. The pack itself is opened
by whichever process first needs it: nothing of it is pickled, and nothing is held for each sample.
"""

from __future__ import annotations

import logging
import math
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NoReturn, SupportsIndex, get_args, overload

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, get_worker_info

from fastconv.loaders import native
from fastconv.loaders.decode import (
    Mode,
    decode_numpy,
    decode_pil,
    decode_with,
    for_gpu,
    in_mode,
    to_text,
)
from fastconv.loaders.decoders import Decoder, Geometry, is_decoder
from fastconv.loaders.draws import draws
from fastconv.loaders.errors import (
    FastconvError,
    MissingDependencyError,
    PackChangedError,
    PackError,
    PackNotFoundError,
    SampleError,
    UsageError,
    printable,
)
from fastconv.loaders.joined import JoinedReader, fingerprint, open_packs
from fastconv.loaders.meta import PackMeta
from fastconv.loaders.names import several
from fastconv.loaders.nvjpeg import Encoded
from fastconv.loaders.open import find_format, path_of, require_path, retried
from fastconv.loaders.raw import Pixels, Shape
from fastconv.loaders.reader import READERS, Reader, Wanted
from fastconv.loaders.sample import IMAGE
from fastconv.loaders.scratch import scratch
from fastconv.loaders.table import SampleTable

__all__ = [
    "Decode",
    "JoinedDataset",
    "OnError",
    "PackDataset",
    "dataset_class",
    "dataset_named",
    "open_dataset",
]

Decode = Literal["pil", "tensor", "numpy"] | Decoder | None
OnError = Literal["raise", "skip"]
Transform = Callable[[Any], Any]

_DECODES = ("pil", "tensor", "numpy", None)
_BLOCK = 4096
"""Rows whose paths are made at once while somebody goes through `samples`."""

_TOGETHER = 16
"""Files that the kernel gets at once: no more are in memory, however large the batch is."""

_log = logging.getLogger(__name__)
_counting = threading.Lock()


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
        decode: "pil" gives images as `PIL.Image.Image`, "tensor" as `torch.Tensor`, uint8
            (3, rows, columns), "numpy" as arrays, uint8 (rows, columns, 3), and each gives text as
            str. A decoder, such as `RandomResizedCrop(224)`, gives that part of the image as a
            uint8 tensor; see `fastconv.loaders.decoders`. None gives every field as the bytes that
            are stored.
        fields: Fields to give in place of the image alone, before the label: "image", and the names
            of sidecars. A field that a sample lacks is None.
        mode: Of the image: "RGB", "L", or "unchanged" for the one it is stored with.
        exif_transpose: Whether to turn images as their EXIF data say.
        on_error: What to do with a sample that cannot be read or decoded: "raise", or "skip": then
            `dataset[i]` is None, batches lack it, and a warning is logged.
        verify: Whether the bytes of every field are compared with their checksum (xxh3-64) before
            they are decoded or handed out; other bytes than those that were packed are a
            `SampleError` of the reason "corrupt". Comparing a JPEG of 57 kB takes 6000 ns at most,
            less than half a hundredth of decoding it (1.3 ms). `read` hands out the copy that was
            compared, which takes 16 µs instead of 0.7. The sample table, with labels and paths, is
            compared with the pack's id when the Dataset is made: 100 MB of it, those of a million
            samples, take about 20 ms. Packs of others and folders have no checksums.
        image_key, label_key: Of Parquet, TFRecord and tars of others: the column, feature or
            extension (`left.png`) of the images, and that of the labels; by default the likeliest.

    Attributes:
        path: Where the pack lies, absolute.
        format: Name of its format.
        pack_id: The pack's id, "" where it was not made by fastconv.
        skipped: How many samples were skipped by this object, in this process.

    Raises:
        UsageError: An option is wrong, or the pack lacks a field or its checksums, is empty or of
            another format.
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
        verify: bool = False,
        image_key: str | None = None,
        label_key: str | None = None,
    ) -> None:
        if not is_decoder(decode):
            _check("decode", decode, _DECODES, " or a decoder, such as RandomResizedCrop(224)")
        elif mode == "unchanged":
            raise UsageError("mode is 'unchanged': a decoder needs 'RGB' or 'L'")
        _check("mode", mode, get_args(Mode))
        _check("on_error", on_error, get_args(OnError))
        _check("verify", verify, (True, False))
        self.path = self._located(path)
        self.format = self.format or find_format(self.path).name
        self.transform = transform
        self.target_transform = target_transform
        self.decode: Decode = decode
        self.fields = None if fields is None else several("fields", fields)
        self.mode: Mode = mode
        self.exif_transpose = exif_transpose
        self.on_error: OnError = on_error
        self.verify = verify
        self.image_key = image_key
        self.label_key = label_key
        if self.fields == ():
            raise UsageError("fields names no field: leave it out for the image alone")
        reader = self._open()
        self.pack_id = reader.meta.id
        self._fingerprint = fingerprint(reader)
        self._length = len(reader)
        if verify:
            reader.check_table()
        self._adopt(reader)
        for notice in reader.notices:
            _log.warning("%s: %s", printable(self.path), notice)
        if reader.bad:
            first = reader.bad[0]
            _log.warning(
                "%s: left out as unreadable: %d, the first: %s: %s",
                printable(self.path), len(reader.bad), printable(first.path), first.message,
            )  # fmt: skip

    def _located(self, path: str | os.PathLike[str]) -> str:
        """Returns where the pack lies, absolute."""
        return _absolute(path)

    def _open(self) -> Reader:
        """Returns the pack, opened; where it is of another format, the error says which."""
        return _open(self.format, self.path, self._wanted())

    def _wanted(self) -> Wanted:
        return Wanted(self.fields or (), self.image_key, self.label_key)

    def __getstate__(self) -> dict[str, Any]:
        left_behind = ("_reader", "_slots", "skipped", "classes", "class_to_idx")
        return {name: value for name, value in self.__dict__.items() if name not in left_behind}

    def _adopt(self, reader: Reader) -> Reader:
        known = reader.table.fields
        for name in self.fields or ():
            if name not in known:
                raise _no_field(self.path, name, known)
        if self.verify:
            reader.require_checksums()
        self._slots = tuple(known.index(name) for name in self.fields or (IMAGE,))
        self._reader = reader  # last: another thread may be looking
        return reader

    def _opened(self) -> Reader:
        """Returns the pack, opened in this process."""
        if self._reader is not None:
            return self._reader
        changed = PackChangedError(
            f"{printable(self.path)}: was replaced since this dataset was made: make it again"
        )
        try:
            reader = self._open()
        except PackNotFoundError:
            raise
        except UsageError as error:  # it is empty, of another format, or lacks a field
            raise changed from error
        if fingerprint(reader) != self._fingerprint or len(reader) != self._length:
            raise changed
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

    def _decoder(self) -> Decoder | None:
        return None if self.decode is None or isinstance(self.decode, str) else self.decode

    def _image_shape(self) -> tuple[int, int, int] | None:
        """Returns rows, columns and channels of all images; None where they have no common size."""
        decoder = self._decoder()
        if decoder is not None:
            size = decoder.out_size
            return None if size is None else (*size, 1 if self.mode == "L" else 3)
        stored = self._opened().common_shape if self.decode in ("tensor", "numpy") else None
        if stored is None:
            return None
        return *stored[:2], {"RGB": 3, "L": 1, "unchanged": stored[2]}[self.mode]

    def _wants_whole(self, stored: Shape) -> bool:
        """Returns whether nothing of a picture of a shape is cut off, and it is not resized."""
        decoder, (rows, columns, _) = self._decoder(), stored
        if decoder is None or decoder.draws:
            return decoder is None
        whole = Geometry(0, 0, columns, rows, rows, columns, 0, 0, rows, columns)
        return decoder.geometry(columns, rows, ()) == whole

    def _gathered(self, reader: Reader, rows: npt.NDArray[np.int64], out: Pixels) -> bool:
        """Copies images that are stored as they are wanted; returns whether they are there now.

        Where they are not, because one is damaged, they have to be read one by one.

        Args:
            reader: The pack.
            rows: Numbers of the samples.
            out: Where the images go, C-contiguous (n, rows, columns, channels).
        """
        stored = reader.common_shape
        if stored is None or not self._wants_whole(stored):
            return False
        pixels = out if out.shape[1:] == stored else np.empty((len(rows), *stored), np.uint8)
        try:
            reader.fill(rows, [*pixels])
            if self.verify:
                for row, image in zip(rows.tolist(), pixels, strict=True):
                    reader.compare(row, 0, image)
        except SampleError:
            return False
        if pixels is not out:
            out[...] = in_mode(pixels, self.mode)
        return True

    def _made(
        self,
        reader: Reader,
        rows: Sequence[int],
        draws: Sequence[Sequence[float]],
        out: Pixels,
    ) -> Iterator[tuple[bool, bytes | None]]:
        """Makes those images of a batch that can be made together, few at a time.

        Yields of each sample whether its image is there now; and else its file, where it was read.

        Args:
            reader: The pack.
            rows: Numbers of the samples.
            draws: Random numbers for each of them.
            out: Where the images go, C-contiguous (n, rows, columns, channels).
        """
        decoder = self._decoder()
        if self._gathered(reader, np.asarray(rows, np.int64), out):
            yield from [(True, None)] * len(rows)
        elif decoder is None or native.kernel() is None:
            yield from [(False, None)] * len(rows)
        else:
            for start in range(0, len(rows), _TOGETHER):
                part = slice(start, start + _TOGETHER)
                files = [self._file(reader, row) for row in rows[part]]
                there = native.decode(files, decoder, draws[part], out[part], self.exif_transpose)
                yield from zip(there.tolist(), files, strict=True)

    def _draws(
        self, indices: Sequence[SupportsIndex], rows: npt.NDArray[np.int64]
    ) -> list[list[float]]:
        """Returns the random numbers that the decoder needs for each sample."""
        decoder = self._decoder()
        if decoder is None or not decoder.draws:
            return [[]] * len(rows)
        epoch, seed = getattr(indices, "epoch", None), getattr(indices, "seed", 0)
        if epoch is None:
            numbers = torch.rand((len(rows), decoder.draws), dtype=torch.float64).numpy()
        else:
            places = getattr(indices, "places", None)  # where a sample comes several times
            numbers = draws(
                seed, epoch, rows if places is None else np.asarray(places), decoder.draws
            )
        each: list[list[float]] = numbers.tolist()
        return each

    def _bytes(self, reader: Reader, row: int, slot: int = 0) -> bytes | None:
        """Returns a copy of a field's stored bytes; None where the sample lacks it."""
        return reader.verified(row, slot) if self.verify else reader.load(row, slot)

    def _file(self, reader: Reader, row: int) -> bytes | None:
        """Returns a file that the kernel might decode; None where there is none to be read."""
        try:
            return self._bytes(reader, row) if reader.raw_shape(row) is None else None
        except SampleError:
            return None  # whoever asks for the sample hears of it

    def _stored(self, reader: Reader, row: int) -> bytes | Pixels | None:
        """Returns an image as it is stored: the file, or its pixels; None where there is none."""
        shape = None if self.decode is None else reader.raw_shape(row)
        if shape is None:
            return self._bytes(reader, row)
        if self._decoder() is None:
            pixels = np.empty(shape, np.uint8)
        else:
            pixels = scratch("file", math.prod(shape)).reshape(shape)
        reader.fill(np.array([row]), [pixels])
        if self.verify:
            reader.compare(row, 0, pixels)
        return pixels

    def _image(self, data: bytes | Pixels, draw: Sequence[float], out: Pixels | None) -> Any:
        """Returns an image as `decode` says."""
        if self.decode == "pil":
            return decode_pil(data, self.mode, self.exif_transpose)
        decoder = self._decoder()
        if decoder is None:
            pixels = decode_numpy(data, self.mode, self.exif_transpose)
            if out is not None:
                out[...] = pixels.reshape(out.shape)
            return pixels if self.decode == "numpy" else _tensor(pixels)
        shape = self._image_shape()
        if out is None and shape is not None and not isinstance(data, np.ndarray):
            one = np.empty((1, *shape), np.uint8)
            if native.decode([data], decoder, [draw], one, self.exif_transpose)[0]:
                return _tensor(one[0])
        channels: Literal["L", "RGB"] = "L" if self.mode == "L" else "RGB"
        return _tensor(decode_with(data, decoder, draw, out, channels, self.exif_transpose))

    def _part(
        self,
        reader: Reader,
        row: int,
        slot: int,
        draw: Sequence[float],
        out: npt.NDArray[np.uint8] | None = None,
        file: bytes | None = None,
    ) -> Any:
        """Returns one field of a sample, decoded; None where the sample lacks it.

        Args:
            reader: The pack.
            row: Number of the sample.
            slot: Of the field.
            draw: Random numbers for its image.
            out: Where its image belongs in a batch.
            file: The image's file, where it was read already.
        """
        if slot:
            text = self._bytes(reader, row, slot)
            if text is None or self.decode is None:
                return text
            return to_text(reader.table.fields[slot], text)
        data = self._stored(reader, row) if file is None else file
        if data is None:
            _no_image(reader, row)
        if self.decode is None:
            return data
        try:
            return self._image(data, draw, out)
        except SampleError as error:
            raise reader.bad_sample(row, str(error), error.reason) from error

    def _sample(
        self,
        reader: Reader,
        row: int,
        label: int,
        draw: Sequence[float],
        place: tuple[Pixels, Any] | None = None,
        there: bool = False,
        file: bytes | None = None,
    ) -> tuple[Any, ...] | None:
        """Returns a sample, None where it cannot be read and is to be skipped.

        Args:
            reader: The pack.
            row: Number of the sample.
            label: Its label.
            draw: Random numbers for its image.
            place: Where the image belongs in a batch, and the same as it is given; None without a
                batch.
            there: Whether it is there already.
            file: The image's file, where it was read already.
        """
        out, image = place or (None, None)
        try:
            parts = [
                image if there and not slot else self._part(reader, row, slot, draw, out, file)
                for slot in self._slots
            ]
        except SampleError as error:
            self._skip(error)
            return None
        for number, slot in enumerate(self._slots):
            if slot == 0:
                part = parts[number] if image is None else image
                parts[number] = part if self.transform is None else self.transform(part)
        return *parts, label if self.target_transform is None else self.target_transform(label)

    def _skip(self, error: SampleError, messages: list[str] | None = None) -> None:
        """Counts a sample that cannot be read, and notes or logs why.

        Raises:
            SampleError: Samples are not to be skipped.
        """
        if self.on_error == "raise":
            raise error
        with _counting:
            self.skipped += 1
        if messages is None:
            _log.warning("skipped %s", error)
        else:
            messages.append(str(error))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Any:
        """Returns a sample: `(image, label)`, or its fields and the label; None if it was skipped.

        A random decoder draws from torch's generator of this process, as torchvision does.

        Raises:
            IndexError: There is no such sample.
            SampleError: It cannot be read or decoded.
            PackError: The pack cannot be read any more.
        """
        row = self._row(index)
        reader = self._opened()
        reader.check((row,))
        label = reader.table.label.item(row)
        return self._sample(reader, row, label, self._draws((), np.array([row]))[0])

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Returns a batch of samples in the order asked for, without those that were skipped.

        The system is told about the whole batch first, which is quicker than sample by sample where
        the pack is not in memory yet. Images of one size are parts of one array, so that they need
        not be copied to make a batch of them.

        A random decoder draws from torch's generator, unless the indices know their `epoch` and
        `seed`, as those of fastconv's samplers and loaders do. What it draws then depends on them
        and on the sample's number alone, whoever draws it; of indices that know their `places`, on
        these instead of the number.
        """
        rows = [self._row(index) for index in indices]
        if not rows:
            return []
        reader = self._opened()
        numbers = np.asarray(rows, np.int64)
        reader.check(rows)
        reader.hint(numbers, self._slots)
        shape = self._image_shape() if 0 in self._slots else None
        images = _batch_of(len(rows), shape) if shape else None
        batch = np.empty(0, np.uint8) if images is None else images.movedim(-3, -1).numpy()
        given: Any = _squeezed(batch) if self.decode == "numpy" else images
        samples: list[Any] = []
        labels = reader.table.label[numbers].tolist()
        draws = self._draws(indices, numbers)
        made: Iterable[tuple[bool, bytes | None]] = [(False, None)] * len(rows)
        if images is not None:
            made = self._made(reader, rows, draws, batch)
        for number, (there, file) in enumerate(made):
            at, place = len(samples), None
            if images is not None:
                if there and at < number:  # some before it were skipped
                    batch[at] = batch[number]
                place = batch[at], given[at]
            row, label, draw = rows[number], labels[number], draws[number]
            sample = self._sample(reader, row, label, draw, place, there, file)
            if sample is not None:
                samples.append(sample)
        return samples

    @property
    def batch_shape(self) -> tuple[int, int, int] | None:
        """Rows, columns and channels of each image that `decode_batch` gives.

        None where a batch has to be made of samples: where images are not of one size, and with a
        transform or fields. They are of one with a decoder that makes them so; and with decode
        "tensor" or "numpy" where the pack holds raw samples of one shape.
        """
        plain = (self.transform, self.target_transform, self.fields) == (None, None, None)
        return self._image_shape() if plain else None

    @property
    def copies_images(self) -> bool:
        """Whether images are stored as they are wanted: raw samples of one shape, of which nothing
        is cut off. Batches of them are copied, nothing is decoded."""
        stored = self._opened().common_shape
        return stored is not None and self._wants_whole(stored)

    def hint(self, indices: Sequence[SupportsIndex]) -> None:
        """Tells the system that these samples are wanted next, so that it reads them all at once.

        Raises:
            IndexError: There is no such sample.
            PackError: The pack cannot be read any more.
        """
        rows = [self._row(index) for index in indices]
        reader = self._opened()
        reader.check(rows)
        reader.hint(np.asarray(rows, np.int64), self._slots)

    def decode_batch(
        self,
        indices: Sequence[SupportsIndex],
        out: npt.NDArray[np.uint8] | None = None,
        skipped: list[str] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, npt.NDArray[np.bool_]]:
        """Returns the images of a batch, their labels, and which of them are there.

        The images are uint8 (n, 3, rows, columns), with the channels of a pixel side by side in
        memory (channels last): decoding gives them so, and convolutions take them so. The labels
        are int64 (n,). The last is bool (n,), false for samples that were skipped, in whose places
        anything may be. Threads can make parts of one batch at once. What is random is drawn as by
        `__getitems__`; `hint` is left to the caller.

        Args:
            indices: Numbers of the samples.
            out: Where to put the images, C-contiguous uint8 (n, *batch_shape).
            skipped: Where to put the messages of skipped samples; they are logged without it.

        Raises:
            IndexError: There is no such sample.
            UsageError: There is no `batch_shape`, or `out` has another one.
            SampleError: A sample cannot be read or decoded.
            PackError: The pack cannot be read any more.
        """
        shape = self.batch_shape
        if shape is None:
            raise UsageError(
                "there are no images of one size: use decode=RandomResizedCrop(224) or the like, "
                "and neither transforms nor fields"
            )
        rows = [self._row(index) for index in indices]
        if out is None:
            out = np.empty((len(rows), *shape), np.uint8)
        elif out.shape != (len(rows), *shape) or not out.flags.c_contiguous:
            raise UsageError(
                f"out is {out.shape}: it has to be {(len(rows), *shape)}, C-contiguous"
            )
        reader = self._opened()
        reader.check(rows)
        numbers = np.asarray(rows, np.int64)
        labels = torch.from_numpy(reader.table.label[numbers])
        kept = np.ones(len(rows), np.bool_)
        draws = self._draws(indices, numbers)
        for place, (there, file) in enumerate(self._made(reader, rows, draws, out)):
            if there:
                continue
            try:
                self._part(reader, rows[place], 0, draws[place], out[place], file)
            except SampleError as error:
                self._skip(error, skipped)
                kept[place] = False
        return _tensor(out), labels, kept

    def encoded_batch(
        self, indices: Sequence[SupportsIndex], skipped: list[str] | None = None
    ) -> tuple[list[Encoded | npt.NDArray[np.uint8]], npt.NDArray[np.int64]]:
        """Returns the pictures of a batch for a GPU to decode, and the rows that they are of, int64
        (n,).

        What a GPU cannot decode is decoded already, uint8 (rows, columns, 3). Skipped samples are
        not among them. Arguments and errors are those of `decode_batch`.
        """
        decoder, shape = self._decoder(), self.batch_shape
        if decoder is None or shape is None:
            raise UsageError("a GPU decodes for a decoder with one size, such as CenterCrop(224)")
        rows = [self._row(index) for index in indices]
        reader = self._opened()
        reader.check(rows)
        pictures: list[Encoded | npt.NDArray[np.uint8]] = []
        kept = []
        for row, draw in zip(rows, self._draws(indices, np.asarray(rows, np.int64)), strict=True):
            try:
                data = self._stored(reader, row)
                if data is None:
                    _no_image(reader, row)
                file = b"" if isinstance(data, np.ndarray) else data
                geometry = for_gpu(file, decoder, draw, self.exif_transpose)
                if geometry is not None:
                    pictures.append(Encoded(file, geometry))
                else:
                    pixels = np.empty(shape, np.uint8)
                    self._part(reader, row, 0, draw, pixels)
                    pictures.append(pixels)
                kept.append(row)
            except SampleError as error:
                self._skip(error, skipped)
        return pictures, np.array(kept, np.int64)

    def cannot_decode(self, row: int, error: SampleError, skipped: list[str]) -> None:
        """Counts a sample that cannot be decoded, and notes why.

        Raises:
            SampleError: Samples are not to be skipped.
        """
        self._skip(self._opened().bad_sample(row, str(error), error.reason), skipped)

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

        The view is read-only, and stays valid after the dataset is gone. With `verify` it is of a
        copy, the one that was compared.

        Raises:
            IndexError: There is no such sample.
            UsageError: There is no such field.
            SampleError: The sample cannot be read, has no image, or has other bytes than were
                packed.
        """
        row = self._row(index)
        reader = self._reader if self._reader is not None else self._opened()
        if self.verify:
            view = self._verified(reader, row, self._slot(reader, field))
        elif field != IMAGE:
            return reader.read(row, self._slot(reader, field))
        else:
            view = reader.read(row)
        return view if view is not None or field != IMAGE else _no_image(reader, row)

    def _verified(self, reader: Reader, row: int, slot: int) -> memoryview | None:
        data = reader.verified(row, slot)
        return None if data is None else memoryview(data)

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
            SampleError: A sample cannot be read, has no image, or has other bytes than were packed.
            PackError: The pack cannot be read any more.
        """
        rows = [self._row(index) for index in indices]
        reader = self._opened()
        slot = self._slot(reader, field)
        reader.check(rows)
        if self.verify:
            reader.hint(np.asarray(rows, np.int64), (slot,))
            views = [self._verified(reader, row, slot) for row in rows]
        else:
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
        reader = self._opened()
        reader.check(())
        return reader.table

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
        return _Samples(self._opened())

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
        if self.decode != "pil":
            lines.append(f"    Decode: {self.decode}")
        if self.verify:
            lines.append("    Verify: every field by its checksum")
        for title, transform in (
            ("Transform", self.transform),
            ("Target transform", self.target_transform),
        ):
            if transform is not None:
                text = repr(transform).replace("\n", "\n" + " " * (len(title) + 6))
                lines.append(f"    {title}: {text}")
        return "\n".join(lines)


def _batch_of(count: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Returns room for images, uint8 (count, channels, rows, columns), channels last in memory.

    In a worker process it is in shared memory, as torch's `default_collate` makes its batches: what
    the worker hands over then is where it is, and is not copied again.
    """
    size = count * math.prod(shape)
    if get_worker_info() is None:
        flat = torch.empty(size, dtype=torch.uint8)
    else:
        storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
        flat = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (size,), (1,))
    return flat.view(count, *shape).movedim(-1, -3)


def _squeezed(pixels: Pixels) -> Pixels:
    """Returns images (n, rows, columns, channels), without the last dimension where they are
    grey."""
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def _tensor(pixels: npt.NDArray[Any]) -> torch.Tensor:
    """Returns pixels as a tensor that has the channels before the rows, in the same memory."""
    if pixels.dtype == np.uint16:
        pixels = pixels.astype(np.int32)  # what torch can compute with
    if pixels.ndim == 2:
        pixels = pixels[..., np.newaxis]
    return torch.from_numpy(pixels).movedim(-1, -3)


class _Samples(Sequence[tuple[str, int]]):
    """The (path, label) of every sample of a pack."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._table = reader.table
        self._root = reader.root

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
        self._reader.check(())
        return os.path.join(self._root, self._table.path(row)), self._table.label.item(row)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for start in range(0, len(self), _BLOCK):
            stop = min(start + _BLOCK, len(self))
            self._reader.check(())
            labels = self._table.label[start:stop].tolist()
            for path, label in zip(self._table.paths(start, stop), labels, strict=True):
                yield os.path.join(self._root, path), label

    def __repr__(self) -> str:
        return f"<{len(self)} samples as (path, label)>"


def _check(name: str, value: object, allowed: Sequence[object], more: str = "") -> None:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}: it can be {', '.join(map(repr, allowed))}{more}")


def _no_field(path: str, name: str, known: Sequence[str]) -> UsageError:
    return UsageError(
        f"{printable(path)}: has no field {name!r}: its fields are {', '.join(known)}"
    )


def _no_image(reader: Reader, row: int) -> NoReturn:
    raise SampleError(f"{reader.where(row)}: has no image", "missing_part")


def _absolute(path: str | os.PathLike[str]) -> str:
    given = path_of(path)
    return given if os.path.isabs(given) else os.path.join(os.getcwd(), given)


def _open(format: str, path: str, wanted: Wanted) -> Reader:
    """Returns the opened pack; where it is of another format, the error says which."""
    expected = READERS.load(format)
    return retried(path, lambda: _open_once(expected, path, wanted))


class JoinedDataset(PackDataset):
    """The samples of several packs as one Dataset: those of the first, then those of the second.

    Classes are joined by name: packs of the same classes keep them, others get those of all, sorted
    as those of one folder would be. Everything else is as in `PackDataset`; a field that a pack
    lacks is None in its samples.

    Args:
        paths: Packs, of one format or several, or folders of images.

    Attributes:
        paths: Where they lie, absolute.
        path: The same as one text.
        format: "joined".
        pack_id: A hash over the ids of the packs.

    Raises:
        UsageError: As `PackDataset`; or the labels do not go together: classes and integers.
    """

    format = JoinedReader.name

    def __init__(self, paths: Sequence[str | os.PathLike[str]], *args: Any, **options: Any) -> None:
        if not isinstance(paths, Iterable):
            raise UsageError(f"the path of a pack is text, not {type(paths).__name__}")
        self.paths = tuple(map(_absolute, paths))
        super().__init__("", *args, **options)

    def _located(self, path: str | os.PathLike[str]) -> str:
        return ", ".join(self.paths)

    def _open(self) -> Reader:
        reader = open_packs(self.paths, self._wanted())
        for one in reader.readers:
            if not len(one):
                raise UsageError(f"{printable(one.path)}: holds no samples")
        return reader


def _open_once(expected: type[Reader], path: str, wanted: Wanted) -> Reader:
    require_path(path)
    try:
        reader = expected.open_with(path, wanted)
        if len(reader):
            return reader
        raise UsageError(f"{printable(path)}: holds no samples")
    except FastconvError as error:
        try:
            found = expected if expected.recognises(path) else find_format(path)
        except PackError:
            raise error from None
        if found is expected:
            raise
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
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    transform: Transform | None = None,
    target_transform: Transform | None = None,
    decode: Decode = "pil",
    fields: Iterable[str] | None = None,
    mode: Mode = "RGB",
    exif_transpose: bool = False,
    on_error: OnError = "raise",
    verify: bool = False,
    image_key: str | None = None,
    label_key: str | None = None,
) -> PackDataset:
    """Returns the Dataset of what lies at the path, a pack or a folder of images.

    Args:
        path: A pack, or a folder of images; of several, one after the other: see `JoinedDataset`.
        format: Name of its format; by default it is told by its contents.
        transform: What to do to the image.
        target_transform: What to do to the label.
        decode: "pil", "tensor", "numpy", a decoder such as `RandomResizedCrop(224)`, or None for
            the stored bytes; see `PackDataset`, as for what follows.
        fields: Fields to give in place of the image alone, before the label.
        mode: Of the image: "RGB", "L" or "unchanged".
        exif_transpose: Whether to turn images as their EXIF data say.
        on_error: What to do with a sample that cannot be read or decoded: "raise" or "skip".
        verify: Whether the bytes of every field are compared with their checksum.
        image_key, label_key: Of packs of others: what images and labels are called.

    Raises:
        UsageError: An option is wrong, or the pack lacks a field or its checksums, is empty or of
            another format.
        PackError: The pack cannot be read.
    """
    if not isinstance(path, str | os.PathLike):
        if format is not None:
            raise UsageError("several packs may be of several formats: leave format out")
        made: Callable[..., PackDataset] = JoinedDataset
    else:
        made = dataset_class(format or find_format(path).name)
    return made(
        path,
        transform,
        target_transform,
        decode=decode,
        fields=fields,
        mode=mode,
        exif_transpose=exif_transpose,
        on_error=on_error,
        verify=verify,
        image_key=image_key,
        label_key=label_key,
    )
