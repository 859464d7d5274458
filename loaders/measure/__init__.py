"""What `fastconv bench`, `tune` and `doctor` run: measurements of reading, decoding and loading."""

from __future__ import annotations

__all__: list[str] = []
