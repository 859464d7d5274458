"""Loaders with the kernel in C give what they give without it, and do without it wherever it is
missing."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import ARITHMETIC

from fastconv.converters import pack
from fastconv.loaders import (
    CenterCrop,
    FastLoader,
    PackDataset,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    SampleError,
    jpeg,
    make_loader,
    native,
    open_dataset,
)
from fastconv.loaders.decode import decode_with
from fastconv.loaders.decoders import Decoder, Geometry

TRAIN = RandomResizedCrop(32, flip=0.5)
SIZES = ((97, 61), (64, 80), (150, 201), (20, 30))
DECODERS = (
    TRAIN,
    CenterCrop(40, resize=48),
    CenterCrop((64, 24)),
    RandomHorizontalFlip(0.5, Resize((17, 33))),
)


class Half:
    """A kernel that does every second JPEG, and leaves rubbish in the places of the others."""

    DONE = 0

    def headers(self, files: Any, out: Any) -> None:
        for file, about in zip(files, out, strict=True):
            header = jpeg.read_header(memoryview(file))
            about[:] = 0 if header is None else (header.width, header.height, 3, 0)
            if header is not None and b"Exif" not in bytes(file) and b"xap" not in bytes(file):
                about[3] = 1

    def decode(self, files: Any, jobs: Any, out: Any, status: Any, *_: int) -> None:
        status[:] = 1
        out[...] = 77
        for place in range(0, len(files), 2):
            geometry = Geometry(*jobs[place, :11].tolist())
            if geometry.width:
                decoder = Fixed(geometry)
                mode: Any = "RGB" if out.shape[3] == 3 else "L"
                try:
                    decode_with(files[place], decoder, (), out[place], mode)
                except SampleError:
                    continue
                status[place] = 0


class Fixed:
    """A decoder that makes the same of every picture."""

    draws = 0

    def __init__(self, geometry: Geometry) -> None:
        self.made = geometry

    @property
    def out_size(self) -> tuple[int, int]:
        return self.made.out_rows, self.made.out_columns

    def geometry(self, width: int, height: int, draw: Any) -> Geometry:
        return self.made


class Counting:
    """A kernel, with the number of images that it did."""

    def __init__(self, kernel: native.Kernel) -> None:
        self.DONE = kernel.DONE
        self.headers = kernel.headers
        self.kernel = kernel
        self.done = 0

    def decode(self, files: Any, jobs: Any, out: Any, status: Any, *more: Any) -> None:
        self.kernel.decode(files, jobs, out, status, *more)
        self.done += int((status == self.DONE).sum())


@pytest.fixture(autouse=True)
def looked_for_anew() -> Iterator[None]:
    native.kernel.cache_clear()
    yield
    native.kernel.cache_clear()


@pytest.fixture(params=["real", "half"])
def kernel(request: pytest.FixtureRequest) -> Counting:
    if request.param == "half":
        return Counting(Half())
    found = native.kernel()
    if found is None:
        pytest.skip("fastconv_native is not installed")
    return Counting(found)


@pytest.fixture
def switch(kernel: Counting, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Returns what lets loaders use the kernel, or not."""

    def use(it: bool) -> None:
        monkeypatch.setattr(native, "kernel", lambda: kernel if it else None)

    return use


def picture(number: int, mode: str = "RGB") -> Image.Image:
    width, height = SIZES[number % len(SIZES)]
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    noise = np.random.default_rng(number).integers(0, 60, (height, width, 3))
    pixels = np.stack((x * 2, y * 2, (x + y) * 3), axis=2) % 190 + noise
    return Image.fromarray(pixels.astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, file_format: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, file_format, **options)
    return out.getvalue()


def exif(orientation: int) -> Image.Exif:
    found = Image.Exif()
    found[274] = orientation
    return found


def with_xmp(file: bytes, orientation: int) -> bytes:
    text = f'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="{orientation}"/>'.encode()
    return file[:2] + b"\xff\xe1" + (len(text) + 2).to_bytes(2, "big") + text + file[2:]


def files() -> dict[str, bytes]:
    """Returns good images of many kinds, by their names."""
    found = {
        f"{sampling.replace(':', '')}-{number}.jpg": encoded(picture(number), subsampling=sampling)
        for sampling in ("4:2:0", "4:2:2", "4:4:4")
        for number in range(4)
    }
    found |= {f"turned-{n}.jpg": encoded(picture(n), exif=exif(n)) for n in range(1, 10)}
    scrambled = bytearray(encoded(picture(2)))
    scrambled[-600:-500] = bytes(range(100))  # Pillow makes something of it
    found |= {
        "arithmetic.jpg": ARITHMETIC,
        "padded.jpg": encoded(picture(2)) + bytes(100),
        "with-more-behind.jpg": encoded(picture(2)) + b"something else",
        "scrambled.jpg": bytes(scrambled),
        "progressive.jpg": encoded(picture(1), progressive=True),
        "restarts.jpg": encoded(picture(2), restart_marker_blocks=2),
        "stored-rgb.jpg": encoded(picture(0), keep_rgb=True),
        "grey.jpg": encoded(picture(2, "L")),
        "cmyk.jpg": encoded(picture(2, "CMYK")),
        "xmp.jpg": with_xmp(encoded(picture(0)), 6),
        "both.jpg": with_xmp(encoded(picture(0), exif=exif(8)), 6),
        "exif-says-nothing.jpg": encoded(picture(1), exif=b"Exif\0\0nothing of sense in it"),
        "plain.png": encoded(picture(0), "PNG"),
        "grey.png": encoded(picture(3, "L"), "PNG"),
        "in-truth-a-png.jpg": encoded(picture(1), "PNG"),
        "in-truth-a-jpeg.png": encoded(picture(1)),
    }
    return found


def bad_files() -> dict[str, bytes]:
    """Returns files that begin as images do."""
    whole = encoded(picture(2))
    return {
        "420-0.short.jpg": whole[: len(whole) // 2],
        "422-2.very-short.jpg": whole[: len(whole) // 8],
        "444-1.lacks-its-end.jpg": whole[:-40],
        "progressive.short.jpg": encoded(picture(1), progressive=True)[:-300],
        "plain.short.png": encoded(picture(1), "PNG")[:-500],
        "turned-5.huge.jpg": huge(whole),
    }


def huge(file: bytes) -> bytes:
    """Returns a JPEG that says that it has more pixels than are ever decoded."""
    place = file.index(b"\xff\xc0") + 5
    return file[:place] + b"\xff\xdc\xff\xdc" + file[place + 4 :]


def packed(folder: Path, contents: dict[str, bytes]) -> Path:
    for number, (name, data) in enumerate(contents.items()):
        file = folder / "tree" / f"class{number % 3}" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    pack(folder / "tree", folder / "out.lmdb")
    return folder / "out.lmdb"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(tmp_path_factory.mktemp("good"), files())


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packed(tmp_path_factory.mktemp("damaged"), files() | bad_files())


def batches(loader: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(images.clone(), labels.clone()) for images, labels in loader]


def assert_equal(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs) > 0
    for (images, labels), (their_images, their_labels) in zip(ours, theirs, strict=True):
        assert torch.equal(labels, their_labels)
        assert images.stride() == their_images.stride()
        assert torch.equal(images, their_images)


@pytest.mark.parametrize("decoder", DECODERS, ids=str)
@pytest.mark.parametrize(("mode", "turned"), [("RGB", False), ("RGB", True), ("L", True)])
def test_batches_are_the_same(
    good: Path,
    kernel: Counting,
    switch: Callable[[bool], None],
    decoder: Decoder,
    mode: Any,
    turned: bool,
) -> None:
    def two_epochs(kind: Any, workers: int) -> list[Any]:
        dataset = open_dataset(good, decode=decoder, mode=mode, exif_transpose=turned)
        loader = make_loader(
            dataset, 7, kind=kind, shuffle=True, seed=4, num_workers=workers,
            persistent_workers=None if kind == "threads" else False,
        )  # fmt: skip
        return batches(loader) + batches(loader)

    switch(False)
    expected = two_epochs("threads", 1)
    assert kernel.done == 0
    switch(True)
    assert_equal(two_epochs("threads", 2), expected)
    assert kernel.done > 10
    kernel.done = 0
    assert_equal(two_epochs("processes", 0), expected)
    assert kernel.done > 10


def test_worker_processes_use_it(good: Path, switch: Callable[[bool], None]) -> None:
    made = []
    for use in (False, True):
        switch(use)
        loader = make_loader(
            open_dataset(good, decode=TRAIN), 16, kind="processes", num_workers=1, shuffle=True,
            persistent_workers=False,
        )  # fmt: skip
        made.append(batches(loader))
    assert_equal(*made)


@pytest.mark.parametrize("decoder", [*DECODERS, Resize(24)], ids=str)
def test_single_samples_are_the_same(
    good: Path, kernel: Counting, switch: Callable[[bool], None], decoder: Decoder
) -> None:
    made = []
    for use in (False, True):
        switch(use)
        torch.manual_seed(1)
        dataset = open_dataset(good, decode=decoder, exif_transpose=True)
        made.append([(image.unsqueeze(0), torch.tensor(label)) for image, label in dataset])
    assert_equal(*made)
    assert bool(kernel.done) == (decoder.out_size is not None)


def test_transforms_and_fields_get_the_same(
    good: Path, kernel: Counting, switch: Callable[[bool], None]
) -> None:
    made = []
    for use in (False, True):
        switch(use)
        torch.manual_seed(1)
        dataset = open_dataset(
            good, transform=lambda image: image.float() + 1, decode=TRAIN, fields=("image",)
        )
        made.append([(image, torch.tensor(label)) for image, label in dataset.__getitems__([3, 1])])
    assert_equal(*made)
    assert kernel.done


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_the_same_are_skipped(
    damaged: Path,
    switch: Callable[[bool], None],
    caplog: pytest.LogCaptureFixture,
    kind: Any,
    verify: bool,
) -> None:
    made, said = [], []
    for use in (False, True):
        switch(use)
        caplog.clear()
        dataset = open_dataset(damaged, decode=TRAIN, on_error="skip", verify=verify)
        workers = 1 if kind == "threads" else 0
        loader = make_loader(dataset, 20, kind=kind, shuffle=True, num_workers=workers)
        made.append(batches(loader))
        assert dataset.skipped == len(bad_files())
        skipped = loader.skipped if isinstance(loader, FastLoader) else []
        said.append((skipped, caplog.messages))
    assert_equal(*made)
    assert said[0] == said[1]


def test_errors_are_the_same(damaged: Path, switch: Callable[[bool], None]) -> None:
    words: list[list[str]] = []
    for use in (False, True):
        switch(use)
        dataset = open_dataset(damaged, decode=CenterCrop(16))
        bad = [row for row, (path, _) in enumerate(dataset.samples) if path.count(".") > 1]
        assert len(bad) == len(bad_files())
        words.append([])
        for ask in (dataset.__getitem__, lambda row: dataset.decode_batch([0, row, 1])):  # noqa: B023
            for row in bad:
                with pytest.raises(SampleError) as caught:
                    ask(row)
                assert f"sample {row}" in str(caught.value)
                words[-1].append(f"{caught.value.reason}: {caught.value}")
        with pytest.raises(SampleError) as caught:
            dataset.__getitems__([0, *bad])
        words[-1].append(str(caught.value))
    assert words[0] == words[1]


def test_samples_that_were_changed_are_told(tmp_path: Path, switch: Callable[[bool], None]) -> None:
    switch(True)
    changed = packed(tmp_path, {"a.jpg": encoded(picture(0)), "b.jpg": encoded(picture(2))})
    file = changed / "data.mdb" if changed.is_dir() else changed
    data = bytearray(file.read_bytes())
    place = data.index(encoded(picture(2))) + 30
    data[place] ^= 1  # inside a quantization table: it is decoded without a complaint
    file.write_bytes(data)
    dataset = open_dataset(changed, decode=CenterCrop(16), verify=True)
    with pytest.raises(SampleError, match="checksum") as caught:
        dataset.decode_batch([0, 1])
    assert caught.value.reason == "corrupt"


def test_a_pass_goes_on_with_it_where_it_stopped_without(
    good: Path, switch: Callable[[bool], None]
) -> None:
    def loader() -> FastLoader:
        return FastLoader(open_dataset(good, decode=TRAIN), 5, shuffle=True, seed=2, num_workers=1)

    switch(False)
    expected = batches(whole := loader())
    ended = whole.state_dict()
    first = loader()
    begun = iter(first)
    next(begun), next(begun)
    state = first.state_dict()
    del begun
    switch(True)
    second = loader()
    second.load_state_dict(state)
    assert_equal(batches(second), expected[2:])
    assert second.state_dict() == ended


def test_pillows_limit_holds(
    good: Path, switch: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in (1500, 0, 1e9, float("inf"), None):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        made = []
        for use in (False, True):
            switch(use)
            dataset = open_dataset(good, decode=CenterCrop(16), on_error="skip")
            images, _, kept = dataset.decode_batch(range(len(dataset)), skipped=[])
            made.append(images[torch.from_numpy(kept)])
        assert torch.equal(*made)
        assert (len(made[0]) < len(files())) == (limit in (1500, 0))


def test_what_it_cannot_do_is_left_alone(kernel: Counting, switch: Callable[[bool], None]) -> None:
    switch(True)
    good, far = encoded(picture(0)), Geometry(0, 0, 9, 9, 1 << 40, 1 << 40, 0, 0, 8, 8)
    out = np.zeros((4, 8, 8, 3), np.uint8)
    given = [good, None, b"", encoded(picture(0), "PNG")]
    done = native.decode(given, CenterCrop(8), [()] * 4, out)
    assert done.tolist() == [True, False, False, False]
    if isinstance(kernel.kernel, Half):
        return
    for geometry in (far, far._replace(rows=9, columns=9, out_rows=7)):
        assert native.decode([good], Fixed(geometry), [()], out[:1]).tolist() == [False]


def refuse(width: int, height: int, draw: Any) -> Geometry:
    raise SampleError("too small", "bad_record")


def test_a_decoder_may_refuse_a_picture(
    good: Path, switch: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Fixed(Geometry(0, 0, 9, 9, 8, 8, 0, 0, 8, 8))
    monkeypatch.setattr(decoder, "geometry", refuse)
    dataset = open_dataset(good, decode=decoder)
    words = []
    for use in (False, True):
        switch(use)
        with pytest.raises(SampleError, match="too small") as caught:
            dataset.decode_batch([0, 1])
        words.append(str(caught.value))
    assert words[0] == words[1]


MODULES = {
    "cannot be imported": "raise ImportError('libjpeg.so.62: cannot open shared object file')",
    "fails otherwise": "raise SystemError('initialization failed')",
    "is of another version": "INTERFACE = 0\nDONE = 0\ndef headers(*_): ...\ndef decode(*_): ...",
}


def dataset_without(good: Path) -> PackDataset:
    dataset = open_dataset(good, decode=CenterCrop(16))
    images, _, kept = dataset.decode_batch(range(20))
    assert kept.all()
    assert torch.equal(images[3], dataset[3][0])
    return dataset


@pytest.mark.parametrize("text", MODULES.values(), ids=MODULES)
def test_one_that_is_of_no_use_is_not_used(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "fastconv_native.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "fastconv_native", raising=False)
    assert native.kernel() is None
    dataset_without(good)
    monkeypatch.delitem(sys.modules, "fastconv_native", raising=False)


def test_it_need_not_be_there(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastconv_native", None)
    assert native.kernel() is None
    dataset_without(good)


@pytest.mark.parametrize(
    ("value", "used"), [("0", False), ("False", False), ("off", False), ("1", True), ("", True)]
)
def test_it_can_be_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, used: bool
) -> None:
    text = "INTERFACE = 1\nDONE = 0\ndef headers(*_): ...\ndef decode(*_): ..."
    (tmp_path / "fastconv_native.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "fastconv_native", raising=False)
    monkeypatch.setenv("FASTCONV_NATIVE", value)
    assert (native.kernel() is not None) == used
    monkeypatch.delitem(sys.modules, "fastconv_native", raising=False)
