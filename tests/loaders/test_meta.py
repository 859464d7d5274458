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
        ({"samples": None, "classes": 5}, "not a description"),
    ],
)
def test_what_a_newer_fastconv_wrote_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PackMeta.from_json(json.dumps({**json.loads(META.to_json()), **change}))
