"""What fastconv raises.

    FastconvError                         something failed; the command line ends with 1
    |-- UsageError (ValueError)           a wrong argument; the command line ends with 2
    |-- MissingDependencyError (ImportError)  an optional package is not installed
    |-- PackError (OSError)               a pack as a whole cannot be read
    |   |-- NotAPackError                 no known format, or not made by fastconv
    |   |-- PackNotFoundError (UsageError)  there is nothing at the path
    |   |-- CorruptPackError              cut short or damaged
    |   `-- PackChangedError              replaced by another pack since it was opened
    `-- SampleError (OSError)             one sample cannot be read or decoded

Every message says what, where (pack, number, key, path) and what to do, in one line. Each class can
be made from its message alone, so that `torch.utils.data.DataLoader` can raise it again, with its
type, in the main process.
"""

from __future__ import annotations

__all__ = [
    "CorruptPackError",
    "FastconvError",
    "MissingDependencyError",
    "NotAPackError",
    "PackChangedError",
    "PackError",
    "PackNotFoundError",
    "SampleError",
    "UsageError",
    "printable",
]


def printable(name: str) -> str:
    """Returns a file name as one line that any terminal can show.

    Control characters, lone surrogates (bytes that are not UTF-8) and the backslash that would make
    the result ambiguous are written as escapes; everything else stays.
    """
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(
        c
        if c.isprintable() and c != "\\"
        else ascii(c)[1:-1]
        if not 0xDC80 <= ord(c) <= 0xDCFF
        else f"\\x{ord(c) - 0xDC00:02x}"
        for c in name
    )


class FastconvError(Exception):
    """The root of all errors that fastconv raises on purpose."""


class UsageError(FastconvError, ValueError):
    """A wrong argument: nothing was done."""


class MissingDependencyError(FastconvError, ImportError):
    """An optional package is not installed; the message says which extra brings it."""


class PackError(FastconvError, OSError):
    """A pack as a whole cannot be read."""


class NotAPackError(PackError):
    """The path holds no format that fastconv reads."""


class PackNotFoundError(PackError, UsageError):
    """There is nothing at the path."""


class CorruptPackError(PackError):
    """The pack is cut short or damaged."""


class PackChangedError(PackError):
    """Another pack lies at the path since this one was opened."""


class SampleError(FastconvError, OSError):
    """One sample cannot be read or decoded.

    Attributes:
        reason: A word of the fixed list in `fastconv.loaders.sample.Reason`, for programs; "" when
            the error was made again from its message in another process.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type[SampleError], tuple[str, str]]:
        return type(self), (str(self), self.reason)
