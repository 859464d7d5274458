"""Packs a folder of images, or samples that a program gives.

What is to be packed is listed and planned here; `fastconv.converters.run` does it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from fastconv import __version__
from fastconv.converters.check import MAX_PIXELS
from fastconv.converters.encoding import Encoding
from fastconv.converters.engines.choice import engine_for
from fastconv.converters.journal import Plan
from fastconv.converters.outputs import Output, choose_output
from fastconv.converters.report import PackFailedError, PackReport, ProgressCallback
from fastconv.converters.run import (
    Check,
    Notice,
    Run,
    Source,
    nothing_found,
)
from fastconv.converters.selection import Selection, Split
from fastconv.converters.sources.folder import scan
from fastconv.converters.system import held_signals
from fastconv.converters.target import Target, exists_already
from fastconv.converters.writer import Sharding
from fastconv.loaders.classes import ClassOrder
from fastconv.loaders.errors import FastconvError, PackError, UsageError, printable
from fastconv.loaders.listing import Listing
from fastconv.loaders.open import find_format
from fastconv.loaders.sample import Sample

__all__ = ["pack"]

SAMPLES = "samples"
"""The file in OUT.partial with what a program has given."""


def pack(
    source: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "",
    *,
    samples: Iterable[Sample] | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    sharding: Sharding | None = None,
    index_for: Sequence[str] = (),
    encoding: Encoding | None = None,
    selection: Selection | None = None,
    split: Split | None = None,
    workers: int | None = None,
    check: Check = "fast",
    max_pixels: int = MAX_PIXELS,
    strict: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    labels: bool | str | os.PathLike[str] = True,
    classes: Sequence[str] | None = None,
    class_order: ClassOrder = "sorted",
    sidecars: Sequence[str] = (),
    any_extension: bool = False,
    progress: ProgressCallback | None = None,
    notice: Notice | None = None,
) -> PackReport:
    """Packs a folder of images, or samples that a program gives, and returns what was done.

    A run that was stopped, by whatever it was, leaves what it has finished in OUT.partial; the same
    call goes on with that and ends with the same bytes. Samples of a program are given anew.

    Works in a script without `if __name__ == "__main__"`: workers are processes of their own.

    Args:
        source: A folder, as torchvision's ImageFolder reads it.
        out: The pack to make; its ending tells the format.
        samples: In place of a folder: `Sample`s, packed in this order. Each is written to a file in
            OUT.partial and forgotten; then they are packed from there.
        format: Name of the format, where the ending does not tell it: a folder of shards.
        options: The format's own settings.
        sharding: How to cut a folder of shards (default: 256 MB each).
        index_for: Tools for which index files are written, such as "dali".
        encoding: What images become; by default they stay as they are, byte for byte.
        selection: Which samples are packed, and in which order; by default all of them.
        split: `out` becomes a folder of several packs, made in one step, each with some of the
            samples: `out/NAME.lmdb`, or folders of shards `out/NAME`, as `format` says.
        workers: Number of processes; by default one a core, or none where the work is done sooner
            in this process.
        check: "fast" looks at each image's signature and header, "decode" decodes all its pixels.
        max_pixels: Larger images are bad, when they are decoded.
        strict: A single bad file makes it fail, and nothing is published.
        overwrite: Replaces a pack at `out`, in one step, when the new one is whole.
        restart: Begins anew, whatever an earlier run has finished.
        labels: False for none; a path of a CSV or JSON Lines file with `file_name` and `label`.
        classes: Names of the classes, whose ids are their positions; an unknown class is an error.
        class_order: "sorted" as torchvision sorts them, "natural" compares digits as numbers.
        sidecars: Suffixes of files beside the images that become fields, such as "txt".
        any_extension: Files of any name are looked at. Samples of a program need neither this nor
            `labels` nor `sidecars`: they say all that themselves.
        progress: Called now and then, in this thread.
        notice: Called with each line that a user should see at once.

    Raises:
        UsageError: An argument is wrong, or an unfinished run was about something else; nothing was
            done.
        PackFailedError: Nothing usable was found, or `strict` and something was bad.
        FastconvError: Something failed; nothing is left at `out` that was not there before.
        Exception: What the program raises that gives `samples`, as it is.
    """
    began = time.monotonic()
    if not out or (source is None) == (samples is None):
        raise UsageError("pack needs a folder or samples, one of them, and the pack to make")
    if samples is not None:
        if labels is not True or sidecars or any_extension:
            raise UsageError("samples have their own labels and sidecars: leave the options out")
        if selection is not None or split is not None:
            raise UsageError("samples are chosen by who gives them: leave selection and split out")
        from fastconv.converters.from_samples import pack_samples

        return pack_samples(
            samples, out, format=format, options=options, sharding=sharding, index_for=index_for,
            encoding=encoding, workers=workers, check=check, max_pixels=max_pixels, strict=strict,
            overwrite=overwrite, restart=restart, classes=classes, class_order=class_order,
            progress=progress, notice=notice,
        )  # fmt: skip
    assert source is not None
    root, final = source_folder(source), os.fsdecode(out)
    notice = notice or (lambda line: None)
    check_arguments(workers, check, encoding, selection, split, sharding)
    if os.path.realpath(root) == os.path.realpath(final):
        raise UsageError(f"{printable(final)}: is the folder that is packed: name another OUT")
    with translated_errors(final):
        output = choose_output(
            final, format, options, sharding, overwrite, index_for, split is not None
        )
    output.refuse_inside(root)
    listing = scan(
        root, labels=labels, classes=classes, class_order=class_order, sidecars=sidecars,
        any_extension=any_extension,
    )  # fmt: skip
    listing.warnings += [
        f"no image has a sidecar {name}: no file of its name ends in .{name}"
        for name, size in zip(listing.fields, listing.size, strict=True)
        if len(size) and name in sidecars and (size < 0).all()
    ]
    if selection is not None:
        from fastconv.converters.selecting import select

        listing, _ = select(listing, selection, output, workers=workers, progress=progress)
    plan = planned(root, listing, output, check, max_pixels, encoding, selection, split)
    how: dict[str, Any] = {
        "encoding": encoding, "workers": workers, "check": check, "max_pixels": max_pixels,
        "strict": strict, "overwrite": overwrite, "restart": restart, "progress": progress,
        "notice": notice, "began": began,
    }  # fmt: skip
    if split is None:
        return packed(root, listing, output, plan, **how)
    from fastconv.converters.splitting import packed_splits

    return packed_splits(root, listing, output, plan, split, None, **how)


def packed(
    root: str,
    listing: Listing,
    output: Output,
    plan: Plan,
    *,
    workers: int | None,
    check: Check,
    max_pixels: int,
    strict: bool,
    overwrite: bool,
    restart: bool,
    progress: ProgressCallback | None,
    notice: Notice,
    began: float,
    encoding: Encoding | None = None,
    origin: Source | None = None,
    target: Target | None = None,
) -> PackReport:
    """Packs what was listed, and returns what was done.

    Args:
        root: Where the samples come from, for messages.
        listing: They.
        output: What is to be made.
        plan: What it depends on.
        workers, check, max_pixels, strict, overwrite, restart, progress, notice: As for `pack`.
        began: When the run began, as `time.monotonic` counts.
        encoding: What images become.
        origin: Says where the bytes of a part come from; by default from the files of a folder.
        target: Where the pack is made, if that is held already, with SAMPLES in it.

    Raises:
        UsageError, PackFailedError, FastconvError: As from `pack`.
    """
    spool = () if target is None else (SAMPLES,)
    heavy = check == "decode" or encoding is not None
    if encoding is not None:
        listing.encoding = encoding.to_json()
    with engine_for(workers, len(listing), listing.bytes, heavy) as engine:
        run = Run(
            root, listing, output, engine, check, max_pixels, progress, notice, origin, encoding
        )
        if not len(listing):
            if target is not None:
                target.discard()
            raise PackFailedError(nothing_found(root, listing.bad), run.report(began))
        with translated_errors(output.out):
            target = target or Target(output.out, notice)
            try:
                if target.published is not None:
                    run.about = target.published.about
                    target.discard()
                    if run.about.get("plan") == plan.digest and not restart:
                        return run.report(began)
                    if not overwrite:
                        raise exists_already(output.out)
                    run.about = {}
                    target = Target(output.out, notice)
                run.begin(target, plan, restart, spool)
                engine.lock = target.path("workers")
                table, layout, meta, folder = run.write(strict)
                output.writer.finish(folder, layout, meta, table)
                run.publish(folder, meta, table, overwrite)
            except BaseException as error:
                with held_signals():  # a second Ctrl-C does not stop the clean-up half-way
                    engine.close()
                    run.give_up(target, error)
                raise
        return run.report(began)


def planned(
    root: str, listing: Listing, output: Output, check: Check, max_pixels: int,
    encoding: Encoding | None = None, selection: Selection | None = None,
    split: Split | None = None,
) -> Plan:  # fmt: skip
    """Returns what a run is about: all that its bytes depend on."""
    options = {
        "fastconv's version": __version__,
        "the source": os.path.realpath(root),
        "the format": output.writer.name,
        **{f"option {name}": value for name, value in output.writer.settings().items()},
        "the size of shards": output.sharding.bytes,
        "the samples of shards": output.sharding.samples,
        "the index files": list(output.tools),
        "the check": check if check == "fast" else f"{check} up to {max_pixels} pixels",
        "what images become": None if encoding is None else f"{encoding} up to {max_pixels} pixels",
        "what is selected": None if selection is None else str(selection),
        "the split": None if split is None else str(split),
        "the kind of labels": listing.labels,
        "the fields": list(listing.fields),
        "the classes": list(listing.classes),
    }
    return Plan(options, listing)


def source_folder(source: str | os.PathLike[str]) -> str:
    """Returns the path of the folder to be packed.

    Raises:
        UsageError: It is none.
    """
    root = os.fsdecode(source)
    try:
        kind = find_format(root)
        reader = None if kind.name == "folder" else kind.open(root)
        if reader is not None and (reader.meta.id or os.path.isfile(root)):
            raise UsageError(
                f"{printable(root)}: is a pack in {reader.title}, not a folder of images: use "
                "fastconv convert"
            )
    except PackError:
        pass
    if not os.path.isdir(root):
        what = "is not a folder of images" if os.path.exists(root) else "no such folder"
        raise UsageError(f"{printable(root)}: {what}")
    return root


def check_arguments(
    workers: int | None,
    check: Check,
    encoding: Encoding | None = None,
    selection: Selection | None = None,
    split: Split | None = None,
    sharding: Sharding | None = None,
) -> None:
    """Checks how many workers are asked for, what they are to look at, and that settings are such.

    Raises:
        UsageError: There are none, there is no such check, or a setting is something else.
    """
    for given, kind in (
        (encoding, Encoding), (selection, Selection), (split, Split), (sharding, Sharding),
    ):  # fmt: skip
        if given is not None and not isinstance(given, kind):
            name = kind.__name__
            raise UsageError(f"{name.lower()} is {given!r:.60}: it is a fastconv.converters.{name}")
    if check not in get_args(Check):
        raise UsageError(f"check is 'fast' or 'decode', not {check!r}")
    if workers is not None and workers < 1:
        raise UsageError(f"at least one worker is needed, not {workers}")


class translated_errors:
    """Turns errors of the system into one line that names the place."""

    def __init__(self, out: str) -> None:
        self.out = out

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if not isinstance(error, OSError) or isinstance(error, FastconvError):
            return
        place, full = self.out, error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if isinstance(error.filename, str | bytes):
            name = os.fsdecode(error.filename)
            if not (full and name.startswith(f"{self.out}.partial/")):
                place = name
        plain = error.strerror in (None, os.strerror(errno.ENOSPC))
        much = "" if plain else f" ({error.strerror})"  # `need_space` says it
        words = {
            errno.ENOSPC: f"no space left on the device{much}: free some, or choose another place",
            errno.EDQUOT: "no space left in your quota: free some, or choose another place",
            errno.EFBIG: "no space left for a file this large, by the file system or ulimit -f",
            errno.EROFS: "the file system is read-only: choose another place",
            errno.EACCES: "no permission to write there: choose another place",
            errno.EMFILE: "too many open files: raise the limit (ulimit -n) or use fewer workers",
        }
        message = words.get(
            error.errno or 0, f"{os.strerror(error.errno) if error.errno else error}"
        )
        raise FastconvError(f"{printable(place)}: {message}; nothing was made") from error
