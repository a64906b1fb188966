"""Browsing records of a real broker."""

import http.client
import json
from urllib.parse import urlencode

import pytest
from integration.raw_producer import RawProducer

from sparklog.client import Producer
from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
MARKUP = "<img src=x onerror=\"document.title='broken'\">"


@pytest.fixture
def written(bootstrap, make):
    """A topic of two partitions: in the first ten records, a second apart; in the other two."""
    name = make(2)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            value = json.dumps({"number": number, "name": MARKUP})
            producer.send(name, value, key=f"k{number}", partition=0, timestamp=1_700_000_000_000 + 1000 * number)
        producer.send(name, b"\xff\x00", partition=1, headers=[(MARKUP, b"\xfe"), ("empty", None)])
        producer.send(name, None, key="gone", partition=1)
    return name


def search(browser, topic, **parameters):
    return browser.rows(f"/api/records?{urlencode({'topic': topic, **parameters})}")


def search_on(browser, topic, next_, **parameters):
    """From where the search before stopped."""
    answer = browser.post(f"/api/records?{urlencode({'topic': topic, **parameters})}", {"next": next_})
    assert answer.status == 200, answer.body
    return answer.json


def numbers(told):
    return [json.loads(each["value"]["text"])["number"] for each in told["records"]]


def test_the_newest_come_from_all_partitions(browser, written):
    told = search(browser, written, limit=4)
    assert {(each["partition"], each["offset"]) for each in told["records"]} == {(0, 8), (0, 9), (1, 0), (1, 1)}
    assert (told["stopped"], told["next"]) == ("end", {})


def test_by_offset_and_on_from_there(browser, written):
    told = search(browser, written, partition=0, **{"from": "offset"}, at=3, limit=2)
    assert numbers(told) == [3, 4]
    assert (told["stopped"], told["next"]) == ("records", {"0": 5})
    assert numbers(search_on(browser, written, told["next"], partition=0, limit=100)) == [5, 6, 7, 8, 9]


def test_on_from_there_through_a_topic_of_many_partitions(browser, bootstrap, make):
    name, many = make(200), set(range(200))
    with Producer(bootstrap_servers=bootstrap) as producer:
        for partition in many:
            producer.send(name, str(partition), partition=partition)
    told = search(browser, name, limit=1, **{"from": "oldest"})
    found = told["records"]
    assert len(json.dumps(told["next"])) > 1000
    while told["next"]:
        told = search_on(browser, name, told["next"], limit=150)
        found += told["records"]
    assert sorted(int(each["value"]["text"]) for each in found) == sorted(many)


def test_on_from_there_takes_the_places_of_ten_thousand_partitions(browser, written):
    places = {str(partition): str(2**62) for partition in range(2, 10_000)} | {"0": 8, "1": "1"}
    told = search_on(browser, written, places)
    assert {(each["partition"], each["offset"]) for each in told["records"]} == {(0, 8), (0, 9), (1, 1)}


@pytest.mark.parametrize("given", [{}, {"next": []}, {"next": {"0": "x"}}, {"next": {"0": -1}}])
def test_a_place_that_no_search_gave_is_refused(browser, written, given):
    assert browser.post(f"/api/records?topic={written}", given).json["error"]["code"] == "INVALID_REQUEST"


@pytest.mark.parametrize("begin", ["newest", "oldest", "time"])
def test_what_is_committed_ends_where_a_transaction_is_open(browser, bootstrap, make, begin):
    """Behind that there is nothing to wait for, nor are the newest there."""
    name = make(1)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(name, b"committed", timestamp=1000)
    writer = RawProducer(bootstrap, name)
    assert writer.init() is ErrorCode.NONE
    for _ in range(2):
        assert writer.write(TopicPartition(name, 0), b"open") is ErrorCode.NONE
    try:
        told = search(browser, name, isolation="read_committed", limit=1, at=0, **{"from": begin})
        assert [each["value"]["text"] for each in told["records"]] == ["committed"]
        assert (told["stopped"], told["next"]) == ("end", {})
        later = search(browser, name, isolation="read_committed", at=2**40, **{"from": "time"})
        assert (later["records"], later["stopped"], later["next"]) == ([], "end", {})
        told = search(browser, name, limit=2)
        assert [each["value"]["text"] for each in told["records"]] == ["open", "open"]
    finally:
        assert writer.end(commit=True) is ErrorCode.NONE


def test_an_offset_beyond_the_end_finds_nothing(browser, written):
    told = search(browser, written, partition=0, **{"from": "offset"}, at=2**62)
    assert (told["records"], told["stopped"], told["next"]) == ([], "end", {})


def test_by_time(browser, written):
    told = search(browser, written, partition=0, **{"from": "time"}, at=1_700_000_006_500)
    assert numbers(told) == [7, 8, 9]


@pytest.mark.parametrize(
    ("where", "text", "found"),
    [("key", "k", 10), ("is-key", "k3", 1), ("is-key", "k", 0), ("value", '"number": 4', 1), ("anywhere", "gone", 1)],
)
def test_by_text(browser, written, where, text, found):
    told = search(browser, written, **{"from": "oldest"}, where=where, text=text)
    assert (len(told["records"]), told["looked_at"]) == (found, 12)


def test_records_are_shown_as_they_are(browser, written):
    told = search(browser, written, partition=1, **{"from": "oldest"})
    binary, gone = told["records"]
    assert (binary["value"]["form"], binary["value"]["text"], binary["key"]) == ("hex", "ff 00", None)
    assert [(name, value and value["text"]) for name, value in binary["headers"]] == [(MARKUP, "fe"), ("empty", None)]
    assert (gone["value"], gone["key"]["text"]) == (None, "gone")


def test_a_long_value_is_cut_in_the_table_and_whole_by_itself(browser, bootstrap, make):
    name, value = make(1), json.dumps({"text": "x" * 5000, "big": 2**70})
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(name, value)
    (told,) = search(browser, name)["records"]
    assert (len(told["value"]["text"]), told["value"]["size"], told["value"]["is_cut"]) == (2000, len(value), True)
    told = browser.rows(f"/api/record?topic={name}&partition=0&offset=0")
    assert json.loads(told["value"]["text"]) == json.loads(value)
    assert not told["value"]["is_cut"]
    assert browser.get(f"/api/record?topic={name}&partition=0&offset=7").json["error"]["code"] == "OFFSET_OUT_OF_RANGE"


def test_reading_makes_no_topic_and_no_group(browser, admin, written):
    search(browser, written)
    assert browser.get("/api/records?topic=not-there").status == 404
    assert "not-there" not in {each.name for each in admin.list_topics()}
    assert written not in str(admin.list_groups())


@pytest.mark.parametrize(
    "wrong",
    ["partition=9", "partition=x", "limit=501", "from=middle", "where=x&text=y", "form=avro", "isolation=none",
     "from=offset&at=-1"],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(browser, written, wrong):
    answer = browser.get(f"/api/records?topic={written}&{wrong}")
    assert answer.status in (400, 404)
    assert answer.json["error"]["message"]


def test_what_comes_in_now_is_sent_as_it_comes(served, bootstrap, make):
    name = make(1)
    connection = http.client.HTTPConnection(served.host, timeout=60)
    connection.request("GET", f"/api/tail?topic={name}")
    answer = connection.getresponse()
    assert answer.headers.get_content_type() == "text/event-stream"
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert [answer.readline() for _ in range(3)] == [b"event: begun\n", b"data: 1\n", b"\n"]
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(name, MARKUP)
    assert answer.readline() == b"event: records\n"
    (told,) = json.loads(answer.readline().removeprefix(b"data: "))
    assert told["value"]["text"] == MARKUP
    answer.close()
    connection.close()


def test_so_many_tails_and_no_more_and_those_that_are_left_end(served, browser, make):
    name = make(1)
    open_ones = []
    for _ in range(4):
        connection = http.client.HTTPConnection(served.host, timeout=60)
        connection.request("GET", f"/api/tail?topic={name}")
        answer = connection.getresponse()
        assert answer.readline() == b"event: begun\n"
        open_ones.append((connection, answer))
    assert browser.get(f"/api/records?topic={name}").status == 429
    for connection, answer in open_ones:
        answer.close()
        connection.close()
    assert eventually(lambda: browser.get(f"/api/records?topic={name}").status == 200)


def test_so_many_headers_are_told_and_how_many_there_are(browser, bootstrap, make):
    name = make(1)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(name, b"x", headers=[("h", b"")] * 101)
    (found,) = search(browser, name)["records"]
    assert (len(found["headers"]), found["header_count"]) == (100, 101)
