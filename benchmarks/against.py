"""This tree's broker against another's: ``python -m benchmarks.against DIRECTORY [--rounds N] [--loads NAME,...]``.

DIRECTORY is a checkout with a ``.venv`` of its own (``make setup`` there). Both brokers run at once, each load goes to
one and then to the other, and the next round begins with the other: a machine that is busy or slow is so for both. The
same client, this tree's, loads both.

Neither side is favoured. Both are started the same way, in the compiled form (it fails where a tree has none that is
current), under names of the same length. After half of the rounds both are started anew, the other one first. Before
the rounds that count each load runs once, so that nothing is done for the first time in them.

Printed are the medians; the median of the ratios of the rounds (above 1 is better here, for times too), with the
interval in which the true one lies in 95 of 100 cases; and the processor time of the broker for each request or
thousand records, with its ratio likewise. A ratio whose interval holds 1 says nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from math import comb
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple, NoReturn

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


Figures = tuple[dict[str, list[tuple[float, float]]], dict[str, list[tuple[float, float]]]]
"""By load, there and here: each round's figure, with microseconds of processor time a request."""


class Side(NamedTuple):
    """A tree's broker, and what was measured of it by load: figures, with microseconds of processor time a request."""

    peer: Peer
    figures: dict[str, list[tuple[float, float]]]


@contextmanager
def _broker_of(tree: Path) -> Iterator[Peer]:
    """The broker of ``tree``, run by its own Python."""
    process = subprocess.Popen(
        [str(tree / ".venv/bin/python"), "-c", _SERVE],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "SPARKLOG_IMPL": "native"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        bootstrap, pid = process.stdout.readline().split() or _failed(tree)
        yield Peer(str(tree), bootstrap, int(pid))
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _failed(tree: Path) -> NoReturn:
    raise RuntimeError(f"the broker of {tree.resolve()} did not start; what it said stands above")


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


def _measure(side: Side, name: str, number: int) -> tuple[float, float]:
    load = LOADS[name]
    topic = f"{load.follows or name}-{number}"
    if not load.follows:
        side.peer.create_topic(topic)
    before = _processor_s(side.peer.pid)
    figure = load.run(side.peer.bootstrap, topic)
    spent = _processor_s(side.peer.pid) - before
    return figure, spent / load.of * 1e6


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Where their true median lies in 95 of 100 cases, whatever they are distributed like (as the sign test tells).

    Of fewer than six that is not known, and it is all of them.
    """
    ordered, count = sorted(ratios), len(ratios)
    below, left_out = 0.0, 0
    while (below := below + comb(count, left_out) / 2**count) <= 0.025:
        left_out += 1
    left_out = max(left_out - 1, 0)
    return ordered[left_out], ordered[-1 - left_out]


def _sit(trees: tuple[Path, Path], first: int, rounds: int, names: list[str], figures: Figures) -> None:
    """Both brokers are started, that of ``trees[first]`` first, and measured for so many rounds."""
    with ExitStack() as stack:
        peers = {which: stack.enter_context(_broker_of(trees[which])) for which in (first, 1 - first)}
        sides = [Side(peers[which], figures[which]) for which in range(2)]
        for number in range(-1, rounds):
            for name in names:
                for side in sides if (number + first) % 2 else reversed(sides):
                    found = _measure(side, name, number + 1)
                    if number >= 0:
                        side.figures.setdefault(name, []).append(found)


def compare(other: Path, rounds: int, names: list[str]) -> Iterator[str]:
    """A line a load."""
    figures: Figures = ({}, {})
    with TemporaryDirectory() as directory:
        trees = Path(directory, "a"), Path(directory, "b")
        for link, tree in zip(trees, (other, _HERE), strict=True):
            link.symlink_to(tree)
        for first in range(2):
            _sit(trees, first, (rounds + 1) // 2, names, figures)
    return (_line(name, figures[0][name], figures[1][name]) for name in names)


def _line(name: str, there: list[tuple[float, float]], here: list[tuple[float, float]]) -> str:
    load = LOADS[name]
    rates = [(b / a, c / d) for (a, c), (b, d) in zip(there, here, strict=True) if d]
    ratios = [1 / each if load.less_is_better else each for each, _ in rates]
    (there_is, there_us), (here_is, here_us) = (
        [median(each) for each in zip(*side, strict=True)] for side in (there, here)
    )
    return (
        f"{name:20} {load.unit:10} there {there_is:11.2f}  here {here_is:11.2f}  ratio {_with_interval(ratios)}"
        f"   processor us: there {there_us:8.1f}  here {here_us:8.1f}  {_with_interval([each for _, each in rates])}"
    )


def _with_interval(ratios: Sequence[float]) -> str:
    low, high = interval(ratios)
    return f"{median(ratios):.2f} ({low:.2f} - {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="This tree's broker against another tree's.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=12, help="an even number")
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
