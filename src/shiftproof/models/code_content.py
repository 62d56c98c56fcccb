"""What Python code does, as text: its syntax tree without docstrings, comments and formatting.

Stored results are found by it, so that another sentence in a docstring keeps them and another operator does not. The
form is written by hand, field by field, because `ast.dump` and `ast.unparse` differ between versions of Python; it is
the same from 3.11 to 3.13. Bytecode, which counts where a text does not tell functions apart, is each version's own.

Code that reads texts of code (`__doc__`, `inspect.getsource`, `__file__` and the like) can depend on every character:
it counts as it is written. So do the modules that are digested with it, and a text that is not Python. What nobody can
see is a docstring, in a module without any of these names, that another package reads.
"""

from __future__ import annotations

import ast
import dis
import re
from collections.abc import Iterator, Mapping
from types import CodeType

_READS_TEXT = re.compile(
    r"__doc__|__file__|__loader__|__spec__|getdoc|get_docstring|getsource|get_source|getcomments|getblock|findsource"
    r"|lineno|linecache|currentframe|_getframe|traceback"
)
"""Names, also within strings, by which code gets at texts, or at its place in them."""
_UNREAD = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Fields of a syntax tree that follow from the others, or decide nothing: whether a text was written u"..."."""
_STATED = frozenset({"__doc__", "__firstlineno__", "__static_attributes__"})
"""What the body of a class states of itself, by version of Python."""


def code_contents(texts: Mapping[str, str | bytes]) -> dict[str, str]:
    """Return the content of modules that belong together, each under its name.

    >>> code_contents({"a": "x = 1  # one"}) == code_contents({"a": "'''A module.'''\\nx = (1)"})
    True
    """
    found = {name: _content(text) for name, text in texts.items()}
    if any(held is None or _READS_TEXT.search(held) for held in found.values()):
        return {name: _as_written(text) for name, text in texts.items()}
    return {name: held for name, held in found.items() if held is not None}


def code_content(text: str | bytes) -> str:
    """Return the content of a module, or of a class or function in it, indented as it stands there.

    >>> code_content("    def f(x):\\n        '''Add.'''\\n        return x + 1")[:19]
    'FunctionDef(name=f,'
    """
    return code_contents({"": text})[""]


def is_function(content: str) -> bool:
    """Whether a content is that of one `def`, which says all of a function; the lines of a lambda may be cut off."""
    return content.startswith(("FunctionDef(", "AsyncFunctionDef("))


def bytecode_content(code: CodeType) -> list[object]:
    """Return the instructions of a code object with the constants and names that they use: a docstring is not one."""
    steps = [step for step in dis.get_instructions(code) if step.opcode != dis.EXTENDED_ARG]
    found: list[object] = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount]
    found += [code.co_flags & 0xF, code.co_exceptiontable]
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        if after is not None and after.opname == "STORE_NAME" and after.argval in _STATED:
            continue  # its constant is the docstring, or the line that the class stands in
        held = step.argval
        found += [step.opname, bytecode_content(held) if isinstance(held, CodeType) else held]
    return found


def _content(text: str | bytes) -> str | None:
    """Return the content of a text, or None where it is not Python."""
    indented = text[:1] in (" ", "\t")
    try:
        # What is indented goes below a class, and not to the left, for the lines of a text in it would move along.
        tree = ast.parse("class _:\n" + str(text) if indented else text)
        if indented and len(tree.body) != 1:
            return None
        body: list[ast.stmt] = getattr(tree.body[0], "body", []) if indented else tree.body
        return "\n".join(_written(statement) for statement in _kept(body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _as_written(text: str | bytes) -> str:
    return text if isinstance(text, str) else repr(text)


def _kept(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that are not just a text: the first of these is a docstring, the others do nothing."""
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                continue
        yield statement


def _written(node: ast.AST) -> str:
    """Return a tree as text, without fields that are empty: each version of Python has some that others lack."""
    if isinstance(node, ast.Constant):
        return f"{type(node.value).__name__}:{node.value!r}"
    fields = []
    for name, value in ast.iter_fields(node):
        if name not in _UNREAD and value is not None and value != []:
            fields.append(f"{name}={_field(node, name, value)}")
    return f"{type(node).__name__}({','.join(fields)})"


def _field(node: ast.AST, name: str, value: object) -> str:
    if isinstance(node, ast.JoinedStr) and isinstance(value, list):
        return f"[{','.join(_pieces(value))}]"
    if isinstance(value, list):
        items = _kept(value) if name == "body" else value
        return f"[{','.join(_written(item) if isinstance(item, ast.AST) else repr(item) for item in items)}]"
    if isinstance(value, ast.AST):
        return _written(value)
    return str(value) if isinstance(value, str) and value.isidentifier() else repr(value)


def _pieces(values: list[ast.expr]) -> Iterator[str]:
    """Yield the pieces of an f-string, the texts between two values as one: versions of Python divide them."""
    text = ""
    for value in values:
        if isinstance(value, ast.Constant):
            text += str(value.value)
            continue
        if text:
            yield f"str:{text!r}"
        text = ""
        yield _written(value)
    if text:
        yield f"str:{text!r}"
