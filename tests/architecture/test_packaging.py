"""What is built holds all of the package and nothing else, and works where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import fastconv

LINKS = ("converters", "loaders")


def build(source: Path, kind: str, out: Path) -> Path:
    """Returns the file of a kind ("sdist" or "wheel") that hatchling makes of a source folder."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (made,) = out.iterdir()
    return made


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {*archive.namelist()}


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(root, "wheel", tmp_path_factory.mktemp("wheel"))


def expected(root: Path) -> set[str]:
    sources = {
        f"fastconv/{path.relative_to(root).as_posix()}"
        for folder in LINKS
        for path in (root / folder).rglob("*.py")
    }
    return sources | {"fastconv/__init__.py", "fastconv/__main__.py", "fastconv/py.typed"}


@pytest.mark.parametrize("name", LINKS)
def test_links_lead_to_the_sources(root: Path, name: str) -> None:
    link = root / "src" / "fastconv" / name
    assert link.is_symlink(), "checked out without links: see CONTRIBUTING.md"
    assert os.readlink(link) == os.path.join("..", "..", name)
    assert link.resolve() == root / name


def test_the_wheel_holds_the_package_and_nothing_else(root: Path, wheel: Path) -> None:
    info = f"fastconv-{fastconv.__version__}.dist-info/"
    rest = {name for name in contents(wheel) if not name.startswith(info)}
    assert rest == expected(root)


def test_the_wheel_describes_itself(root: Path, wheel: Path) -> None:
    info = f"fastconv-{fastconv.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"{info}/METADATA").decode()
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        licence = archive.read(f"{info}/licenses/LICENSE")
    header = metadata.partition("\n\n")[0].splitlines()
    assert "License-Expression: Apache-2.0" in header
    assert "Provides-Extra: all" in header
    assert scripts.split() == ["[console_scripts]", "fastconv", "=", "fastconv.__main__:main"]
    assert licence == (root / "LICENSE").read_bytes()
    required = [line for line in header if line.startswith("Requires-Dist:") and ";" not in line]
    assert required
    assert all("<" not in line and "==" not in line for line in required)


def test_the_wheel_works_by_itself(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import fastconv.loaders, fastconv.converters as c\n"
        "print(fastconv.loaders.__file__, c.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    package = tmp_path / "fastconv"
    assert [Path(word) for word in done.stdout.split()] == [
        package / "loaders" / "__init__.py",
        package / "converters" / "__init__.py",
    ]


def test_the_sdist_gives_the_same_wheel(root: Path, wheel: Path, tmp_path: Path) -> None:
    sdist = build(root, "sdist", tmp_path / "sdist")
    # The module, not its function: Python before 3.12 and after 3.13 want other arguments of that.
    subprocess.run([sys.executable, "-m", "tarfile", "-e", str(sdist), str(tmp_path)], check=True)
    source = tmp_path / f"fastconv-{fastconv.__version__}"
    assert (source / "tests" / "conftest.py").is_file()
    assert not (source / "src" / "fastconv" / "loaders").exists()
    assert contents(build(source, "wheel", tmp_path / "again")) == contents(wheel)


def test_every_required_package_is_pinned(root: Path) -> None:
    with open(root / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in pins)
    names = {line.partition("==")[0].lower() for line in pins}
    assert {requirement.partition(">=")[0] for requirement in project["dependencies"]} <= names
