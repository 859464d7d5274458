"""Makes what fuzzing begins with, in a folder: small JPEGs of all kinds, each with the numbers of a
job behind."""

import io
import random
import sys
from pathlib import Path

from PIL import Image

NUMBERS = 16  # as in target.c
SIZES = ((1, 1), (7, 5), (16, 16), (33, 17), (64, 48), (90, 70))


def pictures() -> list[bytes]:
    """Returns the files."""
    chance = random.Random(1)
    found = []
    exif = Image.Exif()
    exif[274] = 6
    for width, height in SIZES:
        noise = Image.frombytes("RGB", (width, height), chance.randbytes(3 * width * height))
        smooth = Image.radial_gradient("L").resize((width, height)).convert("RGB")
        for picture in (noise, smooth):
            for mode in ("RGB", "L", "CMYK"):
                for options in (
                    {"quality": 90, "subsampling": 0},
                    {"quality": 60, "subsampling": 1, "optimize": True},
                    {"quality": 75, "subsampling": 2, "restart_marker_blocks": 2},
                    {"quality": 75, "subsampling": 2, "progressive": True},
                    {"quality": 30, "subsampling": 2, "exif": exif},
                ):
                    out = io.BytesIO()
                    picture.convert(mode).save(out, "JPEG", **options)
                    found.append(out.getvalue())
    return found


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(2)
    for number, data in enumerate(pictures()):
        (folder / f"{number:03}").write_bytes(data + chance.randbytes(NUMBERS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
