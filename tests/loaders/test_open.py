"""What is said of paths that lie nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastconv.loaders import open_dataset, open_pack
from fastconv.loaders.errors import PackNotFoundError


def missing(folder: Path, pattern: str) -> str:
    """Returns what is said of a pattern, behind the words that are said of any."""
    words = f": no such file or folder: patterns are not expanded, name the folder {folder}"
    for opening in (open_pack, open_dataset):
        with pytest.raises(PackNotFoundError) as told:
            opening(folder / pattern)
        start, found, rest = str(told.value).partition(words)
        assert (start, found) == (str(folder / pattern), words)
    return rest


def test_files_that_a_pattern_names_and_that_are_not_there(tmp_path: Path) -> None:
    for name in ("a-08.tar", "a-11.tar", "b-08.tar"):
        (tmp_path / name).touch()
    assert missing(tmp_path, "a-{08..11}.tar") == " (missing in it: a-09.tar, a-10.tar)"
    assert missing(tmp_path, "{08..08}-{1..2}") == ""  # none is there
    assert missing(tmp_path, "a-{0..0}{8..9}.tar") == " (missing in it: a-09.tar)"
    assert missing(tmp_path, "a-*.tar") == ""
    assert missing(tmp_path, "{a,b}-08.tar") == ""
    assert missing(tmp_path, "a-0[89].tar") == ""
    assert missing(tmp_path, "a-{08..999999999}{0..999999999}.tar") == ""  # and it takes no time


def test_other_paths_are_no_patterns(tmp_path: Path) -> None:
    for name in ("a.tar", "a{1}.tar", "a[].tar"):
        with pytest.raises(PackNotFoundError, match=r"no such file or folder$"):
            open_pack(tmp_path / name)
