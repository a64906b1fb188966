"""What DescribeLag tells of leaders, of others, and of several groups at once."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.broker.apis.groups import describe_lag
from sparklog.broker.context import ApiRequest
from sparklog.cluster.lag import Lag, described_lags, lag_request
from sparklog.errors import ApiError, ErrorCode, LogClosed
from sparklog.protocol.messages import decode_response, encode
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.testing.steps import finish

LED, FOLLOWED, GONE, CLOSED = (TopicPartition("clicks", number) for number in range(4))


def bytes_from(offset):
    return 10 * max(50 - offset, 0)


def closed(_):
    raise LogClosed("it is closed")


def not_led(_):
    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads it")


def held(tp):
    if tp == GONE:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not here")
    check = not_led if tp == FOLLOWED else lambda _: None
    size = closed if tp == CLOSED else bytes_from
    return SimpleNamespace(check_leader=check, bytes_from=size, high_watermark=SimpleNamespace(offset=50))


@pytest.fixture
def answered():
    """What is told of these offsets of partitions, as it is read from the wire."""

    def ask(offsets):
        broker = SimpleNamespace(authorizer=AllowEverything(), held=held)
        request = ApiRequest(describe_lag.API, 0, "me", Caller("h"), lag_request(offsets))
        answer: Any = decode_response(
            describe_lag.API, 0, memoryview(encode(finish(describe_lag.handle(broker, request)), 0))
        )
        return answer

    return ask


def test_a_leader_tells_each_offset_that_is_asked_for(answered):
    assert [*described_lags(answered({LED: [5, 50, 60]}))] == [
        Lag(LED, 5, 50, 450),
        Lag(LED, 50, 50, 0),
        Lag(LED, 60, 50, 0),
    ]


@pytest.mark.parametrize(
    ("tp", "code"),
    [
        (FOLLOWED, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (GONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (CLOSED, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_what_is_not_led_here_says_so_and_keeps_nothing_from_the_rest(answered, tp, code):
    answer = answered({tp: [5], LED: [5]})
    assert [each.error_code for topic in answer.topics for each in topic.partitions] == [code, ErrorCode.NONE]
    assert [each.tp for each in described_lags(answer)] == [LED]
