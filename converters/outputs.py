"""What OUT is to be: its format, and whether it is a file, a folder of shards, or a folder by
nature."""

from __future__ import annotations

import dataclasses
import errno
import os
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastconv.converters.indexes.kinds import (
    ALWAYS,
    check_tools,
    every_index,
    index_files,
    is_file,
    missing,
    names_below,
    strays,
    tools_of,
    wrong,
)
from fastconv.converters.indexes.pack import Files, IndexedPack
from fastconv.converters.system import is_empty_folder
from fastconv.converters.target import exists_already, left_by_killed_run
from fastconv.converters.writer import WRITERS, Sharding, Writer
from fastconv.loaders.classes import some_of
from fastconv.loaders.errors import FastconvError, UsageError, printable
from fastconv.loaders.index import is_being_published, load_index
from fastconv.loaders.open import PACKS_FILE, open_pack, packs_in

__all__ = ["Output", "choose_output", "parse_options", "refuse_index", "split_output"]

REFUSALS = (
    errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE,
)  # fmt: skip
"""How the system refuses to read what may well be a pack."""


@dataclass(frozen=True, slots=True)
class Output:
    """A pack that is to be made.

    Attributes:
        out: Its path.
        writer: Writes its format.
        stem: What its shards are called after; None: it is not cut into shards.
        sharding: How it is cut.
        tools: Those whose index files it is to have.
        stale: Index files beside a single file that go when it is replaced.
        notes: Lines for the user, when the pack is made: about index files that are not its.
    """

    out: str
    writer: Writer
    stem: str | None
    sharding: Sharding
    tools: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_file(self) -> bool:
        """Whether the pack is one file (beside which its table may lie)."""
        return self.stem is None and not type(self.writer).is_folder

    def refuse_inside(self, root: str) -> None:
        """Refuses to write into the folder that is packed, where the next run would find it.

        Raises:
            UsageError: OUT lies inside.
        """
        parent = os.path.realpath(os.path.dirname(self.out) or ".")
        top = os.path.realpath(root)
        if os.path.commonpath([parent, top]) == top:
            raise UsageError(
                f"{printable(self.out)}: lies inside the folder that is packed: choose a "
                f"place outside {printable(root)}"
            )


def choose_output(
    out: str,
    format: str | None,
    options: Mapping[str, Any] | None,
    sharding: Sharding | None,
    overwrite: bool,
    index_for: Sequence[str] = (),
    splits: bool = False,
) -> Output:
    """Returns what OUT is to be.

    Args:
        out, format, options, sharding, overwrite, index_for: As for `fastconv.converters.pack`.
        splits: It is to be a folder of several packs, each as `split_output` says.

    Raises:
        UsageError: The format is unknown, cannot be cut into shards, has no index for a tool, or
            OUT cannot be made there.
    """
    out = out.rstrip("/") or out
    writer = choose_writer(out, format)
    if splits and out.lower().endswith(writer.suffixes):
        raise UsageError(
            f"{printable(out)}: a split makes a folder of packs: name one without "
            f"{os.path.splitext(out)[1]}, and give --format {writer.name}"
        )
    stem = None
    if writer.sharded and not out.endswith(writer.suffixes):
        stem = shard_stem(out)
    if sharding is not None and stem is None:
        what = f"a pack in {writer.title}"
        if writer.sharded:
            raise UsageError(
                f"{printable(out)}: a single {writer.suffixes[0]} file is not cut into shards: "
                f"leave the shard size out, or name a folder with --format {writer.name}"
            )
        raise UsageError(
            f"{printable(out)}: {what} is not cut into shards: leave the shard size out"
        )
    parent = os.path.dirname(out) or "."
    if not os.path.isdir(parent):
        raise UsageError(f"{printable(parent)}: no such folder: make it first")
    file = stem is None and not writer.is_folder
    alone = file and not splits
    if os.path.lexists(out) and (alone or not is_empty_folder(out)):
        refuse_overwrite(out, overwrite)
    tools = check_tools(index_for, writer.name, writer.title, alone=file)
    made = writer(typed_options(writer, options or {}))
    refuse_beside(out, alone and not writer.table_inside)
    stale = refuse_indexes(out, made, tools, overwrite) if alone else ()
    notes = tuple(notes_on_indexes(out, made, tools, stale, alone))
    return Output(out, made, stem, sharding or Sharding(), tools, stale, notes)


def split_output(output: Output, folder: str, name: str) -> Output:
    """Returns what one of the packs is to be that OUT is to hold: a file or folder with the ending
    of its format, or a folder of shards.

    Args:
        output: What OUT is to be.
        folder: Where the pack is to lie.
        name: Of the split.
    """
    ending = output.writer.suffixes[0] if output.stem is None else ""
    stem = None if output.stem is None else shard_stem(name)
    return replace(output, out=os.path.join(folder, name + ending), stem=stem, notes=())


def shard_stem(out: str) -> str:
    """Returns what the shards of a folder are called after: its name, where tools can take that."""
    stem = os.path.basename(out)
    printed = stem.encode("utf-8", "surrogateescape")
    if (
        stem.startswith(".")
        or not stem.isascii()
        or not stem.isprintable()
        or " " in stem
        or len(printed) > 200
    ):
        return "shard"
    return stem


def choose_writer(out: str, format: str | None) -> type[Writer]:
    """Returns the class that writes a format, told by its name or by the ending of OUT.

    Raises:
        UsageError: Neither tells it.
    """
    out = out.rstrip("/") or out
    if format is not None:
        found = WRITERS.load(format)
        for other in WRITERS.installed():
            if out.lower().endswith(other.suffixes) and other is not found:
                raise UsageError(
                    f"{printable(out)}: its ending means {other.title}, not {found.title}: name it "
                    f"otherwise, or leave --format {format} out"
                )
        return found
    endings: dict[str, str] = {}
    for writer in WRITERS.installed():
        if out.lower().endswith(writer.suffixes):
            return writer
        endings |= dict.fromkeys(writer.suffixes, writer.name)
    known = ", ".join(f"{ending} ({name})" for ending, name in endings.items())
    raise UsageError(
        f"{printable(out)}: its ending tells no format: use one of {known}, or --format NAME"
    )


def refuse_overwrite(out: str, overwrite: bool) -> None:
    """Refuses to replace what is at OUT unless asked, and what is no pack at all.

    Raises:
        UsageError: It is not to be replaced.
        FastconvError: What it is cannot be told.
    """
    if not overwrite and not left_by_killed_run(out):
        raise exists_already(out)
    if not (os.path.isfile(out) or os.path.isdir(out) or os.path.islink(out)):
        raise UsageError(
            f"{printable(out)}: is a device, pipe or socket, which a pack does not replace: choose "
            "another OUT"
        )
    if os.path.isdir(out) and not os.path.islink(out) and os.listdir(out):
        own = own_files(out)
        if packs := packs_in(out):
            own.add(PACKS_FILE)
        for name in packs:
            path = os.path.join(out, name)
            inside = own_files(path)
            if os.path.isdir(path):
                inside = {f"{name}/{file}" for file in inside}
            own.update(inside, own_indexes(path), [f"{name}.bad.jsonl"])
        if not own or not own.issuperset(names_below(out)):
            raise UsageError(
                f"{printable(out)}: a folder that is not a pack, or holds other files too: it is "
                "not overwritten, remove it yourself"
            )


def own_files(out: str) -> set[str]:
    """Returns the names of the files that a pack of fastconv is made of, relative to its folder;
    none where there is no such pack.

    Raises:
        FastconvError: What it is cannot be told.
    """
    try:
        reader = open_pack(out)
        if reader.meta.id and not reader.root:
            pack = IndexedPack.at(out, reader.meta, reader.table)
            if not os.path.isdir(out):
                return {os.path.basename(out)}
            return {*type(pack.writer).own_files, *pack.names, *every_index(pack)}
    except FastconvError as error:
        raise_refusal(error)
    return set()


def refuse_beside(out: str, table_beside: bool) -> None:
    """Refuses to replace what lies where files beside OUT will go, unless fastconv made it.

    Raises:
        UsageError: Something else is there.
        FastconvError: What is there cannot be told.
    """
    names = [f"{out}.bad.jsonl", *([f"{out}.index.safetensors"] if table_beside else [])]
    for name in names:
        if not os.path.lexists(name):
            continue
        ours = is_file(name)
        if ours and name.endswith(".safetensors"):
            try:
                ours = load_index(out) is not None
            except FastconvError as error:
                raise_refusal(error)
                ours = False
        if not ours:
            raise UsageError(f"{printable(name)}: is in the way and not fastconv's: move it away")


def refuse_indexes(
    out: str, writer: Writer, tools: Sequence[str], overwrite: bool
) -> tuple[str, ...]:
    """Returns the names of index files beside OUT that belong to the single file there; refuses to
    replace others unless asked.

    Args:
        out: The file that is to be made.
        writer: Of its format.
        tools: Those whose index files it will have.
        overwrite: Files of these names are replaced, whatever they are the index of.

    Raises:
        UsageError: Something else is in the way.
    """
    if is_being_published(out):  # by a run that was killed: the next one puts all in its place
        return ()
    own = own_indexes(out)
    new = index_files(IndexedPack.empty(out, writer), tools)
    absent = missing(os.path.dirname(out) or ".", new)
    for name in new:
        if name in own or name in absent:
            continue
        refuse_index(os.path.join(os.path.dirname(out), name), out, overwrite)
    return tuple(name for name in own if name not in new)


def refuse_index(path: str, out: str, overwrite: bool) -> None:
    """Refuses to replace what is called like an index file of a pack and is not its, unless asked;
    what may be the index of another pack, and what is no file, even then.

    Args:
        path: What is there.
        out: The pack, or where it will be.
        overwrite: It is to be replaced.

    Raises:
        UsageError: It is not.
    """
    others = packs_beside(out)
    spared = others or not is_file(path)
    if overwrite and not spared:
        return
    owner = f", but perhaps that of {printable(others[0])}" if others else ""
    remedy = "" if spared else ", or replace it with --overwrite (in Python overwrite=True)"
    raise UsageError(
        f"{printable(path)}: is in the way, and not the index of {printable(out)}{owner}: "
        f"move it away{remedy}"
    )


def notes_on_indexes(
    out: str, writer: Writer, tools: Sequence[str], stale: Collection[str], alone: bool
) -> Iterator[str]:
    """Yields lines about the index files that the pack at OUT takes with it when it is replaced,
    and about those of other packs beside a single file.

    Args:
        out, writer, tools, alone: What is to be made.
        stale: Index files beside it that go.
    """
    make = f"fastconv index {printable(out)} --for"
    try:
        old = open_pack(out)
        pack = IndexedPack.at(out, old.meta, old.table) if old.meta.id and not old.root else None
    except FastconvError:
        pack = None
    if pack is not None:
        same = pack.meta.format == writer.name
        usual = (*ALWAYS.get(pack.meta.format, ()), *(tools if same else ()))
        lost = [tool for tool in tools_of(pack) if tool not in usual]
        kept = index_files(pack, usual)
        names = [name for name in index_files(pack, lost) if name not in kept]
        names = [name for name in names if os.path.lexists(os.path.join(pack.folder, name))]
        if names:
            remedy = f": {make} {','.join(lost)} makes new ones" if same else ""
            yield (
                f"{printable(out)}: index files of the pack before went with it: "
                f"{some_of(names)}{remedy}"
            )
    if alone:
        for name, tool in strays(IndexedPack.empty(out, writer), tools).items():
            if name not in stale:
                path = printable(os.path.join(os.path.dirname(out), name))
                yield f"{path}: is the index of another pack: {make} {tool} --overwrite replaces it"


def packs_beside(out: str) -> list[str]:
    """Returns the names of files beside OUT that differ from it in nothing but an ending that means
    another format: their indexes may have the same names. Those of a folder lie in it alone."""
    if os.path.isdir(out):
        return []
    stem = os.path.splitext(out)[0]
    endings = {ending for writer in WRITERS.installed() for ending in writer.suffixes}
    return sorted(
        name
        for name in (f"{stem}{ending}" for ending in endings)
        if name != out and os.path.isfile(name)
    )


def own_indexes(out: str) -> Files:
    """Returns the index files beside a single file that are its own: right to the byte."""
    try:
        reader = open_pack(out)
        if not reader.meta.id:
            return {}
        pack = IndexedPack.at(out, reader.meta, reader.table)
        files = every_index(pack)
    except FastconvError as error:  # nothing there, or nothing of ours
        raise_refusal(error)
        return {}
    others = set(wrong(pack.folder, files))
    return {
        name: make
        for name, make in files.items()
        if name not in others and is_file(os.path.join(pack.folder, name))
    }


def raise_refusal(error: BaseException) -> None:
    """Raises an error again where the system did not let us look: nobody must be told to remove
    a pack because of that."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in REFUSALS:
            raise error
        cause = cause.__cause__


def typed_options(writer: type[Writer], values: Mapping[str, Any]) -> Any:
    """Returns a format's options.

    Raises:
        UsageError: It has no such option.
    """
    known = [field.name for field in dataclasses.fields(writer.Options)]
    for name in values:
        if name not in known:
            have = f"has {', '.join(known)}" if known else "has none"
            raise UsageError(f"{writer.title} has no option {name!r}: it {have}")
    return writer.Options(**values)


def parse_options(writer: type[Writer], pairs: list[str]) -> dict[str, Any]:
    """Returns options given as NAME=VALUE, with the types of the format's own options.

    Raises:
        UsageError: One is not of that form, unknown, or not of its type.
    """
    types_of = typing.get_type_hints(writer.Options)
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"option {pair!r}: write it as NAME=VALUE")
        kind = types_of.get(name, str)
        choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
        if isinstance(kind, types.UnionType):
            kind = next(part for part in typing.get_args(kind) if part is not type(None))
        try:
            if choices:
                values[name] = next(choice for choice in choices if str(choice) == text)
            elif kind is bool:
                values[name] = {
                    "true": True,
                    "1": True,
                    "yes": True,
                    "false": False,
                    "0": False,
                    "no": False,
                }[text.lower()]
            else:
                values[name] = kind(text)
        except (StopIteration, KeyError, ValueError) as error:
            allowed = ", ".join(map(str, choices)) if choices else kind.__name__
            raise UsageError(f"option {name}: {text!r} is not one of: {allowed}") from error
    typed_options(writer, values)
    return values
