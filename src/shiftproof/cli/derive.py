"""Commands made of verbs: a parameter is an option, its type and default are the signature's, its help the docstring's.

How to load models and data, and where work runs, are options of `load_model`, `load_data` and `choose_executor`: three
groups that every command has whose verb takes a model, data or an executor.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape

import shiftproof
from shiftproof.cli.config import Config
from shiftproof.options import describe, hints
from shiftproof.registry import imported

SHORT = {"model": "-m", "data": "-d", "out": "-o", "shift": "-s", "shifts": "-s", "require": "-r", "recipe": "-r"}
"""Options with a letter of their own, the same in every command."""
LOADERS = {
    "model": ("shiftproof.models.loading:load_model", ("spec", "device")),
    "data": ("shiftproof.data.loading:load_data", ("source", "classes")),
    "executor": ("shiftproof.runs.choosing:choose_executor", ("executor", "device")),
}
"""Parameter -> the function whose options come with it, but for these."""
PANELS = {"model": "Model", "data": "Data", "executor": "Execution"}


@dataclass(frozen=True)
class Command:
    """A verb as a command: what prints its result, which parameters stand without a name, and defaults of its own.

    `several` is a parameter that takes one text or a list of them. `settings` is the options class behind the verb's
    further keywords. `loads` says which options of `load_data` go to a parameter that is data, where not all do.
    """

    verb: str
    show: str
    arguments: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    several: str = ""
    settings: str = ""
    loads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first line of the verb's docstring, read without importing it."""
        module, _, name = self.verb.partition(":")
        path = Path(shiftproof.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
        tree = ast.parse(path.read_text("utf-8"))
        found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
        return (ast.get_docstring(found[-1]) or "").partition("\n")[0]  # those before it are overloads


class Option(NamedTuple):
    """An option of the command line: the function and parameter it is of, and how its texts become a value."""

    owner: str
    name: str
    type: Any
    default: Any
    help: str
    many: type | None = None


def documented(function: Callable[..., Any]) -> dict[str, str]:
    """Return what a docstring's section `Args:` says of each parameter."""
    text = inspect.getdoc(function) or ""
    _, _, section = text.partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)|\n\s*\n", section)[0]
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        begin = re.match(r"    (\w+): (.*)", line)
        if begin:
            name = begin[1]
            found[name] = begin[2]
        elif name:
            found[name] += f" {line.strip()}"
    return found


def options_of(function: Callable[..., Any], owner: str, without: Sequence[str] = ()) -> list[Option]:
    """Return the parameters of a function that a text can give."""
    signature = inspect.signature(function).parameters
    wanted = [name for name, each in signature.items() if name not in without and each.kind is not each.VAR_KEYWORD]
    annotated = SimpleNamespace(__annotations__={name: signature[name].annotation for name in wanted})
    types, helps = get_type_hints(annotated, vars(inspect.getmodule(function))), documented(function)
    found = []
    for name in wanted:
        parameter = signature[name]
        shape = textual(types[name])
        if parameter.kind is parameter.VAR_POSITIONAL:
            shape = (list[str], Path)
        if shape is not None:
            said = helps.get(name, "")
            found.append(Option(owner, name, shape[0], parameter.default, said, shape[1]))
    return found


def textual(hint: Any) -> tuple[Any, type | None] | None:
    """Return the type of an option on the command line, and of its members where it takes several; None: no text."""
    kinds = [each for each in _alternatives(hint) if each is not NoneType]
    words = [word for each in kinds if get_origin(each) is Literal for word in get_args(each)]
    if words and str not in kinds:
        return Literal[tuple(words)], None
    for kind in (str, Path, bool, float, int):  # a text before a flag: numpy's ArrayLike may hold both
        if kind in kinds:
            return (str if kind is str else kind), None
    for each in kinds:
        if (
            isinstance(get_origin(each), type)
            and issubclass(get_origin(each), Sequence)
            and (members := get_args(each))
        ):
            inner = textual(members[0])
            if inner is not None:
                return list[str], inner[0]
    if any(isinstance(get_origin(each), type) and issubclass(get_origin(each), Mapping) for each in kinds):
        return list[str], dict
    return None


def parameter(option: Option, command: Command) -> inspect.Parameter:
    """Return an option as typer takes it."""
    said = escape(_for_terminals(option.help).replace("`", ""))
    default = command.defaults.get(option.name, option.default)
    required = default is inspect.Parameter.empty
    if option.many is not None and not required:
        default = [_text(each) for each in default] if isinstance(default, tuple | list) and default else None
    kind = Optional[option.type] if default is None else option.type  # noqa: UP045  (a type made at run time)
    if option.name in command.arguments:
        info: Any = typer.Argument(help=said, show_default=False)
    else:
        flag = f"--{option.name.replace('_', '-')}"
        names = ["--option", "-O"] if option.many is dict else [flag]
        if option.type is bool and default:
            names = [f"{flag}/--no-{flag[2:]}"]
        if option.owner == "verb" and option.name in SHORT:
            names.append(SHORT[option.name])
        told = default is not None and not required and "Default:" not in option.help
        info = typer.Option(*names, help=said, show_default=told, rich_help_panel=PANELS.get(option.owner))
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, info],
        default=inspect.Parameter.empty if required else default,
    )


def options_for(command: Command) -> list[Option]:
    """Return all options of a command: the verb's, those of its further keywords, and those of what it loads."""
    verb = imported(command.verb)
    signature = inspect.signature(verb).parameters
    found = options_of(verb, "verb", without=("on_progress", "on_plan", "replan", "command"))
    found = [each._replace(type=list[str], many=str) if each.name == command.several else each for each in found]
    helps = documented(verb)
    if command.settings:
        own = {each.name for each in found}
        settings = imported(command.settings)
        for each, hint in zip(describe(settings), hints(settings).values(), strict=True):
            if each.name not in own:
                shape = textual(hint) or (str, None)
                found.append(Option("settings", each.name, shape[0], None, _told(each.help, each.default)))
    elif any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.values()):
        found.append(Option("verb", "options", list[str], None, helps.get("options", ""), dict))
    for name, (loader, without) in LOADERS.items():
        if name in signature:
            function = imported(loader)
            forms = _for_terminals(documented(function)[without[0]]).rstrip(".")
            phrase = rf"\b[Aa]nything `{function.__name__}` accepts"
            found = [each._replace(help=re.sub(phrase, forms, each.help)) for each in found]
            found += options_of(function, name, without=without)
    return found


def build(name: str, command: Command) -> Any:
    """Return the command of a verb, which imports it."""
    verb, options = imported(command.verb), options_for(command)

    def run(**given: Any) -> None:
        given.pop("config", None)
        call(verb, command, options, given)

    config = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, annotation=Config, default=None)
    parameters = [*(parameter(each, command) for each in options), config]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__doc__ = escape((inspect.getdoc(verb) or "").partition("\nArgs:")[0].replace("`", ""))
    holder = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    holder.command(name, context_settings={"help_option_names": ["-h", "--help"]})(run)
    return typer.main.get_command(holder)


def call(verb: Callable[..., Any], command: Command, options: Sequence[Option], texts: Mapping[str, Any]) -> None:
    """Call a verb with what the command line says, and print what it returns."""
    from shiftproof.cli.terminal import Progress

    values = {each.name: value_of(each, texts[each.name]) for each in options if texts[each.name] is not None}
    known = inspect.signature(verb).parameters
    given = {
        each.name: values[each.name] for each in options if each.owner in ("verb", "settings") and each.name in values
    }
    if "options" in given and known["options"].kind is inspect.Parameter.VAR_KEYWORD:
        given |= given.pop("options")
    if "model" in known:
        given["model"] = _spec(given["model"], "shiftproof.models:ModelSpec", _chosen(options, values, "model"))
    loaded = _chosen(options, values, "data")
    for name in ("data", "source", "validation", "test"):
        if given.get(name) is not None and name in known and loaded:
            some = {key: loaded[key] for key in command.loads.get(name, loaded) if key in loaded}
            given[name] = _spec(given[name], "shiftproof.data:DataSpec", some)
    if "executor" in known:
        given["executor"] = _executor(given, _chosen(options, values, "executor"))
    with Progress() as progress:
        heard = {"on_progress": progress.on_progress, "on_plan": progress.on_plan, "command": _command_line()}
        given |= {name: value for name, value in heard.items() if name in known}
        result = _called(verb, given)
    imported(command.show)(result, given)


def _called(verb: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call a verb; a parameter that takes any number of values gets them one by one."""
    many = [name for name, each in inspect.signature(verb).parameters.items() if each.kind is each.VAR_POSITIONAL]
    several = given[many[0]] if many else ()
    return verb(*several, **{name: value for name, value in given.items() if name not in many})


def _chosen(options: Sequence[Option], values: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return the options of a loader that are not at their default."""
    own = (each for each in options if each.owner == owner and each.name in values)
    return {each.name: values[each.name] for each in own if values[each.name] != each.default}


def _spec(given: Any, target: str, options: Mapping[str, Any]) -> Any:
    return imported(target)(given, **options) if options else given


def _executor(given: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    from shiftproof.models import choose_device
    from shiftproof.runs import choose_executor

    return choose_executor(given["executor"], device=choose_device(given.get("device", "cpu")), **options)


def value_of(option: Option, value: Any) -> Any:
    """Return an option's value; lists come repeated or with commas between their members, or both."""
    if option.many is None:
        return value
    if option.many is dict:
        return dict(_pair(each) for each in value)
    if option.many is Path:  # whose names may have commas
        return [Path(each) for each in value]
    members = [part for text in value for part in split(str(text))]
    try:
        return [option.many(each) for each in members] if option.many in (int, float) else members
    except ValueError:
        flag = f"--{option.name.replace('_', '-')}"
        raise typer.BadParameter(f"{flag} takes numbers, such as 1,3,5; got {','.join(value)!r}") from None


def split(text: str) -> list[str]:
    """Split a text at commas that are not inside brackets.

    >>> split("fog@3, power_law[eps=8,alpha=1]")
    ['fog@3', 'power_law[eps=8,alpha=1]']
    """
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter(f"--option takes name=value, such as lam=20; got {text!r}")
    return name.strip(), value.strip()


def _for_terminals(text: str) -> str:
    """Return a parameter's help without the forms it has "in Python also".

    >>> _for_terminals("Shifts such as fog@3; in Python also `Shift` objects. Default: none.")
    'Shifts such as fog@3. Default: none.'
    """
    return re.sub(r"; in Python also .*?(?=\.(?: [A-Z]|$))", "", text, flags=re.DOTALL)


def _alternatives(hint: Any) -> list[Any]:
    if get_origin(hint) is Annotated:
        return _alternatives(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [each for some in get_args(hint) for each in _alternatives(some)]
    return [hint]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _told(help_text: str, default: object) -> str:
    return f"{help_text} Default: {default}." if default not in (None, "") else help_text


def _command_line() -> str:
    return shlex.join(["shiftproof", *sys.argv[1:]])
