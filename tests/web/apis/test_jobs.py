import pytest

from sparklog.client import Producer

pytestmark = pytest.mark.integration


def test_how_far_a_compacted_topic_is_cleaned(browser, admin, bootstrap, make):
    name = make(1, cleanup_policy="compact")
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(10):
            producer.send(name, "value", key="key").result(60)
    admin.compact([name])
    (told,) = browser.rows(f"/api/jobs/compaction?search={name}")["rows"]
    assert (told["topic"], told["partition"], told["error"]) == (name, 0, None)
    assert told["last"]["messages_before"] >= 10 > told["last"]["messages_after"]
    assert 0 <= told["dirty"] <= 1
    assert not told["is_under_way"]


def test_cleaners_moves_and_offloads_are_rows_or_errors(browser, admin):
    told = browser.rows("/api/jobs")
    assert [each["broker"] for each in told["cleaners"]["rows"]] == sorted(admin.describe_cluster().brokers)
    assert told["cleaners"]["rows"][0]["is_enabled"]
    assert told["moves"] == {"rows": [], "error": None}
    assert told["offloads"]["error"] is None
