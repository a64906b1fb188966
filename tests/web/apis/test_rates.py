"""Records written over time, of a real broker."""

import pytest
from web.serving import Served

from sparklog.client import Producer
from sparklog.testing.clock import ManualClock
from sparklog.web.apis import rates

pytestmark = pytest.mark.integration


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def browser(bootstrap, clock):
    """Of a page with a clock that the test moves."""
    with Served({"bootstrap.servers": bootstrap}, clock) as served:
        yield served.browser()


def produce(bootstrap, topic, partition, count):
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=partition)


def written(browser, clock, what):
    """What a look five seconds later tells."""
    clock.advance(5)
    return [count for _, count in browser.rows(f"/api/{what}")["samples"]]


def test_a_topics_records_are_counted_from_the_first_look_on(browser, clock, bootstrap, make):
    topic = make(2)
    produce(bootstrap, topic, 0, 4)
    assert written(browser, clock, f"topic/written?name={topic}") == [0]
    produce(bootstrap, topic, 0, 2)
    produce(bootstrap, topic, 1, 3)
    assert written(browser, clock, f"topic/written?name={topic}") == [0, 5]


def test_the_clusters_are_those_of_all_topics(browser, clock, bootstrap, make):
    topic = make(2)
    assert written(browser, clock, "cluster/written") == [0]
    produce(bootstrap, topic, 0, 2)
    produce(bootstrap, topic, 1, 3)
    assert written(browser, clock, "cluster/written")[1] >= 5  # and what others write


def test_too_many_partitions_are_not_asked(browser, make, monkeypatch):
    monkeypatch.setattr(rates, "MOST", 1)
    assert browser.rows(f"/api/topic/written?name={make(2)}") == {"samples": None, "partitions": 2, "most": 1}


def test_a_topic_that_is_not_there(browser):
    answer = browser.get("/api/topic/written?name=nothing")
    assert (answer.status, answer.json["error"]["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
