"""Files that are compressed as a whole, whatever they are called."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
from pathlib import Path

import pytest

from fastconv.loaders import open_dataset, open_pack
from fastconv.loaders.errors import NotAPackError


def tar_of(name: str, data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


TAR = tar_of("0.png", b"\x89PNG\r\n")
COMPRESSED = {
    "gzip": gzip.compress(TAR, mtime=1_700_059_973),  # its bytes add up to a tar's checksum of 0
    "bzip2": bz2.compress(TAR),
    "xz": lzma.compress(TAR),
    # As their formats have it (RFC 8878 3.1.1, LZ4 frame format): a magic number, then the rest.
    "Zstandard": struct.pack("<I", 0xFD2FB528) + TAR,
    "LZ4": struct.pack("<I", 0x184D2204) + TAR,
}


@pytest.mark.parametrize("how", COMPRESSED)
@pytest.mark.parametrize(
    "name", ["a.tar", "a.tar.gz", "a.rec", "a.parquet", "a-00000-of-00001", "a.h5", "a.rec.x", "a"]
)
def test_they_are_refused_by_what_they_are(tmp_path: Path, name: str, how: str) -> None:
    file = tmp_path / "set" / name
    file.parent.mkdir()
    file.write_bytes(COMPRESSED[how])
    alone = name in ("a", "a.h5", "a-00000-of-00001")  # no format has folders of such files
    for place in [file] if alone else [file, file.parent]:
        for opening in (open_pack, open_dataset):
            with pytest.raises(NotAPackError, match=f"{how}-compressed, .*: decompress it") as told:
                opening(place)
            assert str(told.value).startswith(f"{file}: ")


@pytest.mark.parametrize("format", ["webdataset", "recordio", "tfrecord"])
def test_they_are_refused_where_the_format_is_named(tmp_path: Path, format: str) -> None:
    (tmp_path / "a").write_bytes(COMPRESSED["xz"])
    with pytest.raises(NotAPackError, match="xz-compressed"):
        open_pack(tmp_path / "a", format)


@pytest.mark.parametrize("start", [b"\x1f\x8b\x08", b"BZh91AY", b"\x28\xb5\x2f\xfd"])
def test_a_tar_is_one_whatever_its_first_member_is_called(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(
        tar_of((start + b".png").decode("utf-8", "surrogateescape"), b"x")
    )
    assert len(open_pack(tmp_path / "a.tar")) == 1
