"""What a pack says of itself, besides its sample table."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from fastconv.loaders.arrays import load_object
from fastconv.loaders.kinds import KINDS
from fastconv.loaders.sample import IMAGE

__all__ = ["NO_ID", "VERSION", "LabelKind", "PackMeta", "Shard"]

VERSION = 1
"""Of what a pack says of itself and of its sample table; readers of older ones are kept."""

NO_ID = "0" * 32
"""The place of an id that is not known yet: as long as one."""

LabelKind = Literal["none", "class", "int"]

_ID: Final = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Shard:
    """One data file of a pack.

    Attributes:
        name: Relative to the pack's folder; the file's own name where the pack is one file.
        size: In bytes.
    """

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackMeta:
    """What a pack says of itself: only what its content is, never how or where it was made.

    Attributes:
        format: Name of its format.
        id: 32 hexadecimal digits, a hash over the table (so over the checksums of all samples) and
            everything else that stands here; "" where the pack was not made by fastconv.
        samples: How many.
        fields: Names of the fields, the image first.
        generated: Fields that were no files: they come from `--labels`.
        labels: Whether labels are class ids, other integers, or absent.
        classes: Names of the classes; the label is the position.
        settings: What of the format's options is not the default.
        encoding: What images became when they were packed, where that is not what they were.
        shards: The data files.
        version: Of this description.
        kinds: The image formats that had a code in the table when the pack was made.
    """

    format: str
    id: str = NO_ID
    samples: int
    fields: tuple[str, ...]
    generated: tuple[str, ...] = ()
    labels: LabelKind = "none"
    classes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)
    shards: tuple[Shard, ...] = ()
    version: int = VERSION
    kinds: tuple[str, ...] = KINDS

    def to_json(self, table: Mapping[str, str] | None = None) -> str:
        """Returns one line of ASCII; as long for any id, and the same in any locale.

        Args:
            table: What the format says of where the sample table lies, stored as `table`.
        """
        content: dict[str, Any] = {
            "fastconv": self.version,
            "format": self.format,
            "id": self.id,
            "samples": self.samples,
            "fields": self.fields,
            "generated": self.generated,
            "labels": self.labels,
            "classes": self.class_texts(),
            "settings": dict(self.settings),
            "shards": [[shard.name, shard.size] for shard in self.shards],
            "kinds": self.kinds,
        }
        if self.encoding:
            content["encoding"] = dict(self.encoding)
        if table is not None:
            content["table"] = dict(table)
        return json.dumps(content, ensure_ascii=True, separators=(",", ":"))

    def class_texts(self) -> list[str]:
        """Returns the classes' names as they are stored: the same in any locale."""
        return [os.fsencode(name).decode("utf-8", "surrogateescape") for name in self.classes]

    @classmethod
    def from_json(cls, text: str | bytes) -> PackMeta:
        """Returns the description that `to_json` wrote.

        Raises:
            ValueError: It is none, or of a version that this fastconv does not know.
        """
        content = load_object(text)
        version = content.get("fastconv")
        if type(version) is int and version > VERSION:
            raise ValueError(f"made by a newer fastconv (version {version} of the description)")
        kinds = _texts(content, "kinds")
        if kinds != KINDS[: len(kinds)]:
            raise ValueError("made by a newer fastconv (it knows other image formats)")
        fields, classes = _texts(content, "fields"), _texts(content, "classes")
        found = cls(
            format=_text(content, "format"),
            id=_text(content, "id"),
            samples=_count(content.get("samples")),
            fields=fields,
            generated=_texts(content, "generated"),
            labels=content.get("labels", ""),
            classes=tuple(os.fsdecode(name.encode("utf-8", "surrogateescape")) for name in classes),
            settings=content.get("settings", ()),
            encoding=content.get("encoding", {}),
            shards=_shards(content.get("shards")),
            kinds=kinds,
        )
        wrong = {
            "fastconv": version != VERSION,
            "id": not _ID.fullmatch(found.id),
            "fields": fields[:1] != (IMAGE,) or len(set(fields)) < len(fields),
            "generated": not set(found.generated) <= set(fields[1:]),
            "labels": found.labels not in get_args(LabelKind),
            "classes": len(set(classes)) < len(classes),
            "settings": not isinstance(found.settings, dict),
            "encoding": not isinstance(found.encoding, dict),
        }
        for name in wrong:
            if wrong[name]:
                raise _no_description(name, content.get(name))
        return found

    def with_id(self, pack_id: str) -> PackMeta:
        """Returns the same description with an id."""
        return replace(self, id=pack_id)

    def with_shards(self, shards: tuple[Shard, ...]) -> PackMeta:
        """Returns the same description with other data files."""
        return replace(self, shards=shards)


def _no_description(name: str, value: object) -> ValueError:
    return ValueError(f"not a description of a pack: its {name!r} is {value!r:.99}")


def _text(content: dict[str, Any], name: str) -> str:
    found = content.get(name)
    if not isinstance(found, str):
        raise _no_description(name, found)
    return found


def _texts(content: dict[str, Any], name: str) -> tuple[str, ...]:
    found = content.get(name)
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise _no_description(name, found)
    return tuple(found)


def _count(value: object) -> int:
    if type(value) is not int or value < 0:  # True is an int, too
        raise _no_description("samples", value)
    return value


def _shards(value: object) -> tuple[Shard, ...]:
    try:
        shards = tuple(Shard(name, size) for name, size in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise _no_description("shards", value) from error
    for name, size in ((shard.name, shard.size) for shard in shards):
        # Names of other folders would lead out of the pack.
        plain = isinstance(name, str) and not set(name) & {"/", os.sep, "\0"} and name != ".."
        if not plain or type(size) is not int or size < 0:
            raise _no_description("shards", [name, size])
    return shards
