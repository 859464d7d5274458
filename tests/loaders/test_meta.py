"""What a pack says of itself is the same whatever the environment is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fastconv.loaders.kinds import KINDS
from fastconv.loaders.meta import NO_ID, PackMeta, Shard

META = PackMeta(
    format="webdataset", samples=3, fields=("image", "txt"), labels="class",
    classes=("dög", "b\udcff", "猫"), settings={"a": 1}, shards=(Shard("x-000000.tar", 2048),),
)  # fmt: skip


def test_comes_back_as_it_was() -> None:
    assert PackMeta.from_json(META.to_json()) == META
    assert META.to_json().isascii()
    assert len(META.with_id("f" * 32).to_json()) == len(META.with_id(NO_ID).to_json())


def test_a_pack_made_when_fewer_formats_were_known_says_the_same() -> None:
    old = json.dumps({**json.loads(META.to_json()), "kinds": KINDS[:5]}, separators=(",", ":"))
    assert PackMeta.from_json(old).to_json() == old


def test_names_of_classes_do_not_depend_on_the_locale() -> None:
    code = (
        "import os; from fastconv.loaders.meta import PackMeta\n"
        "name = os.fsdecode(b'd\\xc3\\xb6g')\n"
        "meta = PackMeta(format='lmdb', samples=1, fields=('image',), classes=(name,))\n"
        "print(meta.to_json(), PackMeta.from_json(meta.to_json()).classes == (name,))"
    )
    path = os.pathsep.join(sys.path)
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env={"PYTHONPATH": path, **locale},
        ).stdout
        for locale in ({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8"})
    }
    assert len(outputs) == 1
    assert outputs.pop().endswith(b" True\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fastconv": 2}, "newer fastconv"),
        ({"kinds": [*KINDS, "new"]}, "other image formats"),
        ({"kinds": ["jpg"]}, "other image formats"),
    ],
)
def test_what_a_newer_fastconv_wrote_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PackMeta.from_json(changed(change))


def changed(change: dict[str, object]) -> str:
    return json.dumps({**json.loads(META.to_json()), **change})


WRONG: dict[str, list[object]] = {
    "fastconv": [None, "1", 0, 1.5],
    "format": [5, None],
    "id": [5, None, "", "zz", "é" * 32, "F" * 32],
    "samples": [None, "3", -1, 1.5, True],
    "fields": [None, [], [1], "image", ["txt"], ["image", "txt", "txt"]],
    "generated": [None, ["nope"], ["image"], 5],
    "labels": [None, [], "foo"],
    "classes": [None, 5, "ab", [1], ["a", "a"], ["\ud800"]],
    "settings": [None, 5, []],
    "shards": [
        None, 5, [5], [["x"]], [["x", -1]], [["x", "1"]], [["x", True]], [[None, 1]],
        [["../x", 1]], [["/x", 1]], [["..", 1]], [["\0", 1]],
    ],
    "kinds": [None, 5, [5]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]]
)
def test_values_of_the_wrong_kind_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"not a description|surrogates not allowed"):
        PackMeta.from_json(changed({name: value}))
    content = json.loads(META.to_json())
    del content[name]
    with pytest.raises(ValueError, match="not a description"):
        PackMeta.from_json(json.dumps(content))


@pytest.mark.parametrize("text", ["", "[]", "5", "null", "[" * 100_000, "9" * 10_000, b"\xff"])
def test_what_is_no_object_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"not a JSON object|JSONDecode|Expecting|digits|decode"):
        PackMeta.from_json(text)
