import pytest

from sparklog.client import Producer

pytestmark = pytest.mark.integration


def test_an_open_transaction_shows_where_it_writes_and_spark_s_are_prepared_writes(browser, bootstrap, make):
    topic = make(1)
    for prefix, is_prepared in (("", False), ("sparklog-spark/", True)):
        name = prefix + topic
        with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, "x").result(60)
            (told,) = (
                each
                for each in browser.rows(f"/api/transactions?open=true&search={topic}")["rows"]
                if each["id"] == name
            )
            assert (told["state"], told["partitions"]) == ("Ongoing", f"{topic}-0")
            assert told["is_prepared_write"] is is_prepared
            assert told["open_s"] >= 0
            producer.abort_transaction()
    assert browser.rows(f"/api/transactions?open=true&search={topic}")["total"] == 0
    assert browser.rows(f"/api/transactions?search={topic}")["total"] == 2
