"""``sparklog completion``: in a real bash, and what the scripts of the other shells say."""

import shutil
import subprocess
import sys

import pytest

ASK = """
source "$1"
COMP_WORDS=(sparklog {line}) COMP_CWORD={place}
_sparklog_completion sparklog
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def bash(run, tmp_path, monkeypatch):
    """``bash("topic de")``: what it completes."""
    program = tmp_path / "sparklog"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m sparklog.cli.main "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "completion"
    script.write_text(run("completion", "bash").out)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def ask(line):
        text = ASK.format(line=line, place=len(line.split()))
        done = subprocess.run(["bash", "-c", text, "bash", script], capture_output=True, text=True, check=True)
        return done.stdout.split()

    return ask


def test_bash_completes_commands_and_options(bash):
    assert bash("topic de") == ["delete", "describe"]
    assert bash("consume --fol") == ["--follow"]


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
