"""Settings that change: what operations make of what is stored, and which of several values counts."""

import pytest

from sparklog.config.broker import parse_broker_config
from sparklog.config.dynamic import (
    DYNAMIC_DEFINITIONS,
    TOPIC_DEFINITIONS,
    Change,
    Layers,
    Operation,
    Source,
    apply_changes,
    check_dynamic,
)
from sparklog.errors import ConfigError

SET, DELETE, APPEND, SUBTRACT = Operation


def after(stored, *changes, table=TOPIC_DEFINITIONS):
    return apply_changes(stored, [Change(*each) for each in changes], table)


def test_what_is_set_and_deleted():
    stored = {"retention.ms": "5", "segment.ms": "7"}
    changes = [("retention.ms", SET, "6"), ("segment.ms", DELETE), ("flush.ms", DELETE), ("flush.messages", SET, "1")]
    assert after(stored, *changes) == {"retention.ms": "6", "flush.messages": "1"}
    assert stored == {"retention.ms": "5", "segment.ms": "7"}


@pytest.mark.parametrize(
    ("stored", "operation", "value", "expected"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact", APPEND, "compact", "compact"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
    ],
)
def test_lists_grow_and_shrink(stored, operation, value, expected):
    before = {} if stored is None else {"cleanup.policy": stored}
    assert after(before, ("cleanup.policy", operation, value)) == {"cleanup.policy": expected}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("retention.ms", SET, "soon"), "is not a long"),
        (("retention.ms", SET, "-2"), "at least -1"),
        (("retention.ms", APPEND, "1"), "is not a list"),
        (("cleanup.policy", SUBTRACT, "delete"), "must list only"),
        (("cleanup.policy", APPEND, "burn"), "must list only"),
        (("retention.mss", SET, "1"), r"did you mean retention\.ms"),
        (("log.retention.ms", SET, "1"), "unknown setting"),
    ],
)
def test_what_is_not_allowed(change, complaint):
    with pytest.raises(ConfigError, match=complaint):
        after({}, change)


def test_what_was_stored_before_is_left_alone():
    foreign = {"leader.replication.throttled.replicas": "*", "retention.ms": "never"}
    assert after(foreign, ("segment.ms", SET, "9")) == {**foreign, "segment.ms": "9"}
    assert after(foreign, ("leader.replication.throttled.replicas", DELETE)) == {"retention.ms": "never"}


def test_a_brokers_settings_go_by_its_own_names():
    assert after({}, ("log.retention.ms", SET, "1"), table=DYNAMIC_DEFINITIONS) == {"log.retention.ms": "1"}
    with pytest.raises(ConfigError, match="unknown setting"):
        after({}, ("retention.ms", SET, "1"), table=DYNAMIC_DEFINITIONS)


def test_what_is_read_at_the_start_does_not_change():
    check_dynamic(["log.retention.ms", "min.insync.replicas"])
    with pytest.raises(ConfigError, match=r"'num\.partitions' is read when a broker starts"):
        check_dynamic(["log.retention.ms", "num.partitions"])
    with pytest.raises(ConfigError, match=r"'no\.such' is not known"):
        check_dynamic(["no.such"])


LAYERS = Layers(
    parse_broker_config({"log.retention.ms": "4", "log.segment.bytes": "400"}),
    broker={"log.retention.ms": "2", "log.segment.bytes": "none"},
    cluster={"log.retention.ms": "3", "log.segment.bytes": "300", "log.flush.interval.ms": "3", "foreign": "x"},
)


def test_the_nearest_value_counts_and_one_that_does_not_fit_is_passed_over():
    defaults = LAYERS.topic_defaults
    assert (defaults.retention_ms, defaults.segment_bytes, defaults.flush_ms) == (2, 300, 3)
    assert LAYERS.topic_defaults is defaults


def test_a_brokers_own_setting_changes_too_and_is_no_topics(caplog):
    name = "producer.id.expiration.ms"
    check_dynamic([name])
    layers = Layers(parse_broker_config({name: "4"}), broker={name: "2"}, cluster={name: "3"})
    assert [each.text for each in layers.of_broker(name)] == ["2", "3", "4", "86400000"]
    assert layers.producer_expiration_ms == 2
    assert Layers(layers.static, broker={name: "soon"}).producer_expiration_ms == 4
    assert layers.topic_defaults == layers.static.topic_defaults
    assert caplog.text == ""


def test_the_synonyms_name_every_value_in_order():
    assert [(each.name, each.text, each.source) for each in LAYERS.of_topic("retention.ms", {"retention.ms": "1"})] == [
        ("retention.ms", "1", Source.TOPIC),
        ("log.retention.ms", "2", Source.BROKER),
        ("log.retention.ms", "3", Source.CLUSTER),
        ("log.retention.ms", "4", Source.STATIC),
        ("log.retention.ms", "604800000", Source.DEFAULT),
    ]
    assert [(each.text, each.source) for each in LAYERS.of_broker("log.segment.bytes")] == [
        ("300", Source.CLUSTER),
        ("400", Source.STATIC),
        ("1073741824", Source.DEFAULT),
    ]
    assert [(each.text, each.source) for each in LAYERS.of_broker("num.partitions")] == [("1", Source.DEFAULT)]
    assert LAYERS.of_topic("retention.ms", {"retention.ms": "bad"})[0].source is Source.BROKER
