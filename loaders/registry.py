"""Finds formats: the modules of a `formats` package, and those of other distributions (entry
points).

A format is one module on each side, `fastconv/loaders/formats/NAME.py` and
`fastconv/converters/formats/NAME.py`. NAME is its name everywhere. The module's `__all__` names
exactly one class. Nothing is imported before a format is asked for.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Generic, TypeVar

from fastconv.loaders.errors import MissingDependencyError, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["Registry"]

T = TypeVar("T")


def missing(format: str, package: str) -> MissingDependencyError:
    """Returns what to raise when a format lacks a package."""
    return MissingDependencyError(
        f"the format {format} needs the package {package}: pip install 'fastconv[{format}]'"
    )


class Registry(Generic[T]):
    """The classes of one side of the formats, by name.

    Args:
        package: The package whose modules are our own formats.
        group: The entry point group in which other distributions name theirs.
        base: What each class must derive from.
    """

    def __init__(self, package: str, group: str, base: type[T]) -> None:
        self.package = package
        self.group = group
        self.base = base

    @cached_property
    def _own(self) -> frozenset[str]:
        folder = importlib.import_module(self.package).__path__
        return frozenset(module.name for module in pkgutil.iter_modules(folder))

    @cached_property
    def _foreign(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # a tenth of a short run, which rarely asks

        return {entry.name: entry for entry in entry_points(group=self.group)}

    def names(self) -> list[str]:
        """Returns the names of all formats, in order; imports none of them."""
        return sorted(self._own | self._foreign.keys())

    def load(self, name: str) -> type[T]:
        """Returns the class of a format.

        Raises:
            UsageError: There is no format of that name.
            MissingDependencyError: It needs a package that is not installed.
        """
        if name not in self._own and name not in self._foreign:
            raise UsageError(f"unknown format {name!r}: known are {', '.join(self.names())}")
        try:
            if name in self._own:
                module = importlib.import_module(f"{self.package}.{name}")
                found = getattr(module, module.__all__[0])
            else:
                found = self._foreign[name].load()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "fastconv":
                raise
            raise missing(name, error.name or "") from error
        for package in getattr(found, "requires", ()):
            if find_spec(package) is None:
                raise missing(name, package)
        if not (isinstance(found, type) and issubclass(found, self.base)):
            raise TypeError(f"format {name}: {found!r} is no {self.base.__name__}")
        return found

    def installed(self) -> Iterator[type[T]]:
        """Yields the class of every format whose packages are installed; our own come first."""
        for names in (lambda: self._own, lambda: self._foreign.keys() - self._own):
            for name in sorted(names()):
                try:
                    yield self.load(name)
                except MissingDependencyError:
                    continue
