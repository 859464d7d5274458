"""The write side: packs folders of images. From Python: `from fastconv.converters import pack`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastconv.converters.converting import convert, merge
    from fastconv.converters.encoding import Encoding
    from fastconv.converters.findings import RepairFailedError, RepairReport
    from fastconv.converters.packing import pack
    from fastconv.converters.repairing import repair
    from fastconv.converters.report import PackFailedError, PackReport
    from fastconv.converters.scanning import ScanReport, scan
    from fastconv.converters.selection import Selection, Split
    from fastconv.converters.writer import Sharding
    from fastconv.loaders.sample import Sample

__all__ = [
    "Encoding",
    "PackFailedError",
    "PackReport",
    "RepairFailedError",
    "RepairReport",
    "Sample",
    "ScanReport",
    "Selection",
    "Sharding",
    "Split",
    "convert",
    "merge",
    "pack",
    "repair",
    "scan",
]

_HOMES = {
    "Encoding": "converters.encoding",
    "PackFailedError": "converters.report",
    "PackReport": "converters.report",
    "RepairFailedError": "converters.findings",
    "RepairReport": "converters.findings",
    "Sample": "loaders.sample",
    "ScanReport": "converters.scanning",
    "Selection": "converters.selection",
    "Sharding": "converters.writer",
    "Split": "converters.selection",
    "convert": "converters.converting",
    "merge": "converters.converting",
    "pack": "converters.packing",
    "repair": "converters.repairing",
    "scan": "converters.scanning",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"fastconv.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
