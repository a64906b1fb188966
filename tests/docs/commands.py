"""Reads the commands of shell blocks, and holds each against its own parser without running it."""

import argparse
import contextlib
import importlib.util
import io
import re
import runpy
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import click
from docs.markdown import ROOT

from sparklog.cli.jobs import JobCommand
from sparklog.cli.main import cli

_HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?\n.*?\n\1$", re.MULTILINE | re.DOTALL)
_SEPARATORS = set("|&;()<>")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*|…|.*\$.*")
_EAGER = ("--help", "--version")
"""Options that end a program when they are read."""
_KEYWORDS = ("for", "do", "done", "export", "then", "fi", "if", "while")
_PYTHON = re.compile(r"(.*/)?python3?")
_JOB = re.compile(r"jobs/(\w+)\.py")
_TARGETS = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
_OTHERS = frozenset(
    """
    cat chmod chown cp curl echo grep install jq kafka-configs.sh kcat kill nc openssl pip printf prometheus pyspark
    pytest sed seq sort spark-submit sysctl systemctl useradd wc zookeeper-security-migration.sh
    """.split()  # noqa: SIM905 (a list of this length is not read one a line)
)
"""The programs of others that pages name."""


class _Parsed(Exception):
    """The job's parser took the arguments."""


def commands(code: str) -> Iterator[list[str]]:
    """The words of each simple command of a shell block."""
    for line in _HERE_DOCUMENT.sub("", code).replace("\\\n", " ").splitlines():
        words: list[str] = []
        redirected = False
        for word in _words(line):
            if set(word) <= _SEPARATORS:
                redirected = word in ("<", ">", ">>")
                if not redirected:
                    yield words
                    words = []
            elif not redirected:
                words.append(word)
            else:
                redirected = False
        yield words


def complaint(words: Sequence[str], *, in_text: bool = False) -> str | None:
    """What is wrong with a command; None if its parser takes it. ``in_text`` is one that may be cut short."""
    if words[:1] == ["."]:
        return None  # reads a file of the reader's
    while words and (words[0] in _KEYWORDS or _ASSIGNMENT.fullmatch(words[0])):
        words = words[1:] if words[0] != "for" else []
    if not words:
        return None
    program, arguments = words[0].removeprefix(".venv/bin/"), words[1:]
    if program == "sparklog":
        in_text = in_text or not set(_EAGER).isdisjoint(arguments)
        return _complaint_of_click(cli, "sparklog", [each for each in arguments if each not in _EAGER], in_text)
    if program == "make":
        targets = [each for each in arguments if not _ASSIGNMENT.fullmatch(each)]
        return next((f"no target {each}" for each in targets if each not in _TARGETS), None)
    jobs = [number for number, each in enumerate(words) if _JOB.fullmatch(each)]
    if jobs:
        return _complaint_of_job(words[jobs[0]], words[jobs[0] + 1 :])
    if _PYTHON.fullmatch(program):
        return _complaint_of_module(arguments)
    return None if program in _OTHERS else f"no program {program}"


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split = True
    return list(lexer)


def _complaint_of_click(command: click.Command, name: str, arguments: Sequence[str], in_text: bool) -> str | None:
    """Walks down the groups; each one's real parser reads its part."""
    if isinstance(command, JobCommand):
        return None if in_text and not arguments else _complaint_of_job(f"jobs/{name}.py", arguments)
    context = click.Context(command, info_name=name)
    try:
        if isinstance(command, click.Group):
            return _complaint_of_group(command, context, list(arguments), in_text)
        found, _, _ = command.make_parser(context).parse_args(list(arguments))
        _check_values(command, context, found, in_text)
    except click.BadOptionUsage as error:
        return None if in_text and error.option_name in arguments[-1:] else f"{name}: {error.format_message()}"
    except click.UsageError as error:
        return f"{name}: {error.format_message()}"
    return None


def _complaint_of_group(group: click.Group, context: click.Context, arguments: list[str], in_text: bool) -> str | None:
    if not arguments:
        return None if in_text else f"{context.info_name} needs a command"
    group.parse_args(context, arguments)
    rest = [*context._protected_args, *context.args]
    if not rest or rest[0] == "..." or (in_text and _PLACEHOLDER.fullmatch(rest[0])):
        return None
    name, command, rest = group.resolve_command(context, rest)
    return f"no command {name}" if command is None else _complaint_of_click(command, str(name), rest, in_text)


def _check_values(command: click.Command, context: click.Context, found: dict[str, object], in_text: bool) -> None:
    if in_text and not found.keys() - {each.name for each in command.params if isinstance(each, click.Argument)}:
        return
    for each in command.params:
        value = found.get(str(each.name))
        if not isinstance(value, str | bool | int | list | tuple) or value in ((), []):
            if each.required and not in_text:
                raise click.MissingParameter(ctx=context, param=each)
        elif not _is_file(each.type) and not _holds_placeholder(value):
            each.type_cast_value(context, value)


def _is_file(kind: click.ParamType[Any]) -> bool:
    parts = kind.types if isinstance(kind, click.Tuple) else [kind]
    return any(isinstance(each, click.Path | click.File) for each in parts)


def _holds_placeholder(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_placeholder, value))
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None


def _complaint_of_job(job: str, arguments: Sequence[str]) -> str | None:
    """Starts the job, and stops it when its parser has taken the arguments."""
    original = argparse.ArgumentParser.parse_args
    said = io.StringIO()

    def parse(parser: argparse.ArgumentParser, *_: object) -> object:
        original(parser, list(arguments))
        raise _Parsed

    with patch.object(argparse.ArgumentParser, "parse_args", parse), contextlib.redirect_stderr(said):
        try:
            runpy.run_path(str(ROOT / job), run_name="__main__")
        except _Parsed:
            return None
        except (SystemExit, OSError):
            return f"{job}: {said.getvalue().strip() or 'no such job'}"
    return f"{job} parses nothing"


def _complaint_of_module(arguments: Sequence[str]) -> str | None:
    if "-m" not in arguments:
        return None
    module = arguments[arguments.index("-m") + 1]
    with patch.object(sys, "path", [str(ROOT), *sys.path]):
        known = module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None
    return None if known else f"no module {module}"
