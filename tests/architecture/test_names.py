"""Every module says what it offers."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import fastconv


def modules() -> list[str]:
    """Returns the names of all modules, found without importing any."""
    names = ["fastconv"]
    for folder, package in ((Path(p), "fastconv") for p in fastconv.__path__):
        pending = [(folder, package)]
        while pending:
            place, prefix = pending.pop()
            for module in pkgutil.iter_modules([str(place)]):
                name = f"{prefix}.{module.name}"
                names.append(name)
                if module.ispkg:
                    pending.append((place / module.name, name))
    return sorted(names)


def test_all_parts_are_seen() -> None:
    assert {"fastconv.__main__", "fastconv.converters", "fastconv.loaders.errors"} <= {*modules()}


@pytest.mark.parametrize("name", modules())
def test_public_names_exist(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    assert module.__file__ is not None
    body = ast.parse(Path(module.__file__).read_bytes()).body[1:]
    if body:  # a package may be no more than its docstring
        names = module.__all__
        assert isinstance(names, list)
        assert len({*names}) == len(names)
        assert [n for n in names if not hasattr(module, n)] == []


def test_no_module_lies_outside_the_package(root: Path) -> None:
    # A folder without an __init__.py is not seen by the tools that look for modules.
    for folder in ("converters", "loaders"):
        for path in (root / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").is_file(), path
