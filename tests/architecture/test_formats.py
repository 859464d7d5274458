"""A format is one module on each side, and what it needs can be installed."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

READ_ONLY = {"folder"}
"""Formats that nothing writes: a folder of images is where packing starts."""

SIDES = ("loaders", "converters")


def formats(side: str) -> set[str]:
    folder = Path(__file__).resolve().parents[2] / side / "formats"
    return {path.stem for path in folder.iterdir() if path.suffix == ".py"} - {"__init__"}


def project(root: Path) -> dict[str, Any]:
    with open(root / "pyproject.toml", "rb") as file:
        table: dict[str, Any] = tomllib.load(file)["project"]
    return table


def distribution(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found, requirement
    return normal(found[0])


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_format_has_both_sides() -> None:
    known = {"hdf5", "lmdb", "parquet", "recordio", "tfrecord", "webdataset"}
    assert known <= formats("loaders")
    assert formats("loaders") - READ_ONLY == formats("converters")


@pytest.mark.parametrize(
    ("side", "name"), [(side, name) for side in SIDES for name in sorted(formats(side))]
)
def test_a_format_module_offers_one_class(side: str, name: str) -> None:
    module = importlib.import_module(f"fastconv.{side}.formats.{name}")
    (offered,) = module.__all__
    found = getattr(module, offered)
    assert isinstance(found, type)
    assert found.__module__ == module.__name__


@pytest.mark.parametrize("side", SIDES)
def test_what_a_format_imports_is_required_or_in_the_extra_of_its_name(
    root: Path, side: str
) -> None:
    table = project(root)
    extras = table["optional-dependencies"]
    of_package = packages_distributions()
    for name in formats(side):
        known = {distribution(r) for r in [*table["dependencies"], *extras.get(name, [])]}
        source = (root / side / "formats" / f"{name}.py").read_bytes()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                imported = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported = {node.module or ""}
            else:
                continue
            for package in {module.partition(".")[0] for module in imported}:
                if package != "fastconv" and package not in sys.stdlib_module_names:
                    candidates = {normal(d) for d in of_package.get(package, [package])}
                    assert candidates & known, f"{side}/formats/{name}.py imports {package}"


def test_the_extra_all_holds_every_other_extra(root: Path) -> None:
    extras = project(root)["optional-dependencies"]
    # These ask for another torch, a GPU or a compiler.
    apart = {"torchvision", "dali", "native"}
    together = {r for name, extra in extras.items() if name not in {"all", *apart} for r in extra}
    assert {*extras["all"]} == together


def test_extras_that_messages_name_exist(root: Path) -> None:
    extras = project(root)["optional-dependencies"]
    for folder in (*SIDES, "src/fastconv"):
        for path in (root / folder).rglob("*.py"):
            for named in re.findall(r"fastconv\[([\w,-]+)\]", path.read_text(encoding="utf-8")):
                assert {*named.split(",")} <= extras.keys(), path
