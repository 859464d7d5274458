"""Prints what timm's reader for WebDataset gives of a folder: width, height, label of each sample.

timm itself needs torchvision, its readers do not: they are imported without the rest.

    timm_wds.py FOLDER SPLIT
"""

from __future__ import annotations

import importlib
import json
import sys
from importlib.util import find_spec
from types import ModuleType


def main(folder: str, split: str) -> None:
    spec = find_spec("timm")
    assert spec is not None
    for name in ("timm", "timm.data", "timm.data.readers"):
        sys.modules[name] = module = ModuleType(name)
        module.__path__ = [
            place + name.removeprefix("timm").replace(".", "/")
            for place in spec.submodule_search_locations or ()
        ]
    reader = importlib.import_module("timm.data.readers.reader_wds").ReaderWds(folder, split=split)
    samples = [[*image.size, label] for image, label in reader]
    print(json.dumps({"length": len(reader), "samples": samples}))


main(*sys.argv[1:])
