"""Every failure has its code, the address or place that it is about, and where one can do something, what."""

import re
import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import sparklog.errors
import sparklog.spark
from sparklog.client import Producer
from sparklog.errors import ApiError, DataSourceError, ErrorCode, LocalProtocolError
from sparklog.local.ports import free_port
from sparklog.spark.failures import refusal_of_disk, translated, words_of
from sparklog.spark.read.batch_reader import SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema

_CODE = re.compile(r"\bSPARKLOG_(?!LOG)[A-Z_]+\b")
"""Not the environment's SPARKLOG_LOGGING and SPARKLOG_LOG_FORMAT, which jobs read."""
_PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
_PATIENCES_MS = (100, 1000, 10_000, 100_000)
"""Of a caller that asks until they are over. The next is for a machine too slow to come to a word within the last."""


@pytest.fixture
def listener():
    """``listener(answer)``: the address of one who gives callers that and hangs up; None: who says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def start(answer):
            threading.Thread(target=serve, args=(answer,), daemon=True).start()
            return f"127.0.0.1:{server.getsockname()[1]}"

        def serve(answer):
            kept = []
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    break
                if answer is None:
                    kept.append(caller)
                    continue
                with caller, suppress(OSError):  # a caller may be gone already
                    caller.recv(1 << 16)
                    caller.sendall(answer)
                    caller.shutdown(socket.SHUT_WR)
                    while caller.recv(1 << 16):  # to close with something unread would reset the connection
                        pass
            for caller in kept:
                caller.close()

        yield start
        server.shutdown(socket.SHUT_RDWR)


def _refused(address, word):
    """What a reader of this address is refused with, as soon as it had the time to come to ``word``."""
    for patience in _PATIENCES_MS:
        options = {"kafka.bootstrap.servers": address, "kafka.default.api.timeout.ms": str(patience), "subscribe": "t"}
        with pytest.raises(DataSourceError) as caught:
            SparklogReader(ReadOptions.for_batch(options), source_schema(False)).partitions()
        assert address in str(caught.value)
        if word in str(caught.value):
            break
    return caught.value


def test_nobody_listens():
    error = _refused(f"127.0.0.1:{free_port()}", "refused")
    assert error.error_code == "SPARKLOG_BROKER_UNREACHABLE"
    assert "refused" in str(error)
    assert "kafka.bootstrap.servers" in str(error)


def test_somebody_listens_and_says_nothing(listener):
    error = _refused(listener(None), "answers nothing")
    assert error.error_code == "SPARKLOG_BROKER_UNREACHABLE"
    assert "accepts connections, and answers nothing" in str(error)


def test_a_host_that_there_is_not():
    error = _refused("no-such-host.invalid:9092", "no-such-host")
    assert error.error_code == "SPARKLOG_BROKER_UNREACHABLE"


def test_a_listener_of_tls_hangs_up(listener):
    alert = b"\x15\x03\x03\x00\x02\x02\x50"
    error = _refused(listener(alert), "TLS")
    assert error.error_code == "SPARKLOG_NOT_A_BROKER"
    assert "TLS" in str(error), str(error)
    assert "security.protocol" in str(error), str(error)


def test_a_web_server_is_no_broker(listener):
    error = _refused(listener(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "Kafka listener")
    assert error.error_code == "SPARKLOG_NOT_A_BROKER"


@pytest.mark.parametrize("setting", ["security.protocol", "security.PROTOCOL"])
def test_a_protocol_that_there_is_not_is_refused_before_anything_is_asked(setting):
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", f"kafka.{setting}": "TLS"}
    with pytest.raises(DataSourceError, match=r"SPARKLOG_INVALID_OPTION.*kafka\.security\.protocol.*PLAINTEXT"):
        ReadOptions.for_batch(options)


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "x"), "SPARKLOG_INVALID_TOPIC"),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "x"), "SPARKLOG_NOT_AUTHORIZED"),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "x"), "SPARKLOG_BROKER_ERROR"),
        (LocalProtocolError("x"), "SPARKLOG_CLIENT_ERROR"),
        (DataSourceError("SPARKLOG_DATA_LOSS", "x"), "SPARKLOG_DATA_LOSS"),
    ],
)
def test_what_the_client_raises_gets_a_code(raised, code):
    with pytest.raises(DataSourceError) as caught, translated():
        raise raised
    assert caught.value.error_code == code


@pytest.mark.integration
def test_a_batch_that_the_disk_has_changed(cluster, bootstrap, topic):
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(topic, bytes(1000), partition=0)
        producer.flush()
    (segment,) = (cluster.directory.broker(0) / f"{topic}-0").glob("*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:500] + b"!" + whole[501:])
    reader = SparklogReader(
        ReadOptions.for_batch({"kafka.bootstrap.servers": bootstrap, "subscribe": topic}), source_schema(False)
    )
    (task,) = reader.partitions()
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_CORRUPT_RECORD.*{topic}-0 at offset 0"):
        list(reader.read(task))
    segment.write_bytes(whole)  # others share the broker


def test_the_page_lists_the_codes_that_there_are():
    sources = [*Path(sparklog.spark.__file__).parent.rglob("*.py"), Path(sparklog.errors.__file__)]
    raised = {code for source in sources for code in _CODE.findall(source.read_text())}
    assert set(_CODE.findall(_PAGE.read_text())) == raised


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n  plain words\nat Stack.scala:7", "plain words"),
        ("[PATH_NOT_FOUND] Path does not exist: /a. SQLSTATE: 42K03", None),
        (
            "Job aborted\norg.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Error in /a. SQLSTATE: KD001\n"
            "\tat A.b(A.scala:7)\nCaused by: E: [MIDDLE] no\n"
            "Caused by: E: [MALFORMED_RECORD] Malformed. SQLSTATE: 22023",
            "[FAILED_READ_FILE.NO_HINT] Error in /a. SQLSTATE: KD001; [MALFORMED_RECORD] Malformed. SQLSTATE: 22023",
        ),
        ("", "ValueError"),
    ],
)
def test_the_words_of_an_error_of_spark(text, said):
    assert words_of(ValueError(text)) == (said or text)


def test_the_words_of_an_error_in_the_jvm():
    class OfJava(Exception):
        java_exception = type("Thrown", (), {"toString": lambda _: "java.io.IOException: Mkdirs failed"})()

    assert words_of(OfJava("An error occurred while calling o410.execute.")) == "java.io.IOException: Mkdirs failed"


@pytest.mark.parametrize(
    ("java", "said"),
    [
        ("org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device", "No space left on device"),
        ("java.io.FileNotFoundException: /t/1.json (Permission denied)", "/t/1.json (Permission denied)"),
        ("org.apache.hadoop.security.AccessControlException: Permission denied: user=a", "Permission denied: user=a"),
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", None),
        ("org.apache.spark.SparkException: Job aborted: java.io.IOException: so", None),
    ],
)
def test_what_a_disk_refuses_the_jvm(java, said):
    class OfJava(ValueError):
        java_exception = SimpleNamespace(toString=lambda: java)

    assert refusal_of_disk(OfJava("An error occurred while calling o410.commit.")) == said


def test_an_error_without_a_jvm_is_none_of_its_disk():
    assert refusal_of_disk(ValueError("no such thing")) is None
