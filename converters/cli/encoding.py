"""What the options mean that say what images become: of `pack` and `convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastconv.loaders.errors import UsageError

if TYPE_CHECKING:
    from fastconv.converters.encoding import Encoding

__all__ = ["encoding_of"]


def encoding_of(*, resize: str | None, encode: Any, enlarge: bool, **more: Any) -> Encoding | None:
    """Returns what images become, as the options of these names say; None where nothing is said.

    Raises:
        UsageError: One is wrong, or means nothing beside the others.
    """
    from fastconv.converters.encoding import Encoding

    given: dict[str, Any] = {name: value for name, value in more.items() if value is not None}
    if enlarge:
        given["enlarge"] = True
    if resize is None and encode is None:
        if given:
            name = next(iter(given))
            raise UsageError(f"--{name}: needs --resize or --encode: images stay as they are else")
        return None
    found = Encoding(resize=resize, encode=encode, **given)
    idle = {
        "fit": found.box is None and "needs --resize WIDTHxHEIGHT",
        "enlarge": resize is None and "needs --resize",
        "quality": encode in ("png", "raw") and f"means nothing with --encode {encode}",
        "subsampling": encode in ("png", "webp", "raw") and f"means nothing with --encode {encode}",
    }
    for name, words in idle.items():
        if words and name in given:
            raise UsageError(f"--{name}: {words}: leave it out")
    return found
