"""Rounds that nobody watches."""

import os
import signal
from types import SimpleNamespace

import pytest
from pyspark.errors import PythonException

from sparklog.errors import ApiError, ConfigError, ConnectionFailed, DataSourceError, ErrorCode, PeerBusy
from sparklog.spark.batch.repetition import rounds
from sparklog.spark.batch.unattended import keep_on, run_rounds
from sparklog.spark.lake.destination import Overtaken
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


def test_who_ends_the_rounds_is_told_no_failure():
    assert kept_on(fails(KeyboardInterrupt())) == (0, [], 0)
