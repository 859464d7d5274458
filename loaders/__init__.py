"""Reads packs and folders of images in training code.

    from fastconv.loaders import RandomResizedCrop, open_dataset

    train = open_dataset("train.lmdb", transform=transform)  # (image, label), as ImageFolder gives
    train = open_dataset("train.lmdb", decode=RandomResizedCrop(224, flip=0.5))  # much faster

Every format has its own Dataset too, named by its reader: `LMDBDataset`, `WebDatasetDataset`,
`HDF5Dataset`, `ParquetDataset`, `TFRecordDataset`, `RecordIODataset`, `ImageFolderDataset` and
those of plug-ins. Importing this package is quick: PyTorch and a format come with the first name
that needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastconv.loaders.errors import (
    CorruptPackError,
    FastconvError,
    MissingDependencyError,
    NotAPackError,
    PackChangedError,
    PackError,
    PackNotFoundError,
    SampleError,
    UsageError,
)

__all__ = [
    "CenterCrop",
    "CorruptPackError",
    "ExactDistributedSampler",
    "FastLoader",
    "FastconvError",
    "HDF5Dataset",
    "ImageFolderDataset",
    "JoinedDataset",
    "LMDBDataset",
    "MissingDependencyError",
    "NotAPackError",
    "PackChangedError",
    "PackDataset",
    "PackError",
    "PackNotFoundError",
    "ParquetDataset",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RecordIODataset",
    "Resize",
    "SampleError",
    "TFRecordDataset",
    "UsageError",
    "WebDatasetDataset",
    "WeightedSampler",
    "class_balanced_sampler",
    "class_balanced_weights",
    "collate",
    "make_loader",
    "open_dataset",
    "open_pack",
]

if TYPE_CHECKING:
    from fastconv.loaders.datasets import JoinedDataset, PackDataset, open_dataset
    from fastconv.loaders.decoders import (
        CenterCrop,
        RandomHorizontalFlip,
        RandomResizedCrop,
        Resize,
    )
    from fastconv.loaders.loader import FastLoader, collate, make_loader
    from fastconv.loaders.open import open_pack
    from fastconv.loaders.sampling import ExactDistributedSampler
    from fastconv.loaders.weights import (
        WeightedSampler,
        class_balanced_sampler,
        class_balanced_weights,
    )

    # What the registry gives at run time, for tools that read the source.
    class HDF5Dataset(PackDataset): ...

    class ImageFolderDataset(PackDataset): ...

    class LMDBDataset(PackDataset): ...

    class ParquetDataset(PackDataset): ...

    class RecordIODataset(PackDataset): ...

    class TFRecordDataset(PackDataset): ...

    class WebDatasetDataset(PackDataset): ...

else:
    _MODULES = {
        "CenterCrop": "decoders",
        "ExactDistributedSampler": "sampling",
        "FastLoader": "loader",
        "JoinedDataset": "datasets",
        "PackDataset": "datasets",
        "RandomHorizontalFlip": "decoders",
        "RandomResizedCrop": "decoders",
        "Resize": "decoders",
        "WeightedSampler": "weights",
        "class_balanced_sampler": "weights",
        "class_balanced_weights": "weights",
        "collate": "loader",
        "make_loader": "loader",
        "open_dataset": "datasets",
        "open_pack": "open",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULES:
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        if name.endswith("Dataset") and not name.startswith("_"):
            found = import_module(f"{__name__}.datasets").dataset_named(name)
            if found is not None:
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
