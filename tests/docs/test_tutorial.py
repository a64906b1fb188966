"""The steps of the first hour, one after another, on a cluster that starts a dead broker again."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from docs.markdown import ROOT, blocks

from sparklog import spark as spark_package
from sparklog.testing.cluster import ClusterHarness

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.slow]
PAGE = ROOT / "docs" / "tutorial.md"
_BY_HAND = "make setup"
"""The block that starts the cluster begins so: here the cluster is there."""


class _Supervised(ClusterHarness):
    supervised = True


@pytest.fixture
def cluster(tmp_path):
    settings = {"group.initial.rebalance.delay.ms": 0}
    with _Supervised(tmp_path / "first-hour", brokers=3, settings=settings) as harness:
        yield harness


class _Reader:
    """Does what a reader of the page does, and keeps what was printed. Programs of Spark run in the tests' session."""

    def __init__(self, directory, bootstrap, capsys):
        self._directory = directory
        self._bootstrap = bootstrap
        self._capsys = capsys
        self._scripts = Path(sys.executable).parent

    def save(self, program):
        name = program.splitlines()[0].removeprefix("# ")
        (self._directory / name).write_text(self._here(program))

    def type(self, commands):
        """What they print, on standard output."""
        return "".join(self._line(each) for each in self._here(commands).splitlines())

    def _here(self, code):
        own = code.replace("/tmp/first-hour", str(self._directory / "first-hour"))
        return own.replace("127.0.0.1:9092", self._bootstrap.partition(",")[0])

    def _line(self, line):
        name = line.removeprefix("python ")
        if name != line and "sparklog.spark" in (self._directory / name).read_text():
            self._capsys.readouterr()
            runpy.run_path(str(self._directory / name))
            return self._capsys.readouterr().out
        environment = os.environ | {
            "PATH": f"{self._scripts}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "SPARKLOG_BOOTSTRAP": self._bootstrap,
        }
        command = ["bash", "-e", "-o", "pipefail", "-c", line]
        ran = subprocess.run(command, cwd=self._directory, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{line}: {ran.stdout}{ran.stderr}"
        return ran.stdout


def test_each_step_prints_what_the_page_says(cluster, tmp_path, delta_jars, spark, capsys, monkeypatch):
    del delta_jars
    monkeypatch.setattr(spark_package, "session", lambda *_, **__: spark)
    reader = _Reader(tmp_path, cluster.bootstrap_servers, capsys)
    printed = ""
    for block in blocks(PAGE):
        if block.language == "text":
            assert printed == block.code, block.place
        elif block.language == "python":
            reader.save(block.code)
        elif not block.code.startswith(_BY_HAND):
            printed = reader.type(block.code)
