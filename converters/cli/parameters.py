"""Commands from functions: what a parameter is on the command line stands beside its type.

def command(
    source: Annotated[str, argument(metavar="SRC", help="The folder of images.")],
    workers: Annotated[int | None, option("--workers", min=1, help="Processes.")] = None,
) -> None:
    \"""The help of the command.\"""
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from inspect import Parameter, getdoc, signature
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

__all__ = [
    "ARGUMENTS",
    "OPTIONS",
    "Group",
    "Option",
    "argument",
    "command_of",
    "option",
]

Declared = Callable[[str, Any, Any], click.Parameter]
"""Makes a parameter of its name, its type and its default."""


ARGUMENTS, OPTIONS = "Arguments", "Options"
"""The panels of what belongs into no other."""


class Option(click.Option):
    """An option that belongs into a panel of the help."""

    def __init__(self, *args: Any, panel: str = OPTIONS, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.panel = panel


class Argument(click.Argument):
    """An argument that has help, which click's have only in its newest releases."""

    panel = ARGUMENTS

    def __init__(self, name: str, metavar: str, words: str, **settings: Any) -> None:
        super().__init__([name], metavar=metavar, **settings)
        self.record = (metavar, f"{words}  [required]" if self.required else words)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self.record


class Command(click.Command):
    """A command that shows its help in panels.

    Attributes:
        panel: That of its group which it is in.
    """

    panel = ""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from fastconv.converters.cli.help import page

        formatter.write(page(self, ctx))


class Group(Command, click.Group):
    """Commands, whose help is shown in panels."""


def option(
    *flags: str,
    panel: str = OPTIONS,
    parser: Callable[[str], Any] | None = None,
    choices: Callable[[], Sequence[str]] | None = None,
    min: float | None = None,
    max: float | None = None,
    **settings: Any,
) -> Declared:
    """Declares an option.

    Args:
        flags: As `--workers`; without any they follow from the parameter's name.
        panel: The one of the help that shows it.
        parser: Makes a value of the text that is given; raises `click.BadParameter`.
        choices: Returns the values that there are, where the type does not tell them.
        min: The smallest number.
        max: The largest number.
        settings: What click takes as it is.
    """

    def made(name: str, hint: Any, default: Any) -> click.Parameter:
        hint, several = single(hint)
        given: dict[str, Any] = {"show_default": True, "multiple": several, "type": hint}
        if hint is bool:
            given |= {"is_flag": True, "show_default": False}
        elif parser is not None:
            given["type"] = Parsed(parser)
        elif choices is not None:
            given["type"] = OneOf(choices)
        elif get_origin(hint) is Literal:
            given["type"] = click.Choice(get_args(hint))
        elif min is not None or max is not None:
            limited: Any = click.IntRange if hint is int else click.FloatRange
            given["type"] = limited(min, max)
        names = [name, *(flags or [f"--{name.replace('_', '-')}"])]
        return Option(names, panel=panel, **given | value_when_missing(default) | settings)

    return made


def argument(*, metavar: str, help: str) -> Declared:
    """Declares an argument; one whose type is a list takes all that are left."""

    def made(name: str, hint: Any, default: Any) -> click.Parameter:
        hint, several = single(hint)
        given = {"type": hint, "nargs": -1 if several else 1} | value_when_missing(default)
        return Argument(name, metavar, help, **given)

    return made


def single(hint: Any) -> tuple[Any, bool]:
    """Returns the type of one value, and whether there may be several."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = {*get_args(hint)} - {types.NoneType}
    if get_origin(hint) is list:
        return get_args(hint)[0], True
    return hint, False


def value_when_missing(default: Any) -> dict[str, Any]:
    """Returns what click is to do where a parameter is not given."""
    if default is Parameter.empty:
        return {"required": True}
    return {"required": False} if default is None else {"required": False, "default": default}


class Parsed(click.ParamType):  # type: ignore[type-arg]  # older ones take none
    """What a function makes of a text."""

    name = "text"

    def __init__(self, parser: Callable[[str], Any]) -> None:
        self.parser = parser

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return self.parser(value) if isinstance(value, str) else value


class OneOf(click.Choice):  # type: ignore[type-arg]
    """One of several names, which are looked up only when one is given, or help is."""

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self.names = names
        self.case_sensitive = True

    @property
    def choices(self) -> Sequence[str]:  # type: ignore[override]
        return self.names()


def command_of(name: str, function: Callable[..., None], panel: str) -> Command:
    """Returns a command.

    Args:
        name: Its name.
        function: What it runs. Its docstring is the help, and each of its parameters is
            `Annotated` with a type and with what declares it.
        panel: The one of the command line's help that shows it.
    """
    hints = get_type_hints(function, include_extras=True)
    made = []
    for parameter in signature(function).parameters.values():
        hint, declared = get_args(hints[parameter.name])
        made.append(declared(parameter.name, hint, parameter.default))

    def run(**values: Any) -> None:
        function(**{n: list(v) if isinstance(v, tuple) else v for n, v in values.items()})

    command = Command(name, params=made, callback=run, help=getdoc(function))
    command.panel = panel
    return command
