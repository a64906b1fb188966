"""What went in and out, as it is told."""

from metrics.pages import collected

from sparklog.metrics.collectors.traffic import TrafficCollector
from sparklog.replica.traffic import Traffic


def test_topics_and_the_sum_of_all():
    traffic = Traffic()
    traffic.enter("t").records_in = 3
    traffic.enter("u").records_in = 4
    page = collected(TrafficCollector(traffic))
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert page.value(name, topic="t") == 3
    assert page.value(name, topic="u") == 4
    assert page.value(name) == 7


def test_a_topic_of_which_nothing_failed_has_no_series_of_failures():
    traffic = Traffic()
    topic = traffic.enter("t")
    name = "kafka_server_brokertopicmetrics_failedfetchrequests_total"
    assert collected(TrafficCollector(traffic)).of(name) == {frozenset(): 0}
    topic.failed_fetches = 2
    assert collected(TrafficCollector(traffic)).value(name, topic="t") == 2


def test_many_topics_are_told_in_steps():
    traffic = Traffic()
    for number in range(500):
        traffic.enter(f"t{number}")
    from sparklog.metrics.exposition import Exposition

    assert len(list(TrafficCollector(traffic).collect(Exposition()))) == 10
