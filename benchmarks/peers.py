"""What people use today to pack a folder of images, as the scripts that are copied around do it.

    peers.py NAME FOLDER OUT

Prints the seconds from the first look at the folder until everything is safely on disk. Imports
are not counted. The scripts are given what they lack: OUT is synced where their library does not
do so.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

__all__ = ["PEERS", "main"]

MAP_SIZE = 1 << 40
"""Bytes that LMDB may grow to: it has to be guessed."""


def images(folder: Path) -> list[tuple[str, int]]:
    """Returns (path, label) of each image, in ImageFolder's order; there is nothing else."""
    found = []
    for label, name in enumerate(sorted(os.listdir(folder))):
        for place, _, names in sorted(os.walk(folder / name)):
            found += [(os.path.join(place, file), label) for file in sorted(names)]
    return found


def contents(folder: Path) -> Iterator[tuple[int, bytes, int]]:
    """Yields (number, bytes, label) of each image."""
    for number, (path, label) in enumerate(images(folder)):
        with open(path, "rb") as file:
            yield number, file.read(), label


def sync(path: Path) -> None:
    """Waits until a file is safely on disk."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def lmdb_one_transaction(folder: Path, out: Path) -> None:
    """Puts all images in one transaction."""
    import lmdb

    env = lmdb.open(str(out), map_size=MAP_SIZE)
    with env.begin(write=True) as txn:
        for number, data, label in contents(folder):
            txn.put(f"{number:08d}".encode(), data)
            txn.put(f"label-{number:08d}".encode(), str(label).encode())
    env.close()


def lmdb_one_a_put(folder: Path, out: Path) -> None:
    """Puts each image in a transaction of its own."""
    import lmdb

    env = lmdb.open(str(out), map_size=MAP_SIZE)
    for number, data, label in contents(folder):
        with env.begin(write=True) as txn:
            txn.put(f"{number:08d}".encode(), data)
            txn.put(f"label-{number:08d}".encode(), str(label).encode())
    env.close()


def webdataset_shard_writer(folder: Path, out: Path) -> None:
    """Writes tar shards of 10,000 images, with webdataset.ShardWriter."""
    import webdataset

    out.mkdir()
    with webdataset.ShardWriter(str(out / "%06d.tar"), maxcount=10_000, verbose=0) as sink:
        for number, data, label in contents(folder):
            sink.write({"__key__": f"{number:08d}", "jpg": data, "cls": label})
    for shard in out.iterdir():
        sync(shard)


def h5py_vlen(folder: Path, out: Path) -> None:
    """Writes a dataset of byte strings of variable length, an image each."""
    import h5py
    import numpy as np

    count = len(images(folder))
    with h5py.File(out, "w") as file:
        data = file.create_dataset("images", (count,), dtype=h5py.vlen_dtype(np.uint8))
        labels = file.create_dataset("labels", (count,), dtype=np.int64)
        for number, content, label in contents(folder):
            data[number] = np.frombuffer(content, np.uint8)
            labels[number] = label
    sync(out)


class Peer(NamedTuple):
    """One way to pack.

    Attributes:
        pack: Packs a folder into a file or folder to be made.
        modules: What it imports, imported before its time runs.
    """

    pack: Callable[[Path, Path], None]
    modules: Sequence[str]


PEERS = {
    "lmdb, one transaction": Peer(lmdb_one_transaction, ["lmdb"]),
    "lmdb, one a put": Peer(lmdb_one_a_put, ["lmdb"]),
    "webdataset.ShardWriter": Peer(webdataset_shard_writer, ["webdataset"]),
    "h5py, vlen": Peer(h5py_vlen, ["h5py", "numpy"]),
}
"""Their names."""


def main(argv: Sequence[str]) -> None:
    """Packs, and prints the seconds."""
    name, folder, out = argv
    peer = PEERS[name]
    for module in peer.modules:
        import_module(module)
    began = time.perf_counter()
    peer.pack(Path(folder), Path(out))
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main(sys.argv[1:])
