import pytest

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.errors import ApiError, ErrorCode

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(metadata):
    return AdminClient(metadata)


def test_create_list_describe_delete(admin, topic):
    admin.create_topics([NewTopic(topic, 2, 1)])
    assert topic in [each.name for each in admin.list_topics()]
    assert len(admin.describe_topics([topic])[topic].partitions) == 2
    admin.delete_topics([topic])
    with pytest.raises(ApiError) as caught:
        admin.describe_topics([topic])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_new_topic_has_leaders_at_once(admin, metadata, topic):
    admin.create_topics([NewTopic(topic, 4, 1)])
    assert all(each.leader >= 0 for each in metadata.topic(topic).partitions)


def test_errors_name_the_topic(admin, topic):
    admin.create_topics([NewTopic(topic, 1, 1)])
    with pytest.raises(ApiError, match=topic) as caught:
        admin.create_topics([NewTopic(topic, 1, 1)])
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(ApiError, match="no-such") as caught:
        admin.delete_topics(["no-such"])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_validating_creates_nothing(admin, metadata, topic):
    admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)
    assert topic not in metadata.fetch().topics


def test_settings_of_a_topic_and_of_a_broker(admin, topic):
    admin.create_topics([NewTopic(topic, 1, 1, {"retention.ms": "12345"})])
    settings = {each.name: each for each in admin.topic_configs(topic)}
    assert settings["retention.ms"].value == "12345"
    assert settings["cleanup.policy"].value == "delete"
    assert settings["retention.ms"].source != settings["cleanup.policy"].source
    broker = min(admin.describe_cluster().brokers)
    assert "log.dirs" in {each.name for each in admin.broker_configs(broker)}
