"""The ways to read the same samples: raw files, fastconv's packs, and what people do today."""

from __future__ import annotations

import mmap
import os
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash
from common import FASTCONV, FORMATS, say
from peers import images
from processes import run

from fastconv.loaders.measure.pagecache import files_of

__all__ = ["Corpus", "Way", "digest"]

Bytes = bytes | memoryview
Read = Callable[[int], Bytes]
"""Number of a sample -> its bytes."""
ReadMany = Callable[[Sequence[int]], Iterable[Bytes]]
"""Numbers of a batch -> their bytes, in that order."""

BATCH = 64
THREADS = 8

digest = xxhash.xxh3_64_intdigest


@dataclass(frozen=True, slots=True)
class Way:
    """One way to read the samples.

    Attributes:
        files: What it reads from.
        one: Opens them; gives what reads a sample. None where it cannot be asked for one.
        many: Opens them; gives what reads a batch. None where it is no better than one at a time.
        all: Opens them and yields all samples in order. None where it is no better than batches.
    """

    files: Sequence[Path]
    one: Callable[[], Read] | None = None
    many: Callable[[], ReadMany] | None = None
    all: Callable[[], Iterator[Bytes]] | None = None


class Corpus:
    """The same samples in every shape.

    Args:
        photos: A folder of images.
        work: Where to put the rest. Packs are made anew, as fastconv may have changed since.

    Attributes:
        paths: The images' paths, in the order of all shapes.
        sizes: How many bytes they have.
        packs: Title of the format -> the pack.
    """

    def __init__(self, photos: Path, work: Path) -> None:
        self.paths = [path for path, _ in images(photos)]
        self.sizes = [os.stat(path).st_size for path in self.paths]
        self.packs = {title: work / f"read.{ending}" for title, ending in FORMATS.items()}
        for pack in self.packs.values():
            run([*FASTCONV, "pack", photos, pack, "--quiet", "--overwrite"])
        stamp = digest(os.fsencode(f"{self.paths} {self.sizes}"))
        self.lmdb = peer(photos, work / f"read-{stamp:016x}-lmdb", "lmdb, one transaction")
        self.vlen = peer(photos, work / f"read-{stamp:016x}-vlen", "h5py, vlen")
        self.shards = peer(photos, work / f"read-{stamp:016x}-shards", "webdataset.ShardWriter")

    def ways(self) -> dict[str, Way]:
        """Returns the ways to read them; the first is what the others are compared with."""
        raw = [Path(path) for path in self.paths]
        tar = self.packs["one tar"]
        found = {
            "raw files, os.open and os.read": Way(raw, self.raw),
            "raw files, open().read()": Way(raw, self.raw_plain),
            f"raw files, {THREADS} threads": Way(raw, many=self.raw_threads),
        }
        for title, pack in self.packs.items():
            found[f"fastconv, {title}"] = Way(files_of(pack), *ours(pack))
        return found | {
            "lmdb, one transaction a get": Way(files_of(self.lmdb), self.lmdb_get),
            "h5py, vlen": Way(files_of(self.vlen), self.h5py_vlen),
            "webdataset.WebDataset": Way(files_of(self.shards), all=self.webdataset),
            "tarfile": Way(files_of(tar), all=self.tarfile),
            "a mapped tar, places in lists": Way(files_of(tar), self.mapped_tar),
        }

    def raw(self) -> Read:
        """Opens each file anew, with as few calls as possible."""
        paths, sizes = self.paths, self.sizes

        def read(number: int) -> bytes:
            fd = os.open(paths[number], os.O_RDONLY)
            try:
                return os.read(fd, sizes[number])
            finally:
                os.close(fd)

        return read

    def raw_plain(self) -> Read:
        """Opens each file anew, as one usually does."""
        paths = self.paths

        def read(number: int) -> bytes:
            with open(paths[number], "rb") as file:
                return file.read()

        return read

    def raw_threads(self) -> ReadMany:
        """Opens each file anew, several at once."""
        read = self.raw()
        pool = ThreadPoolExecutor(THREADS)
        return lambda numbers: pool.map(read, numbers)

    def lmdb_get(self) -> Read:
        """Gets a copy of each value."""
        import lmdb

        env = lmdb.open(str(self.lmdb), readonly=True, lock=False)

        def read(number: int) -> Any:
            with env.begin() as txn:
                return txn.get(f"{number:08d}".encode())

        return read

    def h5py_vlen(self) -> Read:
        """Reads each element of the dataset."""
        import h5py

        file = h5py.File(self.vlen)
        data = file["images"]
        return lambda number, file=file: data[number]  # type: ignore[misc] # it keeps the file open

    def mapped_tar(self) -> Read:
        """Slices a mapped file, and checks nothing: what Python can do at best."""
        from fastconv.loaders import open_dataset

        table = open_dataset(self.packs["one tar"]).table
        starts = (table.offset[0].astype("int64") + table.base[0]).tolist()
        stops = [start + size for start, size in zip(starts, table.size[0].tolist(), strict=True)]
        with open(self.packs["one tar"], "rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return lambda number: view[starts[number] : stops[number]]

    def webdataset(self) -> Iterator[Bytes]:
        """Reads shard after shard, without decoding anything."""
        import webdataset

        shards = [str(path) for path in files_of(self.shards)]
        for sample in webdataset.WebDataset(shards, shardshuffle=False):
            yield sample["jpg"]

    def tarfile(self) -> Iterator[Bytes]:
        """Reads member after member."""
        with tarfile.open(self.packs["one tar"]) as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is not None and not member.name.endswith((".cls", ".json")):
                    yield content.read()


def ours(pack: Path) -> tuple[Callable[[], Read], Callable[[], ReadMany]]:
    """Returns what opens a pack of fastconv, for reading one and many."""
    from fastconv.loaders import open_dataset

    return lambda: open_dataset(pack).read, lambda: open_dataset(pack).read_many


def peer(photos: Path, out: Path, name: str) -> Path:
    """Returns the photos as a script made them, made now unless they were."""
    if not out.exists():
        say(f"packing with {name}, once")
        script = Path(__file__).with_name("peers.py")
        making = out.with_name(f"{out.name}.making")
        run([sys.executable, script, name, photos, making])
        making.rename(out)
    return out
