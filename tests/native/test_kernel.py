"""What the kernel promises beside the pixels: of damaged files, memory, and wrong arguments."""

from __future__ import annotations

import io
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import simplejpeg
from PIL import Image

from fastconv.loaders import native
from fastconv.loaders.native import Kernel

Pixels = npt.NDArray[np.uint8]

SIDE = 12
UNTOUCHED = 0xA5


@pytest.fixture
def kernel() -> Any:
    return native.kernel()


def jpeg(seed: int = 0, size: tuple[int, int] = (40, 30), **options: Any) -> bytes:
    """Returns one of noise: each bit of it counts."""
    noise = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "JPEG", **options)
    return out.getvalue()


def jobs_for(count: int, size: tuple[int, int] = (40, 30)) -> npt.NDArray[np.int32]:
    """Returns jobs of the whole picture."""
    job = (0, 0, *size, SIDE, SIDE, 0, 0, SIDE, SIDE, 0, 1)
    return np.array([job] * count, np.int32).reshape(count, 12)


def decode(
    kernel: Kernel, files: list[bytes], jobs: npt.NDArray[np.int32], threads: int = 1
) -> tuple[Pixels, list[int]]:
    """Returns the batch and the status of each image; nothing around the images was written to."""
    wide = np.full((2 * len(files) + 1, SIDE + 2, SIDE + 3, 5), UNTOUCHED, np.uint8)
    out = wide[1::2, 1:-1, 1:-2, 1:-1]
    status = np.full(len(files), 99, np.uint8)
    kernel.decode(files, jobs, out, status, 0, threads)
    made = out.copy()
    out[...] = UNTOUCHED
    assert (wide == UNTOUCHED).all()
    return made, status.tolist()


def headers(kernel: Kernel, *files: bytes) -> list[list[int]]:
    out = np.empty((len(files), 4), np.int32)
    kernel.headers(files, out)
    found: list[list[int]] = out.tolist()
    return found


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_damaged_files_spoil_nothing_but_themselves(
    kernel: Any, threads: int, progressive: bool
) -> None:
    whole = [jpeg(seed, progressive=progressive) for seed in range(3)]
    files, wanted = [], []
    rng = np.random.default_rng(5)
    for n in range(300):
        data = bytearray(whole[n % 3])
        if n % 2:
            wanted.append(n % 3)
        else:
            wanted.append(-1)
            for place in rng.integers(2, len(data), 1 + n % 5):
                data[place] = rng.integers(0, 256)
            if n % 3 == 0:
                del data[int(rng.integers(0, len(data))) :]
        files.append(bytes(data))
    right, status = decode(kernel, whole, jobs_for(3))
    assert status == [kernel.DONE] * 3
    made, status = decode(kernel, files, jobs_for(300), threads)
    assert {*status} >= {kernel.DONE, kernel.DAMAGED}
    for n, seed in enumerate(wanted):
        if seed >= 0:
            assert status[n] == kernel.DONE
            assert np.array_equal(made[n], right[seed])


@pytest.mark.parametrize("rows", [1, 12, 30])
@pytest.mark.parametrize(
    "options", [{}, {"restart_marker_blocks": 1}, {"progressive": True}], ids=str
)
def test_files_cut_short_are_damaged(kernel: Any, options: dict[str, Any], rows: int) -> None:
    data = jpeg(**options)
    files = [data[:size] for size in range(len(data))]
    jobs = jobs_for(len(files))
    jobs[:, 3] = rows  # what is missing may be no part of what is wanted
    _, status = decode(kernel, files, jobs)
    assert {*status} == {kernel.UNABLE, kernel.DAMAGED}
    start = data.index(b"\xff\xda")
    assert {*status[:start]} == {kernel.UNABLE}
    _, status = decode(kernel, [data, data + b"\0\xff"], jobs[:2])
    assert status == [kernel.DONE] * 2


def test_bytes_that_are_left_over_are_damage_where_all_is_decoded(kernel: Any) -> None:
    data = jpeg()
    jobs = jobs_for(2)
    jobs[1, 3] = 12
    _, status = decode(kernel, [data[:-2] + bytes(50) + data[-2:]] * 2, jobs)
    assert status == [kernel.DAMAGED, kernel.DONE]


def test_what_is_no_jpeg(kernel: Any) -> None:
    files = [b"", b"\xff", b"\xff\xd8", b"\x89PNG\r\n\x1a\n" + bytes(50), bytes(1000)]
    files += [b"\xff\xd8" + b"\xff" * 99, b"\xff\xd8\xff\xe0\0\1", b"\xff\xd8\xff\xe0\xff\xff"]
    assert headers(kernel, *files) == [[0, 0, 0, 0]] * len(files)
    assert decode(kernel, files, jobs_for(len(files)))[1] == [kernel.UNABLE] * len(files)


def test_a_picture_without_tables_gets_no_others(kernel: Any) -> None:
    data = jpeg()
    tables = data.index(b"\xff\xdb")
    size = int.from_bytes(data[tables + 2 : tables + 4])
    without = data[:tables] + data[tables + 2 + size :]
    assert decode(kernel, [data, without, data], jobs_for(3))[1][1] == kernel.DAMAGED


def is_taken(data: bytes) -> bool:
    """Returns whether libjpeg-turbo decodes a picture without a complaint."""
    try:
        simplejpeg.decode_jpeg(data)
    except ValueError:
        return False
    return True


def segment(data: bytes, marker: int) -> slice:
    """Returns where the first segment with this marker lies, without the marker."""
    place = 2
    while data[place + 1] != marker:
        place += 2 + int.from_bytes(data[place + 2 : place + 4])
    return slice(place + 2, place + 2 + int.from_bytes(data[place + 2 : place + 4]))


def of_grey(size: tuple[int, int] = (40, 30)) -> bytes:
    out = io.BytesIO()
    Image.new("L", size, 99).save(out, "JPEG")
    return out.getvalue()


@pytest.mark.parametrize("data", [of_grey(), jpeg(subsampling=0), jpeg(subsampling=2)])
@pytest.mark.parametrize("marker", [0xE0, 0xC0, 0xDA])
def test_headers_that_libjpeg_complains_of(kernel: Any, marker: int, data: bytes) -> None:
    place = segment(data, marker)
    sizes = range(place.start + 3, place.start + 7) if marker == 0xC0 else ()
    files = [
        data[:at] + bytes([value]) + data[at + 1 :]
        for at in range(place.start, place.stop)
        if at not in sizes
        for value in range(256)
    ]
    _, status = decode(kernel, files, jobs_for(len(files)))
    done = [file for file, found in zip(files, status, strict=True) if found == kernel.DONE]
    assert done
    assert all(map(is_taken, done))


def test_a_code_of_ones_is_none(kernel: Any) -> None:
    data = of_grey()
    place = segment(data, 0xC4)
    table = bytearray(data[place])
    table[1] += 1
    table[2 + 1 + 8] += 1  # one code of 9 bits more, behind 111111110
    files = [data, data[: place.start] + table + b"\x0b" + data[place.stop :]]
    assert [*map(is_taken, files)] == [True, False]
    assert decode(kernel, files, jobs_for(2))[1] == [kernel.DONE, kernel.DAMAGED]


@pytest.mark.parametrize("axis", [0, 1])
def test_pictures_larger_than_libjpeg_takes(kernel: Any, axis: int) -> None:
    data = of_grey((65_500, 16) if axis else (16, 65_500))
    at = segment(data, 0xC0).start + 3 + 2 * axis
    files = [data, data[:at] + (65_501).to_bytes(2) + data[at + 2 :]]
    assert [*map(is_taken, files)] == [True, False]
    assert decode(kernel, files, jobs_for(2, (16, 16)))[1] == [kernel.DONE, kernel.DAMAGED]


@pytest.mark.parametrize(
    "field",
    ["x", "y", "width", "height", "rows", "columns", "top", "left", "orientation"],
)
def test_jobs_that_make_no_sense(kernel: Any, field: str) -> None:
    place = {
        "x": 0, "y": 1, "width": 2, "height": 3, "rows": 4, "columns": 5, "top": 6, "left": 7,
        "orientation": 11,
    }[field]  # fmt: skip
    limit = 2**31 - 1
    values = [-limit - 1, -limit, limit, 1 << 30, -(1 << 30)]
    if field not in ("top", "left"):
        values.append(-1)
    jobs = jobs_for(len(values) + 1)
    jobs[1:, place] = values
    files = [jpeg()] * len(jobs)
    _, status = decode(kernel, files, jobs)
    assert status == [kernel.DONE] + [kernel.UNABLE] * len(values)


def test_a_window_outside_is_black(kernel: Any) -> None:
    jobs = jobs_for(4)
    jobs[:, 6] = (SIDE, -SIDE, 0, 5000)
    jobs[:, 7] = (0, 0, -SIDE - 1, 5000)
    made, status = decode(kernel, [jpeg()] * 4, jobs)
    assert status == [kernel.DONE] * 4
    assert not made.any()


def test_pixels_are_limited(kernel: Any) -> None:
    files, status = [jpeg()] * 2, np.empty(2, np.uint8)
    out = np.empty((2, SIDE, SIDE, 3), np.uint8)
    kernel.decode(files, jobs_for(2), out, status, 40 * 30, 1)
    assert [*status] == [kernel.DONE] * 2
    kernel.decode(files, jobs_for(2), out, status, 40 * 30 - 1, 1)
    assert [*status] == [kernel.UNABLE] * 2


def test_headers(kernel: Any) -> None:
    exif = Image.Exif()
    exif[274] = 6
    plain, turned = jpeg(size=(21, 9)), jpeg(exif=exif)
    # A marker that libjpeg-turbo steps over, and a block behind it that it would not see as one.
    strange = plain[:2] + b"\xff\xd0" + plain[2:]
    assert headers(kernel, plain, turned, strange) == [[21, 9, 3, 1], [40, 30, 3, 6], [0, 0, 0, 0]]
    assert headers(kernel) == []


def test_an_empty_batch(kernel: Any) -> None:
    kernel.decode(
        [],
        np.empty((0, 12), np.int32),
        np.empty((0, 5, 5, 3), np.uint8),
        np.empty(0, np.uint8),
        0,
        8,
    )


def test_plain_loops_and_those_of_the_processor_agree(kernel: Any) -> None:
    from fastconv_native._kernel import use_plain_loops

    rng = np.random.default_rng(3)
    jobs = jobs_for(400, (70, 50))
    jobs[:, 4:6] = rng.integers(1, 60, (400, 2))  # larger and smaller, and both at once
    jobs[:, 6:8] = rng.integers(-8, 20, (400, 2))
    jobs[:, 10] = rng.integers(0, 2, 400)
    files = [jpeg(n, (70, 50)) for n in range(4)] * 100
    best, status = decode(kernel, files, jobs)
    assert status == [kernel.DONE] * 400
    use_plain_loops(True)
    try:
        assert kernel.about().endswith("plain C")
        plain, _ = decode(kernel, files, jobs)
    finally:
        use_plain_loops(False)
    assert np.array_equal(plain, best)


def test_python_threads_decode_side_by_side(kernel: Any) -> None:
    files = [jpeg(seed) for seed in range(20)]
    right, _ = decode(kernel, files, jobs_for(20))
    found: list[bool] = []

    def work() -> None:
        for _ in range(20):
            made, _ = decode(kernel, files, jobs_for(20), 3)
            found.append(np.array_equal(made, right))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 120


def arguments(**others: Any) -> list[Any]:
    """Returns arguments of `decode` that are right, but for those named."""
    right = {
        "files": [jpeg()] * 2,
        "jobs": jobs_for(2),
        "out": np.empty((2, SIDE, SIDE, 3), np.uint8),
        "status": np.empty(2, np.uint8),
        "max_pixels": 0,
        "threads": 1,
    }
    return [*(right | others).values()]


def read_only() -> Pixels:
    out = np.empty((2, SIDE, SIDE, 3), np.uint8)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("others", "error", "words"),
    [
        ({"files": 5}, TypeError, "files has to be a sequence of buffers"),
        ({"files": [b"", None]}, TypeError, r"files\[1\] has to be a contiguous buffer"),
        ({"files": [jpeg()]}, ValueError, "jobs has 96 bytes: for 1 files they are 48"),
        ({"jobs": jobs_for(3)}, ValueError, "jobs has 144 bytes: for 2 files they are 96"),
        ({"jobs": jobs_for(2).astype(np.int64)}, ValueError, "jobs has 192 bytes"),
        ({"jobs": jobs_for(4)[::2]}, TypeError, "jobs has to be a contiguous buffer"),
        ({"jobs": None}, TypeError, "jobs has to be a contiguous buffer"),
        ({"status": np.empty(3, np.uint8)}, ValueError, "status has 3 bytes"),
        ({"status": b"12"}, TypeError, "status has to be a contiguous buffer that can be written"),
        ({"out": read_only()}, TypeError, "out has to be a buffer that can be written to"),
        ({"out": np.empty((2, 9, 12, 3), np.uint8)}, ValueError, "job 0 is for 12 x 12 pixels"),
        ({"out": np.empty((2, 12, 12, 4), np.uint8)}, ValueError, r"uint8 \(2, rows, columns, 1 o"),
        ({"out": np.empty((3, 12, 12, 3), np.uint8)}, ValueError, r"uint8 \(2, rows, columns, 1 o"),
        ({"out": np.empty((2, 12, 12, 3), np.int16)}, ValueError, "out has to be uint8"),
        ({"out": np.empty((2, 432), np.uint8)}, ValueError, "out has to be uint8"),
        ({"threads": "2"}, TypeError, "int"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_arguments(
    kernel: Any, others: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        kernel.decode(*arguments(**others))
    assert "\n" not in str(caught.value)


def test_wrong_arguments_of_headers(kernel: Any) -> None:
    with pytest.raises(ValueError, match="out has 16 bytes: for 2 files they are 32"):
        kernel.headers([b"", b""], np.empty((1, 4), np.int32))
    with pytest.raises(TypeError, match="out has to be a contiguous buffer that can be written to"):
        kernel.headers([b""], bytes(16))
    with pytest.raises(TypeError, match="files"):
        kernel.headers(7, bytes(16))
