import pytest
from pyspark.sql.types import StructType

from sparklog.errors import DataSourceError
from sparklog.spark.source import SparklogDataSource
from sparklog.spark.write.options import WriteOptions

_SERVERS = {"kafka.bootstrap.servers": "a:1"}


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer"])
def test_client_settings_that_are_refused_for_writing(name):
    with pytest.raises(DataSourceError, match=f"SPARKLOG_UNSUPPORTED_OPTION.*kafka.{name}"):
        WriteOptions.for_batch({**_SERVERS, f"kafka.{name}": "x"})


def test_options_of_a_write():
    assert WriteOptions.for_batch({**_SERVERS, "topic": " t "}).topic == "t"
    assert WriteOptions.for_batch(_SERVERS).topic is None
    assert WriteOptions.for_batch(_SERVERS).client.required_acks == -1


def test_a_write_is_exactly_once_unless_asked_otherwise():
    plain = WriteOptions.for_batch(_SERVERS)
    assert (plain.exactly_once, plain.txn_app_id, plain.transaction_timeout_ms) == (True, None, 900_000)
    assert not WriteOptions.for_batch({**_SERVERS, "delivery": "At-Least-Once"}).exactly_once
    named = WriteOptions.for_batch(
        {**_SERVERS, "txnappid": "a", "txnversion": "7", "kafka.transaction.timeout.ms": "5"}
    )
    assert (named.txn_app_id, named.txn_version, named.transaction_timeout_ms) == ("a", 7, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delivery": "twice"}, "SPARKLOG_INVALID_OPTION.*delivery.*exactly-once or at-least-once"),
        ({"txnAppId": "a"}, "SPARKLOG_CONFLICTING_OPTIONS.*txnVersion"),
        ({"txnVersion": "1"}, "SPARKLOG_CONFLICTING_OPTIONS.*txnAppId"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "SPARKLOG_INVALID_OPTION.*txnVersion"),
        ({"txnAppId": "a@t", "txnVersion": "1"}, "SPARKLOG_INVALID_OPTION.*'@' parts a name from its topic"),
        ({"txnAppId": 501 * "\u00e9", "txnVersion": "1"}, "SPARKLOG_INVALID_OPTION.*txnAppId.*1000 bytes"),
        ({"txnAppId": "a", "txnVersion": "1", "delivery": "at-least-once"}, "SPARKLOG_CONFLICTING_OPTIONS.*txnAppId"),
        ({"kafka.acks": "1"}, "SPARKLOG_INVALID_OPTION.*acks"),
        (
            {"kafka.enable.idempotence": "false"},
            "SPARKLOG_INVALID_OPTION.*idempotence.*remove the option, or set deliv",
        ),
        ({"kafka.enable.idempotence": "no"}, "SPARKLOG_INVALID_OPTION.*idempotence.*true or false"),
        ({"kafka.transactional.id": "x"}, "SPARKLOG_UNSUPPORTED_OPTION.*txnAppId"),
        ({"kafka.transaction.timeout.ms": "soon"}, "SPARKLOG_INVALID_OPTION.*timeout"),
        ({"kafka.transaction.timeout.ms": str(2**31)}, "SPARKLOG_INVALID_OPTION.*timeout.*at most 2147483647"),
    ],
)
def test_deliveries_that_cannot_be(options, message):
    with pytest.raises(DataSourceError, match=message):
        WriteOptions.for_batch({**_SERVERS, **options})


def test_a_name_is_of_its_topic():
    named = {**_SERVERS, "txnAppId": "a", "txnVersion": "7"}
    assert WriteOptions.for_batch(_SERVERS).name is None
    assert WriteOptions.for_batch(named).name == "a"
    assert WriteOptions.for_batch({**named, "topic": "t"}).name == "a@t"


def test_a_misspelt_option_of_a_write_is_warned_of(caplog):
    WriteOptions.for_batch({**_SERVERS, "delivary": "at-least-once"})
    assert "did you mean 'delivery'?" in caplog.text


def test_fewer_acks_without_transactions():
    assert WriteOptions.for_batch({**_SERVERS, "delivery": "at-least-once", "kafka.acks": "1"}).client.acks == "1"


@pytest.mark.parametrize(
    ("text", "asked"), [("false", False), ("true", True), (None, None)], ids=["false", "true", "not-given"]
)
def test_idempotence_without_transactions_is_as_asked(text, asked, caplog):
    given = {} if text is None else {"kafka.enable.idempotence": text}
    assert WriteOptions.for_batch({**_SERVERS, "delivery": "at-least-once", **given}).idempotence is asked
    assert not caplog.records


@pytest.mark.parametrize(("name", "value"), [("kafka.acks", "1"), ("kafka.max.in.flight.requests.per.connection", "6")])
def test_idempotence_that_was_asked_for_and_cannot_be_is_refused(name, value):
    given = {**_SERVERS, "delivery": "at-least-once", name: value}
    assert WriteOptions.for_batch(given).idempotence is None
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_INVALID_OPTION.*idempotence.*{name}.*not {value}"):
        WriteOptions.for_batch({**given, "kafka.enable.idempotence": "true"})


@pytest.mark.parametrize("name", ["txnAppId", "txnVersion"])
def test_a_streaming_write_takes_no_name_of_a_batch(name):
    source = SparklogDataSource({"kafka.bootstrap.servers": "a:1", "topic": "t", name.lower(): "1"})
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_UNSUPPORTED_OPTION.*{name}.*checkpoint"):
        source.streamWriter(StructType().add("value", "binary"), overwrite=False)
