"""The application: its commands are made of verbs when they are first used, so that `--help` answers at once."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from shiftproof.version import __version__

FAILED, GATED, INTERRUPTED = 1, 3, 130


class Commands(TyperGroup):
    """The commands of `COMMANDS`. A list of them needs their names and first lines only; no verb is imported for it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        from shiftproof.cli.commands import COMMANDS

        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command without its options, as a list shows it."""
        from shiftproof.cli.commands import COMMANDS

        known = COMMANDS.get(cmd_name)
        return None if known is None else TyperCommand(cmd_name, help=known.summary.replace("`", ""))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is about to run, whole."""
        from shiftproof.cli.commands import COMMANDS, MEANT
        from shiftproof.cli.derive import build

        near = MEANT.get(args[0]) or get_close_matches(args[0], COMMANDS)
        if args[0] not in COMMANDS and near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {', '.join(map(repr, near))}?")
        name, found, rest = super().resolve_command(ctx, args)
        return name, (build(name, COMMANDS[name]) if name is not None and name in COMMANDS else found), rest


app = typer.Typer(
    name="shiftproof",
    cls=Commands,
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
    """Audit classifiers and segmentation models under distribution shift: measure, certify, adapt, harden."""
    # `--version` acts in its callback; `--debug` is taken by `main`, so that it works after a command too.
