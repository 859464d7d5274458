"""What is imported when: training code and quick commands load nothing that they do not need."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from tests.support import OUTS

HEAVY = {"PIL", "h5py", "lmdb", "numpy", "pyarrow", "torch", "webdataset"}


def run(*arguments: str) -> tuple[str, set[str]]:
    """Returns what Python wrote to stdout, and the modules that it and its workers imported."""
    # Inherited by child processes, unlike -X importtime.
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    return done.stdout, {line.rpartition("|")[2].strip() for line in lines}


def packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_the_read_side_is_light_and_knows_nothing_of_the_write_side() -> None:
    _, loaded = run("-c", "import fastconv.loaders")
    assert "fastconv.loaders" in loaded
    assert not packages(loaded) & (HEAVY - {"numpy"} | {"click", "rich", "tqdm"})
    assert not {name for name in loaded if name.startswith("fastconv.converters")}
    assert not {name for name in loaded if name.startswith("fastconv.loaders.formats")}


def test_names_of_formats_import_no_format() -> None:
    code = (
        "from fastconv.loaders.registry import Registry\n"
        "print(Registry('fastconv.loaders.formats', 'fastconv.readers', object).names())"
    )
    out, loaded = run("-c", code)
    assert "lmdb" in out
    assert not {name for name in loaded if name.startswith("fastconv.loaders.formats.")}


def test_help_loads_nothing_heavy() -> None:
    out, loaded = run("-m", "fastconv", "--help")
    assert "pack" in out
    assert not packages(loaded) & HEAVY


def test_version_loads_no_command_line() -> None:
    out, loaded = run("-m", "fastconv", "--version")
    assert out.startswith("fastconv ")
    assert not packages(loaded) & (HEAVY | {"click", "rich"})
    assert "importlib.metadata" not in loaded
    assert not {name for name in loaded if name.startswith(("fastconv.con", "fastconv.load"))}


@pytest.mark.parametrize("name", OUTS)
def test_packing_and_looking_load_no_torch(tmp_path: Path, name: str) -> None:
    for folder in ("cat", "dog"):
        (tmp_path / "images" / folder).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / folder / "a.png")
    tree, pack, restored = (str(tmp_path / part) for part in ("images", name, "restored"))
    commands = (["pack", tree, pack], ["verify", pack], ["stats", pack], ["unpack", pack, restored])
    for command in commands:
        _, loaded = run("-m", "fastconv", *command)
        assert "fastconv.converters" in loaded
        assert "torch" not in packages(loaded), command[0]
        if command[0] == "pack":  # a short run must not wait for what it does not use
            assert not packages(loaded) & {"rich", "pydantic"}
            assert "importlib.metadata" not in loaded or "crc32c" in loaded  # which wants it


def imports_of(path: Path) -> Iterator[str]:
    """Yields what a source file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


def test_no_source_imports_what_is_forbidden(root: Path) -> None:
    for folder in ("converters", "loaders"):
        for path in (root / folder).rglob("*.py"):
            imported = set(imports_of(path))
            found = packages(imported)
            where = path.relative_to(root)
            assert not found & {"pickle", "marshal", "shelve", "converters", "loaders"}, where
            if folder == "converters":
                assert "torch" not in found, where
            else:
                assert not any(name.startswith("fastconv.converters") for name in imported), where
