"""Exported programs (`.pt2`) as data: a copy of an archive that holds only what was checked.

`torch.export.load` takes much of an archive for Python. It unpickles; it evaluates expressions of sizes and guards; it
looks operations up by dotted name, anywhere in PyTorch; it writes names into source that it runs. So every text is
matched with a small grammar first, in which nothing can be called but arithmetic and tensor operations, and PyTorch
gets a new archive of what was read: two readers of a zip file need not agree on what is in it.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from shiftproof.errors import ModelError
from shiftproof.models.weights import needs_code, read_tensors

PROGRAM = "models/model.json"
_KEPT = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/\w+|models/model\.json|data/sample_inputs/model\.pt"
    r"|data/(weights|constants)/\w+(\.json|\.pt)?"
)
_NAME = re.compile(r"\w*")
_PATH = re.compile(r"(?!__)(\w|[+-]|\.(?!__))*")  # nothing that could call, quote or end a statement; nothing private
_OPERATION = re.compile(
    r"_operator\.(eq|ne|[lg][et]|neg|pos|mul|add|sub|floordiv|truediv|mod|pow|and_|or_|[lr]shift|getitem)"
    r"|math\.[a-z]\w*|torch\.sym_\w+"
    r"|torch\.ops\.(?P<space>aten|prims|quantized_decomposed|torchvision)\.(?P<name>\w+)\.(?P<overload>\w+)"
    r"|torch\.ops\.higher_order\.(cond|map|map_impl|scan|while_loop|associative_scan)"
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
)
_ON_FILES = ("from_file", "save")
_TREES = ("builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", None)
_MEASURES = ("size", "stride", "storage_offset")
_FUNCTION = re.compile(
    "Symbol|Integer|Rational|Float|Add|Mul|Pow|Abs|Max|Min|Mod|And|Or|Not|Equality|Unequality|(Strict)?LessThan"
    "|(Strict)?GreaterThan|Piecewise|ExprCondPair|floor|ceiling|FloorDiv|ModularIndexing|Where|PythonMod|CleanDiv"
    "|CeilDiv|LShift|RShift|PowByNatural|FloatPow|FloatTrueDiv|IntTrueDiv|(Ceil|Floor|Trunc|Round)ToInt|TruncToFloat"
    r"|RoundDecimal|ToFloat|Identity|IsNonOverlappingAndDenseIndicator|(OpaqueUnary|Bitwise)Fn_\w+"
    "|min|max|abs|int|float|bool|round|cast_symbool_to_symint_guardless"
)
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Name)
_SYNTAX = (*_ARITHMETIC, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context, ast.keyword)


def checked_program(path: Path) -> io.BytesIO:
    """Return a copy of an exported program in memory, or refuse what would need code to load."""
    copy = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as kept:
        members = [name.partition("/")[2] for name in archive.namelist()]
        if len({member.lower() for member in members}) != len(members):  # readers differ in which of two they open
            raise needs_code(path)
        for name, member in zip(archive.namelist(), members, strict=True):
            if _KEPT.fullmatch(member):
                kept.writestr(f"model/{member}", _checked(path, member, archive.read(name)))
    copy.seek(0)
    return copy


def _checked(path: Path, member: str, content: bytes) -> bytes:
    """Return what one member may hand on."""
    if member.endswith(".pt"):
        _check_pickle(path, content)
    elif member.endswith(".json"):
        stored = json.loads(content.decode())
        if member == PROGRAM:
            _check(path, stored)
        elif any(entry["use_pickle"] or "obj" in entry["path_name"] for entry in stored["config"].values()):
            raise needs_code(path)  # weights that are no plain tensors
        return json.dumps(stored).encode()
    return content


def _check_pickle(path: Path, content: bytes) -> None:
    try:
        read_tensors(path, io.BytesIO(content))
    except ModelError as error:
        raise needs_code(path) from error


def _check(path: Path, value: Any, key: str = "") -> None:
    """Match every text in a program with the grammar of its place; notes about its source are dropped."""
    if isinstance(value, dict):
        if "metadata" in value and ("target" in value or "graph" in value):
            value["metadata"] = {}
        if key == "inputs" and "as_string" in value:  # goes into guards between quotes
            raise _is_code(path, value["as_string"])
        for name, part in value.items():
            if not (_PATH.fullmatch(name) or is_expression(name)):
                raise _is_code(path, name)
            _check(path, part, name)
    elif isinstance(value, list):
        for part in value:
            _check(path, part, key)
    elif isinstance(value, str) and not _RULES.get(key, _PATH.fullmatch)(value):
        raise _is_code(path, value)


def is_expression(text: str) -> bool:
    """Whether a text is arithmetic on sizes: numbers, symbols, `L['x'].size()[0]`, and known functions of these."""
    if not re.fullmatch(r"[\w\s'.,+\-*/%()\[\]<>=!&|~]*", text, re.ASCII) or "\n" in text:
        return False
    try:
        return all(map(_is_arithmetic, ast.walk(ast.parse(text, mode="eval"))))
    except SyntaxError:
        return False


def _is_arithmetic(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            known = _FUNCTION.fullmatch(name) is not None
        case ast.Call(func=ast.Attribute()):
            known = True  # the attribute is looked at by itself
        case ast.Attribute(value=ast.Name(id="math" | "torch" as module), attr=name):
            known = name.startswith("sym_") if module == "torch" else not name.startswith("_")
        case ast.Attribute(attr=name):
            known = name in _MEASURES
        case ast.Constant(value=value):
            known = _PATH.fullmatch(value) is not None if isinstance(value, str) else isinstance(value, int | float)
        case _:
            known = isinstance(node, _SYNTAX)
    return known


def _is_operation(text: str) -> bool:
    """Whether a text names an operation on numbers or tensors, and none on files."""
    found = _OPERATION.fullmatch(text)
    if found is None:
        return False
    if found["space"] is None:
        return True
    packet = getattr(getattr(torch.ops, found["space"]), found["name"], None)
    overload = getattr(packet, found["overload"], None)
    return found["name"] not in _ON_FILES and isinstance(overload, torch._ops.OpOverload)


def _is_tree(text: str) -> bool:
    """Whether a text describes nested tuples, lists and dictionaries of tensors, and nothing that must be imported."""
    _, spec = json.loads(text)
    specs = [spec]
    for one in specs:
        keys = json.loads(one["context"] or "null") or []
        if one["type"] not in _TREES or not isinstance(keys, list):
            return False
        if not all(isinstance(key, str) and _NAME.fullmatch(key) for key in keys):
            return False
        specs += one["children_spec"]
    return True


_RULES: Mapping[str, Callable[[str], object]] = {
    "expr_str": is_expression,
    "guards_code": is_expression,
    "target": _is_operation,
    "as_operator": _is_operation,
    "in_spec": _is_tree,
    "out_spec": _is_tree,
    "name": _NAME.fullmatch,
    "as_name": _NAME.fullmatch,
    "forward_arg_names": _NAME.fullmatch,
    "as_string": lambda _: True,  # an argument, which stays a text: a mode of interpolation, or a message
    "as_strings": lambda _: True,
}
"""What a text must be, by the field it is in; in every other field, a dotted name."""


def _is_code(path: Path, text: object) -> ModelError:
    return ModelError(
        f"{str(path)!r} needs arbitrary code to load.",
        expected="a program of PyTorch's tensor operations, as torch.export.save writes it",
        got=f"{str(text)[:80]!r}, which PyTorch would take for Python or look up outside of them; it was not run",
        fix="export the network again from its source, with torch.export.export",
    )
