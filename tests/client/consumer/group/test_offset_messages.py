"""What a coordinator answers of offsets, as the consumer tells it."""

import pytest

from sparklog.client.consumer.group.offset_messages import fetched_offsets
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.messages import OffsetFetchResponse

_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_Topic = _Group.OffsetFetchResponseTopics


def answer(code):
    partition = _Topic.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=int(code)
    )
    return OffsetFetchResponse(groups=[_Group(error_code=0, topics=[_Topic(name="t", partitions=[partition])])])


def test_an_offset_that_an_open_transaction_may_change_says_what_it_waits_for():
    with pytest.raises(
        ApiError, match=r"partition t-0: UNSTABLE_OFFSET_COMMIT; a transaction .* sparklog txn list"
    ) as told:
        fetched_offsets(answer(ErrorCode.UNSTABLE_OFFSET_COMMIT), {})
    assert told.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_another_error_is_told_by_its_name():
    with pytest.raises(ApiError, match=r"the committed offset of partition t-0: TOPIC_AUTHORIZATION_FAILED$"):
        fetched_offsets(answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED), {})
