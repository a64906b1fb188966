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
    Synonym,
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
        ("delete,compact,delete", SUBTRACT, "delete", "compact,delete"),
        ("compact, delete", SUBTRACT, "delete", "compact, delete"),
        ("compact, delete", SUBTRACT, " delete", "compact"),
        ("compact, delete", APPEND, "delete", "compact, delete,delete"),
    ],
)
def test_lists_grow_and_shrink(stored, operation, value, expected):
    before = {} if stored is None else {"cleanup.policy": stored}
    assert after(before, ("cleanup.policy", operation, value)) == {"cleanup.policy": expected}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("retention.ms", SET, "soon"), "is not a whole number of 64 bits"),
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
    with pytest.raises(ConfigError, match=r"'offsets\.load\.buffer\.size' is read when a broker starts"):
        check_dynamic(["offsets.load.buffer.size"])


def test_what_means_nothing_here_and_kafka_changes_is_kept_and_told_of(caplog):
    name = "num.io.threads"
    check_dynamic([name])
    assert after({}, (name, SET, "16"), table=DYNAMIC_DEFINITIONS) == {name: "16"}
    with pytest.raises(ConfigError, match=r"num\.io\.threads='many' is not a whole number"):
        after({}, (name, SET, "many"), table=DYNAMIC_DEFINITIONS)
    layers = Layers(parse_broker_config({}), broker={name: "16"}, cluster={name: "4"})
    assert layers.of_broker(name) == [Synonym(name, "16", Source.BROKER), Synonym(name, "4", Source.CLUSTER)]
    assert Layers(layers.static).of_broker(name) == []
    assert (layers.topic_defaults, layers.in_force) == (layers.static.topic_defaults, layers.static)
    assert not caplog.records


LAYERS = Layers(
    parse_broker_config({"log.retention.ms": "4", "log.segment.bytes": "400"}),
    broker={"log.retention.ms": "2", "log.segment.bytes": "none"},
    cluster={"log.retention.ms": "3", "log.segment.bytes": "300", "log.flush.interval.ms": "3", "foreign": "x"},
)


def test_the_nearest_value_counts_and_one_that_does_not_fit_is_passed_over():
    defaults = LAYERS.topic_defaults
    assert (defaults.retention_ms, defaults.segment_bytes, defaults.flush_ms) == (2, 300, 3)
    assert LAYERS.topic_defaults is defaults


def test_what_kafka_keeps_there_is_named_in_the_log_and_not_shown(caplog):
    name = "listener.name.internal.ssl.keystore.password"
    layers = Layers(LAYERS.static, broker={name: "keyLength:128,encryptedPassword:c2VjcmV0"})
    assert layers.topic_defaults == LAYERS.static.topic_defaults
    assert name in caplog.text
    assert "c2VjcmV0" not in caplog.text


def test_a_brokers_own_setting_changes_too_and_is_no_topics(caplog):
    name = "producer.id.expiration.ms"
    check_dynamic([name])
    layers = Layers(parse_broker_config({name: "4"}), broker={name: "2"}, cluster={name: "3"})
    assert [each.text for each in layers.of_broker(name)] == ["2", "3", "4", "86400000"]
    assert layers.in_force.producer_id_expiration_ms == 2
    assert Layers(layers.static, broker={name: "soon"}).in_force.producer_id_expiration_ms == 4
    assert layers.topic_defaults == layers.static.topic_defaults
    assert "soon" in caplog.text


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


def test_limits_on_connections_change_and_stay_out_of_the_topics_defaults(caplog):
    static = parse_broker_config({"max.connections": "7", "max.connections.per.ip": "5"})
    layers = Layers(
        static,
        broker={"max.connections.per.ip": "3", "max.connections.per.ip.overrides": "10.0.0.1:9", "port": "1"},
        cluster={"max.connections": "many", "max.connections.per.ip": "4", "max.connection.creation.rate": "2"},
    )
    in_force = layers.in_force
    assert (in_force.max_connections, in_force.max_connections_per_ip) == (7, 3)
    assert (in_force.max_connection_creation_rate, in_force.port) == (2, static.port)
    assert "max.connections='many' is not a whole number of 32 bits" in caplog.text
    caplog.clear()
    assert layers.topic_defaults == static.topic_defaults
    assert "max.connections" not in caplog.text
    assert [(each.text, each.source) for each in layers.of_broker("max.connections.per.ip")] == [
        ("3", Source.BROKER), ("4", Source.CLUSTER), ("5", Source.STATIC), ("2147483647", Source.DEFAULT),
    ]  # fmt: skip


def test_a_limit_that_makes_no_sense_is_refused():
    check_dynamic(["max.connections"])
    for name, value, complaint in (
        ("max.connections.per.ip.overrides", "nobody", "is not HOST:NUMBER"),
        ("max.connections", "-1", "at least 0"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            after({}, (name, SET, value), table=DYNAMIC_DEFINITIONS)
    with pytest.raises(ConfigError, match="is read when a broker starts"):
        check_dynamic(["connections.max.idle.ms"])
