import pytest

from sparklog.client.admin.admin import Admin
from sparklog.client.cluster import config as client_config
from sparklog.client.cluster.config import ClientConfig, as_properties, parse_bootstrap
from sparklog.client.cluster.kafka_settings import is_kafkas
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.producer import Producer
from sparklog.config.definition import definitions
from sparklog.errors import ConfigError
from sparklog.record.compression import CompressionType
from sparklog.security.sasl.jaas import options_of
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
        ("security.protocol", "TLS"),
    ],
)
def test_impossible_values_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=name):
        ClientConfig.from_properties({"bootstrap.servers": "a:1", name: value})


def test_unknown_settings_are_ignored_with_one_warning(caplog):
    properties = {"bootstrap.servers": "a:1", "receive.buffer.bytes": "1", "metrics.context.x": "1", "xyzzy": "x"}
    for _ in range(3):
        ClientConfig.from_properties(properties)
    assert caplog.messages == [
        "ignored Kafka settings that mean nothing to sparklog: metrics.context.x, receive.buffer.bytes",
        "ignored settings that neither sparklog nor Kafka knows: xyzzy",
    ]


@pytest.fixture
def anew(monkeypatch):
    """As in a process that has warned of nothing yet."""
    monkeypatch.setattr(client_config, "_warned", set())


@pytest.mark.parametrize(
    ("config", "given", "meant"),
    [
        (ProducerConfig, "lingr_ms", "linger.ms"),
        (ConsumerConfig, "groupid", "group.id"),
        (ConsumerConfig, "max_poll_record", "max.poll.records"),
        (ConsumerConfig, "clientId", "client.id"),
        (ConsumerConfig, "offset_reset", "auto.offset.reset"),
        (ProducerConfig, "compression", "compression.type"),
        (ProducerConfig, "linger", "linger.ms"),
        (ProducerConfig, "max_request_bytes", "max.request.size"),
        (ClientConfig, "request_timeout", "request.timeout.ms"),
    ],
)
def test_a_misspelt_setting_is_told_what_it_may_mean(config, given, meant, anew, caplog):
    config.from_properties(as_properties({"bootstrap.servers": "a:1"}, {given: "1"}))
    assert f"{given.replace('_', '.')} (did you mean {meant}?)" in caplog.text


@pytest.mark.parametrize("given", ["group_id", "fetch_min_bytes", "session_timeout_ms", "enable_auto_commit"])
def test_a_setting_of_another_client_is_not_taken_for_a_misspelt_one(given, anew, caplog):
    ProducerConfig.of({"bootstrap.servers": "a:1"}, **{given: "7"})
    assert given.replace("_", ".") in caplog.text
    assert "did you mean" not in caplog.text


@pytest.mark.parametrize("given", ["bootstrap_server", "bootstrapservers", "boostrap_servers"])
def test_misspelt_bootstrap_servers_are_named(given):
    with pytest.raises(ConfigError, match=r"did you mean bootstrap\.servers"):
        ConsumerConfig.of(**{given: "a:1"})


def test_this_client_speaks_the_classic_group_protocol():
    assert ConsumerConfig.of(bootstrap_servers="a:1", group_protocol="CLASSIC").group_protocol == "CLASSIC"
    with pytest.raises(ConfigError, match=r"group\.protocol='consumer': this client speaks the classic protocol only"):
        ConsumerConfig.of(bootstrap_servers="a:1", group_protocol="consumer")


@pytest.mark.parametrize(
    ("told", "used"),
    [("SCRAM-SHA-256", "SCRAM-SHA-256"), ("SCRAM-SHA-512", "SCRAM-SHA-512"), ("PLAIN", "SCRAM-SHA-512")],
)
def test_a_token_takes_the_place_of_all_credentials(told, used):
    config = ClientConfig.from_properties(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "ssl.endpoint.identification.algorithm": "https",
            "sasl.mechanism": told,
            "sasl.username": "alice",
            "sasl.password": "s3cret",
        }
    )
    assert config.has_sasl
    bare, by_token = config.without_credentials(), config.by_token("id", "hm/ac=")
    assert bare.security == {"ssl.endpoint.identification.algorithm": "https"}
    assert by_token.security["ssl.endpoint.identification.algorithm"] == "https"
    assert by_token.security["sasl.mechanism"] == used
    login = {"username": "id", "password": "hm/ac=", "tokenauth": "true"}
    assert options_of(by_token.security["sasl.jaas.config"], used) == login
    assert (by_token.token_id, config.token_id, bare.token_id) == ("id", None, None)
    assert "s3cret" not in str(vars(by_token)) + str(vars(bare))


def test_without_sasl_there_is_none():
    assert not ClientConfig.from_properties({"bootstrap.servers": "a:1"}).has_sasl


def test_every_setting_of_ours_is_one_of_kafkas():
    for config in (ClientConfig, ConsumerConfig, ProducerConfig):
        assert [name for name in definitions(config) if not is_kafkas(name)] == []


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"security_protocol": "TLS"}, "security.protocol='TLS'"),
        ({"security_protocol": "SASL_SSL"}, "SASL needs sasl.mechanism"),
        ({"ssl_truststore_location": "/x", "security_protocol": "SSL"}, "ssl.truststore.location"),
        ({"ssl_truststore_location": "/x"}, "ssl.truststore.location: security.protocol is not set"),
        ({"sasl_jaas_config": "x", "sasl_mechanism": "PLAIN"}, "sasl.jaas.config: security.protocol is not set"),
        ({"security_providers": "x"}, "security.providers: security.protocol is not set"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}, "sasl.jaas.config must be given"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}, "sasl.jaas.config must be given"),
    ],
    ids=str,
)
def test_security_that_cannot_be_is_refused_at_once(client, given, named):
    with pytest.raises(ConfigError, match=f"^{named}"):
        client(bootstrap_servers="127.0.0.1:1", **given)


def test_a_password_is_shown_nowhere(anew, caplog):
    given = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": 'a"b',
        "sasl_password": 'se\\cret"\n',
    }
    config = ProducerConfig.of(bootstrap_servers="a:1", **given)
    assert options_of(config.security["sasl.jaas.config"], "SCRAM-SHA-256") == {
        "username": 'a"b',
        "password": 'se\\cret"\n',
    }
    assert "cret" not in repr(config) + caplog.text
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.of(bootstrap_servers="a:1", **given | {"sasl_mechanism": "OAUTHBEARER"})
    assert "cret" not in str(caught.value)


def test_who_says_that_security_is_not_meant_is_believed(anew, caplog):
    given = {"security_protocol": "PLAINTEXT", "ssl_truststore_location": "/x"}
    assert ProducerConfig.of(bootstrap_servers="a:1", **given).security_protocol == "PLAINTEXT"
    assert "mean nothing to sparklog: ssl.truststore.location" in caplog.text


def test_settings_beside_a_whole_config_are_refused():
    with pytest.raises(ConfigError, match="give client_id in it"):
        Admin(ClientConfig(bootstrap_servers="127.0.0.1:1"), client_id="x")
