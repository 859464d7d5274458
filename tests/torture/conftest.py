"""Small parts for all, and the table of faults at the end."""

from __future__ import annotations

import pytest
from tests.torture.support import SEED, TIMES, Ledger

from fastconv.converters import plan

LEDGER = Ledger()


@pytest.fixture(scope="session")
def ledger() -> Ledger:
    """Returns what counts the faults of the whole session."""
    return LEDGER


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a small source have many parts."""
    monkeypatch.setattr(plan, "PART_BYTES", 40_000)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how often which fault was injected, and what it cost."""
    write = terminalreporter.write_line
    write("")
    write("| fault | times | losses |")
    write("|:--|--:|--:|")
    for fault, times in sorted(LEDGER.times.items()):
        write(f"| {fault} | {times:,} | {LEDGER.losses[fault]:,} |")
    total, losses = sum(LEDGER.times.values()), sum(LEDGER.losses.values())
    write(f"| all | {total:,} | {losses:,} |")
    write(f"make torture (TORTURE_SEED={SEED} TORTURE_TIMES={TIMES:g})")
