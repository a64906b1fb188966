"""One client asks every 5 ms, the other asks the worst of each API: how long the first waits, and what the loop took.

One broker, one worst case at a time; then another broker, with access control lists, for the cases that need them.
``nothing`` is the same with an idle broker: what the machine and the client add by themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.peers import Peer, our_broker
from benchmarks.security.brokers import write_lists
from benchmarks.stalls.cluster import Case, Cluster
from benchmarks.stalls.table import cases, guarded_cases
from benchmarks.stalls.watched_broker import Turn, turns
from sparklog.clock import Clock, SystemClock
from sparklog.config.broker import ACL_AUTHORIZER
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.testing.eventually import eventually

ROUNDS = 3
WATCHED = (sys.executable, "-m", "benchmarks.stalls.watched_broker")
_SETTLE_S = 1.0
_GUARDED = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:ANONYMOUS"}


def run(
    apis: Sequence[str] = (), rounds: int = ROUNDS, say: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """A row a worst case of these APIs, or of all: (measurement, turn, garbage, longest, p99, longests), milliseconds;
    the medians of the rounds, and each round's longest wait. ``turn`` is the processor time of the loop's longest turn.
    """
    rows = _run(cases(), apis, rounds, say)
    return rows + _run(guarded_cases(), apis, rounds, say, _GUARDED, write_lists)


def _run(
    all_cases: Iterable[Case],
    apis: Sequence[str],
    rounds: int,
    say: Callable[[str], None],
    settings: Mapping[str, object] | None = None,
    before: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """On a broker with these settings, once ``before`` was called with the connect string of its ZooKeeper."""
    asked = [case for case in all_cases if not apis or case.name.partition(",")[0] in apis]
    if not asked:
        return []
    with (
        TemporaryDirectory(prefix="sparklog-bench-") as scratch,
        our_broker(Path(scratch), WATCHED, settings, before) as peer,
    ):
        return measure(peer, Path(scratch), asked, rounds, say)


def measure(
    peer: Peer, directory: Path, asked: Sequence[Case], rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """These cases on a broker that runs already, its log directories below ``directory``."""
    samples = dict[str, list[dict[str, float]]]()
    for number in range(rounds):
        cluster = Cluster(peer.bootstrap, directory, number, peer.zookeeper)
        prepare(cluster)
        for case in asked:
            found = _sample(cluster, case, directory / "sparklog.log", SystemClock())
            samples.setdefault(case.name, []).append(found)
            say(
                f"stalls: round {number + 1} of {rounds}, {case.name}: a turn of {found['turn']:.1f} ms"
                f" ({found['garbage']:.1f} for garbage), a wait of {found['longest']:.1f}"
            )
    return [_row(name, found) for name, found in samples.items()]


def _row(name: str, found: list[dict[str, float]]) -> dict[str, Any]:
    medians = {what: median(each[what] for each in found) for what in ("turn", "garbage", "longest", "p99")}
    return {"measurement": name, **medians, "longests": [each["longest"] for each in found]}


def prepare(cluster: Cluster) -> None:
    """The topics that cases ask about, beside those that they make."""
    cluster.create("searched", 1)
    cluster.create("gzip", 1, **{"compression.type": "gzip", "max.message.bytes": "100000000"})
    cluster.create("cold", 1, **{"max.message.bytes": "10000000"})
    cluster.create("polled", 1)
    for kind in (0, 1):  # of groups, and of transactions: the topics of their coordinators are made
        found = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=["stalls"])
        cluster.ask(ApiKey.FIND_COORDINATOR, found, 4)
    eventually(lambda: _coordinates(cluster), what="the broker to coordinate")


def _coordinates(cluster: Cluster) -> bool:
    groups = cluster.ask(ApiKey.LIST_GROUPS, messages.ListGroupsRequest(states_filter=[], types_filter=[]), 5)
    every = messages.ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=-1)
    transactions = cluster.ask(ApiKey.LIST_TRANSACTIONS, every, 1)
    return not (groups.error_code or transactions.error_code)


def _sample(cluster: Cluster, case: Case, log: Path, clock: Clock) -> dict[str, float]:
    """While one case goes on, and a second more: what it leaves to be done afterwards counts too."""
    host, _, port = cluster.bootstrap.rpartition(":")
    command = [sys.executable, "-m", "benchmarks.pinger", host, port]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pinger:
        assert pinger.stdout is not None
        pinger.stdout.readline()
        before = log.stat().st_size
        case.ask(cluster)
        clock.sleep(_SETTLE_S)
        found, _ = pinger.communicate("")
    with log.open("rb") as file:
        file.seek(before)
        longest = max(turns(file.read().decode(errors="replace")), default=Turn())
    waits: dict[str, float] = json.loads(found)
    return {**waits, "turn": longest.took, "garbage": longest.garbage}
