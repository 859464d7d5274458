"""`fastconv index`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

Run = Callable[..., Any]


@pytest.fixture
def shards(fastconv: Run, tmp_path: Path) -> Path:
    """Returns a folder of two shards."""
    for number in range(4):
        file = tmp_path / f"tree/{('cat', 'dog')[number % 2]}/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), number).save(file)
    out = tmp_path / "out"
    done = fastconv("pack", tmp_path / "tree", out, "--format", "webdataset", "--shard-samples", 2)
    assert done.code == 0
    return out


def test_it_names_what_it_wrote(fastconv: Run, shards: Path) -> None:
    done = fastconv("index", shards, "--for", "dali, wids", "--for", "timm")
    assert (done.code, done.err) == (0, "")
    *names, summary = done.out.splitlines()
    assert names == ["out-000000.idx", "out-000001.idx", "index.json", "_info.json"]
    assert all((shards / name).exists() for name in names)
    assert summary.startswith(f"{shards}: 4 index files for dali, wids, timm, ")
    again = fastconv("index", shards, "--for", "dali")
    assert again.out.startswith(f"{shards}: 2 index files for dali, ")
    assert again.out.endswith("all there already\n")


def test_as_json(fastconv: Run, shards: Path) -> None:
    answer = fastconv("index", shards, "--for", "energon", "--json").answer
    assert (answer["command"], answer["status"], answer["format"]) == (
        "index", "done", "webdataset",
    )  # fmt: skip
    assert answer["tools"] == ["energon"]
    assert answer["written"] == answer["files"]
    assert ".nv-meta/dataset.yaml" in answer["files"]


def test_a_tool_that_there_is_no_index_for(fastconv: Run, shards: Path) -> None:
    done = fastconv("index", shards, "--for", "mxnet")
    assert done.code == 2
    assert done.err == (
        "error: WebDataset has index files for dali, energon, timm, wids, none for mxnet: "
        "it reads RecordIO\n"
    )
    assert fastconv("index", shards).code == 2


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_no_file_is_not_overwritten(fastconv: Run, shards: Path, kind: str) -> None:
    file = shards / "out-000001.idx"
    if kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("nowhere")
    done = fastconv("index", shards, "--for", "dali", "--overwrite")
    assert done.code == 2
    assert done.err == (
        f"error: {file}: is in the way, and not the index of {shards}: move it away\n"
    )
    assert file.is_dir() if kind == "folder" else file.is_symlink()
    assert not (shards / "out-000000.idx").exists()


def test_a_folder_of_images(fastconv: Run, images: Path) -> None:
    done = fastconv("index", images, "--for", "dali")
    assert done.code == 2
    assert done.err == (
        f"error: {images}: a folder of images, not a pack: pack it first (fastconv pack)\n"
    )


def test_overwrite(fastconv: Run, shards: Path) -> None:
    (shards / "index.json").write_text("mine")
    done = fastconv("index", shards, "--for", "wids")
    assert (done.code, (shards / "index.json").read_text()) == (2, "mine")
    assert fastconv("index", shards, "--for", "wids", "--overwrite").code == 0
    assert (shards / "index.json").read_text() != "mine"
