"""The names under which a table keeps how far it has come."""

from uuid import UUID

import pytest

from sparklog.spark.lake.progress import COUNT_APPLICATION, EPOCH_APPLICATION, Progress
from sparklog.structs import TopicPartition

PROGRESS = Progress("q-A_4", TopicPartition("clicks.eu-1_x", 12), UUID(int=7))


def test_there_and_back():
    assert Progress.from_application(PROGRESS.to_application()) == PROGRESS


def test_a_topic_s_number_of_partitions_is_no_offset():
    name = PROGRESS.of_topic.to_application(COUNT_APPLICATION)
    assert Progress.from_application(name, COUNT_APPLICATION) == PROGRESS._replace(
        tp=TopicPartition("clicks.eu-1_x", 0)
    )
    assert Progress.from_application(name) is None
    assert Progress.from_application(name, EPOCH_APPLICATION) is None


@pytest.mark.parametrize(
    "application",
    [
        "",
        "a-streaming-query",
        PROGRESS.to_application().replace("sparklog", "other"),
        PROGRESS.to_application() + ":1",
        PROGRESS.to_application().replace(":12", ":twelve"),
        "sparklog:c:t:no-uuid:1",
    ],
)
def test_the_applications_of_others(application):
    assert Progress.from_application(application) is None
