"""What the options mean that say what images become: of `pack` and `convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastconv.loaders.errors import UsageError

if TYPE_CHECKING:
    from fastconv.converters.encoding import Encoding

__all__ = ["encoding_of"]

DEFAULTS = {
    "fit": "cover", "enlarge": False, "quality": 90, "subsampling": "4:2:0", "color": "keep",
    "background": "white", "orientation": "apply", "icc": "srgb",
}  # fmt: skip
"""Those of the options that need one of the others."""


def encoding_of(*, resize: str | None, encode: Any, **more: Any) -> Encoding | None:
    """Returns what images become, as the options of these names say; None where nothing is said.

    Raises:
        UsageError: One is wrong, or means nothing without another.
    """
    from fastconv.converters.encoding import Encoding

    if resize is None and encode is None:
        idle = next((name for name, value in DEFAULTS.items() if more[name] != value), None)
        if idle is not None:
            raise UsageError(f"--{idle}: needs --resize or --encode: images stay as they are else")
        return None
    return Encoding(resize=resize, encode=encode, **more)
