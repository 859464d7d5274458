"""Sizes as people write them."""

from __future__ import annotations

import click
import pytest

from fastconv.converters.cli.sizes import parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("0", 0),
        ("17B", 17),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("256MB", 256_000_000),
        ("256 MB", 256_000_000),
        ("256mb", 256_000_000),
        ("256MiB", 256 << 20),
        ("1GB", 10**9),
        ("1GiB", 1 << 30),
        ("1.5GB", 1_500_000_000),
        ("0.1GB", 100_000_000),
        ("2TiB", 2 << 40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MB",
        "-1",
        "1M",
        "1x",
        "1,5GB",
        "1e6",
        "1.5",
        "0.3B",
        "1 2MB",
        "1MBB",
        "٣MB",
        "1GB\n",
        "inf",
    ],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (9_999, "10.0 kB"),
        (99_960, "100 kB"),
        (582_600_000, "583 MB"),
        (999_400_000, "999 MB"),
        (999_600_000, "1.00 GB"),
        (3 * 10**15, "3000 TB"),
    ],
)
def test_sizes_in_words(size: int, text: str) -> None:
    assert size_text(size) == text
