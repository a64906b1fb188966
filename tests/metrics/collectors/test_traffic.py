"""What went in and out, as it is told."""

from metrics.pages import collected

from sparklog.metrics.collectors.traffic import TrafficCollector
from sparklog.replica.traffic import Traffic


def test_topics_and_the_sum_of_all():
    traffic = Traffic()
    traffic.enter("t").records_in = 3
    traffic.enter("u").records_in = 4
    page = collected(TrafficCollector(traffic, 1000))
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert page.value(name, topic="t") == 3
    assert page.value(name, topic="u") == 4
    assert page.value(name) == 7


def test_a_topic_of_which_nothing_failed_has_no_series_of_failures():
    traffic = Traffic()
    topic = traffic.enter("t")
    name = "kafka_server_brokertopicmetrics_failedfetchrequests_total"
    assert collected(TrafficCollector(traffic, 1000)).of(name) == {frozenset(): 0}
    topic.failed_fetches = 2
    assert collected(TrafficCollector(traffic, 1000)).value(name, topic="t") == 2


def test_many_topics_are_told_in_steps():
    traffic = Traffic()
    for number in range(500):
        traffic.enter(f"t{number}")
    from sparklog.metrics.exposition import Exposition

    assert len(list(TrafficCollector(traffic, 1000).collect(Exposition()))) == 10


def test_beyond_the_limit_topics_count_and_have_no_series():
    traffic = Traffic()
    for number in range(5):
        traffic.enter(f"t{number}").records_in = 1
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    page = collected(TrafficCollector(traffic, 2))
    assert page.of(name) == {frozenset(): 5, frozenset({("topic", "t0")}): 1, frozenset({("topic", "t1")}): 1}
