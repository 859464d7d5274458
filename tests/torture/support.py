"""What the torture shares: what is packed, how, and what must come out."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from fastconv.converters.cli import main
from fastconv.loaders import open_dataset
from fastconv.loaders.errors import PackError

__all__ = [
    "CASES",
    "Bench",
    "Case",
    "Ledger",
    "Pack",
    "command",
    "contents",
    "error_lines",
    "images",
    "make_tree",
    "own_contents",
    "start",
]

MAGIC = b"\x0a\x23\xd7\xce"
"""Between the records of RecordIO; where it stands in an image, that takes more bytes."""
RUN = Path(__file__).with_name("run.py")
SAMPLES = 60
SEED = int(os.environ.get("TORTURE_SEED", "1"))
TIMES = float(os.environ.get("TORTURE_TIMES", "1"))


@dataclass(frozen=True)
class Case:
    """What is packed.

    Attributes:
        name: Of the case.
        out: Name of OUT.
        arguments: Of the command.
    """

    name: str
    out: str
    arguments: tuple[str, ...] = ()


CASES = [
    Case("lmdb", "out.lmdb"),
    Case("tar", "out.tar"),
    Case("shards", "out", ("--format", "webdataset", "--shard-samples", "17")),
    Case("hdf5", "out.h5"),
    Case("vlen", "out.h5", ("--option", "layout=vlen")),
    Case("parquet", "out.parquet"),
    Case("tfrecord", "out.tfrecord"),
    Case("tfrecord-shards", "out", ("--format", "tfrecord", "--shard-samples", "17")),
    Case("recordio", "out.rec"),
]


@dataclass
class Ledger:
    """How often which fault was injected, and how often something was lost by it."""

    times: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def injected(self, fault: str, times: int = 1) -> Iterator[None]:
        """Counts a fault, and a loss where the block finds one."""
        self.times[fault] += times
        try:
            yield
        except BaseException:
            self.losses[fault] += 1
            raise


@dataclass(frozen=True)
class Pack:
    """A pack as an undisturbed run makes it.

    Attributes:
        files: Path and bytes of all files, OUT's and those beside it.
        images: The bytes of its samples.
        code: How the run ended.
    """

    files: dict[str, bytes]
    images: list[bytes]
    code: int


class Bench:
    """A case, its source and its pack, and where it is made over and over again.

    Args:
        case: What is packed.
        root: A folder of one's own.
        bad: How many files of the source are no images: they force a second pass.
        older: There is an older pack at OUT, which is to be replaced.
    """

    def __init__(self, case: Case, root: Path, bad: int, older: bool) -> None:
        self.case = case
        self.root = root
        self.tree = make_tree(root / "tree", bad=bad)
        self.arguments = [*case.arguments, *(["--overwrite"] if older else [])]
        self.older = self._made(make_tree(root / "older", 25, seed=8, bad=1)) if older else None
        self.whole = self._made(self.tree)
        assert self.whole.code == (3 if bad else 0)
        self._count = 0

    def _made(self, tree: Path) -> Pack:
        place = self.root / "made"
        place.mkdir()
        code, _ = command("pack", tree, place / self.case.out, *self.case.arguments)
        assert command("verify", place / self.case.out)[0] == 0
        made = Pack(contents(place), images(place / self.case.out), code)
        shutil.rmtree(place)
        return made

    def place(self) -> Path:
        """Returns a new folder with what is there before the run: nothing, or the older pack."""
        self._count += 1
        place = self.root / f"here{self._count}"
        self.lay(place)
        return place / self.case.out

    def lay(self, place: Path) -> None:
        """Puts what is there before the run into a folder."""
        place.mkdir(exist_ok=True)
        for name, data in (self.older.files if self.older is not None else {}).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)

    def command(self, out: Path) -> list[str]:
        """Returns the arguments of the command that packs."""
        return ["pack", str(self.tree), str(out), *self.arguments]

    def check_stopped(self, out: Path) -> None:
        """Checks that OUT is absent or whole: the older pack or the new one."""
        found = own_contents(out)
        known = {"new": self.whole}
        if self.older is not None:
            known["older"] = self.older
        states = [
            name for name, pack in known.items() if found == only_own(pack.files, self.case.out)
        ]
        if not found and self.older is None:
            assert not os.path.lexists(out)
            return
        assert states, f"{out} is neither of the packs"
        if found_half_replaced(out):
            assert Path(f"{out}.partial/publish").exists()
        else:
            assert images(out) == known[states[0]].images

    def check_goes_on(self, out: Path, *, workers: bool = False) -> None:
        """Checks that the same command ends with the bytes of an undisturbed run."""
        partial = Path(f"{out}.partial")
        # All was done, and the run was stopped before it could end; an empty folder may be left.
        done = (
            self.older is None
            and os.path.lexists(out)
            and not (partial.exists() and os.listdir(partial))
        )
        code, err = command(*self.command(out), *(["--workers", "2"] if workers else []))
        if done:
            assert code == 2, err
            assert "exists already" in err
            if partial.exists():
                partial.rmdir()
        else:
            assert code == self.whole.code, err
        assert contents(out.parent) == self.whole.files
        assert sorted({name.partition("/")[0] for name in self.whole.files}) == sorted(
            os.listdir(out.parent)
        )
        assert images(out) == self.whole.images
        shutil.rmtree(out.parent, ignore_errors=True)


def make_tree(root: Path, samples: int = SAMPLES, *, seed: int = 5, bad: int = 0) -> Path:
    """Makes a folder of images in three classes; `bad` more files are no images.

    Behind some images stands what RecordIO must escape, for which it needs a second pass.
    """
    noise = random.Random(seed)
    for number in range(samples):
        file = root / f"class{number % 3}" / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = 30 + number % 7, 40
        Image.frombytes("RGB", size, noise.randbytes(size[0] * size[1] * 3)).save(file)
        if number % 25 == 7:
            data = file.read_bytes()
            file.write_bytes(data + bytes(-len(data) % 4) + MAGIC)
    for number in range(bad):
        (root / f"class2/{number + 20:03}.jpg").write_bytes(b"<html>no image</html>" * (number + 1))
    return root


def contents(folder: Path) -> dict[str, bytes]:
    """Returns the paths and bytes of all files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def only_own(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    """Returns what is at OUT, without what lies beside it."""
    return {path: data for path, data in files.items() if path.partition("/")[0] == name}


def own_contents(out: Path) -> dict[str, bytes]:
    """Returns what is at OUT, without what lies beside it."""
    if out.is_file():
        return {out.name: out.read_bytes()}
    return {f"{out.name}/{name}": data for name, data in contents(out).items()}


def images(out: Path) -> list[bytes]:
    """Returns the bytes of a pack's samples."""
    dataset = open_dataset(out, decode=None)
    return [bytes(dataset.read(row)) for row in range(len(dataset))]


def found_half_replaced(out: Path) -> bool:
    """Returns whether a pack says that it is being replaced: the table of a single tar has changed
    places, the tar is next."""
    try:
        open_dataset(out)
    except PackError as error:
        if "is being replaced" in str(error):
            return True
        raise
    return False


def command(*arguments: str | Path) -> tuple[int, str]:
    """Runs a command in this process; returns its exit code and what it wrote to stderr."""
    with redirect_stderr(io.StringIO()) as err, redirect_stdout(io.StringIO()):
        code = main([*map(str, arguments), "--quiet"])
    return code, err.getvalue()


def error_lines(err: str) -> str:
    """Returns the one line that says what failed; one more may say what is kept."""
    lines = err.splitlines()
    assert lines, "nothing was said"
    assert lines[0].startswith("error: "), err
    assert len(lines) <= 2, err
    assert all(line.startswith("note: ") and "keeps what is" in line for line in lines[1:]), err
    return lines[0]


def start(
    arguments: list[str],
    *,
    steps: int | None = None,
    sync: float = 9,
    way: str = "pack",
    prefix: tuple[str, ...] = (),
    fill: tuple[str, int] | None = None,
    **settings: Any,
) -> subprocess.Popen[str]:
    """Starts a run with small parts in a process group of its own.

    Args:
        arguments: Of the command `pack`.
        steps: After so many of them the whole group kills itself; None: never.
        sync: Seconds between two looks after the disk.
        way: "pack": without the command line, which takes longer to start. "cli": with it. "halt":
            it ends before it publishes. "half": it ends after some parts.
        prefix: What runs the run.
        fill: A file that grows until the disk is full, when so many parts are noted.
        settings: Of the process.
    """
    about = {"steps": steps, "sync": sync, "way": way, "fill": fill, "arguments": arguments}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    return subprocess.Popen(
        [*prefix, sys.executable, str(RUN), json.dumps(about)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True, text=True, **streams,
    )  # fmt: skip
