"""A worker process: takes tasks from its standard input and answers on its standard output.

A message is a u64 length and a block of arrays (`fastconv.loaders.arrays`) whose metadata holds
JSON: the task, or the answer. The worker ends when its input does, or when its parent dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from fastconv.converters.part import check_part, pack_part
from fastconv.converters.system import die_with_parent
from fastconv.loaders.arrays import Array, block_size, dump_arrays, load_arrays
from fastconv.loaders.errors import FastconvError

__all__ = ["main", "receive", "send"]

Task = Callable[[Mapping[str, Any], Mapping[str, Array]], tuple[dict[str, Any], dict[str, Array]]]


def verify_part(
    task: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Runs `fastconv.converters.verify.verify_part`, imported when it is first needed."""
    from fastconv.converters.verify import verify_part as run

    return run(task, arrays)


def stats_part(
    task: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Runs `fastconv.converters.stats.stats_part`, imported when it is first needed."""
    from fastconv.converters.stats import stats_part as run

    return run(task, arrays)


def hold(
    task: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Takes a lock that tells the next run that this process is still there: it ends with it."""
    fd = os.open(os.fsencode(task["lock"]), os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return {}, {}


def encode_part(
    task: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Runs `fastconv.converters.reencoding.encode_part`, imported when it is first needed."""
    from fastconv.converters.reencoding import encode_part as run

    return run(task, arrays)


TASKS: dict[str, Task] = {
    "check": check_part,
    "encode": encode_part,
    "hold": hold,
    "pack": pack_part,
    "stats": stats_part,
    "verify": verify_part,
}


def send(stream: BinaryIO, content: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Writes a message."""
    block = dump_arrays(arrays, {"content": json.dumps(content)})
    stream.write(block_size(block).to_bytes(8, "little"))
    for buffer in block:
        stream.write(buffer)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """Reads a message; None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    block = stream.read(size)
    if len(block) < size:
        return None
    arrays, metadata = load_arrays(block)
    return json.loads(metadata["content"]), arrays


def answer(
    content: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Runs a task; what goes wrong is part of the answer."""
    try:
        return TASKS[content["run"]](content, arrays)
    except FastconvError as error:
        return {"error": {"type": "fastconv", "message": str(error)}}, {}
    except OSError as error:
        name = (
            os.fsdecode(error.filename)
            if isinstance(error.filename, str | bytes)
            else content.get("out")
        )
        return {
            "error": {
                "type": "os", "errno": error.errno, "message": error.strerror or str(error),
                "file": name,
            }
        }, {}  # fmt: skip
    except Exception:
        return {"error": {"type": "bug", "message": traceback.format_exc()}}, {}


def main() -> None:
    """Serves until the input ends, or nobody is left to read the answers.

    What an interrupt means is the parent's to decide: it starts workers with these signals blocked.
    """
    die_with_parent()
    tasks, answers = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    try:
        while (message := receive(tasks)) is not None:
            send(answers, *answer(*message))
    except BrokenPipeError:
        os._exit(1)  # not as Python ends, which would try to write the answer once more
