"""Records and Examples, byte by byte."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastconv.loaders.tfexample import (
    STAMP,
    compression_of,
    first_integer,
    is_record,
    length_checks,
    masked,
    only_bytes,
    read_example,
    stamp,
    stamp_of,
)

ID = "0123456789abcdef" * 2

# RFC 3720, B.4, and a value of TensorFlow's own tests (crc32c_test.cc).
CRC_OF_ZEROS = 0x8A9136AA
MASKED_OF_LENGTH_0 = 0x07980329


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C, bit by bit."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def record(data: bytes) -> bytes:
    size = len(data).to_bytes(8, "little")
    checks = [masked(crc32c(part)).to_bytes(4, "little") for part in (size, data)]
    return size + checks[0] + data + checks[1]


def part(number: int, data: bytes) -> bytes:
    size = len(data)
    assert size < 1 << 14
    length = [size] if size < 128 else [size & 127 | 128, size >> 7]
    return bytes([number << 3 | 2, *length]) + data


def example(*features: tuple[bytes, int, bytes]) -> bytes:
    """Returns an Example of features: name, number of the kind of list, and the list."""
    entries = [part(1, part(1, n) + part(2, part(kind, values))) for n, kind, values in features]
    return part(1, b"".join(entries))


def test_the_crc_of_the_tests() -> None:
    assert crc32c(bytes(32)) == CRC_OF_ZEROS
    assert length_checks(np.zeros(1, np.uint64)).tolist() == [MASKED_OF_LENGTH_0]


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1))
def test_checks_of_lengths(lengths: list[int]) -> None:
    checks = length_checks(np.array(lengths, np.uint64))
    assert checks.dtype == np.uint32
    assert checks.tolist() == [masked(crc32c(n.to_bytes(8, "little"))) for n in lengths]


def test_what_begins_with_a_record() -> None:
    whole = record(b"data")
    assert is_record(whole)
    assert is_record(whole[:12])
    assert not is_record(whole[:11])
    assert not is_record(b"")
    for place in range(12):
        assert not is_record(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])


def test_compressed_records() -> None:
    whole = record(bytes(1000))
    assert compression_of(gzip.compress(whole)[:512]) == "gzip"
    for level in (0, 1, 6, 9):
        assert compression_of(zlib.compress(whole, level)[:512]) == "zlib"
    for other in (whole, b"", b"\x1f\x8b", gzip.compress(b"a tar"), zlib.compress(b"x"), b"x" * 99):
        assert compression_of(other) is None


@given(st.binary(), st.binary())
def test_a_stamp_leaves_the_crc_as_it_is(before: bytes, after: bytes) -> None:
    assert len(stamp(ID)) == STAMP
    assert crc32c(before + stamp(ID) + after) == crc32c(before + bytes(STAMP) + after)


@pytest.mark.parametrize("base", [0, 1])
def test_the_stamp_of_a_file(base: int) -> None:
    value = b"%d" % base + stamp(ID)
    whole = record(example((b"a", 1, part(1, b"b")), (b"fastconv/pack", 1, part(1, value))))
    assert stamp_of(whole) == stamp_of(memoryview(whole)) == (ID, base)
    unknown = record(example((b"fastconv/pack", 1, part(1, bytes(1 + STAMP)))))
    for other in (b"", unknown, whole.replace(b"fastconv", b"other's!"), bytes(500) + whole):
        assert stamp_of(other) == ("", 0)


def test_features() -> None:
    data = example(
        (b"one", 1, part(1, b"bytes")),
        (b"two", 1, part(1, b"bytes") + part(1, b"")),
        (b"none", 1, b""),
        (b"number", 3, part(1, b"\x96\x01")),
        (b"unpacked", 3, b"\x08\x07\x08\x09"),
        (b"padded", 3, part(1, b"\x85\x80\x80\x80\x00")),
        (b"negative", 3, part(1, b"\xff" * 9 + b"\x01")),
        (b"empty", 3, b""),
        (b"float", 2, part(1, bytes(4))),
        (b"other float", 2, b"\x0d" + bytes(4)),
    )
    found = read_example(data + b"more", len(data))
    values = {name: only_bytes(data, one) for name, one in found.items()}
    place = data.index(b"bytes")
    assert {name: value for name, value in values.items() if value} == {b"one": (place, place + 5)}
    numbers = {name: first_integer(data, one) for name, one in found.items()}
    assert {name: number for name, number in numbers.items() if number is not None} == {
        b"number": 150, b"unpacked": 7, b"padded": 5, b"negative": -1,
    }  # fmt: skip
    assert only_bytes(data, found.get(b"nothing")) is None
    assert first_integer(data, found.get(b"nothing")) is None


def test_what_protobuf_lets_messages_be() -> None:
    """Parts in any order, repeated and unknown; of several the last one counts."""
    value = part(1, part(1, b"new"))
    entry = part(2, part(1, part(1, b"old"))) + part(2, value) + part(1, b"name")
    unknown = b"\x78\x05" + b"\x79" + bytes(8) + b"\x7d" + bytes(4) + part(15, b"x")
    data = part(1, unknown + part(1, entry)) + unknown + example((b"other", 1, part(1, b"")))
    found = read_example(data, len(data))
    assert found.keys() == {b"name", b"other"}
    start, stop = only_bytes(data, found[b"name"]) or (0, 0)
    assert data[start:stop] == b"new"


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05\x0a",  # longer than what it belongs to
        b"\x0a",  # no length
        b"\x0b\x0c",  # a group
        b"\x0f",  # no such kind
        b"\xff" * 12,  # a number that does not end
        b"\x08" + b"\xff" * 11,
        example((b"name", 3, part(1, b"\x01")))[:-1],
        part(1, part(1, b"\x0a\x7f")),
        b"\x09\0",
    ],
)
def test_what_is_no_example(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its words are shown to nobody by themselves
        read_example(data, len(data))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    try:
        found = read_example(data, len(data))
        for one in found.values():
            only_bytes(data, one)
            first_integer(data, one)
    except (ValueError, IndexError):
        pass
