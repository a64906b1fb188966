"""The consumer for programs that block, without any broker: who may use it, and what it refuses at once."""

import contextlib
import threading

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.errors import ClientClosed, ConfigError, LocalProtocolError, WokenUp
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

T0 = TopicPartition("t", 0)


@pytest.fixture
def reader():
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([T0])
        yield consumer


def test_close_in_another_thread_is_refused_and_closes_nothing(reader):
    ends = []

    def poll():
        with contextlib.suppress(WokenUp):
            reader.poll(60.0)
        ends.append("woken")

    thread = threading.Thread(target=poll)
    thread.start()
    eventually(lambda: reader._jobs)
    with pytest.raises(LocalProtocolError, match="another thread"):
        reader.close()
    reader.wakeup()
    thread.join()
    assert ends == ["woken"]
    assert reader.assignment == {T0}
    assert reader.poll(0) == []
    reader.close()
    with pytest.raises(ClientClosed):
        reader.poll(0)


def test_close_around_a_callback_is_refused(reader):
    told = []

    def close(_offsets, _error):
        with pytest.raises(LocalProtocolError, match="callback"):
            reader.close()
        told.append(True)

    reader.commit_async(close, {})
    eventually(lambda: reader.poll(0) == [] and told)
    assert reader.poll(0) == []


@pytest.mark.parametrize("call", ["commit", "commit_async"])
def test_a_negative_offset_is_refused_before_anybody_is_asked(reader, call):
    arguments = ({T0: -5},) if call == "commit" else (None, {T0: -5})
    with pytest.raises(LocalProtocolError, match="cannot commit the offset -5 for partition t-0"):
        getattr(reader, call)(*arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.seek(T0, 2.0),
        lambda reader: reader.seek(("t", 0), 2),
        lambda reader: reader.assign([("t", 0)]),
        lambda reader: reader.poll(None),
        lambda reader: reader.poll("1"),
        lambda reader: reader.poll_arrow(None),
        lambda reader: reader.commit({"t": 5}),
        lambda reader: reader.commit_async("not a function"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_handed_in(reader, call):
    with pytest.raises(TypeError, match=" not "):
        call(reader)
    assert reader.poll(0) == []


@pytest.mark.parametrize("given", [{"topics": [1]}, {"topics": [b"t"]}, {"topics": ["t"], "on_revoked": 3}])
def test_a_subscription_that_does_not_fit_leaves_nothing_behind(given):
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as reader:
        with pytest.raises(TypeError, match=r"str|function"):
            reader.subscribe(**given)
        reader.assign([T0])
        assert reader.subscription == set()


def test_a_consumer_that_cannot_be_made_leaves_no_thread():
    before = set(threading.enumerate())
    with pytest.raises(TypeError, match="value_deserializer is a function, not 'utf8'"):
        Consumer(bootstrap_servers="127.0.0.1:1", value_deserializer="utf8")
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConfigError, match=r"settings are a mapping, .*, not 'a:1'"):
        Consumer("a:1")
