"""``python -m benchmarks.traced_broker broker ...``: ``sparklog broker`` that also logs what its controller does.

A line ``TRACE {...}`` each, with the time of day in seconds (``at``), which all brokers of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from kazoo.client import TransactionRequest

from sparklog.cli.main import main
from sparklog.controller.channel import BrokerChannel
from sparklog.protocol.api_key import ApiKey
from sparklog.structs import TopicPartition
from sparklog.zk.partition_states import PartitionStates
from sparklog.zk.znodes import PartitionState

_LINE = re.compile(r"^TRACE (.*)$", re.MULTILINE)
_IS_GONE = re.compile(r"is gone: its address")


class Event(NamedTuple):
    """Something that a controller did: ``what``, since ``began`` until ``at``, for so many partitions."""

    what: str
    began: float
    at: float
    partitions: int
    broker: int = -1
    """The one that was asked."""
    transactions: int = 0


def events(log: str) -> Iterator[Event]:
    """Those that stand in the log of a broker, in the order in which they ended."""
    for line in _LINE.findall(log):
        yield Event(*json.loads(line))


def _say(event: Event) -> None:
    sys.stderr.write(f"TRACE {json.dumps(event)}\n")


class _Detections(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if _IS_GONE.search(record.getMessage()):
            _say(Event("detected", record.created, record.created, 0))


def _trace_writes() -> None:
    write, commit, committed = PartitionStates.write, TransactionRequest.commit_async, [0]

    def counted(self: Any) -> Any:
        committed[0] += 1
        return commit(self)

    def written(self: PartitionStates, states: dict[TopicPartition, PartitionState], version: int) -> Any:
        began, before = time.time(), committed[0]
        try:
            return write(self, states, version)
        finally:
            _say(Event("written", began, time.time(), len(states), transactions=committed[0] - before))

    TransactionRequest.commit_async = counted
    PartitionStates.write = written  # type: ignore[method-assign, assignment]


def _trace_requests() -> None:
    send = BrokerChannel.send

    def traced(self: BrokerChannel, api: ApiKey, message: Any) -> asyncio.Future[Any]:
        began, named = time.time(), sum(len(each.partition_states) for each in message.topic_states)
        answer = send(self, api, message)
        answer.add_done_callback(lambda _: _say(Event(api.name, began, time.time(), named, self.broker.id)))
        return answer

    BrokerChannel.send = traced  # type: ignore[method-assign]


def run() -> None:
    """Trace, and be a broker."""
    _trace_writes()
    _trace_requests()
    logging.getLogger("sparklog.controller").addHandler(_Detections())
    main()


if __name__ == "__main__":
    run()
