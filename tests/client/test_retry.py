import pytest

from sparklog.client.config import ClientConfig
from sparklog.client.retry import UNKNOWN_TOPIC_PATIENCE, Backoff, retrying
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


def test_an_unknown_topic_is_given_up_soon(clock):
    with pytest.raises(ApiError):
        retrying(_backoff(clock), _failing(1000, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    assert UNKNOWN_TOPIC_PATIENCE <= clock.monotonic() <= UNKNOWN_TOPIC_PATIENCE + 1


def test_something_runs_between_attempts(clock):
    calls = []
    retrying(_backoff(clock), _failing(2, ConnectionFailed("x")), between=lambda: calls.append(1))
    assert len(calls) == 2
