"""The offload's own program: what it prints, what it goes on after, and its exit codes."""

import importlib.util
import json
import re
import sys
from types import SimpleNamespace

import pytest

from sparklog.cli.jobs import path_of
from sparklog.client import Producer
from sparklog.clock import SystemClock
from sparklog.errors import ConnectionFailed, DataSourceError
from sparklog.testing.registry import schema_registry

AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
}
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


def test_what_was_done_as_json(main):
    status, said, _ = main("--output", "json")
    assert status == 0
    (line,) = said.splitlines()
    told = json.loads(line)
    assert (told["version"], told["records"], told["files"], told["behind"]) == (1, 1, 1, 0)
    assert main("-o", "json") == (0, "", [])


@pytest.fixture
def registry():
    with schema_registry() as (url, found):
        found.answer("POST", "/subjects/clicks-value/versions", {"schema": json.dumps(AVRO)})
        yield url


def test_values_by_the_schemas_of_a_registry(main, registry, cluster, topic, spark, tmp_path):
    """Of the three values one has no schema, and one the id of a schema that the registry does not have."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"\0" + (1).to_bytes(4, "big") + b"\x0e\x06abc")
        producer.send(topic, b"\0" + (99).to_bytes(4, "big") + b"\x0e\x06abc")
    settings = tmp_path / "registry.properties"
    settings.write_text(f"schema.registry.url={registry}\n")
    dead = tmp_path / "dead"
    status, said, errors = main(
        *("--value-format", "avro", "--registry-config", str(settings), "--subject", "clicks-value"),
        *("--dead-letters", str(dead)),
    )
    assert (status, errors) == (0, []), said
    assert [
        tuple(row) for row in spark.read.format("delta").load(str(tmp_path / "table")).select("id", "name").collect()
    ] == [(7, "abc")]
    reasons = [
        row[0] for row in spark.read.format("delta").load(str(dead)).orderBy("offset").select("reason").collect()
    ]
    assert len(reasons) == 2
    assert "99, which the registry does not have" in reasons[1]


@pytest.mark.parametrize(
    ("given", "said", "status"),
    [
        (("--value-format", "avro", "--registry", "http://127.0.0.1:1", "--subject", "s"), "does not answer", 1),
        (("--value-format", "avro", "--subject", "s"), "--value-format needs --schema FILE", 2),
        (("--value-format", "avro", "--subject", "s", "--schema", "pyproject.toml"), "--subject is of a --registry", 2),
        (("--value-format", "avro", "--registry", "http://h"), "--schema FILE, or --subject NAME", 2),
        (("--registry", "http://h"), "--registry does nothing without --value-format", 2),
    ],
)
def test_a_registry_that_is_named_wrongly(main, capfd, given, said, status):
    try:
        ended, _, (line,) = main(*given)
    except SystemExit as error:
        ended, line = error.code, capfd.readouterr().err
    assert ended == status
    assert said in line
    assert "Traceback" not in line


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


class Pacing:
    """The job's clock: it says how long the offload would wait, and a record comes meanwhile, or the job's end."""

    def __init__(self, cluster, topic):
        self.pauses = []
        self._cluster, self._topic = cluster, topic

    def now_ms(self):
        return SystemClock().now_ms()

    def monotonic(self):
        return SystemClock().monotonic()

    def sleep(self, seconds):
        self.pauses.append(seconds)
        if len(self.pauses) == 2:
            raise DataSourceError("SPARKLOG_TEST", "that is all")
        with Producer(bootstrap_servers=self._cluster.bootstrap_servers) as producer:
            producer.send(self._topic, b"y")


@pytest.fixture
def pacing(job, cluster, topic, monkeypatch):
    clock, opened = Pacing(cluster, topic), job.Offload

    def paced(*given):
        offload = opened(*given)
        monkeypatch.setattr(offload, "_clock", clock)
        return offload

    monkeypatch.setattr(job, "Offload", paced)
    return clock


def test_it_goes_on_and_waits_as_long_as_the_freshness_allows(main, pacing):
    """Where a record may be 1000 hours old the next commit is begun after half of that, less what the last one took."""
    status, said, errors = main("--freshness", "1000h")
    assert (status, errors) == (1, ["offload: [SPARKLOG_TEST] that is all"])
    assert re.findall(r"version (\d): (\d) record,", said) == [("1", "1"), ("2", "1")]
    assert all(499 < seconds / 3600 <= 500 for seconds in pacing.pauses), pacing.pauses


def test_continuous_is_a_freshness_of_half_a_minute(main, pacing):
    status, said, _ = main("--continuous")
    assert (status, said.count("version ")) == (1, 2)
    assert all(0 <= seconds <= 15 for seconds in pacing.pauses), pacing.pauses
