import pytest

from sparklog.client.config import ClientConfig, parse_bootstrap
from sparklog.errors import ConfigError
from sparklog.record.compression import CompressionType
from sparklog.structs import Endpoint, IsolationLevel


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("a:1", [("a", 1)]),
        (" a:1 , b:65535,", [("a", 1), ("b", 65535)]),
        ("a:1,a:1", [("a", 1)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://a.example:9092", [("a.example", 9092)]),
    ],
)
def test_bootstrap_list(text, endpoints):
    assert parse_bootstrap(text) == tuple(Endpoint(*each) for each in endpoints)


@pytest.mark.parametrize("text", ["", " , ", "a", "a:", "a:0", "a:65536", "a:-1", ":1", "a b:1", "a:1;b:2", "::1:9092"])
def test_malformed_bootstrap_list_is_refused(text):
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_bootstrap(text)


def test_settings_by_kafkas_names():
    config = ClientConfig.from_properties(
        {
            "bootstrap.servers": "a:1",
            "client.id": "me",
            "request.timeout.ms": "1234",
            "isolation.level": "read_committed",
            "acks": "1",
            "compression.type": "zstd",
            "batch.size": "100",
            "max.partition.fetch.bytes": "200",
        }
    )
    assert (config.client_id, config.request_timeout_ms) == ("me", 1234)
    assert config.isolation_level is IsolationLevel.READ_COMMITTED
    assert config.required_acks == 1
    assert config.compression_type is CompressionType.ZSTD
    assert (config.batch_size, config.max_partition_fetch_bytes) == (100, 200)


@pytest.mark.parametrize(("acks", "wire"), [("all", -1), ("-1", -1), ("0", 0), ("1", 1)])
def test_acks(acks, wire):
    assert ClientConfig.from_properties({"bootstrap.servers": "a:1", "acks": acks}).required_acks == wire


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "2"),
        ("isolation.level", "serializable"),
        ("compression.type", "rar"),
        ("request.timeout.ms", "soon"),
        ("request.timeout.ms", "0"),
        ("retry.backoff.ms", "-1"),
        ("batch.size", "0"),
        ("security.protocol", "SASL_SSL"),
    ],
)
def test_impossible_values_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=name):
        ClientConfig.from_properties({"bootstrap.servers": "a:1", name: value})


def test_unknown_settings_are_ignored_with_one_warning(caplog):
    properties = {"bootstrap.servers": "a:1", "receive.buffer.bytes": "1", "some.java.class": "x"}
    for _ in range(3):
        ClientConfig.from_properties(properties)
    (warning,) = caplog.messages
    assert "receive.buffer.bytes, some.java.class" in warning
