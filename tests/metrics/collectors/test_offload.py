"""What waits for its offload, as it is told."""

from types import SimpleNamespace

from metrics.pages import collected

from sparklog.metrics.collectors.offload import OffloadCollector
from sparklog.replica.retention import Holding
from sparklog.structs import TopicPartition

NAME = "sparklog_offload_"


def holding(size, records, lost=0, limit=-1):
    return Holding(5, size, records, limit, lost, 5, 0)


def page_of(holdings, refusals=(), most=10):
    retention = SimpleNamespace(
        holdings={TopicPartition(*tp): each for tp, each in holdings.items()},
        refusals={TopicPartition("t", number): "why" for number in refusals},
    )
    return collected(OffloadCollector(retention, most))


def test_a_topic_has_the_sum_of_its_partitions():
    page = page_of({("t", 0): holding(100, 7, 2), ("t", 1): holding(50, 3), ("u", 0): holding(1, 1)}, refusals=[4, 5])
    assert page.value(NAME + "waiting_partitions") == 3
    assert page.of(NAME + "held_bytes") == {frozenset({("topic", "t")}): 150, frozenset({("topic", "u")}): 1}
    assert page.value(NAME + "held_records", topic="t") == 10
    assert page.value(NAME + "lost_records", topic="t") == 2
    assert page.value("sparklog_retention_refusals") == 2


def test_of_the_limit_the_fullest_partition_counts():
    held = {
        ("t", 0): holding(100, 7, limit=1000),
        ("t", 1): holding(850, 3, limit=1000),
        ("none", 0): holding(850, 3),
        ("nothing", 0): holding(0, 0, limit=0),
    }
    used = page_of(held).of(NAME + "limit_used_ratio")
    assert used == {frozenset({("topic", name)}): share for name, share in {"t": 0.85, "none": 0, "nothing": 0}.items()}


def test_topics_beyond_the_limit_have_no_series():
    page = page_of({(str(number), 0): holding(1, 1) for number in range(5)}, most=2)
    assert len(page.of(NAME + "held_bytes")) == 2
    assert page.value(NAME + "waiting_partitions") == 5


def test_where_nothing_waits_it_is_0():
    page = page_of({})
    assert page.value(NAME + "waiting_partitions") == page.value("sparklog_retention_refusals") == 0
