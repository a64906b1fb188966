"""The job's own program: what it logs, and where. No Spark starts, and nothing is compacted."""

import importlib.util
import json
import logging
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparklog.cli.jobs import path_of
from sparklog.client.admin.log_dirs import Replica
from sparklog.compaction.stages import Stage
from sparklog.compaction.stats import CleanerStats
from sparklog.errors import ConnectionFailed
from sparklog.spark.batch import compact, repetition
from sparklog.spark.batch.compact import Report
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

EXAMPLE = Path(__file__).parents[2] / "conf" / "logging.toml"
SAID = "Rewrote 2.0 MB in 1.5 seconds (1.3 Mb/sec, 100.0% of total time), tasks: 1.0 0.5"


def cleaned(_, options):
    """What the job does to one log, without the log."""
    report = compact.ReplicaReport(Replica(TopicPartition("users", 0), 0), "cleaned", stats=CleanerStats())
    for seconds in (1.0, 0.5):
        report.stages.add(Stage.REWRITE, seconds, 1 << 20)
    for line in report.summary():
        logging.getLogger(compact.__name__).info("%s", line)
    return Report([report])


@pytest.fixture
def module(monkeypatch):
    """The program, without Spark, brokers and logs."""
    spec = importlib.util.spec_from_file_location("compact_job", path_of("compact"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "session", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(module, "run", cleaned)
    monkeypatch.setattr(module, "_check", lambda _: None)
    return module


@pytest.fixture
def main(module, monkeypatch, tmp_path, capfd, logging_as_before):
    """Runs the program in this process, as in one of its own: pytest's handlers would count for some."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        logging.getLogger().handlers.clear()
        monkeypatch.setattr(sys, "argv", ["compact", *map(str, arguments)])
        assert module.main() == 0
        return capfd.readouterr()

    return run


def test_what_each_task_took_is_said_on_standard_error(main):
    said = main()
    assert re.search(rf"^\S+ \S+ INFO +sparklog.spark.batch.compact  {re.escape(SAID)}$", said.err, re.MULTILINE)
    assert "cleaned log users-0 at broker 0 (dirty section = [" in said.err
    assert "(rewrite 1.5 s in 2)" in said.out
    assert "Rewrote" not in said.out


def test_standard_output_is_for_programs_and_so_may_the_log_be(main):
    said = main("--output", "json", "--log-format", "json")
    assert [json.loads(each)["result"] for each in said.out.splitlines()] == ["cleaned"]
    logged = [json.loads(each) for each in said.err.splitlines() if each.startswith("{")]
    assert SAID in [each["message"] for each in logged]


def test_a_file_says_where_it_goes(main, monkeypatch):
    main("--logging", EXAMPLE)
    monkeypatch.setenv("SPARKLOG_LOGGING", str(EXAMPLE))
    assert "Rewrote" not in main().err
    assert Path("log-cleaner.log").read_text().count(SAID) == 2


def test_py4j_says_only_what_is_wrong(main, capfd):
    main()
    logging.getLogger("py4j.clientserver").info("Python server ready")
    logging.getLogger("py4j.clientserver").warning("something is wrong")
    said = capfd.readouterr().err
    assert "something is wrong" in said
    assert "ready" not in said


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--logging", "none.toml"], "cannot read none.toml: No such file or directory"),
        (["--logging", EXAMPLE, "--log-format", "json"], "leave out --log-format"),
        (["--log-format", "xml"], "invalid choice: 'xml'"),
        (["--every", "0s"], "'0s' is no time"),
    ],
)
def test_what_there_cannot_be_is_a_misuse(main, capfd, given, told):
    with pytest.raises(SystemExit) as ended:
        main(*given)
    assert ended.value.code == 2
    assert told in capfd.readouterr().err


def test_a_format_that_is_none_is_a_misuse_in_the_environment_too(main, monkeypatch, capfd):
    monkeypatch.setenv("SPARKLOG_LOG_FORMAT", "xml")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "'xml' is not a valid LogFormat" in capfd.readouterr().err


@pytest.fixture
def rounds(module, monkeypatch):
    """What becomes of each round, in turn; with the last of them SIGTERM comes. The times at which they began."""
    clock, begun = ManualClock(0), []
    monkeypatch.setattr(repetition, "SystemClock", lambda: clock)

    def run(*steps):
        left = list(steps)

        def once(spark, options):
            begun.append(clock.now_ms() // 1000)
            step = left.pop(0)
            if not left:
                os.kill(os.getpid(), signal.SIGTERM)
            if isinstance(step, Exception):
                raise step
            return step(spark, options)

        monkeypatch.setattr(module, "run", once)
        return begun

    return run


def test_every_so_often_it_goes_on_whatever_a_round_met(main, rounds):
    """The first round need not reach a broker either: what is asked before Spark starts is asked of one round alone."""
    begun = rounds(ConnectionFailed("no broker answers"), cleaned, cleaned)
    said = main("--every", "10m")
    assert begun == [0, 600, 1200]
    failed, first = said.out.splitlines()
    assert failed.endswith(" failed: no broker answers")
    assert "users-0 at broker 0: cleaned" in first


def test_a_round_that_failed_is_no_result_for_programs(main, rounds):
    rounds(ConnectionFailed("no broker answers"), cleaned, cleaned)
    said = main("--every", "1s", "--output", "json")
    assert [json.loads(each)["result"] for each in said.out.splitlines()] == ["cleaned"]
    assert "failed: no broker answers" in said.err


def test_once_and_every_so_often_exclude_each_other(main, rounds, capfd):
    begun = rounds(cleaned)
    with pytest.raises(SystemExit) as ended:
        main("--once", "--every", "1s")
    assert (ended.value.code, begun) == (2, [])
    assert "--once and --every exclude each other" in capfd.readouterr().err


@pytest.mark.parametrize("given", [[], ["--once"]])
def test_once_is_one_round_after_a_look_at_the_brokers(main, module, monkeypatch, given):
    done = []
    monkeypatch.setattr(module, "_check", lambda _: done.append("look"))
    monkeypatch.setattr(module, "run", lambda *arguments: done.append("round") or cleaned(*arguments))
    main(*given)
    assert done == ["look", "round"]


def test_once_ends_before_spark_starts_where_no_broker_answers(main, module, monkeypatch, capfd):
    def refuses(_):
        raise ConnectionFailed("no broker answers")

    monkeypatch.setattr(module, "_check", refuses)
    monkeypatch.setattr(module, "session", lambda *_, **__: pytest.fail("Spark starts"))
    monkeypatch.setattr(sys, "argv", ["compact", "--once"])
    assert module.main() == 1
    assert capfd.readouterr().err.endswith("compact: no broker answers\n")
