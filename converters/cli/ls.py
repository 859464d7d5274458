"""`fastconv ls`: the samples of a pack."""

from __future__ import annotations

from typing import Annotated

from fastconv.converters.cli import options
from fastconv.converters.cli.output import reporting
from fastconv.converters.cli.parameters import option

__all__ = ["command"]


def command(
    pack: options.PackArgument,
    sha256: Annotated[
        bool,
        option(
            "--sha256",
            help="Read every image and show its SHA-256.",
            panel=options.OUTPUT,
        ),
    ] = False,
    format: options.ReadFormatOption = None,
    image_key: options.ImageKeyOption = None,
    label_key: options.LabelKeyOption = None,
    quiet: options.QuietOption = False,
    json: Annotated[
        bool,
        option(
            "--json",
            help="Print JSON Lines on stdout: an object a sample.",
            panel=options.OUTPUT,
        ),
    ] = False,
) -> None:
    """List the samples of a pack: number, key, path, label, class, fields and their sizes, pixels.

    $ fastconv ls out.lmdb | head

    $ fastconv ls out.lmdb --json | jq -r 'select(.width < 100).path'
    """
    with reporting("ls", json=json, quiet=quiet, lines=True) as out:
        from fastconv.converters.rows import json_lines, row_blocks, table_lines
        from fastconv.loaders.open import open_pack
        from fastconv.loaders.reader import Wanted

        reader = open_pack(pack, format, Wanted((), image_key, label_key))
        for line in reader.notices:
            out.note(line)
        if not len(reader):
            out.warn("the pack holds no samples (0 records)")
        bad = list(reader.bad)
        pattern = None
        for block in row_blocks(reader, sha256=sha256, bad=bad):
            if json:
                out.write(json_lines(block, reader.meta))
            else:
                text, pattern = table_lines(block, reader.meta, len(reader), pattern)
                out.write(text)
        out.bad(bad)
