"""What a producer notices of a compaction in its broker, ours and Apache Kafka 3.9.1.

A topic of many partitions is filled, each with the same batches. Then its policy becomes ``compact``, and the broker's
one cleaner goes through them. Meanwhile one client sends a record every 5 ms to another topic and waits for its
acknowledgement, as it has done just as long before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.comparison import Comparison
from benchmarks.loads.keyed import keyed_batches
from benchmarks.loads.raw import IN_FLIGHT, connect
from benchmarks.peers import Peer, both_brokers
from sparklog.clock import SystemClock
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import produce as produce_wire
from sparklog.protocol.messages import decode_response
from sparklog.record.compression import CompressionType
from sparklog.structs import Chunk, TopicPartition

SECONDS = 20
PARTITIONS = 100
RECORDS, SIZE, KEYS = 400_000, 100, 300_000
"""Of each partition: 21 MB as zstd has them."""
RATE = 200
"""Records of the producer a second."""
_BEGINNING_S = 1.0
"""Until a cleaner has seen that it is to clean."""
_TOPIC, _BESIDE = "compacted", "beside"
_BROKER = {"log.cleaner.backoff.ms": 200}
_FILLED = {"segment.bytes": "4194304", "min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "delete"}
_TIMEOUT_S = 120
_CHECKPOINT = "cleaner-offset-checkpoint"


def run(directory: Path, share: float, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Percentiles of the time until a record is acknowledged, in milliseconds."""
    seconds, partitions = max(int(SECONDS * share), 3), max(int(PARTITIONS * share), 4)
    compared: dict[tuple[str, str], Comparison] = {}
    with both_brokers(directory, _BROKER) as peers:
        for peer in peers:
            say(f"compaction: a producer of {peer.name} beside it")
            side = "ours" if peer.name == "sparklog" else "theirs"
            logs = directory / "sparklog" if side == "ours" else directory / "kafka" / "logs"
            _fill(peer, partitions)
            os.sync()
            idle = _round_trips(peer, seconds)
            _have_compacted(peer)
            beside = _round_trips(peer, seconds)
            done = _cleaned(logs)
            say(f"compaction: {done} of {partitions} partitions of {peer.name} were clean at its end")
            if done == partitions:
                say("compaction: so it ended too early for its producer to have had it beside it all the time")
            for what, figures in (("no compaction", idle), ("a compaction", beside)):
                for figure, value in figures.items():
                    key = (what, figure)
                    name = f"one record, acks=1, beside {what}"
                    getattr(compared.setdefault(key, Comparison(name, figure, "Kafka")), side).append(value)
            rate = Comparison(f"partitions cleaned in {seconds} s beside it", "partitions/s", "Kafka")
            getattr(compared.setdefault(("done", ""), rate), side).append(done / seconds)
    return [each.row() for each in compared.values()]


def _fill(peer: Peer, partitions: int) -> None:
    """Requests of one batch for each partition."""
    peer.create_topic(_BESIDE)
    peer.create_topic(_TOPIC, partitions, _FILLED)
    batches = keyed_batches(SIZE, RECORDS, KEYS, CompressionType.ZSTD, SystemClock().now_ms())
    with connect(peer.bootstrap) as connection:
        version = connection.versions.best(ApiKey.PRODUCE)
        under_way = 0
        for batch in batches:
            if under_way == IN_FLIGHT:
                _check_produced(*connection.receive())
                under_way -= 1
            each: dict[TopicPartition, list[Chunk]] = {
                TopicPartition(_TOPIC, number): [bytes(batch.data)] for number in range(partitions)
            }
            connection.send(ApiKey.PRODUCE, version, produce_wire.encode_request(1, _TIMEOUT_S * 1000, each, version))
            under_way += 1
        for _ in range(under_way):
            _check_produced(*connection.receive())


def _check_produced(api: ApiKey, version: int, body: memoryview) -> None:
    answered: Any = decode_response(api, version, body)
    for each in answered.responses[0].partition_responses:
        if each.error_code:
            raise RuntimeError(f"partition {each.index} was not filled: {ErrorCode(each.error_code).name}")


def _have_compacted(peer: Peer) -> None:
    changed = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, _TOPIC, incremental_configs=[changed])
    admin = peer.admin()
    admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)
    SystemClock().sleep(_BEGINNING_S)


def _round_trips(peer: Peer, seconds: int) -> dict[str, float]:
    arguments = {"bootstrap": peer.bootstrap, "topic": _BESIDE, "size": SIZE, "acks": "1", "rate": RATE}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.loads", "paced_round_trips", json.dumps(arguments | {"seconds": seconds})],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds + _TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the producer of {peer.name} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _cleaned(logs: Path) -> int:
    """Partitions that the broker's checkpoint calls clean up to somewhere."""
    path = logs / _CHECKPOINT
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return sum(line.startswith(f"{_TOPIC} ") for line in lines)
