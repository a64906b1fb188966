"""This tree's broker against another's: ``python -m benchmarks.against DIRECTORY [--rounds N] [--loads NAME,...]``.

DIRECTORY is a checkout with a ``.venv`` of its own (``make setup`` there). Both brokers run at once, each load goes to
one and then to the other, and the next round begins with the other: a machine that is busy or slow is so for both. The
same client, this tree's, loads both. Printed are the medians, their ratio (above 1 is better here, for times too), and
the processor time of the broker for each request or thousand records.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks.loads import raw
from benchmarks.loads.clients import QUIET, TIMEOUT_S
from benchmarks.peers import Peer

_HERE = Path(__file__).parents[1]
_SMALL = 8_000
_LARGE = 400
_RECORDS = 400_000


class Load(NamedTuple):
    """``run(bootstrap, topic)`` returns its figure; ``of`` requests (or thousands of records) are answered in it."""

    unit: str
    run: Callable[[str, str], float]
    of: int
    less_is_better: bool = False
    follows: str = ""
    """The load whose topic it reads."""


def _librdkafka(codec: str) -> Callable[[str, str], float]:
    """Lines of text that a codec shrinks to about a quarter, in batches of 128 KB."""

    def run(bootstrap: str, topic: str) -> float:
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 128 << 10}
        producer = Producer({**settings, "compression.type": codec, "queue.buffering.max.messages": 1_000_000, **QUIET})
        chance = random.Random(codec)
        words = [chance.randbytes(8).hex().encode() for _ in range(500)]
        lines = [b" ".join(chance.choices(words, k=15)) for _ in range(1000)]
        producer.produce(topic, lines[0])
        producer.flush()
        start = time.perf_counter()
        for line in islice(cycle(lines), _RECORDS):
            while True:
                try:
                    producer.produce(topic, line)
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(TIMEOUT_S):
            raise RuntimeError(f"{len(producer)} records were not delivered")
        return _RECORDS / (time.perf_counter() - start)

    return run


LOADS = {
    "one-record-produce": Load(
        "requests/s", lambda b, t: raw.raw_produce(b, t, 100, 1, 0, _SMALL)["requests/s"], _SMALL
    ),
    "one-record-fetch": Load(
        "requests/s",
        lambda b, t: raw.raw_fetch(b, t, 100, 0, _SMALL)["requests/s"],
        _SMALL,
        follows="one-record-produce",
    ),
    "round-trip": Load(
        "p50 ms", lambda b, t: raw.raw_round_trip(b, t, 100, 1, 4000)["p50 ms"], 4000, less_is_better=True
    ),
    "produce-1KB": Load("MB/s", lambda b, t: raw.raw_produce(b, t, 1000, 1, 1_000_000, _LARGE)["MB/s"], _LARGE),
    "fetch-1KB": Load(
        "MB/s", lambda b, t: raw.raw_fetch(b, t, 1000, 1_000_000, _LARGE)["MB/s"], _LARGE, follows="produce-1KB"
    ),
    "produce-100B": Load("MB/s", lambda b, t: raw.raw_produce(b, t, 100, 1, 1_000_000, _LARGE)["MB/s"], _LARGE),
    "librdkafka-lz4": Load("records/s", _librdkafka("lz4"), _RECORDS // 1000),
    "librdkafka-zstd": Load("records/s", _librdkafka("zstd"), _RECORDS // 1000),
}


class Side(NamedTuple):
    """A tree's broker, and what was measured of it by load: figures, with microseconds of processor time a request."""

    peer: Peer
    figures: dict[str, list[tuple[float, float]]]


@contextmanager
def _broker_of(tree: Path) -> Iterator[Peer]:
    """The broker of ``tree``, run by its own Python."""
    process = subprocess.Popen(
        [str(tree / ".venv/bin/python"), "-c", _SERVE, str(_HERE)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        bootstrap, pid = process.stdout.readline().split()
        yield Peer(str(tree), bootstrap, int(pid))
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


_SERVE = """
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from benchmarks.peers import our_broker
with TemporaryDirectory() as directory, our_broker(Path(directory)) as peer:
    print(peer.bootstrap, peer.pid, flush=True)
    sys.stdin.read()
"""


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measure(side: Side, name: str, number: int) -> None:
    load = LOADS[name]
    topic = f"{load.follows or name}-{number}"
    if not load.follows:
        side.peer.create_topic(topic)
    before = _processor_s(side.peer.pid)
    figure = load.run(side.peer.bootstrap, topic)
    spent = _processor_s(side.peer.pid) - before
    side.figures.setdefault(name, []).append((figure, spent / load.of * 1e6))


def compare(other: Path, rounds: int, names: list[str]) -> Iterator[str]:
    """A line a load."""
    with ExitStack() as stack:
        sides = [Side(stack.enter_context(_broker_of(tree)), {}) for tree in (other, _HERE)]
        for number in range(rounds):
            for name in names:
                for side in sides if number % 2 else reversed(sides):
                    _measure(side, name, number)
        for name in names:
            (there, there_us), (here, here_us) = (
                [median(each) for each in zip(*side.figures[name], strict=True)] for side in sides
            )
            load = LOADS[name]
            ratio = there / here if load.less_is_better else here / there
            yield (
                f"{name:20} {load.unit:10} there {there:11.2f}  here {here:11.2f}  ratio {ratio:.2f}"
                f"   processor us: there {there_us:8.1f}  here {here_us:8.1f}  ({there_us / max(here_us, 0.01):.2f})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="This tree's broker against another tree's.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--loads", default=",".join(LOADS), help="some of them, by name")
    given = parser.parse_args()
    asked = given.loads.split(",")
    unknown = [name for name in asked if name not in LOADS]
    if unknown:
        parser.error(f"no load is called {', '.join(unknown)}; there are {', '.join(LOADS)}")
    names = [name for name in LOADS if name in asked or name in {LOADS[each].follows for each in asked}]
    for line in compare(given.directory.resolve(), given.rounds, names):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
