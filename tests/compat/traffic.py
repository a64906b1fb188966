"""Clients that work all the while: a transactional producer and a consumer group, and what they must have seen."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from sparklog.testing.eventually import eventually

_TXN_TIMEOUT_S = 60.0
_PAUSE_S = 0.1
_ABORTED_ONE_IN = 5
_QUIET = {"log_level": 0, "retry.backoff.max.ms": 200, "topic.metadata.refresh.fast.interval.ms": 100}


class Traffic:
    """Transactions into every partition of ``topic``, each value once a partition, and a group that reads them."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, transactional_id: str = "writer") -> None:
        self._bootstrap, self.topic, self._partitions = bootstrap, topic, partitions
        self._transactional_id = transactional_id
        self._stop, self._written_all = threading.Event(), threading.Event()
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unclear: list[int] = []
        """Of these the producer was not told."""
        self.failures: list[BaseException] = []
        self.read = Counter[tuple[int, int]]()
        """How often the group read (partition, value)."""
        self._threads = [threading.Thread(target=self._guarded, args=(each,)) for each in (self._write, self._read)]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()

    def _guarded(self, work) -> None:
        try:
            work()
        except BaseException as error:
            self.failures.append(error)

    def moves_on(self, transactions: int = 3) -> None:
        """Return when so many more transactions are committed."""
        wanted = len(self.committed) + transactions
        eventually(lambda: len(self.committed) >= wanted or self.failures, 90, "transactions to be committed")
        assert not self.failures, self.failures

    def _producer(self) -> Producer:
        settings = {"transactional.id": self._transactional_id, "transaction.timeout.ms": 60_000, "linger.ms": 0}
        producer = Producer({"bootstrap.servers": self._bootstrap, **settings, **_QUIET})
        _again(lambda: producer.init_transactions(_TXN_TIMEOUT_S))
        return producer

    def _write(self) -> None:
        producer, number = self._producer(), 0
        while not self._stop.wait(_PAUSE_S):
            try:
                self._transaction(producer, number)
            except KafkaException as error:
                told: KafkaError = error.args[0]
                self.unclear.append(number)
                if told.txn_requires_abort():
                    _again(lambda held=producer: held.abort_transaction(_TXN_TIMEOUT_S))
                else:
                    producer = self._producer()
            number += 1
        self._written_all.set()

    def _transaction(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        for partition in range(self._partitions):
            producer.produce(self.topic, str(number).encode(), partition=partition)
        if number % _ABORTED_ONE_IN == 0:
            producer.flush(_TXN_TIMEOUT_S)
            _again(lambda: producer.abort_transaction(_TXN_TIMEOUT_S))
            self.aborted.append(number)
        else:
            _again(lambda: producer.commit_transaction(_TXN_TIMEOUT_S))
            self.committed.append(number)

    def _consumer(self, group: str) -> Consumer:
        settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "isolation.level": "read_committed"}
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "session.timeout.ms": 10_000,
                **settings,
                **_QUIET,
            }
        )

    def _read(self) -> None:
        consumer = self._consumer("readers")
        consumer.subscribe([self.topic])
        quiet = 0
        while not self._written_all.is_set() or quiet < 20:
            messages = consumer.consume(100, 0.2)
            quiet = 0 if messages else quiet + 1
            for each in messages:
                if each.error() is None:
                    self.read[each.partition(), int(each.value())] += 1
            if messages:
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException:
                    continue  # it is read again, or committed with the next
        consumer.close()

    def found(self) -> list[list[int]]:
        """By partition, what there is for a reader of committed records, from the start to the end."""
        consumer, found = self._consumer("judge"), []
        try:
            for partition in range(self._partitions):
                at = TopicPartition(self.topic, partition, 0)
                _, end = consumer.get_watermark_offsets(at, timeout=30)
                consumer.assign([at])
                values: list[int] = []
                while consumer.position([at])[0].offset < end:
                    values += [int(each.value()) for each in consumer.consume(500, 1.0) if each.error() is None]
                found.append(values)
        finally:
            consumer.close()
        return found

    def check(self) -> None:
        """Each transaction stands in all partitions or in none, once, in order, as the producer was told."""
        assert not self.failures, self.failures
        found = self.found()
        for values in found:
            assert values == sorted(set(values))
            assert set(values) - set(self.unclear) == set(self.committed)
            assert values == found[0]
        unread = {(number, value) for number, values in enumerate(found) for value in values} - set(self.read)
        assert not unread, f"the group never saw {sorted(unread)[:10]}"


def _again(ask) -> None:
    """Ask until the answer is not that it may be asked again."""
    while True:
        try:
            ask()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
