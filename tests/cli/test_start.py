"""Ctrl-C at any moment: the signal comes when a module is looked for, or when Python ends."""

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import atexit, os, signal, sys

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

where = sys.argv.pop(1)

class At:
    def find_spec(self, name, path=None, target=None):
        if name == where:
            interrupt()

sys.meta_path.insert(0, At())
if where == "end":
    atexit.register(interrupt)
from sparklog.cli.start import main
main()
"""


def _run(where, *command, **more):
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, where, *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


@pytest.mark.parametrize(
    "where",
    [
        "sparklog.cli.main",
        "click.core",
        "sparklog.cli.commands.cluster.topic",
        "sparklog.client.cluster.config",
        "sparklog.client.cluster.metadata",
        "end",
    ],
)
def test_ctrl_c_leaves_no_traceback(where):
    ended = _run(where, "topic", "list", "-b", "127.0.0.1:1")
    assert (ended.returncode, "Traceback" in ended.stderr, ended.stdout) == (130, False, "")
    assert where == "end" or not ended.stderr.strip()


def test_where_it_is_ignored_it_stays_so():
    ended = _run("click", "--version", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("sparklog, version ")
