"""The offload's own program: what it prints, what it goes on after, and its exit codes."""

import importlib.util
import re
import sys
from types import SimpleNamespace

import pytest

from sparklog.cli.jobs import path_of
from sparklog.client import Producer
from sparklog.errors import ConnectionFailed, DataSourceError

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def job(spark, interpreted, delta_jars, monkeypatch):
    """The program as a module, in the tests' Spark session, which it does not stop."""
    spec = importlib.util.spec_from_file_location("offload_job", path_of("offload"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "session", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    opened = module.Offload
    monkeypatch.setattr(module, "Offload", lambda _, options: opened(spark, options))
    return module


@pytest.fixture
def topic(cluster, make):
    name = make(1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(name, b"x")
    return name


@pytest.fixture
def main(job, cluster, topic, tmp_path, monkeypatch, capfd):
    def run(*arguments):
        given = ["-b", cluster.bootstrap_servers, "--topic", topic, "--table", str(tmp_path / "table"), *arguments]
        monkeypatch.setattr(sys, "argv", ["offload", *given])
        status = job.main()
        said = capfd.readouterr()
        return status, said.out, [line for line in said.err.splitlines() if line.startswith("offload: ")]

    return run


def test_once(main):
    status, said, _ = main()
    assert status == 0
    assert re.match(r"version 1: 1 record, \S+ s old \(p95 \S+ s\) in 1 file, ", said)
    assert main() == (0, "nothing new\n", [])


def test_again_and_again(main, job, monkeypatch):
    """It opens the offload anew after an error that passes, and ends with one that does not."""
    opened = job.Offload
    monkeypatch.setattr(job, "rounds", lambda _: range(3))
    failures = [ConnectionFailed("no broker answers")]

    def failing(*given):
        if failures:
            raise failures.pop()
        return opened(*given)

    monkeypatch.setattr(job, "Offload", failing)
    status, said, (line,) = main("--every", "1s")
    assert (status, said.count("version 1: 1 record, "), "nothing new" in said) == (0, 1, False)
    assert line.endswith("failed: no broker answers; it is tried again")
    failures.append(DataSourceError("SPARKLOG_UNSUITABLE_TABLE", "of another topic"))
    assert main("--every", "1s") == (1, "", ["offload: [SPARKLOG_UNSUITABLE_TABLE] of another topic"])
