"""Every line of level WARNING and above that the package can write to a log: found in its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import sparklog

HIDDEN = "…"
_SOURCE = Path(sparklog.__file__).parent
_LEFT_OUT = ("testing.", "rate_limit")
"""Tests' own, and what writes the lines of others."""
_LEVELS = {"warning": "WARNING", "error": "ERROR", "exception": "ERROR", "critical": "CRITICAL"}
_LOGGERS = frozenset({"_log", "_logger", "_LOG", "logger"})
_RATE_LIMITED = frozenset({"_lines", "_warnings", "warnings"})
_CALL = re.compile(rf"\b({'|'.join(sorted(_LOGGERS | _RATE_LIMITED))})\.")
_PLACE = re.compile(r"%%|%[-#0+]*[\d.]*[a-zA-Z]")
_ELSEWHERE = {"net.channel": "net.server", "net.slow_requests": "net.server"}
"""Modules that write by the logger of another one."""


class LogLine(NamedTuple):
    """``text`` has ``HIDDEN`` in place of each value; ``module`` is named without the package.

    ``levels`` are more than one where a line is graver at one time than at another.
    """

    module: str
    number: int
    levels: tuple[str, ...]
    text: str

    @property
    def logger(self) -> str:
        return f"sparklog.{_ELSEWHERE.get(self.module, self.module)}"


@cache
def log_lines() -> tuple[LogLine, ...]:
    """Those of the package, module by module. Raises ValueError for a line whose text cannot be found."""
    found: list[LogLine] = []
    for path in sorted(_SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(_SOURCE).with_suffix("").parts)
        source = path.read_text(encoding="utf-8")
        if not module.startswith(_LEFT_OUT) and _CALL.search(source):
            found += lines_of(module, ast.parse(source))
    return tuple(found)


def lines_of(module: str, tree: ast.Module) -> list[LogLine]:
    """Those of one module, in their order. Raises ValueError for a line whose text cannot be found."""
    outer = list(_own(tree))
    functions = (each for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
    found = [line for scope in (tree, *functions) for line in _lines_in(module, scope, outer)]
    return sorted(found, key=lambda each: each.number)


def _lines_in(module: str, scope: ast.AST, outer: list[ast.AST]) -> Iterator[LogLine]:
    own = list(_own(scope))
    for node in own:
        if isinstance(node, ast.Call) and (told := _told(node)) is not None:
            levels, text = told
            texts = list(_spelled(text, own, outer, node.lineno))
            if not texts:
                raise ValueError(f"{module}, line {node.lineno}: the text of a line of the log cannot be found")
            yield from (LogLine(module, node.lineno, levels, each) for each in texts)


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """What is in it and in no function within it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield child
            yield from _own(child)


def _told(call: ast.Call) -> tuple[tuple[str, ...], ast.expr] | None:
    """The levels and the text of a call that writes such a line, or may."""
    function, arguments = call.func, call.args
    if not isinstance(function, ast.Attribute) or not arguments:
        return None
    receiver = _last_name(function.value)
    if receiver in _LOGGERS and function.attr in _LEVELS:
        return (_LEVELS[function.attr],), arguments[0]
    if receiver in _LOGGERS and function.attr == "log":
        named = {each.attr for each in ast.walk(arguments[0]) if isinstance(each, ast.Attribute)}
        levels = named.intersection(_LEVELS.values()) if named else {"WARNING"}
        return (tuple(sorted(levels)), arguments[1]) if levels else None
    if receiver in _RATE_LIMITED and function.attr in ("warn", "repeat"):
        return ("WARNING",), arguments[1]
    return None


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _spelled(text: ast.expr, own: Iterable[ast.AST], outer: Iterable[ast.AST], line: int) -> Iterator[str]:
    """The texts that it may have; a name has those that it is given before this ``line``, or any that it is handed."""
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        yield _PLACE.sub(lambda found: "%" if found[0] == "%%" else HIDDEN, text.value)
    elif isinstance(text, ast.JoinedStr):
        yield "".join(str(each.value) if isinstance(each, ast.Constant) else HIDDEN for each in text.values)
    elif isinstance(text, ast.IfExp):
        for each in (text.body, text.orelse):
            yield from _spelled(each, own, outer, line)
    elif isinstance(text, ast.Name):
        given = [each for each in _given(text.id, own) if each.lineno <= line] or _given(text.id, outer)
        for each in given:
            yield from _spelled(each, own, outer, line)
        if not given:
            yield HIDDEN


def _given(name: str, nodes: Iterable[ast.AST]) -> list[ast.expr]:
    assignments = (each for each in nodes if isinstance(each, ast.Assign))
    return [each.value for each in assignments if any(_last_name(target) == name for target in each.targets)]
