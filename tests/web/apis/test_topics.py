"""Topics, their partitions and settings, as a real broker tells."""

from urllib.parse import quote

import pytest

from sparklog.client import Producer

pytestmark = pytest.mark.integration


def test_topics_are_found_by_a_part_of_their_name(browser, make, topic):
    names = [make(number, f"-{number}") for number in (1, 3, 2)]
    told = browser.rows(f"/api/topics?search={topic.upper()}")
    assert [each["name"] for each in told["rows"]] == sorted(names)
    assert told["total"] == 3
    told = browser.rows(f"/api/topics?search={topic}&sort=partitions&descending=true&limit=2")
    assert [each["partitions"] for each in told["rows"]] == [3, 2]
    told = browser.rows(f"/api/topics?search={topic}&sort=partitions&offset=2&limit=2")
    assert [each["partitions"] for each in told["rows"]] == [3]


def test_a_page_may_be_asked_for_in_no_other_order_and_no_larger(browser):
    assert "name, partitions" in browser.get("/api/topics?sort=x").json["error"]["message"]
    assert "from 1 to 500" in browser.get("/api/topics?limit=501").json["error"]["message"]


def test_partitions_have_leaders_and_extents(browser, bootstrap, make):
    name = make(2)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(5):
            producer.send(name, str(number), partition=1)
    told = browser.rows(f"/api/topic/partitions?name={name}")
    assert [(each["first"], each["end"]) for each in told["rows"]] == [(0, 0), (0, 5)]
    assert all(each["isr"] == each["replicas"] == [each["leader"]] for each in told["rows"])
    assert browser.rows(f"/api/topic/partitions?name={name}&problems=true")["total"] == 0
    assert browser.rows(f"/api/topic?name={name}")["partitions"] == 2


def test_settings_that_were_made_say_so(browser, make):
    name = make(1, cleanup_policy="compact")
    told = {each["name"]: each for each in browser.rows(f"/api/topic/settings?name={name}")}
    assert (told["cleanup.policy"]["value"], told["cleanup.policy"]["source"]) == ("compact", "this topic")
    assert told["segment.bytes"]["is_default"]


@pytest.mark.parametrize("name", ["no-such-topic", "<b>no</b>"])
def test_a_topic_that_is_not_there(browser, name):
    answer = browser.get(f"/api/topic?name={quote(name)}")
    assert answer.status in (400, 404)
    assert answer.headers.get_content_type() == "application/json"
