"""Rounds that nobody watches."""

import os
import signal
from types import SimpleNamespace

from sparklog.errors import ConnectionFailed
from sparklog.spark.batch.repetition import rounds
from sparklog.spark.batch.unattended import run_rounds
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
