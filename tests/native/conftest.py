"""What the tests of the kernel share: they are skipped where it is not installed."""

from __future__ import annotations

import os

import pytest

from fastconv.loaders import native


@pytest.fixture(scope="session", autouse=True)
def _kernel() -> None:
    if native.kernel() is None:
        if os.environ.get("FASTCONV_ALL_FORMATS") == "1":
            pytest.fail("the kernel is not installed, or switched off by FASTCONV_NATIVE=0")
        pytest.skip("fastconv_native is not installed, or switched off: make native")
