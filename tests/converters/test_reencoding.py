"""Packs whose images were encoded anew."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.support import OUTS, captions

from fastconv.converters import Encoding, Sample, Sharding, convert, merge, pack, repair
from fastconv.converters import plan as plan_module
from fastconv.converters.cli.encoding import encoding_of
from fastconv.converters.unpacking import unpack
from fastconv.converters.verifying import verify
from fastconv.converters.writer import WRITERS
from fastconv.loaders import open_dataset
from fastconv.loaders.errors import UsageError
from fastconv.loaders.open import open_pack

SMALL = Encoding(resize="short=20", encode="png")
PACKS: dict[str, dict[str, Any]] = {
    **{out: {} for out in OUTS},
    **{
        f"{name} shards": {"format": name, "sharding": Sharding(samples=7)}
        for name in WRITERS.names()
        if WRITERS.load(name).sharded
    },
}
"""OUT and how it is packed."""


def image(seed: int, width: int, height: int) -> Image.Image:
    noise = random.Random(seed).randbytes(width * height * 3)
    return Image.frombytes("RGB", (width, height), noise)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Returns images of several formats and sizes, captions, and two files that are no images."""
    root = tmp_path / "tree"
    for number in range(30):
        kind = ("png", "jpg", "bmp")[number % 3]
        file = root / "abc"[number % 3] / f"{number:02}.{kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        image(number, 20 + number, 20 + number % 5).save(file)
        if number % 2:
            file.with_suffix(".txt").write_text(f"caption {number}\n" * 9)
    (root / "b/01x.jpg").write_bytes(b"<html>no image</html>")
    data = (root / "b/04.jpg").read_bytes()
    (root / "b/04x.jpg").write_bytes(data[: len(data) // 2])
    return root


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "PART_BYTES", 30_000)


def size_of(file: Path) -> tuple[int, int]:
    with Image.open(file) as picture:
        return picture.size


def expected(tree: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Returns what Pillow makes of the images, by their paths."""
    out = {}
    for file in sorted(tree.rglob("*")):
        if file.suffix in (".png", ".jpg", ".bmp") and "x" not in file.stem:
            picture = Image.open(file).convert("RGB")
            width, height = picture.size
            if min(width, height) > 20:
                size = (20 * width // height, 20) if width >= height else (20, 20 * height // width)
                picture = picture.resize(size, Image.Resampling.LANCZOS)
            out[str(file.relative_to(tree).with_suffix(".png"))] = np.asarray(picture, np.int32)
    return out


def content(path: Path) -> dict[str, bytes]:
    """Returns the bytes of all that a pack is, by the names behind its own."""
    files = [
        file
        for found in path.parent.iterdir()
        if found.name.startswith(path.name)
        for file in [found, *found.rglob("*")]
        if file.is_file()
    ]
    return {str(file)[len(str(path)) :]: file.read_bytes() for file in files}


@pytest.mark.parametrize("out", PACKS)
def test_every_format_holds_them(tree: Path, tmp_path: Path, out: str) -> None:
    path, arguments = tmp_path / "one" / out, dict(PACKS[out])
    path.parent.mkdir()
    arguments["sidecars"] = captions(out, arguments.get("format"))
    report = pack(tree, path, encoding=SMALL, **arguments)
    assert sorted(bad.path for bad in report.bad) == ["b/01x.jpg", "b/04x.jpg"]
    assert report.notices[-1] == "encoded anew: 30 of 30 images, the others are as they were"
    dataset = open_dataset(path, decode="numpy", verify=True)
    wanted = expected(tree)
    assert [name for name, _ in dataset.samples] == [*wanted]
    for (pixels, label), (name, own) in zip(dataset, wanted.items(), strict=True):
        assert label == "abc".index(name[0])
        assert np.abs(pixels.astype(np.int32) - own).max() <= 1
    assert verify(path, decode=True).status == "done"


@pytest.mark.parametrize("out", ["out.lmdb", "recordio shards"])
def test_the_bytes_do_not_depend_on_workers(tree: Path, tmp_path: Path, out: str) -> None:
    for workers in (None, 1, 2):
        path = tmp_path / f"{workers}" / out
        path.parent.mkdir()
        pack(tree, path, encoding=SMALL, workers=workers, **PACKS[out])
        assert content(path) == content(tmp_path / "None" / out)


def test_what_does_not_change_keeps_its_bytes(tree: Path, tmp_path: Path) -> None:
    pack(tree, tmp_path / "out.lmdb", encoding=Encoding(resize="short=23"), sidecars=("txt",))
    assert unpack(tmp_path / "out.lmdb", tmp_path / "files").status == "done"
    same = 0
    for file in sorted(tree.rglob("*")):
        if "x" in file.stem or not file.is_file():
            continue
        copy = tmp_path / "files" / file.relative_to(tree)
        if file.suffix == ".txt":
            assert copy.read_bytes() == file.read_bytes()
        elif min(size_of(file)) <= 23:
            assert copy.read_bytes() == file.read_bytes()
            same += 1
        else:  # what was none of the three has become PNG
            made = copy.with_suffix(".png") if file.suffix == ".bmp" else copy
            assert min(size_of(made)) == 23
            assert (made.suffix == ".png") == made.read_bytes().startswith(b"\x89PNG")
    assert 0 < same < 30


def test_paths_that_would_be_the_same(tmp_path: Path) -> None:
    for name in ("a.bmp", "a.png", "a.gif", "a.gif.jpg", "b.png"):
        file = tmp_path / "tree/x" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        image(len(name), 8, 8).save(file, None if name != "a.gif.jpg" else "JPEG")
    for name in ("a.txt", "B.TXT"):
        (tmp_path / "tree/x" / name).write_text(name)
    os.rename(tmp_path / "tree/x/B.TXT", tmp_path / "tree/x/b.TXT")
    pack(
        tmp_path / "tree", tmp_path / "out.h5", encoding=Encoding(encode="jpeg"), sidecars=("txt",)
    )
    reader = open_pack(tmp_path / "out.h5")
    names = {tuple(reader.table.names(row)) for row in range(5)}
    assert names == {
        ("x/a.jpg", "x/a.txt"), ("x/a.gif_1.jpg", "x/a.txt"), ("x/a.gif.jpg", ""),
        ("x/a.png.jpg", "x/a.txt"), ("x/b.jpg", "x/b.TXT"),
    }  # fmt: skip
    assert unpack(tmp_path / "out.h5", tmp_path / "files").status == "done"


STOPPED = """
import os, sys
from fastconv.converters import Encoding, journal, pack, plan
plan.PART_BYTES = 30_000
journal.SYNC_S = float(sys.argv[4])
left = int(sys.argv[3])
for owner, names in {
    os: ["mkdir", "rename", "truncate", "fsync", "unlink"],
    journal.Journal: ["_append", "add", "end_pass"],
}.items():
    for name in names:
        def run(*args, call=getattr(owner, name), **more):
            global left
            left -= 1
            if left < 0:
                os.kill(0, 9)
            return call(*args, **more)
        setattr(owner, name, run)
pack(sys.argv[1], sys.argv[2], encoding=Encoding(encode="png"), workers=2)
"""


@pytest.mark.parametrize("sync", [0.0, 60.0])
@pytest.mark.parametrize("out", ["out.lmdb", "out.rec"])
def test_a_stopped_run_goes_on(tree: Path, tmp_path: Path, out: str, sync: float) -> None:
    anew = Encoding(encode="png")  # without resizing torch is not imported, which takes long
    (tmp_path / "whole").mkdir()
    whole = tmp_path / "whole" / out
    pack(tree, whole, encoding=anew, workers=2)
    draw, stops = random.Random(f"{out} {sync}"), 0
    for number in range(3):
        path = tmp_path / f"{number}" / out
        path.parent.mkdir()
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", STOPPED, tree, path, str(draw.randrange(4, 60)), str(sync)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False,
                start_new_session=True, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert done.returncode in (0, -signal.SIGKILL), done.stderr
            stops += done.returncode != 0
            if done.returncode == 0:
                break
        if not path.exists() or list(path.parent.glob("*.partial")):
            pack(tree, path, encoding=anew, workers=2)
        assert content(path) == content(whole)
        assert not list(path.parent.glob("*.partial"))
    assert stops


def test_another_encoding_is_not_mixed_in(tree: Path, tmp_path: Path) -> None:
    def stop(progress: Any) -> None:
        if progress.samples > 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path / "out.tar", encoding=SMALL, workers=2, progress=stop)
    other = Encoding(resize="short=21", encode="png")
    for encoding, words in ((other, "short=20 .*, is --resize short=21"), (None, "is not given")):
        with pytest.raises(UsageError, match=f"what images become was --resize.*{words}"):
            pack(tree, tmp_path / "out.tar", encoding=encoding, workers=2)
    report = pack(tree, tmp_path / "out.tar", encoding=SMALL, workers=2)
    assert report.samples == 30


def test_packs_are_encoded_anew_too(tree: Path, tmp_path: Path) -> None:
    """What comes from a pack is what comes from the folder; damaged samples are left out."""
    pack(tree, tmp_path / "whole.tar", sidecars=("txt",))
    convert(tmp_path / "whole.tar", tmp_path / "a.h5", encoding=SMALL)
    os.unlink(tree / "b/01x.jpg")
    os.unlink(tree / "b/04x.jpg")
    pack(tree, tmp_path / "b.h5", encoding=SMALL, sidecars=("txt",))
    wanted = {name: data.tolist() for name, data in expected(tree).items()}
    for name in ("a.h5", "b.h5"):
        dataset = open_dataset(tmp_path / name, fields=("image", "txt"), decode="numpy")
        for (pixels, _text, _), (path, _) in zip(dataset, dataset.samples, strict=True):
            assert np.abs(pixels.astype(int) - np.array(wanted[path])).max() <= 1
    reader: Any = open_pack(tmp_path / "whole.tar")
    with open(tmp_path / "whole.tar", "r+b") as file:
        file.seek(int(reader.table.offset[0][5]) + 40)
        file.write(b"?")
    report = convert(tmp_path / "whole.tar", tmp_path / "c.h5", encoding=SMALL)
    assert [bad.reason for bad in report.bad if bad.reason == "corrupt"] == ["corrupt"]
    # What it is goes on with a pack that is converted or merged.
    assert open_pack(tmp_path / "a.h5").meta.encoding == {"resize": "short=20", "encode": "png"}
    convert(tmp_path / "a.h5", tmp_path / "d.lmdb")
    assert open_pack(tmp_path / "d.lmdb").meta.encoding == SMALL.to_json()
    pack(tree, tmp_path / "plain.lmdb")
    merge([tmp_path / "plain.lmdb", tmp_path / "a.h5"], tmp_path / "e.tar", prefix=True)
    assert open_pack(tmp_path / "e.tar").meta.encoding == SMALL.to_json()


def test_samples_of_a_program(tmp_path: Path) -> None:
    def png(seed: int) -> bytes:
        file = io.BytesIO()
        image(seed, 50, 40).save(file, "PNG")
        return file.getvalue()

    samples = (Sample(f"{n}.png", png(n), "ab"[n % 2], {"txt": b"x"}) for n in range(5))
    pack(samples=samples, out=tmp_path / "out.lmdb", encoding=Encoding(resize="10x10"))
    dataset = open_dataset(tmp_path / "out.lmdb", verify=True)
    assert [picture.size for picture, _ in dataset] == [(10, 10)] * 5


def test_raw_pixels(tree: Path, tmp_path: Path) -> None:
    for out in OUTS:
        encoding = Encoding(resize="16x16", encode="raw")
        pack(tree, tmp_path / out, encoding=encoding)
        reader = open_pack(tmp_path / out)
        assert {(w, h) for w, h in zip(reader.table.width, reader.table.height, strict=True)} == {
            (16, 16)
        }
        assert reader.table.path(0) == "a/00.npy"
        for row in range(30):
            stored = reader.read(row)
            assert stored is not None
            pixels = np.frombuffer(stored, np.uint8).reshape(16, 16, 3)
            if row == 0:
                side = 20
                picture = Image.open(tree / "a/00.png").convert("RGB")
                assert picture.size == (side, side)
                own = np.asarray(picture.resize((16, 16), Image.Resampling.LANCZOS), np.int32)
                assert np.abs(pixels.astype(np.int32) - own).max() <= 1
        assert verify(tmp_path / out).status == "done"


def test_it_is_not_compared_with_the_source(tree: Path, tmp_path: Path) -> None:
    pack(tree, tmp_path / "out.lmdb", encoding=SMALL)
    with pytest.raises(UsageError, match=r"encoded anew .*: leave out --against"):
        verify(tmp_path / "out.lmdb", against=tree)
    # What lies between the samples is mended, without the source.
    with open(tmp_path / "out.lmdb/data.mdb", "r+b") as file:
        file.seek(4096 * 2 + 20)
        file.write(b"\xff")
    before = open_pack(tmp_path / "out.lmdb").meta.id
    assert verify(tmp_path / "out.lmdb").status != "done"
    repair(tmp_path / "out.lmdb", tree)
    assert verify(tmp_path / "out.lmdb").status == "done"
    assert open_pack(tmp_path / "out.lmdb").meta.id == before


def test_options_of_the_command_line(tree: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "fastconv", *map(str, arguments)], capture_output=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    out = tmp_path / "out.lmdb"
    code, text, _ = run(
        "pack", tree, out, "--resize", "12x16", "--fit", "stretch", "--encode", "webp",
        "--quality", 70, "--background", "#102030", "--json",
    )  # fmt: skip
    assert code == 3
    assert "encoded anew" in json.loads(text)["notices"][-1]
    assert {picture.size for picture, _ in open_dataset(out)} == {(12, 16)}
    stored = {"resize": "12x16", "fit": "stretch", "encode": "webp", "quality": 70,
              "background": "#102030"}  # fmt: skip
    assert open_pack(out).meta.encoding == stored
    code, _, words = run("convert", out, tmp_path / "b.tar", "--encode", "raw", "--color", "grey")
    assert code == 0, words
    code, _, words = run("pack", tree, tmp_path / "c.lmdb", "--quality", 70)
    assert code == 2
    assert words.startswith("error: --quality: needs --resize or --encode")
    code, _, words = run("pack", tree, tmp_path / "c.lmdb", "--resize", "70")
    assert code == 2
    assert words.startswith("error: resize is '70'")
    code, text, _ = run("info", out, "--json")
    assert json.loads(text)["encoding"] == stored
    assert "encoded anew" in run("info", out)[1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"quality": 90}, "--quality: needs --resize or --encode"),
        ({"enlarge": True}, "--enlarge: needs --resize or --encode"),
        ({"encode": "png", "quality": 90}, "--quality: means nothing with --encode png"),
        ({"encode": "raw", "subsampling": "4:2:0"}, "--subsampling: means nothing with"),
        ({"resize": "short=9", "fit": "cover"}, "--fit: needs --resize WIDTHxHEIGHT"),
        ({"encode": "png", "enlarge": True}, "--enlarge: needs --resize"),
    ],
)
def test_options_that_mean_nothing_are_refused(given: dict[str, Any], words: str) -> None:
    """Also where they say what is so by itself."""
    nothing = dict.fromkeys(
        ("resize", "encode", "fit", "quality", "subsampling", "color", "background"), None
    )
    with pytest.raises(UsageError, match=words):
        encoding_of(**{**nothing, "enlarge": False, **given})


def test_raw_pixels_of_several_shapes_are_told(tree: Path, tmp_path: Path) -> None:
    report = pack(tree, tmp_path / "a.h5", encoding=Encoding(resize="30x30", encode="raw"))
    assert "raw pixels of several shapes" in report.notices[-1]
    assert "--resize WIDTHxHEIGHT --enlarge" in report.notices[-1]
    one = Encoding(resize="30x30", enlarge=True, encode="raw")
    report = pack(tree, tmp_path / "b.h5", encoding=one)
    assert "encoded anew" in report.notices[-1]


def test_raw_packs_are_encoded_too(tree: Path, tmp_path: Path) -> None:
    raw = Encoding(resize="16x16", encode="raw")
    pack(tree, tmp_path / "raw.lmdb", encoding=raw)
    convert(tmp_path / "raw.lmdb", tmp_path / "png.h5", encoding=Encoding(encode="png"))
    stored = open_dataset(tmp_path / "raw.lmdb", decode="numpy")
    for (pixels, _), (own, _) in zip(
        open_dataset(tmp_path / "png.h5", decode="numpy"), stored, strict=True
    ):
        assert (pixels == own).all()
    report = convert(
        tmp_path / "raw.lmdb", tmp_path / "small.lmdb", encoding=Encoding(resize="8x8")
    )
    assert (report.samples, report.bad) == (30, [])
    assert {image.shape for image, _ in open_dataset(tmp_path / "small.lmdb", decode="numpy")} == {
        (8, 8, 3)
    }
    assert open_pack(tmp_path / "small.lmdb").table.path(0) == "a/00.npy"
