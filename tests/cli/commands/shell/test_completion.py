"""``sparklog completion``: in real shells, those that are here, and what the scripts say."""

import os
import pty
import shutil
import subprocess
import sys

import pytest
from fix_programs import lack_of

from sparklog.cli.main import COMMANDS

ASK = """
source "$1"
COMP_WORDS=(sparklog {line}) COMP_CWORD={place}
_sparklog_completion sparklog
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def script_of(run, tmp_path, monkeypatch):
    """The script for a shell, and the program ``sparklog`` in the path."""
    program = tmp_path / "sparklog"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sparklog.cli.main "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def written(shell):
        script = tmp_path / f"completion.{shell}"
        script.write_text(run("completion", shell).out)
        return script

    return written


@pytest.fixture
def bash(script_of):
    """``bash("topic de")``: what it completes."""
    script = script_of("bash")

    def ask(line):
        text = ASK.format(line=line, place=len(line.split()))
        done = subprocess.run(["bash", "-c", text, "bash", script], capture_output=True, text=True, check=True)
        return done.stdout.split()

    return ask


def test_bash_completes_commands_and_options(bash):
    assert bash("topic de") == ["delete", "describe"]
    assert bash("consume --fol") == ["--follow"]
    assert bash("offload --to") == ["--topic"]


@pytest.mark.skipif(bool(lack_of("fish")), reason=lack_of("fish"))
def test_fish_completes_commands_with_what_they_do_and_options(script_of):
    script = script_of("fish")

    def ask(line):
        command = ["fish", "--no-config", "-c", f"source {script}; complete -C 'sparklog {line}'"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return dict(each.split("\t") for each in done.stdout.splitlines() if each)

    assert list(ask("topic de")) == ["delete", "describe"]
    assert ask("quo") == {"quota": COMMANDS["quota"]}
    assert list(ask("consume --fol")) == ["--follow"]
    assert ask("load --fr") == {"--from": "a path or URI that Spark reads"}


@pytest.mark.skipif(bool(lack_of("zsh")), reason=lack_of("zsh"))
def test_zsh_completes_commands_and_options(script_of, tmp_path):
    script = script_of("zsh")
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb", "PS1": "> "})
    seen = b""

    def until(what):
        nonlocal seen
        while what not in seen:
            seen += os.read(terminal, 1 << 16)

    try:
        until(b"> ")
        begin = f"autoload -U compinit && compinit -u -d {tmp_path}/dump && source {script} && echo rea''dy\n"
        os.write(terminal, begin.encode())
        until(b"ready")
        os.write(terminal, b"sparklog topic descr\t")
        until(b"describe ")
        os.write(terminal, b"--under-m\t")
        until(b"--under-min-isr ")
        os.write(terminal, b"\x15sparklog load --fr\t")
        until(b"--from ")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def test_what_a_command_does_is_told_without_loading_it(run, monkeypatch):
    monkeypatch.setenv("_SPARKLOG_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "sparklog top")
    monkeypatch.setenv("COMP_CWORD", "1")
    before = set(sys.modules)
    said = run().out.splitlines()
    assert said == ["plain", "top", COMMANDS["top"], "plain", "topic", COMMANDS["topic"]]
    assert not {each for each in set(sys.modules) - before if each.startswith("sparklog.cli.commands.")}


@pytest.mark.parametrize(
    ("shell", "said"), [("zsh", "#compdef sparklog"), ("fish", "complete --no-files --command sparklog")]
)
def test_the_scripts_of_other_shells_are_theirs(run, tmp_path, shell, said):
    done = run("completion", shell)
    assert (done.status, done.err) == (0, "")
    assert said in done.out
    if (program := shutil.which(shell)) is not None:
        script = tmp_path / "script"
        script.write_text(done.out)
        subprocess.run([program, "-n", script], check=True)


def test_another_shell_is_misuse(run):
    assert run("completion", "tcsh").status == 2
