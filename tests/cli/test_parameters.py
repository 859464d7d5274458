"""Commands made of functions: what each type of a parameter takes, and what help shows of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import click
import pytest

from fastconv.converters.cli.parameters import Group, argument, command_of, option

got: dict[str, Any] = {}


def halved(text: str) -> int:
    if not text.isdecimal() or int(text) % 2:
        raise click.BadParameter(f"{text!r} is not even")
    return int(text) // 2


def names() -> list[str]:
    got["looked up"] = True
    return ["tar", "lmdb"]


def command(
    source: Annotated[str, argument(metavar="SRC", help="Where from.")],
    more: Annotated[list[str] | None, argument(metavar="[MORE...]", help="Others.")] = None,
    workers: Annotated[
        int | None, option(metavar="N", min=1, panel="Running", show_default="some", help="Many.")
    ] = None,
    share: Annotated[float, option("--share", "-s", min=0, max=1, help="A part.")] = 0.5,
    seed: Annotated[int, option(help="Any number.")] = 0,
    check: Annotated[Literal["fast", "slow"], option("--how", help="How well.")] = "fast",
    format: Annotated[str | None, option(choices=names, help="Which format.")] = None,
    half: Annotated[int | None, option(parser=halved, help="Twice it.")] = None,
    only: Annotated[list[str] | None, option(help="These alone.")] = None,
    no_labels: Annotated[bool, option(panel="Running", help="Without.")] = False,
) -> None:
    """Does
    nothing.

    $ tool command images/
    """
    got.update(locals())


def run(*arguments: str) -> dict[str, Any]:
    got.clear()
    command_of("command", command, "All")(list(arguments), "tool command", standalone_mode=False)
    return dict(got)


def test_what_is_not_given_is_the_default() -> None:
    assert run("a") == {
        "source": "a", "more": [], "workers": None, "share": 0.5, "seed": 0, "check": "fast",
        "format": None, "half": None, "only": [], "no_labels": False,
    }  # fmt: skip


def test_what_is_given_has_the_type() -> None:
    found = run(
        "a", "--workers=3", "b", "-s", "0", "--seed", "-7", "--how", "slow", "--format", "tar",
        "--half", "12", "--only", "x,y", "--only", "z", "--no-labels", "--", "--c",
    )  # fmt: skip
    assert found.pop("looked up")
    assert found == {
        "source": "a", "more": ["b", "--c"], "workers": 3, "share": 0.0, "seed": -7,
        "check": "slow", "format": "tar", "half": 6, "only": ["x,y", "z"], "no_labels": True,
    }  # fmt: skip
    assert type(found["share"]) is float


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument 'SRC'"),
        (["a", "--workers", "0"], "0 is not in the range x>=1"),
        (["a", "--share", "1.5"], "1.5 is not in the range 0<=x<=1"),
        (["a", "--seed", "x"], "'x' is not a valid int"),
        (["a", "--how", "Fast"], "'Fast' is not one of 'fast', 'slow'"),
        (["a", "--format", "zip"], "'zip' is not one of 'tar', 'lmdb'"),
        (["a", "--half", "3"], "'3' is not even"),
        (["a", "--no-labels=1"], "does not take a value"),
        (["a", "--check", "slow"], "No such option"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], said: str) -> None:
    with pytest.raises(click.ClickException) as caught:
        run(*arguments)
    assert said in caught.value.format_message()


def shown(monkeypatch: pytest.MonkeyPatch, command: click.Command, width: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    with command.make_context("tool command", ["a"]) as ctx:
        return [line.strip("│ ") for line in command.get_help(ctx).splitlines()]


def test_help_has_panels_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, command_of("command", command, "All"), 100)
    assert [line[2:].partition(" ─")[0].strip() for line in lines if line.startswith("╭")] == [
        "Arguments",
        "Options",
        "Running",
    ]
    assert lines[1] == "Usage: tool command [OPTIONS] SRC [MORE...]"
    assert lines[3:7] == ["Does", "nothing.", "", "$ tool command images/"]
    assert {" ".join(line.split()) for line in lines} >= {
        "SRC Where from. [required]",
        "[MORE...] Others.",
        "-s, --share FLOAT RANGE A part. [default: 0.5; 0<=x<=1]",
        "--seed INTEGER Any number. [default: 0]",
        "--how [fast|slow] How well. [default: fast]",
        "--format [tar|lmdb] Which format.",
        "--only TEXT These alone.",
        "--workers N Many. [default: (some); x>=1]",
        "--no-labels Without.",
    }


def test_nothing_of_help_is_cut_off_where_it_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(shown(monkeypatch, command_of("command", command, "All"), 30))
    assert "…" not in text


def test_help_of_a_group_has_its_commands_in_their_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group("tool", help="All of it.")
    for name, panel in (("b", "Make"), ("c", "Look"), ("a", "Make")):
        group.add_command(command_of(name, command, panel))
    lines = shown(monkeypatch, group, 80)
    start = next(number for number, line in enumerate(lines) if "Make" in line)
    assert [line.split() for line in lines[start:] if line[0] not in "╭╰"] == [
        ["b", "Does", "nothing."],
        ["a", "Does", "nothing."],
        ["c", "Does", "nothing."],
    ]
