import asyncio

import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.retry import (
    UNKNOWN_TOPIC_PATIENCE,
    Backoff,
    OutOfTime,
    is_retriable,
    pause_after,
    retrying,
    retrying_async,
)
from sparklog.errors import ApiError, ConfigError, ConnectionFailed, ErrorCode
from sparklog.testing.clock import ManualClock


class _Clock(ManualClock):
    """Remembers each pause."""

    def __init__(self):
        super().__init__()
        self.naps = []

    def sleep(self, seconds):
        self.naps.append(seconds)
        super().sleep(seconds)


def _failing(times, error):
    left = [error] * times

    def attempt():
        if left:
            raise left.pop()
        return "done"

    return attempt


@pytest.fixture
def clock():
    return _Clock()


def _backoff(clock, timeout_ms=60_000):
    return Backoff(ClientConfig(retry_backoff_ms=100, retry_backoff_max_ms=1000), clock, timeout_ms)


def test_pauses_double_up_to_the_limit(clock):
    assert retrying(_backoff(clock), _failing(6, ConnectionFailed("x"))) == "done"
    assert clock.naps == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_last_error_is_raised_at_the_deadline(clock):
    with pytest.raises(ApiError, match="LEADER_NOT_AVAILABLE"):
        retrying(_backoff(clock, 5000), _failing(1000, ApiError(ErrorCode.LEADER_NOT_AVAILABLE)))
    assert clock.monotonic() == pytest.approx(5)


@pytest.mark.parametrize("error", [ApiError(ErrorCode.MESSAGE_TOO_LARGE), ConfigError("x")])
def test_what_does_not_pass_by_itself_is_not_retried(clock, error):
    with pytest.raises(type(error)):
        retrying(_backoff(clock), _failing(1, error))
    assert clock.naps == []


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_an_unknown_topic_is_given_up_soon(clock, code):
    with pytest.raises(ApiError):
        retrying(_backoff(clock), _failing(1000, ApiError(code)))
    assert UNKNOWN_TOPIC_PATIENCE <= clock.monotonic() <= UNKNOWN_TOPIC_PATIENCE + 1


def test_an_unknown_topic_is_not_believed_at_once_after_other_failures(clock):
    # A broker that was killed is away for longer than that, and does not know its topics in its first moment.
    away = [ConnectionFailed("refused")] * 10
    unknown = [ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not yet")] * 2
    for answers in (away + unknown, (away + unknown) * 2):
        errors = iter(answers)
        backoff = _backoff(clock)

        def attempt(errors=errors):
            error = next(errors, None)
            if error is not None:
                raise error
            return "done"

        assert retrying(backoff, attempt) == "done"


def test_something_runs_between_attempts(clock):
    calls = []
    retrying(_backoff(clock), _failing(2, ConnectionFailed("x")), between=lambda: calls.append(1))
    assert len(calls) == 2


def test_what_passes_by_itself():
    assert is_retriable(ConnectionFailed("x"))
    assert is_retriable(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert not is_retriable(ApiError(ErrorCode.INVALID_RECORD))
    assert not is_retriable(ConfigError("x"))


def test_the_pause_after_each_failure():
    config = ClientConfig(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    assert [pause_after(failures, config) for failures in (1, 2, 3, 4, 5, 10**6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_pause_ends_at_the_deadline_and_then_none_is_left(clock):
    backoff, error = _backoff(clock, timeout_ms=250), ConnectionFailed("x")
    backoff.wait(error)
    backoff.wait(error)
    assert clock.naps == pytest.approx([0.1, 0.15])
    assert backoff.expired
    with pytest.raises(ConnectionFailed):
        backoff.wait(error)
    assert len(clock.naps) == 2


def test_it_is_over_at_the_deadline_itself_and_not_before(clock):
    backoff = _backoff(clock, timeout_ms=1000)
    clock.advance(0.5)
    assert not backoff.expired
    clock.advance(0.5)
    assert backoff.expired


def test_progress_starts_the_pauses_and_the_time_over(clock):
    backoff, error = _backoff(clock, timeout_ms=1000), ConnectionFailed("x")
    assert [backoff.next_pause(error) for _ in range(3)] == [0.1, 0.2, 0.4]
    clock.advance(1)
    assert backoff.expired
    backoff.reset()
    assert not backoff.expired
    assert backoff.next_pause(error) == 0.1


def test_the_last_error_is_known(clock):
    backoff = _backoff(clock)
    assert backoff.last_error is None
    for error in (ConnectionFailed("x"), ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        backoff.next_pause(error)
        assert backoff.last_error is error


@pytest.mark.parametrize("reset", [False, True])
def test_an_unknown_topic_is_asked_for_as_long_as_said(clock, reset):
    backoff = Backoff(ClientConfig(retry_backoff_ms=100), clock, 60_000, patience=8)
    unknown = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    clock.advance(9)
    backoff.next_pause(unknown)
    if reset:
        clock.advance(7)
        backoff.reset()
        backoff.next_pause(unknown)
    clock.advance(7)
    backoff.next_pause(unknown)
    clock.advance(1)
    with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        backoff.next_pause(unknown)


def test_on_a_loop_it_is_the_same(clock):
    attempts, between = iter([ConnectionFailed("x"), ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), None]), []

    async def attempt():
        error = next(attempts)
        if error is not None:
            raise error
        return "done"

    config = ClientConfig(retry_backoff_ms=0, retry_backoff_max_ms=0)
    backoff = Backoff(config, clock, 60_000)
    assert asyncio.run(retrying_async(backoff, attempt, between=lambda: between.append(1))) == "done"
    assert len(between) == 2
    attempts = iter([ConnectionFailed("x"), ConfigError("y")])
    with pytest.raises(ConfigError):
        asyncio.run(retrying_async(backoff, attempt))


def test_how_long_is_left(clock):
    backoff = _backoff(clock, timeout_ms=1500)
    assert backoff.seconds_left == 1.5
    clock.advance(1)
    assert backoff.seconds_left == 0.5
    clock.advance(1)
    assert backoff.seconds_left == 0.0


def test_an_attempt_that_the_deadline_ended_says_how_long_it_was_and_what_failed_before(clock):
    backoff = _backoff(clock, timeout_ms=1500)
    assert str(backoff.out_of_time()).endswith("no answer within 1.5 s")
    backoff.next_pause(ConnectionFailed("refused"))
    assert isinstance(backoff.out_of_time(), OutOfTime)
    assert backoff.out_of_time().code is ErrorCode.REQUEST_TIMED_OUT
    assert str(backoff.out_of_time()).endswith("no answer within 1.5 s; the attempt before failed: refused")


def test_nothing_is_tried_again_when_the_time_is_over_behind_the_pause(clock):
    tried, between = [], []

    def attempt():
        tried.append(1)
        raise ConnectionFailed("x")

    with pytest.raises(ConnectionFailed):
        retrying(_backoff(clock, timeout_ms=250), attempt, between=lambda: between.append(1))
    assert (len(tried), len(between), clock.naps) == (2, 1, pytest.approx([0.1, 0.15]))


def _at_once(clock, timeout_ms):
    return Backoff(ClientConfig(retry_backoff_ms=0, retry_backoff_max_ms=0), clock, timeout_ms)


def test_on_a_loop_an_attempt_that_is_under_way_at_the_deadline_is_cut_off(clock):
    cut = []

    async def attempt():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append(1)
            raise

    with pytest.raises(OutOfTime, match="no answer within 0 s"):
        asyncio.run(retrying_async(_at_once(clock, 0), attempt))
    assert cut == [1]


@pytest.mark.parametrize("timeout_ms", [0, 1000])
def test_on_a_loop_an_attempt_may_outlast_the_time_for_retries(clock, timeout_ms):
    backoff = _at_once(clock, timeout_ms)

    async def attempt():
        clock.advance(5)
        for _ in range(3):
            await asyncio.sleep(0)
        return "done"

    assert asyncio.run(retrying_async(backoff, attempt, cut=False)) == "done"
    assert backoff.expired


def test_on_a_loop_a_timeout_of_the_attempts_own_is_its_own(clock):
    async def attempt():
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        asyncio.run(retrying_async(_at_once(clock, 60_000), attempt))


def test_on_a_loop_nothing_is_tried_again_when_the_time_is_over_behind_the_pause(clock):
    tried, between = [], []

    async def attempt():
        tried.append(1)
        asyncio.get_running_loop().call_soon(clock.advance, 5)  # while it rests
        raise ConnectionFailed("x")

    with pytest.raises(ConnectionFailed):
        asyncio.run(retrying_async(_at_once(clock, 6000), attempt, between=lambda: between.append(1)))
    assert (len(tried), len(between)) == (2, 1)
