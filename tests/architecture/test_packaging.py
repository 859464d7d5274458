"""What is built holds all of the package and nothing else, and works where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
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


def kernel_sources(root: Path) -> set[str]:
    """Returns what the kernel is built of, as places in the repository."""
    native = root / "native"
    files = [native / name for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py")]
    for folder in (native / "kernel", native / "src" / "fastconv_native", native / "fuzz"):
        files += [path for path in folder.iterdir() if path.is_file()]
    return {path.relative_to(root).as_posix() for path in files}


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


def test_the_sdist_has_the_sources_of_the_kernel_and_nothing_that_was_made_of_them(
    root: Path, tmp_path: Path
) -> None:
    with tarfile.open(build(root, "sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    found = {name for name in names if name.startswith("native/")}
    assert found >= kernel_sources(root)
    made = ("native/build/", ".so", ".o")
    assert [name for name in found if name.startswith(made) or name.endswith(made)] == []
    assert not any(".egg-info" in name for name in found)


def test_the_kernel_has_an_sdist_of_its_own_with_all_that_it_is_built_of(
    root: Path, tmp_path: Path
) -> None:
    source = tmp_path / "native"
    shutil.copytree(root / "native", source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    with tarfile.open(tmp_path / "fastconv_native-0.1.0.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {name.removeprefix("native/") for name in kernel_sources(root)}


def test_every_required_package_is_pinned(root: Path) -> None:
    with open(root / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in pins)
    names = {line.partition("==")[0].lower() for line in pins}
    assert {requirement.partition(">=")[0] for requirement in project["dependencies"]} <= names
