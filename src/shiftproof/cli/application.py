"""The application that commands join, and how they read their options."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftproof.version import __version__

FAILED, GATED, INTERRUPTED = 1, 3, 130

app = typer.Typer(
    name="shiftproof",
    help="Where a classifier breaks under distribution shift, how badly, what helps, and what is guaranteed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shiftproof {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Where a classifier breaks under distribution shift, how badly, what helps, and what is guaranteed."""
    # `--version` acts in its callback; `--debug` is taken by `main`, so that it works after a command too.


def listed(text: str) -> list[str] | None:
    """Split an option's text at its commas; nothing is None."""
    return [part.strip() for part in text.split(",") if part.strip()] or None


def numbers(option: str, text: str) -> list[float] | None:
    """Read an option's numbers, separated by commas."""
    try:
        return [float(part) for part in listed(text) or ()] or None
    except ValueError:
        raise typer.BadParameter(f"{option} takes numbers separated by commas, such as 1,3,5; got {text!r}") from None


def one_of(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        raise typer.BadParameter(f"{option} is one of {', '.join(choices)}; got {value!r}")
