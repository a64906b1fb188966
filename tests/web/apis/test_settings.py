from sparklog.client.admin.configs import ConfigEntry
from sparklog.web.apis.settings import entries


def test_what_a_broker_calls_sensitive_has_no_value_even_if_it_sends_one():
    (told,) = entries([ConfigEntry("ssl.key.password", "hunter2", 4, False, True)])
    assert told["value"] is None
    assert told["sensitive"]


def test_a_source_of_a_newer_broker_is_unknown():
    (told,) = entries([ConfigEntry("a", "1", 99, False, False)])
    assert told["source"] == "unknown"
