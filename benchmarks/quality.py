"""How far do pixels lie from those that torchvision makes?

    python benchmarks/loaders.py --install     # the peers first, each in an environment in --work
    python benchmarks/quality.py --photos FOLDER

What counts as right are the pixels of torchvision.transforms.v2, made of the whole picture by a
resize of uint8 with antialiasing. Each way makes the same images, once those of Resize(256) and
CenterCrop(224), and once those of the boxes that RandomResizedCrop(224) draws. Nothing is timed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from common import (
    Measured,
    Report,
    Table,
    arguments,
    command_line,
    environment,
    finish,
    parsed,
    say,
    spread,
    with_photos,
    with_samples,
)
from loader_peers.shared import contents, environments, images
from PIL import Image
from processes import run

from fastconv.loaders import CenterCrop, RandomResizedCrop, native
from fastconv.loaders.decode import decode_with
from fastconv.loaders.decoders import Decoder
from fastconv.loaders.draws import draws

__all__ = ["main"]

Pixels = npt.NDArray[np.uint8]

HERE = Path(__file__).parent
JPEGS = (".jpg", ".jpeg")
DECODERS: dict[str, Decoder] = {
    "Resize(256), CenterCrop(224)": CenterCrop(224, resize=256),
    "RandomResizedCrop(224)": RandomResizedCrop(224),
}


@dataclass(frozen=True, slots=True)
class Peer:
    """What makes images in a process of its own.

    Attributes:
        way: One of pixels.py.
        needs: Its environment, "" for the one that this runs in.
    """

    way: str
    needs: str = ""


REFERENCE = "torchvision"
PEERS = {
    "Pillow": Peer("pillow"),
    "Pillow, draft mode": Peer("pillow-draft"),
    "DALI, CPU": Peer("dali", "dali"),
    "FFCV, of the same files": Peer("ffcv", "ffcv"),
    "OpenCV, INTER_AREA": Peer("opencv-area", "ffcv"),
    "OpenCV, INTER_LINEAR": Peer("opencv-linear", "ffcv"),
}


class Images:
    """The images of one geometry, by all ways.

    Args:
        paths: The photos.
        decoder: What is made of each.
        work: Where the peers' environments are.
        scratch: A folder to write to.
    """

    def __init__(self, paths: Sequence[str], decoder: Decoder, work: Path, scratch: Path) -> None:
        self.decoder, self.work, self.scratch = decoder, work, scratch
        self.files = [contents(path) for path in paths]
        self.draws = draws(0, 0, np.arange(len(paths)), decoder.draws).tolist()
        cases = []
        for path, draw in zip(paths, self.draws, strict=True):
            with Image.open(path) as image:
                geometry = decoder.geometry(*image.size, draw)
                cases.append({"path": path, **geometry._asdict()})
        self.cases = scratch / "cases.json"
        self.cases.write_text(json.dumps(cases), encoding="utf-8")

    def by_python(self) -> Pixels:
        """Returns fastconv's, without its kernel."""
        pairs = zip(self.files, self.draws, strict=True)
        return np.stack([decode_with(data, self.decoder, draw) for data, draw in pairs])

    def by_kernel(self) -> Pixels:
        """Returns fastconv's, by its kernel.

        Raises:
            RuntimeError: It is not there, or leaves some to Python.
        """
        if native.kernel() is None:
            raise RuntimeError("is not installed")
        assert self.decoder.out_size is not None
        out = np.empty((len(self.files), *self.decoder.out_size, 3), np.uint8)
        done = native.decode(self.files, self.decoder, self.draws, out)
        if not done.all():
            raise RuntimeError(f"leaves {np.sum(~done)} of the photos to Python")
        return out

    def by_peer(self, peer: Peer) -> Pixels:
        """Returns a peer's.

        Raises:
            RuntimeError: It is not installed, or fails.
        """
        folder = environments(self.work)
        if peer.needs and not (folder / f"{peer.needs}.ok").exists():
            raise RuntimeError("is not installed")
        python = folder / peer.needs / "bin" / "python" if peer.needs else sys.executable
        out = self.scratch / f"{peer.way}.npy"
        run([python, HERE / "pixels.py", peer.way, self.cases, out])
        found: Pixels = np.load(out)
        out.unlink()
        return found

    def ways(self) -> dict[str, Callable[[], Pixels]]:
        """Returns all of them."""
        return {
            "fastconv": self.by_python,
            "fastconv, the kernel": self.by_kernel,
            **{name: partial(self.by_peer, peer) for name, peer in PEERS.items()},
        }


def differences(found: Pixels, expected: Pixels) -> tuple[list[float], list[int]]:
    """Returns the mean and the largest absolute difference of each image.

    Args:
        found: uint8, images x rows x columns x channels.
        expected: The same.
    """
    means, largest = [], []
    for image, other in zip(found, expected, strict=True):
        difference = np.abs(image.astype(np.int16) - other)
        means.append(float(difference.mean()))
        largest.append(int(difference.max()))
    return means, largest


def compare(title: str, these: Images) -> tuple[Table, dict[str, Measured]]:
    """Returns how far the ways lie from torchvision, and the values of each image.

    Args:
        title: What the images are.
        these: The images.

    Raises:
        RuntimeError: There is no torchvision.
    """
    expected = these.by_peer(Peer(REFERENCE, REFERENCE))
    rows, notes = [], []
    measured: Measured = {}
    for name, way in these.ways().items():
        say(f"{title}: {name}")
        try:
            found = way()
        except RuntimeError as error:
            notes.append(f"left out: {name}: {str(error).splitlines()[-1].strip()}")
            continue
        means, largest = differences(found, expected)
        same = np.count_nonzero(np.array(largest) == 0) / len(largest)
        rows.append(
            [
                name,
                f"{np.mean(means):.3f}",
                f"{100 * same:.1f} %",
                f"{max(means):.3f}",
                f"{max(largest)}",
            ]
        )
        measured[name] = list(means)
    columns = (
        "",
        "mean difference",
        "images the same",
        "mean of the worst image",
        "largest of all",
    )
    notes = [f"{len(expected)} photos; absolute differences of values from 0 to 255", *notes]
    return Table(title, columns, rows, notes), {f"{title}, mean difference": measured}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    assert __doc__ is not None
    args = parsed(with_samples(with_photos(arguments(__doc__, rounds=1)), 500), argv)
    jpegs = [path for path, _ in images(str(args.photos)) if path.lower().endswith(JPEGS)]
    paths = spread(jpegs, args.samples)
    tables: list[Table] = []
    measured: dict[str, Measured] = {}
    for title, decoder in DECODERS.items():
        with tempfile.TemporaryDirectory(dir=args.work) as scratch:
            try:
                these = Images(paths, decoder, args.work, Path(scratch))
                table, found = compare(title, these)
            except RuntimeError as error:
                say(f"torchvision, with which all are compared: {error}: see loaders.py --install")
                return 2
        tables.append(table)
        measured |= found
    report = Report(
        "How far do pixels lie from those that torchvision makes?",
        command_line(sys.argv if argv is None else ["quality.py", *argv]),
        environment(args.work),
        tables,
        measured,
    )
    finish(report, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
