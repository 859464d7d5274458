"""The command line tools of other projects, without which some tests here are skipped."""

from __future__ import annotations

import os
import shutil

import pytest


@pytest.mark.skipif(
    os.environ.get("FASTCONV_ALL_FORMATS") != "1", reason="tests are skipped without them"
)
@pytest.mark.parametrize(
    ("tool", "package"),
    [
        ("mdb_stat", "lmdb-utils"), ("mdb_dump", "lmdb-utils"), ("mdb_copy", "lmdb-utils"),
        ("h5repack", "hdf5-tools"), ("h5dump", "hdf5-tools"),
    ],
)  # fmt: skip
def test_where_nothing_may_be_missing_tools_are_there(tool: str, package: str) -> None:
    assert shutil.which(tool), f"{tool} is not installed (Debian: {package})"
