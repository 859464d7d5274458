"""`fastconv verify`: whether a pack is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from fastconv.converters.cli import options
from fastconv.converters.cli.output import Out, counted, reporting, say
from fastconv.converters.cli.parameters import option
from fastconv.converters.cli.progress import showing
from fastconv.converters.cli.sizes import size_text
from fastconv.loaders.errors import CorruptPackError, PackChangedError, printable

if TYPE_CHECKING:
    from fastconv.converters.verifying import VerifyReport

__all__ = ["command"]

MOST_BAD, MOST_ALIKE = 10, 3
"""Bad files that are all named, and those of each reason where there are more."""


def command(
    pack: options.PackArgument,
    decode: Annotated[
        bool,
        option("--decode", help="Decode all pixels of every image.", panel=options.CHECKING),
    ] = False,
    max_pixels: Annotated[
        int | None,
        option(
            "--max-pixels",
            metavar="N",
            min=1,
            help="With --decode, larger images are bad.",
            panel=options.CHECKING,
            show_default="178956970",
        ),
    ] = None,
    against: Annotated[
        str | None,
        option(
            "--against",
            metavar="SRC",
            help="Compare with the folder that was packed: what is missing or different is bad.",
            panel=options.CHECKING,
            show_default=False,
        ),
    ] = None,
    sample: options.SampleOption = None,
    seed: options.SeedOption = 0,
    format: options.ReadFormatOption = None,
    image_key: options.ImageKeyOption = None,
    label_key: options.LabelKeyOption = None,
    workers: options.WorkersOption = None,
    quiet: options.QuietOption = False,
    json: options.JsonOption = False,
) -> None:
    """Check every checksum of a pack, and every byte between the samples.

    Nothing is written. The exit code is 3 where anything is damaged, and
    each is named; 1 where the damage keeps the pack from being opened.
    What the folder of images still has can be mended: fastconv repair.

    With --sample the sample table, what the pack says of itself and the
    lengths of its files are checked as always, in HDF5 also what its
    library reads, but of the samples only some, and none of the bytes
    between them.

    $ fastconv verify out.lmdb

    $ fastconv verify out.lmdb --decode --against images/

    $ fastconv verify out.lmdb --sample 1%
    """
    with reporting("verify", json=json, quiet=quiet) as out:
        from fastconv.converters.check import MAX_PIXELS
        from fastconv.converters.verifying import verify

        with showing(quiet) as progress, noting_repair(pack):
            report = verify(
                pack,
                format=format,
                image_key=image_key,
                label_key=label_key,
                decode=decode,
                max_pixels=max_pixels or MAX_PIXELS,
                against=against,
                sample=sample,
                seed=seed,
                workers=workers,
                progress=progress,
            )
        tell(report, out)
        summarize(report, out)


@contextmanager
def noting_repair(pack: str) -> Iterator[None]:
    """Notes on errors that mean damage how to mend it."""
    from fastconv.converters.findings import VerifyFailedError

    try:
        yield
    except (CorruptPackError, PackChangedError, VerifyFailedError) as error:
        error.add_note(hint(pack))
        raise


def hint(pack: str) -> str:
    """Returns what mends a pack."""
    return (
        f"what the folder that was packed still has can be mended: fastconv repair "
        f"{printable(pack)} --from SRC"
    )


def tell(report: VerifyReport, out: Out) -> None:
    """Says what was found: of much only the first of each kind, and how many more there are."""
    from fastconv.converters.findings import NoDamage

    seen: Counter[str] = Counter()
    named = []
    for file in report.bad:
        seen[file.reason] += 1
        if len(report.bad) <= MOST_BAD or seen[file.reason] <= MOST_ALIKE:
            named.append(file)
    out.report(replace(report, bad=named))
    out.answer |= report.to_json()
    for reason, more in (seen - Counter(file.reason for file in named)).items():
        say(f"bad: ... and {more:,} more: {reason}, all with --json")
    damaged = any(not isinstance(file, NoDamage) for file in report.bad)
    if damaged and report.source is None:
        out.note(hint(report.pack))


def summarize(report: VerifyReport, out: Out) -> None:
    """Prints what was checked, and what came of it."""
    checked = [
        words
        for done, words in (
            (report.checksums, "checksums"),
            (report.structure, "structure"),
            (report.seed is not None and bool(report.id), "table"),
            (report.pixels, "pixels"),
            (report.source is not None, f"source {printable(report.source or '')}"),
        )
        if done
    ]
    verdict = f"{len(report.bad):,} bad" if report.bad else "all is well"
    if report.seed is not None:
        out.summary(
            f"{printable(report.pack)}: {verdict} in the {report.looked_at:,} of "
            f"{counted(report.samples, 'sample')} that were looked at (seed {report.seed}; "
            f"{', '.join(checked) or 'places'}), {report.seconds:.1f} s"
        )
        return
    out.summary(
        f"{printable(report.pack)}: {verdict}: {counted(report.samples, 'sample')}, "
        f"{size_text(report.bytes)} ({', '.join(checked) or 'places'}), {report.seconds:.1f} s, "
        f"{size_text(round(report.bytes / max(report.seconds, 1e-6)))}/s"
    )
