"""What the producer keeps in order when a signal handler raises in it; no broker is asked."""

from client.interrupts import interruptions

from sparklog.client import AsyncProducer


class _Sender:
    """Counts how often it was called."""

    def __init__(self):
        self.calls = 0

    def call(self):
        self.calls += 1


def test_the_sender_hears_of_what_another_thread_did_though_the_call_was_interrupted(monkeypatch):
    def begun():
        producer = AsyncProducer(bootstrap_servers="127.0.0.1:1")
        monkeypatch.setattr(producer, "_sender", _Sender(), raising=False)
        producer._accumulator.has_news = True
        return producer, producer.wake_if_news

    for producer in interruptions(begun):
        assert producer._sender.calls or producer._accumulator.has_news
