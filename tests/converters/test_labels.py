"""Labels from a CSV or JSON Lines file, and class names from a text file."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastconv.converters.sources.labels import apply_labels, read_class_names
from fastconv.loaders.errors import UsageError
from fastconv.loaders.table import SampleTable
from fastconv.loaders.walk import Listing, WalkOptions, walk_folder

JPEG = b"\xff\xd8\xff\xe0" + bytes(20)


def make(root: Path, files: Iterable[str]) -> Path:
    """Makes files below a folder, and the folders they lie in."""
    for name in files:
        path = Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(JPEG)
    return root


def labelled(root: Path, text: str, name: str = "labels.csv", **options: Any) -> Listing:
    """Returns the listing of a folder with the labels of a file that is written into it."""
    file = Path(root, name)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    given = WalkOptions(labels=False, **options)
    return apply_labels(walk_folder(str(root), given), str(file), given)


def names_of(listing: Listing) -> list[list[str]]:
    """Returns the paths of all fields of each sample."""
    count = len(listing)
    table = SampleTable(
        fields=listing.fields,
        label=listing.label,
        kind=listing.kind,
        width=np.zeros(count, np.uint32),
        height=np.zeros(count, np.uint32),
        path_bytes=listing.path_bytes,
        path_offset=listing.path_offset,
        shard_row=np.array([0, count], np.int64),
        offset=tuple(np.zeros(count, np.uint64) for _ in listing.fields),
        size=listing.size,
    )
    return [table.names(row) for row in range(count)]


def rows_of(listing: Listing) -> list[tuple[int, str]]:
    """Returns label and path of each sample."""
    paths = [names[0] for names in names_of(listing)]
    return list(zip(listing.label.tolist(), paths, strict=True))


def extra_of(listing: Listing) -> list[bytes]:
    """Returns the bytes of the field json of each sample, as its columns say."""
    block, ends = listing.generated["json"]
    sizes = listing.size[listing.fields.index("json")].tolist()
    assert np.diff(ends.astype(np.int64)).tolist() == sizes
    return [block[start : start + size].tobytes() for start, size in zip(ends, sizes, strict=False)]


def bad_of(listing: Listing) -> dict[str, str]:
    """Returns path -> reason of what is bad; none is named twice."""
    reasons = {file.path: file.reason for file in listing.bad}
    assert len(reasons) == len(listing.bad)
    return dict(reasons)


def test_class_names(tmp_path: Path) -> None:
    make(tmp_path, ["b/1.jpg", "a/2.jpg", "a-b/3.jpg", "a/c/4.jpg"])
    text = "file_name,label\nb/1.jpg,ant\na/2.jpg,cat\na-b/3.jpg,cat\na/c/4.jpg,cat\n"
    listing = labelled(tmp_path, text)
    assert listing.classes == ("ant", "cat")
    assert listing.labels == "class"
    assert rows_of(listing) == [
        (0, "b/1.jpg"), (1, "a/2.jpg"), (1, "a-b/3.jpg"), (1, "a/c/4.jpg"),
    ]  # fmt: skip
    assert (listing.bad, listing.warnings, listing.notices) == ([], [], [])
    assert listing.ignored.to_json() == {"hidden": 0, "clutter": 0, "extension": {}}
    assert (listing.fields, listing.generated) == (("image",), {})


def test_integers(tmp_path: Path) -> None:
    make(tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    text = "label,file_name\n 7 ,a.jpg\n-3,b.jpg\n+9223372036854775807,c.jpg\n"
    listing = labelled(tmp_path, text)
    assert rows_of(listing) == [(-3, "b.jpg"), (7, "a.jpg"), (2**63 - 1, "c.jpg")]
    assert (listing.labels, listing.classes) == ("int", ())
    assert listing.label.dtype == np.int64


def test_integers_are_ids_of_given_classes(tmp_path: Path) -> None:
    make(tmp_path, ["a.jpg", "b.jpg"])
    text = "file_name,label\na.jpg,1\nb.jpg,-1\n"
    listing = labelled(tmp_path, text, classes=("x", "y", "z"))
    assert rows_of(listing) == [(-1, "b.jpg"), (1, "a.jpg")]
    assert (listing.labels, listing.classes) == ("class", ("x", "y", "z"))
    assert listing.warnings == ["2 classes have no images and keep their numbers: x, z"]
    with pytest.raises(UsageError, match=r"labels.csv, line 2: label 1 is .* none of the 1 class"):
        labelled(tmp_path, text, classes=("x",))


@pytest.mark.parametrize("last", ["x", "9223372036854775808", "1.5", "1" + "0" * 30])
def test_one_that_is_no_integer_makes_all_names(tmp_path: Path, last: str) -> None:
    make(tmp_path, ["a.jpg", "b.jpg"])
    listing = labelled(tmp_path, f"file_name,label\na.jpg,07\nb.jpg,{last}\n")
    assert listing.labels == "class"
    assert listing.classes == tuple(sorted(["07", last]))


def test_given_classes(tmp_path: Path) -> None:
    make(tmp_path, ["a.jpg", "b.jpg"])
    text = "file_name,label\na.jpg,cat\nb.jpg,ant\n"
    listing = labelled(tmp_path, text, classes=("cat", "dog", "ant"))
    assert rows_of(listing) == [(0, "a.jpg"), (2, "b.jpg")]
    with pytest.raises(UsageError, match="line 3: class 'ant' is not among the 1 given"):
        labelled(tmp_path, text, classes=("cat",))


def test_class_order(tmp_path: Path) -> None:
    make(tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    records = [
        {"file_name": f"{n}.jpg", "label": k} for n, k in zip("abc", ["10", "2", 1], strict=True)
    ]
    text = "\n".join(json.dumps(record) for record in records)
    listing = labelled(tmp_path, text, "labels.jsonl")
    assert listing.classes == ("1", "10", "2")
    assert "--class-order natural" in listing.notices[0]
    listing = labelled(tmp_path, text, "labels.jsonl", class_order="natural")
    assert (listing.classes, listing.notices) == (("1", "2", "10"), [])


@pytest.mark.parametrize("name", ["labels.jsonl", "labels.ndjson", "labels.json", "L.JSONL"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    make(tmp_path, ["a.jpg", "\udce4.jpg"])
    text = '{"file_name": "a.jpg", "label": 1}\n\n{"label": 0, "file_name": "\\udce4.jpg"}'
    listing = labelled(tmp_path, text, name)
    assert rows_of(listing) == [(0, "\udce4.jpg"), (1, "a.jpg")]
    assert listing.labels == "int"
    assert listing.ignored.extension == {}


def test_tabs_quotes_and_bytes(tmp_path: Path) -> None:
    make(tmp_path, ["a,\n.jpg", "\udce4.jpg", "dir/c.jpg"])
    text = '\ufefffile_name\tlabel\n"a,\n.jpg"\tx"y\n\n\udce4.jpg\t\udcff\n./dir//c.jpg\t\xe9\n'
    listing = labelled(tmp_path, text.replace('x"y', '"x""y"'), "labels.tsv")
    assert rows_of(listing) == [(0, "a,\n.jpg"), (1, "dir/c.jpg"), (2, "\udce4.jpg")]
    assert listing.classes == ('x"y', "\xe9", "\udcff")


def test_more_columns_become_json(tmp_path: Path) -> None:
    make(tmp_path, ["a.jpg", "b.jpg"])
    text = "z,file_name,label,a\ntwo,a.jpg,1,\xe9\udcff\none,b.jpg,0,\n"
    listing = labelled(tmp_path, text)
    assert listing.fields == ("image", "json")
    assert extra_of(listing) == [
        b'{"z":"one","a":""}',
        '{"z":"two","a":"\xe9\\udcff"}'.encode(),
    ]
    assert names_of(listing)[0] == ["b.jpg", "b.json"]


def test_more_keys_become_json(tmp_path: Path) -> None:
    make(tmp_path, ["a.jpg", "b.jpg"])
    more = {"caption": "\u4e2d", "box": [1, 2.5, None, {"x": True}]}
    records = [{"file_name": "a.jpg", "label": "x"} | more, {"label": "y", "file_name": "b.jpg"}]
    text = "\n".join(json.dumps(record) for record in records)
    listing = labelled(tmp_path, text, "labels.jsonl")
    assert [json.loads(extra) for extra in extra_of(listing)] == [more, {}]


def test_json_beside_sidecars(tmp_path: Path) -> None:
    make(tmp_path, ["a.jpg", "b.jpg", "a.CSV", "a.txt", "b.txt"])
    text = "file_name,label,more\na.jpg,1,x\nb.jpg,0,y\n"
    listing = labelled(tmp_path, text, "labels.tsv.csv", sidecars=("txt", "csv"))
    assert listing.fields == ("image", "csv", "json", "txt")
    assert names_of(listing) == [
        ["b.jpg", "", "b.json", "b.txt"],
        ["a.jpg", "a.CSV", "a.json", "a.txt"],
    ]
    assert [column.tolist() for column in listing.size] == [[24, 24], [-1, 24], [12, 12], [24, 24]]
    with pytest.raises(UsageError, match="leave out the sidecar json"):
        labelled(tmp_path, text, sidecars=("json",))
    text = "file_name,label\na.jpg,1\nb.jpg,0\n"
    assert labelled(tmp_path, text, sidecars=("json",)).generated == {}


def test_differences_between_file_and_folder(tmp_path: Path) -> None:
    make(tmp_path, ["a/1.jpg", "b.jpg", "c.jpg", "notes.txt", ".h.jpg"])
    Path(tmp_path, "void.jpg").touch()
    Path(tmp_path, "gone.jpg").symlink_to("nowhere")
    names = ["a/1.jpg", "c.jpg", "not/there.jpg", "void.jpg", "notes.txt", ".h.jpg"]
    listing = labelled(tmp_path, "file_name,label\n" + "".join(f"{name},5\n" for name in names))
    assert rows_of(listing) == [(5, "c.jpg"), (5, "a/1.jpg")]
    assert bad_of(listing) == {
        ".h.jpg": "not_an_image",
        "b.jpg": "no_class",
        "gone.jpg": "dangling_symlink",
        "not/there.jpg": "vanished",
        "notes.txt": "not_an_image",
        "void.jpg": "empty",
    }
    messages = {file.path: file.message for file in listing.bad}
    assert "not listed in " in messages["b.jpg"]
    assert messages["not/there.jpg"].endswith("but not there")
    assert listing.ignored.to_json() == {"hidden": 1, "clutter": 0, "extension": {".txt": 1}}


def test_a_class_whose_images_are_gone_keeps_its_number(tmp_path: Path) -> None:
    make(tmp_path, ["b.jpg"])
    listing = labelled(tmp_path, "file_name,label\na.jpg,ant\nb.jpg,cat\n")
    assert rows_of(listing) == [(1, "b.jpg")]
    assert listing.warnings == ["1 class has no images and keeps its number: ant"]


@pytest.mark.parametrize(
    ("place", "count"),
    [
        ("labels.csv", (0, 0, {".csv": 1})),
        ("sub/labels.csv", (0, 0, {".csv": 1})),
        (".labels.csv", (0, 0, {".csv": 2})),
        (".git/labels.csv", (1, 0, {".csv": 2})),
        ("@eaDir/labels.csv", (0, 1, {".csv": 2})),
        ("../labels.csv", (0, 0, {".csv": 2})),
    ],
)
def test_the_file_itself_does_not_count(
    tmp_path: Path, place: str, count: tuple[int, int, dict[str, int]]
) -> None:
    root = make(tmp_path / "tree", ["a.jpg", "sub/b.csv", "c.csv"])
    if place in ("labels.csv", "sub/labels.csv"):
        (root / "c.csv").unlink()
    (root / place).parent.mkdir(exist_ok=True)
    listing = labelled(root, "file_name,label\na.jpg,1\n", place)
    ignored = listing.ignored
    assert (ignored.hidden, ignored.clutter, ignored.extension) == count


def test_the_file_itself_is_no_candidate(tmp_path: Path) -> None:
    make(tmp_path, ["a.jpg", "b"])
    (tmp_path / "other.csv").touch()
    text = "file_name,label\na.jpg,1\nb,0\n"
    listing = labelled(tmp_path, text, any_extension=True)
    assert rows_of(listing) == [(0, "b"), (1, "a.jpg")]
    assert (listing.bad, listing.ignored.extension) == ([], {".csv": 1})


def test_the_file_may_be_given_by_another_name_of_its_folder(tmp_path: Path) -> None:
    make(tmp_path / "tree", ["a.jpg"])
    os.symlink("tree", tmp_path / "link")
    (tmp_path / "tree/labels.csv").write_text("file_name,label\na.jpg,1\n")
    listing = walk_folder(str(tmp_path / "tree"), WalkOptions(labels=False))
    listing = apply_labels(listing, str(tmp_path / "link/labels.csv"), WalkOptions())
    assert listing.ignored.extension == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: has no column 'file_name' \\(the file is empty\\)"),
        ("file_name,text\n", r"line 1: has no column 'label' \(columns: file_name, text\)$"),
        ("file_name;label\n", r"\(columns: file_name;label\): commas separate columns, in a .tsv"),
        ("file_name\tlabel\n", r"\): commas separate columns, in a .tsv tabs$"),
        ("file_name,label,label\n", "line 1: column 'label' stands there twice"),
        ("file_name,label\n", "lists no files"),
        ("file_name,label\na.jpg,1\n\nb.jpg\n", "line 4: 1 cells in 2 columns"),
        ("file_name,label\na.jpg,1\nb.jpg,1,2\n", "line 3: 3 cells in 2 columns"),
        ('file_name,label\na.jpg,1\nb.jpg,"x"y\n', "line 3: no CSV"),
        ('file_name,label\na.jpg,"1\n', "line 2: no CSV"),
        ("file_name,label\na.jpg,\n", "line 2: 'a.jpg' has no label"),
        ("file_name,label\na.jpg,1\na.jpg,1\n", "line 3: 'a.jpg' is listed already on line 2"),
        ('file_name,label\n"a\n.jpg",1\n./a.jpg,1\na.jpg,1\n', "line 5: .* already on line 4"),
        ("file_name,label\n/a.jpg,1\n", "line 2: '/a.jpg' is no name of a file below"),
        ("file_name,label\na/../a.jpg,1\n", "line 2: 'a/../a.jpg' is no name"),
        ("file_name,label\n.,1\n", "line 2: '.' is no name"),
    ],
)
def test_malformed_csv(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        labelled(tmp_path, text)
    assert "labels.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "lists no files"),
        ("[]", "line 1: no JSON object"),
        ('{\n"file_name": "a.jpg"}', "line 1: no JSON .* write one object a line"),
        ("[" * 100_000, "line 1: no JSON"),
        ('{"file_name": "a.jpg"}', "line 1: has no 'label'"),
        ('{"label": 1}', "line 1: has no 'file_name'"),
        ('{"file_name": 5, "label": 1}', "line 1: file_name must be text"),
        ('{"file_name": "a", "label": true}', "line 1: label must be"),
        ('{"file_name": "a", "label": null}', "line 1: label must be"),
        ('{"file_name": "a", "label": 1.0}', "line 1: label must be"),
        ('{"file_name": "a", "label": ""}', "line 1: 'a' has no label"),
        ('{"file_name": "a", "label": 1, "x": NaN}', "line 1: no JSON .*NaN"),
        ('{"file_name": "a", "label": 1, "x": 1e999}', "line 1: a value cannot be kept"),
        ('{"file_name": "a", "label": 9223372036854775808}', "line 1: label must fit into 64 bits"),
        ('{"file_name": "a", "label": -1' + "0" * 400 + "}", "line 1: label must fit"),
        ('{"file_name": "a", "label": 1, "x": ' + "1" * 5000 + "}", "line 1: no JSON"),
        ('{"file_name": "a\\ud800", "label": 1}', "line 1: file_name .* half of a surrogate pair"),
        ('{"file_name": "a", "label": "\\ud800"}', "line 1: label .* half of a surrogate pair"),
        ('{"file_name": "a", "label": "\\udc41"}', "line 1: label .* half of a surrogate pair"),
        ('{"file_name": "a\\u0000", "label": 1}', "line 1: 'a\\\\\\\\x00' is no name"),
        ('{"file_name": "a", "label": 1}\n{"file_name": "a", "label": 1}', "line 2: 'a' is listed"),
    ],
)
def test_malformed_json_lines(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        labelled(tmp_path, text, "labels.jsonl")


def test_files_that_are_no_labels(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"labels.txt: labels are read from \.csv"):
        labelled(tmp_path, "", "labels.txt")
    listing = walk_folder(str(tmp_path), WalkOptions(labels=False))
    with pytest.raises(UsageError, match=r"none\.csv: No such file"):
        apply_labels(listing, str(tmp_path / "none.csv"), WalkOptions())


def test_values_folded_too_deep_to_be_written(tmp_path: Path) -> None:
    limit = sys.getrecursionlimit()
    for depth in range(limit - 150, limit + 150, 7):  # somewhere there they can just be read
        text = json.dumps({"file_name": "a.jpg", "label": 1})[:-1] + ', "x": '
        with contextlib.suppress(UsageError):
            labelled(make(tmp_path, ["a.jpg"]), f"{text}{'[' * depth}{']' * depth}}}", "x.jsonl")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "labels.csv")
    listing = walk_folder(str(tmp_path), WalkOptions(labels=False))
    with pytest.raises(UsageError, match=r"labels\.csv: not a regular file"):
        apply_labels(listing, str(tmp_path / "labels.csv"), WalkOptions())
    with pytest.raises(UsageError, match=r"labels\.csv: not a regular file"):
        read_class_names(str(tmp_path / "labels.csv"))


LABELS = st.one_of(
    st.sampled_from(["ant", "bee", "10", "9", " x", '\xe9,"', "\udcff", "a\nb"]),
    st.integers(-5, 20).map(str),
)
FILES = st.lists(
    st.sampled_from(["", "a/", "a-b/", "a/b/", "B/"]).flatmap(
        lambda folder: st.sampled_from(["1", "10", "2", "\udce4", "\xe9", "a b"]).map(
            lambda stem: f"{folder}{stem}.jpg"
        )
    ),
    unique=True,
    max_size=12,
)


@given(FILES, st.dictionaries(st.sampled_from(["x.jpg", "a/y.jpg"]), LABELS), st.data())
def test_as_written_out(files: list[str], absent: dict[str, str], data: st.DataObject) -> None:
    label_of = {name: data.draw(LABELS) for name in files if data.draw(st.integers(0, 4))} | absent
    if not label_of:
        return
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["file_name", "label", "nr"])
    writer.writerows([name, label, f"{name}!"] for name, label in label_of.items())
    with tempfile.TemporaryDirectory() as folder:
        root = make(Path(folder), files)
        listing = labelled(root, text.getvalue())

    def is_number(label: str) -> bool:
        return label.strip().lstrip("-").isdecimal()

    if all(is_number(label) for label in label_of.values()):
        assert (listing.labels, listing.classes) == ("int", ())
        ids = {name: int(label) for name, label in label_of.items()}
    else:
        assert listing.labels == "class"
        assert list(listing.classes) == sorted(set(label_of.values()))
        ids = {name: listing.classes.index(label) for name, label in label_of.items()}
    both = [(ids[name], *os.path.split(name)) for name in files if name in ids]
    rows = [(label, os.path.join(path, name)) for label, path, name in sorted(both)]
    assert rows_of(listing) == rows
    assert bad_of(listing) == dict.fromkeys(absent, "vanished") | {
        name: "no_class" for name in files if name not in label_of
    }
    assert [json.loads(extra) for extra in extra_of(listing)] == [
        {"nr": f"{name}!"} for _, name in rows
    ]


def test_class_names_of_a_text_file(tmp_path: Path) -> None:
    file = tmp_path / "classes.txt"
    file.write_bytes(b"\xef\xbb\xbfdog\r\n\n  \ncat x\n\xe4\n 1 \n\xc3\xa9")
    assert read_class_names(str(file)) == ("dog", "cat x", "\udce4", " 1 ", "\xe9")
    file.write_text("dog\ncat\n\ndog\n")
    with pytest.raises(UsageError, match=r"classes.txt, line 4: class 'dog' .* on line 1"):
        read_class_names(str(file))
    file.write_text("\n\n")
    with pytest.raises(UsageError, match="names no class"):
        read_class_names(str(file))
    with pytest.raises(UsageError, match="No such file"):
        read_class_names(str(tmp_path / "none"))
