"""Rounds that nobody watches."""

import logging
import os
import signal
from types import SimpleNamespace

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PythonException
from pyspark.java_gateway import launch_gateway

from sparklog.errors import ApiError, ConfigError, ConnectionFailed, DataSourceError, ErrorCode, PeerBusy
from sparklog.local.java import find_java
from sparklog.spark.batch.repetition import rounds
from sparklog.spark.batch.unattended import keep_on, run_rounds
from sparklog.spark.lake.destination import Overtaken
from sparklog.spark.sessions import SparkStopped
from sparklog.testing.clock import ManualClock


class Said(SimpleNamespace):
    def __str__(self):
        return self.text


def ended(after, steps):
    """Each round does the next of the ``steps``; SIGTERM comes in the last one."""
    clock, lines, given_back = ManualClock(0), [], []
    left = iter(steps)

    def once():
        try:
            return next(left)()
        except StopIteration:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("it goes on") from None
        finally:
            given_back.append(True)

    code = run_rounds(rounds(after, clock), once, lines.append, clock)
    return code, lines, len(given_back)


def fails(error):
    def act():
        raise error

    return act


def test_a_round_that_fails_is_a_line_and_the_next_goes_on():
    steps = [
        fails(ConnectionFailed("no broker answers")),
        fails(RuntimeError("Job aborted\n\tat java.lang.Thread")),
        lambda: Said(text="t-0: cleaned", has_failed=False),
    ]
    before = signal.getsignal(signal.SIGTERM)
    code, lines, rounds_done = ended(60, steps)
    assert lines == [
        "1970-01-01T00:00:00+00:00 failed: no broker answers",
        "1970-01-01T00:01:00+00:00 failed: RuntimeError: Job aborted",
        "1970-01-01T00:02:00+00:00 t-0: cleaned",
    ]
    assert (code, rounds_done) == (0, 4)
    assert signal.getsignal(signal.SIGTERM) is before


def test_one_round_tells_by_its_exit_code():
    assert ended(None, [lambda: Said(text="", has_failed=True)])[0] == 1
    assert ended(None, [lambda: Said(text="", has_failed=False)])[0] == 0
    assert ended(None, [fails(ConnectionFailed("x"))])[0] == 1
    assert ended(None, [fails(KeyboardInterrupt())])[0] == 0


class EndedClient(GatewayClient):
    """A client of a JVM: SIGTERM comes while it waits for an answer."""

    def _get_connection(self):
        return SimpleNamespace(socket=None, send_command=lambda _: os.kill(os.getpid(), signal.SIGTERM))


def test_sigterm_while_spark_works_is_no_error_in_the_log(caplog):
    def once():
        logging.getLogger().error("of another")
        EndedClient().send_command("collect")

    assert run_rounds(rounds(60, ManualClock(0)), once, print) == 0
    assert caplog.messages == ["of another"]


def kept_on(*steps):
    lines, done, left = [], [], iter(steps)

    def once():
        done.append(next(left)())

    clock = ManualClock(0)
    code = keep_on(zip(rounds(60, clock), steps, strict=False), once, lines.append, clock)
    return code, lines, len(done)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionFailed("no broker answers"),
        ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer"),
        PeerBusy("too much waits"),
        DataSourceError("SPARKLOG_BROKER_UNREACHABLE", "a task says"),
        DataSourceError("SPARKLOG_TABLE_CHANGED", "five times"),
        DataSourceError("SPARKLOG_TABLE_NOT_WRITTEN", "disk full"),
        DataSourceError("SPARKLOG_DATABASE_UNREACHABLE", "it is started again"),
        PythonException("a worker was killed"),
    ],
    ids=str,
)
def test_what_passes_by_itself_is_a_line_and_the_next_round_goes_on(error):
    code, lines, done = kept_on(fails(error), list)
    assert len(lines) == 1
    assert lines[0].startswith("1970-01-01T00:00:00+00:00 failed: ")
    assert lines[0].endswith("; it is tried again")
    assert (code, done) == (0, 1)
    assert kept_on(list, fails(error))[0] == 1


@pytest.mark.parametrize(
    "error",
    [
        ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a name that was mistyped"),
        ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right"),
        Overtaken("SPARKLOG_OVERTAKEN", "another job"),
        DataSourceError("SPARKLOG_UNSUITABLE_TABLE", "of another topic"),
        DataSourceError("SPARKLOG_DATA_LOSS_EXPIRED", "retention was quicker"),
        ConfigError("no Delta Lake"),
        ZeroDivisionError(),
    ],
    ids=str,
)
def test_what_does_not_pass_ends_the_rounds(error):
    with pytest.raises(type(error)):
        kept_on(fails(error), list)


class JavaError(Py4JJavaError):
    """As Spark raises it, without a JVM that is asked for its text."""

    def __init__(self, text):
        Exception.__init__(self, text)

    def __str__(self):
        return f"An error occurred while calling o31.sql.\n: java.lang.{self.args[0]}\n\tat java.base/java.lang"


def test_a_java_error_is_told_by_what_it_says():
    _, (line,), _ = kept_on(fails(JavaError("RuntimeException: a stage was cancelled")))
    assert " failed: java.lang.RuntimeException: a stage was cancelled; it is tried again" in line


@pytest.mark.parametrize(
    "said",
    [
        "IllegalStateException: Cannot call methods on a stopped SparkContext.",
        "IllegalStateException: LiveListenerBus is stopped.",
    ],
)
def test_where_spark_has_stopped_the_rounds_end(said):
    """They would fail for ever."""
    with pytest.raises(SparkStopped, match=f"start the job again: java.lang.{said}"):
        kept_on(fails(JavaError(said)), list)
    code, lines, _ = ended(60, [fails(JavaError(said)), lambda: Said(text="never", has_failed=False)])
    assert (code, len(lines)) == (1, 1)
    assert f"failed: Spark has stopped, start the job again: java.lang.{said}" in lines[0]


@pytest.fixture
def ended_jvm(monkeypatch, quick_spark):
    """What asks a JVM of Spark's that was killed."""
    for name, value in {**quick_spark, "JAVA_HOME": str(find_java().home)}.items():
        monkeypatch.setenv(name, value)
    gateway = launch_gateway()
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    gateway.proc.kill()
    gateway.proc.communicate()
    yield lambda: gateway.jvm.java.lang.System.gc()
    gateway.close()


@pytest.mark.spark
def test_where_sparks_jvm_was_killed_the_rounds_end(ended_jvm):
    """They would fail for ever."""
    with pytest.raises(SparkStopped, match="JVM has ended, start the job again: ConnectionRefusedError"):
        kept_on(ended_jvm, list)
    code, lines, _ = ended(60, [ended_jvm, lambda: Said(text="never", has_failed=False)])
    assert (code, len(lines)) == (1, 1)
    assert "failed: Spark's JVM has ended, start the job again: ConnectionRefusedError: " in lines[0]


def test_what_another_refuses_ends_no_rounds():
    """Whether there is a JVM, which answers, or none."""
    steps = [fails(ConnectionRefusedError("no")), lambda: Said(text="done", has_failed=False)]
    _, lines, rounds_done = ended(60, steps)
    assert rounds_done == 3
    assert lines[0].endswith(" failed: ConnectionRefusedError: no")


def test_who_ends_the_rounds_is_told_no_failure():
    assert kept_on(fails(KeyboardInterrupt())) == (0, [], 0)
