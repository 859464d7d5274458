"""What a pack says of itself, besides its sample table."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fastconv.loaders.kinds import KINDS

__all__ = ["NO_ID", "VERSION", "LabelKind", "PackMeta", "Shard"]

VERSION = 1
"""Of what a pack says of itself and of its sample table; readers of older ones are kept."""

NO_ID = "0" * 32
"""The place of an id that is not known yet: as long as one."""

LabelKind = Literal["none", "class", "int"]


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
            "classes": [
                os.fsencode(name).decode("utf-8", "surrogateescape") for name in self.classes
            ],
            "settings": dict(self.settings),
            "shards": [[shard.name, shard.size] for shard in self.shards],
            "kinds": self.kinds,
        }
        if table is not None:
            content["table"] = dict(table)
        return json.dumps(content, ensure_ascii=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> PackMeta:
        """Returns the description that `to_json` wrote.

        Raises:
            ValueError: It is none, or of a version that this fastconv does not know.
        """
        try:
            content = json.loads(text)
            version = content["fastconv"]
            if version != VERSION:
                raise ValueError(f"made by a newer fastconv (version {version} of the description)")
            if tuple(content["kinds"]) != KINDS[: len(content["kinds"])]:
                raise ValueError("made by a newer fastconv (it knows other image formats)")
            return cls(
                format=content["format"],
                id=content["id"],
                samples=content["samples"],
                fields=tuple(content["fields"]),
                generated=tuple(content["generated"]),
                labels=content["labels"],
                classes=tuple(
                    os.fsdecode(name.encode("utf-8", "surrogateescape"))
                    for name in content["classes"]
                ),
                settings=content["settings"],
                shards=tuple(Shard(name, size) for name, size in content["shards"]),
                kinds=tuple(content["kinds"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a description of a pack: {error!r}") from error

    def with_id(self, pack_id: str) -> PackMeta:
        """Returns the same description with an id."""
        return replace(self, id=pack_id)

    def with_shards(self, shards: tuple[Shard, ...]) -> PackMeta:
        """Returns the same description with other data files."""
        return replace(self, shards=shards)
