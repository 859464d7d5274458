"""Packs that are replaced while they are opened and read: the one or the other, never a mixture.

Some of it is done by other processes at full speed, so that chance finds what was not thought of;
what was thought of is done at the very moment, in this process.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.support import captions

from fastconv.converters import Sharding, pack
from fastconv.converters.report import PackReport
from fastconv.loaders import PackChangedError, beside, open_dataset, open_pack, parquet_columns
from fastconv.loaders import open as opening
from fastconv.loaders.formats import lmdb, parquet, recordio, tfrecord, webdataset
from fastconv.loaders.index import index_path
from fastconv.loaders.reader import Reader

COUNTS = {"one": (5, 3), "two": (5, 3), "three": (2, 9)}
"""The trees that take turns, and how many samples their classes have. The first two differ in
nothing but the bytes: their packs have the same sizes and places."""

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lmdb": ("out.lmdb", {}),
    "hdf5": ("out.h5", {}),
    "hdf5-vlen": ("out.h5", {"options": {"layout": "vlen"}}),
    "one-tar": ("out.tar", {}),
    "shards": ("out", {"format": "webdataset", "sharding": Sharding(samples=3)}),
    "one-parquet": ("out.parquet", {}),
    "parquet": ("out", {"format": "parquet", "sharding": Sharding(samples=3)}),
    "one-tfrecord": ("out.tfrecord", {}),
    "tfrecord": ("out", {"format": "tfrecord", "sharding": Sharding(samples=3)}),
    "one-recordio": ("out.rec", {}),
    "recordio": ("out", {"format": "recordio", "sharding": Sharding(samples=3)}),
}
"""What is packed, OUT and arguments: every format that can be written, in each of its shapes."""

ONE_FILE = [kind for kind in KINDS if kind.startswith("one-")]
BESIDE = [*ONE_FILE, *(kind for kind in KINDS if "sharding" in KINDS[kind][1])]
"""Those whose table lies beside their data."""

READER = """
import hashlib, json, os, pickle, select, sys, traceback
from collections import Counter
from fastconv.loaders import PackChangedError, open_dataset

path, count, expected = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
fields = sys.argv[4:]

def over():  # the test has closed its end
    return bool(select.select([0], [], [], 0)[0])

def digest(data):
    return hashlib.sha256(data).hexdigest()

def look(dataset):
    # Everything, in each way. Only a whole pack that is known can give this.
    known = expected[dataset.pack_id]
    images = [image for image, *_ in known]
    rows = [*range(len(known))]
    assert len(dataset) == len(known)
    assert [digest(dataset.read(row)) for row in reversed(rows)] == images[::-1]
    assert [digest(view) for view in dataset.read_many(rows)] == images
    for samples in ([dataset[row] for row in rows], dataset.__getitems__(rows)):
        found = [
            [digest(image), [caption.decode() for caption in captions], label]
            for image, *captions, label in samples]
        assert found == [[image, captions, label] for image, captions, label, path in known]
    assert [[path, label] for path, label in dataset.samples] == [
        [path, label] for *_, label, path in known]
    assert dataset.classes == sorted({path.partition("/")[0] for *_, path in known})
    return 4 * len(known)

def read(number):
    done = Counter(dict.fromkeys(("opened", "reads", "changed"), 0))
    kept = []
    while not over():
        dataset = open_dataset(path, decode=None, fields=fields, verify=number % 2 == 1)
        done["opened"] += 1
        os.write(1, b"opened\\n")
        copy = pickle.loads(pickle.dumps(dataset))
        for each in (dataset, *kept, copy, dataset):
            try:
                done["reads"] += look(each)
            except PackChangedError:
                done["changed"] += 1
        kept = [dataset, *kept[:2]]
    os.write(1, (json.dumps(done) + "\\n").encode())

os.nice(19)  # so that packing is not held up
children = []
for number in range(count):
    if not (child := os.fork()):
        try:
            read(number)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
os.close(1)
ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(f"readers ended with {ends}" if any(ends) else 0)
"""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Returns folders of images of one size."""
    folder = tmp_path_factory.mktemp("trees")
    for tree, counts in COUNTS.items():
        for number, count in enumerate(counts):
            for row in range(count):
                file = folder / tree / f"{tree[:2]}{number}" / f"{row}.bmp"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.effect_noise((24, 20), 99).convert("RGB").save(file)
                file.with_suffix(".txt").write_text(f"{tree[:2]} {number} {row}")
    return [folder / tree for tree in COUNTS]


def samples_of(tree: Path, fields: tuple[str, ...]) -> list[tuple[str, list[str], int, str]]:
    """Returns what a pack of a tree must give: digest of the image, captions, label, path."""
    classes = sorted(tree.iterdir())
    return [
        (
            digest(file.read_bytes()),
            [file.with_suffix(f".{field}").read_text() for field in fields[1:]],
            label,
            str(file.relative_to(tree)),
        )
        for label, folder in enumerate(classes)
        for file in sorted(folder.glob("*.bmp"))
    ]


def digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def make(kind: str, tree: Path, folder: Path, **more: Any) -> PackReport:
    """Packs a tree into a folder, with its captions where these can be held."""
    out, arguments = KINDS[kind]
    sidecars = captions(out, arguments.get("format"))
    return pack(tree, folder / out, sidecars=sidecars, **arguments, **more)


@pytest.mark.parametrize(
    ("readers", "replacements"), [(3, 10), pytest.param(8, 50, marks=pytest.mark.torture)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_pack_that_is_replaced_while_others_read_it(
    kind: str, readers: int, replacements: int, trees: list[Path], tmp_path: Path
) -> None:
    def replace(number: int) -> PackReport:
        return make(kind, trees[number % len(trees)], tmp_path, overwrite=True, workers=1)

    out, arguments = KINDS[kind]
    fields = ("image", *captions(out, arguments.get("format")))
    expected = {replace(number).id: samples_of(tree, fields) for number, tree in enumerate(trees)}
    assert len(expected) == len(trees)
    with (tmp_path / "errors").open("w+b") as errors:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                READER,
                str(tmp_path / out),
                str(readers),
                json.dumps(expected),
                *fields,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdin
        assert process.stdout
        try:
            for number in range(replacements):
                assert replace(number).id in expected
                # One in three follows the one before at once; else as many openings as there are
                # readers come in between.
                for _ in range(readers if number % 3 else 0):
                    process.stdout.readline()
        finally:
            process.stdin.close()  # which ends them
            lines = process.stdout.read().splitlines()
            process.stdout.close()
            process.wait()
        errors.seek(0)
        assert process.returncode == 0, errors.read().decode()
    done = [json.loads(line) for line in lines if line != b"opened"]
    assert len(done) == readers
    assert all(each["reads"] for each in done)


# ---------------------------------------------------------------------------- at the very moment


@pytest.fixture
def two(trees: list[Path], tmp_path: Path) -> Callable[[str], tuple[Path, Path, list[str]]]:
    """Returns what gives two packs of one kind, and their ids: an old one, and a new one that has
    the same sizes and places."""

    def make_both(kind: str) -> tuple[Path, Path, list[str]]:
        ids = []
        for name, tree in zip(("old", "new"), trees, strict=False):
            (tmp_path / name).mkdir()
            ids.append(make(kind, tree, tmp_path / name).id)
        return tmp_path / "old" / KINDS[kind][0], tmp_path / "new" / KINDS[kind][0], ids

    return make_both


def index_of(path: Path) -> Path:
    return Path(index_path(str(path)))


def move(new: Path, old: Path) -> None:
    """Puts one pack in the place of another, as packing does."""
    for file in sorted(new.parent.iterdir()):
        if file != new:  # what lies beside it comes first
            file.rename(old.parent / file.name)
    if old.is_dir():
        old.rename(old.with_name("was"))
    new.rename(old)


def at_first_call(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], None], before: bool
) -> None:
    """Lets something happen once, before or after the first call of a function."""
    real, waiting = getattr(owner, name), [act]

    def call(*args: Any, **options: Any) -> Any:
        if before and waiting:
            waiting.pop()()
        found = real(*args, **options)
        if waiting:
            waiting.pop()()
        return found

    monkeypatch.setattr(owner, name, call)


Two = Callable[[str], tuple[Path, Path, list[str]]]


def read_all(reader: Reader) -> list[str]:
    return [digest(reader.read(row) or b"") for row in range(len(reader))]


STEPS = [
    ("lmdb", lmdb, "first_bytes"),
    ("lmdb", lmdb, "map_file"),
    ("lmdb", opening, "require_path"),
    *((kind, beside, name) for kind in BESIDE for name in ("load_index", "shard_files")),
    *((kind, beside, "names_in") for kind in BESIDE if kind not in ONE_FILE),
    *((kind, beside.BesideReader, "check_belongs") for kind in ("shards", "parquet", "recordio")),
    ("tfrecord", tfrecord.TFRecordReader, "check_belongs"),
]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("kind", "owner", "name"), STEPS)
def test_replaced_between_two_steps_of_opening(
    kind: str,
    owner: Any,
    name: str,
    before: bool,
    two: Two,
    trees: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old, new, ids = two(kind)
    at_first_call(monkeypatch, owner, name, lambda: move(new, old), before)
    reader = open_pack(old)
    assert not new.exists()
    number = ids.index(reader.meta.id)
    assert reader.notices == []
    try:
        found = read_all(reader)
    except PackChangedError:  # not mapped before it was replaced
        assert number == 0
    else:
        assert found == [sample[0] for sample in samples_of(trees[number], ("image",))]


@pytest.mark.parametrize("kind", ONE_FILE)
def test_a_file_whose_table_changes_places_first(
    kind: str, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two moves the new table lies beside the old file."""
    old, new, ids = two(kind)
    journal = Path(f"{old}.partial/publish")
    journal.parent.mkdir()
    journal.touch()
    index_of(new).rename(index_of(old))
    waits = []

    def go_on(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            new.rename(old)
            shutil.rmtree(journal.parent)

    monkeypatch.setattr(opening, "sleep", go_on)
    link = old.with_stem("link")
    link.symlink_to(old)
    index_of(link).symlink_to(index_of(old))
    reader = open_pack(link)
    assert (reader.meta.id, len(waits)) == (ids[1], 3)
    assert reader.meta.classes == ("tw0", "tw1")


@pytest.mark.parametrize("kind", ONE_FILE)
def test_a_file_whose_replacement_was_killed_in_between(
    kind: str, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, _ = two(kind)
    os.makedirs(f"{old}.partial")
    Path(f"{old}.partial/publish").touch()
    index_of(new).rename(index_of(old))
    monkeypatch.setattr(opening, "PATIENCE_S", 0)
    for open_it in (open_pack, open_dataset):
        with pytest.raises(PackChangedError, match="is being replaced: open it again; if no proc"):
            open_it(old)


@pytest.mark.parametrize("kind", ONE_FILE)
def test_a_table_of_another_pack_is_told(kind: str, two: Two, trees: list[Path]) -> None:
    """Nothing is being published: somebody has copied the wrong file."""
    old, new, _ = two(kind)
    index_of(new).rename(index_of(old))
    reader = open_pack(old)
    assert reader.meta.id == ""
    # These say themselves what their classes are called.
    knows_classes = kind in ("one-parquet", "one-tfrecord")
    assert reader.meta.classes == (("on0", "on1") if knows_classes else ())
    ignored = r"the sample table is ignored, the (headers|columns|records) are read instead: .*"
    assert re.match(f"{ignored}: belongs to another pack than ", reader.notices[0])
    assert reader.table.label.tolist() == [0] * 5 + [1] * 3
    assert read_all(reader) == [sample[0] for sample in samples_of(trees[0], ("image",))]


SCANS = [
    *(("tar", webdataset, name) for name in ("members", "split_name", "TableBuilder")),
    *(("tfrecord", tfrecord, name) for name in ("records", "kind_of", "TableBuilder")),
    *(("recordio", recordio, name) for name in ("records_of", "head_of", "extent_at")),
    *(("parquet", parquet, name) for name in ("holds_parquet", "read_rows")),
    ("parquet", parquet_columns, "read_group"),
]


@pytest.mark.parametrize("one_file", [False, True])
@pytest.mark.parametrize(("format", "owner", "name"), SCANS)
def test_replaced_while_it_is_gone_through(
    format: str,
    owner: Any,
    name: str,
    one_file: bool,
    two: Two,
    trees: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its table, until another pack, which has one, takes its place."""
    old, new, ids = two(f"one-{format}" if one_file else format.replace("tar", "shards"))
    index_of(old).unlink()
    at_first_call(monkeypatch, owner, name, lambda: move(new, old), False)
    reader = open_pack(old)
    assert reader.meta.id == ids[1]
    assert read_all(reader) == [sample[0] for sample in samples_of(trees[1], ("image",))]


# ------------------------------------------------------------------------------ packs without an id


def others_tar(file: Path, texts: list[str], label: int = 0) -> None:
    """Writes a tar as others do."""
    with tarfile.open(file, "w") as tar:
        for number, text in enumerate(texts):
            image = io.BytesIO()
            Image.new("RGB", (4, 4), (number, 0, 0)).save(image, "BMP")
            parts = {"bmp": image.getvalue(), "txt": text.encode(), "cls": b"%d" % label}
            for field, data in parts.items():
                member = tarfile.TarInfo(f"{file.stem}-{number}.{field}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def test_a_shard_of_others_that_is_written_anew(tmp_path: Path) -> None:
    """Nothing in it tells whose it is, and its inode and size stay what they were."""
    for name in ("a", "b"):
        others_tar(tmp_path / f"{name}.tar", ["old", "old"])
    dataset = open_dataset(tmp_path)
    assert bytes(dataset.read(0, "txt") or b"") == b"old"
    others_tar(tmp_path / "b.tar", ["new", "new"])
    os.utime(tmp_path / "b.tar", ns=(1, 1))
    assert bytes(dataset.read(1, "txt") or b"") == b"old"
    for row in (2, 3):
        with pytest.raises(PackChangedError, match=r"b\.tar: was replaced since it was opened"):
            dataset.read(row, "txt")


def test_a_copy_finds_other_labels_in_a_pack_of_others(tmp_path: Path) -> None:
    others_tar(tmp_path / "a.tar", ["text"], label=3)
    text = pickle.dumps(open_dataset(tmp_path / "a.tar"))
    assert pickle.loads(text)[0][1] == 3
    others_tar(tmp_path / "a.tar", ["text"], label=4)
    with pytest.raises(PackChangedError, match="was replaced since this dataset was made"):
        pickle.loads(text)[0]
