"""Runs all benchmarks and puts what they found into one report.

    python benchmarks/run.py            # an hour
    python benchmarks/run.py --small    # some minutes; figures to look at, not to quote

Each runs in a process of its own. The report is printed, and written to report.md in --work; every
single value is in the .json files beside it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from common import Report, say

__all__ = ["main"]

HERE = Path(__file__).parent
BENCHMARKS = {
    "pack": ["--count", "1000", "--rounds", "3"],
    "convert": ["--count", "1000", "--rounds", "2"],
    "encode": ["--count", "200", "--rounds", "1", "--batches", "3", "--compared", "20"],
    "read": ["--count", "1000", "--rounds", "3", "--samples", "1000", "--batches", "5"],
    "loaders": ["--count", "1000", "--rounds", "1", "--batches", "5"],
    "cold": ["--count", "1000", "--rounds", "1", "--samples", "500"],
    "tune": ["--count", "1000", "--rounds", "1", "--seconds", "0.5", "--budget", "10"],
    "scale": ["--small", "--rounds", "1"],
}
"""Name -> what makes it small."""


def run_one(name: str, args: argparse.Namespace) -> Report:
    """Runs a benchmark, and keeps all that it measured.

    Args:
        name: Its name.
        args: The options of this program.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    say(f"benchmarks/{name}.py")
    command = [sys.executable, str(HERE / f"{name}.py"), "--json", "--work", str(args.work)]
    if args.small:
        command += BENCHMARKS[name]
    if args.photos is not None and name != "scale":
        command += ["--photos", str(args.photos)]
    if args.rounds is not None:
        command += ["--rounds", str(args.rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8")
    (args.work / f"{name}.json").write_text(done.stdout, encoding="utf-8")
    return Report.from_json(done.stdout)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, default=Path.home() / ".cache" / "fastconv-bench", help="(%(default)s)"
    )
    parser.add_argument("--photos", type=Path, metavar="FOLDER", help="others than photos.py makes")
    parser.add_argument("--rounds", type=int, help="for all (default: what each thinks best)")
    parser.add_argument("--small", action="store_true", help="fewer and smaller, to try it")
    parser.add_argument(
        "--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME",
        help=f"which of {', '.join(BENCHMARKS)} (all)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    args.work.mkdir(parents=True, exist_ok=True)
    try:
        reports = [run_one(name, args) for name in args.only]
    except subprocess.CalledProcessError as error:
        return error.returncode
    text = "\n\n".join(report.to_markdown() for report in reports) + "\n"
    (args.work / "report.md").write_text(f"# Benchmarks of fastconv\n\n{text}", encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
