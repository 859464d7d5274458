"""`fastconv tune`: a line to paste, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_a_line_to_paste(fastconv: Any, images: Path) -> None:
    quick = ("--budget", "1", "--size", "16", "--batch-size", "2")
    done = fastconv("tune", images, *quick)
    assert done.code == 0, done.err
    imports, line, *_ = done.out.splitlines()
    assert line.startswith("loader = make_loader(open_dataset(")
    names: dict[str, Any] = {}
    exec(f"{imports}\n{line}", names)
    assert len(names["loader"]) == 3
    assert "num_workers=" in done.out
    done = fastconv("tune", images, *quick, "--json", "-q")
    found = done.answer["tune"]
    assert found["chosen"]["batch_size"] == 2
    assert found["why"]
    assert done.err == ""


def test_a_source_that_is_not_there(fastconv: Any, tmp_path: Path) -> None:
    done = fastconv("tune", tmp_path / "absent")
    assert done.code == 2
    assert done.err.strip().splitlines()[-1].endswith("absent: no such file or folder")
