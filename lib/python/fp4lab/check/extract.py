"""The source text of a named function in a file of any language."""

from __future__ import annotations

import ast
import re
import textwrap


def _find(tree: ast.AST, path: list[str]) -> ast.AST | None:
    for node in ast.walk(tree):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        if isinstance(node, kinds) and node.name == path[0]:
            found = node if len(path) == 1 else _find(node, path[1:])
            if found is not None:
                return found
    return None


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def python_function(text: str, name: str) -> str | None:
    """The function or "Class.method" of a Python file, without comments and docstrings and in one
    form of spacing, so that a difference is one of code. None: the file has no such function.

    >>> python_function("def f(x):  # twice\\n    '''Doubles.'''\\n    return  2*x", "f")
    'def f(x):\\n    return 2 * x'
    """
    node = _find(ast.parse(text), name.split("."))
    return None if node is None else ast.unparse(_without_docstrings(node))


def _body_end(text: str, start: int) -> int | None:
    """The end of the {...} that follows `start`; None if a declaration ends first."""
    brace, end = text.find("{", start), text.find(";", start)
    if brace < 0 or 0 <= end < brace:
        return None
    depth = 0
    for i in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return None


def _without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def c_function(text: str, name: str) -> str | None:
    """All definitions of the function of that name in a C, C++ or CUDA file, without comments and
    with one space for every run of them; None without a definition.

    >>> c_function("int f(int x);\\nint f(int x) { return x; } // same", "f")
    'int f(int x) { return x; }'
    """
    plain = _without_comments(text)
    found = []
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", plain):
        end = _body_end(plain, match.end())
        start = plain.rfind("\n", 0, match.start()) + 1
        before = plain[start : match.start()]
        words = before.replace("==", "")
        called = "=" in words or "return" in words or "(" in words
        if end is not None and not called:
            lines = (re.sub(r"\s+", " ", line).strip() for line in plain[start:end].splitlines())
            found.append("\n".join(line for line in lines if line))
    return "\n".join(found) or None


def function(file: str, text: str, name: str) -> str | None:
    """The function's text by the language of the file's name."""
    if file.endswith(".py"):
        return python_function(textwrap.dedent(text), name)
    return c_function(text, name)
