"""What a client may do is told to those who ask, in every version that can: without security, everything."""

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    DescribeClusterRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from sparklog.protocol.wire import ZERO_UUID
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

NOT_ASKED = None
ON_TOPIC = {3, 4, 5, 6, 7, 8, 10, 11}
ON_GROUP = {3, 6, 8}
ON_CLUSTER = {5, 7, 8, 9, 10, 11, 12}


def metadata(connection, topic, version, asked):
    topics = [MetadataRequest.MetadataRequestTopic(name=topic, topic_id=ZERO_UUID)]
    request = MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=asked,
        include_topic_authorized_operations=asked,
    )
    return wire.ask(connection, ApiKey.METADATA, version, request)


@pytest.mark.parametrize("version", range(8, 13))
def test_of_topics_and_in_older_versions_of_the_cluster(connection, make_topic, version):
    topic = make_topic()
    answer = metadata(connection, topic, version, asked=True)
    assert [each.authorized_operations for each in answer.topics] == [ON_TOPIC]
    if version <= 10:
        assert answer.authorized_operations == ON_CLUSTER
    answer = metadata(connection, topic, version, asked=False)
    assert [each.authorized_operations for each in answer.topics] == [NOT_ASKED]
    if version <= 10:
        assert answer.authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", range(8))
def test_older_versions_have_no_place_for_it(connection, make_topic, version):
    topic = make_topic()
    (described,) = metadata(connection, topic, version, asked=False).topics
    assert (described.error_code, described.name) == (ErrorCode.NONE, topic)


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(("asked", "told"), [(True, ON_CLUSTER), (False, NOT_ASKED)])
def test_of_the_cluster(connection, version, asked, told):
    request = DescribeClusterRequest(include_cluster_authorized_operations=asked, endpoint_type=1)
    assert wire.ask(connection, ApiKey.DESCRIBE_CLUSTER, version, request).authorized_operations == told


@pytest.mark.parametrize("version", range(3, 6))
@pytest.mark.parametrize(("asked", "told"), [(True, ON_GROUP), (False, NOT_ASKED)])
def test_of_groups(connection, version, asked, told):
    find = FindCoordinatorRequest(key="unheard-of", key_type=0)
    request = DescribeGroupsRequest(groups=["unheard-of"], include_authorized_operations=asked)

    def described():
        wire.ask(connection, ApiKey.FIND_COORDINATOR, 3, find)
        (answer,) = wire.ask(connection, ApiKey.DESCRIBE_GROUPS, version, request).groups
        return answer if answer.error_code == ErrorCode.NONE else None

    assert eventually(described).authorized_operations == told
