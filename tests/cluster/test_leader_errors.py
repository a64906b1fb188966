import pytest

from sparklog.cluster.leader_errors import LEADER_ERRORS, is_leader_error
from sparklog.errors import ApiError, ConnectionFailed, CorruptRecord, ErrorCode, PeerSilent


def test_they_are_worth_another_try():
    assert all(code.retriable for code in LEADER_ERRORS)


@pytest.mark.parametrize(
    "error", [ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ConnectionFailed("gone"), PeerSilent("frozen")], ids=repr
)
def test_a_leader_that_moved_or_cannot_be_reached_is_forgotten(error):
    assert is_leader_error(error)


@pytest.mark.parametrize(
    "error",
    [ApiError(ErrorCode.NOT_ENOUGH_REPLICAS), ApiError(ErrorCode.OFFSET_OUT_OF_RANGE), CorruptRecord("CRC")],
    ids=repr,
)
def test_what_the_right_leader_says_is_no_leader_error(error):
    assert not is_leader_error(error)
