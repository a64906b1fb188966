"""Transactions of one record each, one after another: what a commit costs."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Producer

from benchmarks.loads.clients import QUIET, TIMEOUT_S
from benchmarks.loads.figures import Figures


def commit(bootstrap: str, topic: str, transactions: int, producers: int) -> Figures:
    """``transactions`` in all, committed by ``producers`` transactional ids of one process, each in its own thread."""
    ready = [_producer(bootstrap, f"{topic}-{number}") for number in range(producers)]
    failed: list[Exception] = []
    share = transactions // producers

    def work(producer: Producer) -> None:
        try:
            for _ in range(share):
                producer.begin_transaction()
                producer.produce(topic, b"x" * 100, partition=0)
                producer.commit_transaction(TIMEOUT_S)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(producer,)) for producer in ready]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if failed:
        raise failed[0]
    return {"commits/s": share * producers / seconds}


def _producer(bootstrap: str, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    producer = Producer({**settings, **QUIET})
    producer.init_transactions(TIMEOUT_S)
    return producer
