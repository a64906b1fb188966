from uuid import UUID

import pytest

from sparklog.controller.requests import refused_replicas
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import LeaderAndIsrRequest, LeaderAndIsrResponse
from sparklog.structs import TopicPartition

ID = UUID(int=1)


def answer(code):
    topic = LeaderAndIsrResponse.LeaderAndIsrTopicError
    errors = [topic.LeaderAndIsrPartitionError(partition_index=0, error_code=code)]
    return LeaderAndIsrResponse(error_code=0, topics=[topic(topic_id=ID, partition_errors=errors)])


REQUEST = LeaderAndIsrRequest(
    topic_states=[LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=ID, partition_states=[])]
)


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID])
def test_a_partition_that_a_broker_cannot_hold_is_refused(code):
    assert refused_replicas(REQUEST, answer(code)) == {TopicPartition("t", 0): code}


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH])
def test_one_that_a_broker_of_kafkas_holds_under_this_epoch_already_is_not(code):
    assert refused_replicas(REQUEST, answer(code)) == {}
