"""Options of a command from a TOML file: every option by its name; those on the command line win."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftproof.errors import ConfigurationError
from shiftproof.registry import unknown


def read(context: typer.Context, path: Path | None) -> Path | None:
    """Take a file's values as the defaults of the command that is about to run."""
    if path is not None:
        context.default_map = _values(path, {one.name: one for one in context.command.params if one.name})
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="TOML file with any of these options; the command line wins.",
        callback=read,
        is_eager=True,
    ),
]


def _values(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Read a file and return its values by option, as the command line would have them."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"Cannot read the configuration {str(path)!r}.",
            expected='a TOML file, with lines such as model = "model.py:build"',
            reason=str(error),
        ) from error
    known = {name: option for name, option in options.items() if name not in ("config", "help")}
    found = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in known:
            raise unknown(f"option in {str(path)!r}", key, known)
        found[name] = _as_typed(key, value, known[name])
    return found


def _as_typed(key: str, value: object, option: Any) -> Any:
    """Return a value as it would stand on the command line, so that it is checked in the same way."""
    if isinstance(value, list):
        items = [_word(key, each) for each in value]
        return items if getattr(option, "multiple", False) else ",".join(items)
    if isinstance(value, bool) and getattr(option, "is_flag", False):
        return value
    word = _word(key, value)
    return [word] if getattr(option, "multiple", False) else word


def _word(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigurationError(
            f"The option {key!r} cannot have this value.",
            expected='a text, a number, or a list of them: shifts = ["fog", "contrast"]',
            got=repr(value),
        )
    return str(value)
