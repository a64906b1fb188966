"""TLS, handshakes, and what lists and quotas cost: sparklog beside Kafka, as in ``benchmarks.broker``.

Two pairs of brokers are up. *Guarded* ones have an authorizer with 10,000 lists and quotas on bytes and time that
nobody reaches; the *open* ones have neither. What both pairs are asked runs on one and then on the other, so that what
guarding costs is a ratio of neighbours; broker by broker, in turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker import WARM_UP_SHARE, Measurement, Results, Round
from benchmarks.report.base import Rows
from benchmarks.security.brokers import SASL_PLAINTEXT, SASL_SSL, SSL, Secrets, SecuredPeer, secured_brokers
from sparklog.clock import Clock, SystemClock

ROUNDS = 5
COST = "% more CPU a request"
_OPEN, _GUARDED = "open", "guarded"
_CPU = "broker CPU us"


def _over_tls(secrets: Secrets) -> list[Measurement]:
    common = {"size": 1000, "records": 200_000, "client": secrets.of_librdkafka(SSL)}
    raw = {"size": 1000, "batch_bytes": 1_000_000, "requests": 400, "client": secrets.of_kafka(SSL)}
    written, raw_written = "TLS, librdkafka, 1 KB: produce, acks=1", "TLS, 1 MB requests: produce, acks=1"
    rate, opened = ("MB/s",), ("connections/s",)

    def login(protocol: str, requests: int) -> dict[str, Any]:
        return {"requests": requests, "client": secrets.of_kafka(protocol)}

    with_scram = "TLS handshakes with SCRAM-SHA-256"
    return [
        Measurement(written, "produce", rate, {**common, "acks": "1"}, protocol=SSL),
        Measurement("TLS, librdkafka, 1 KB: consume", "consume", rate, common, written, protocol=SSL),
        Measurement(raw_written, "raw_produce", rate, {**raw, "acks": 1}, protocol=SSL),
        Measurement("TLS, 1 MB requests: fetch", "raw_fetch", rate, raw, raw_written, protocol=SSL),
        Measurement("TLS handshakes", "handshakes", opened, login(SSL, 1000), protocol=SSL),
        Measurement(with_scram, "handshakes", opened, login(SASL_SSL, 500), protocol=SASL_SSL),
    ]


def _authenticated(secrets: Secrets) -> list[Measurement]:
    """What the open and the guarded ones are both asked."""
    client = secrets.of_kafka(SASL_PLAINTEXT)
    common = {"size": 1000, "batch_bytes": 1000, "requests": 10_000, "client": client}
    written = "authenticated, one record a request: produce, acks=1"
    read = "authenticated, one record a request: fetch"
    rate = ("requests/s",)
    return [
        Measurement(written, "raw_produce", rate, {**common, "acks": 1}, protocol=SASL_PLAINTEXT),
        Measurement(read, "raw_fetch", rate, common, written, protocol=SASL_PLAINTEXT),
    ]


def run(rounds: int = ROUNDS, say: Callable[[str], None] = lambda _: None) -> Rows:
    """A row a figure: (measurement, figure, sparklog, kafka, ratio, ratios)."""
    results = Results()
    with TemporaryDirectory(prefix="sparklog-bench-") as scratch, ExitStack() as stack:
        directory = Path(scratch)
        secrets = Secrets(directory)
        secrets.make()
        pairs = {
            kind: stack.enter_context(secured_brokers(directory / kind, secrets, guarded=kind == _GUARDED))
            for kind in (_OPEN, _GUARDED)
        }
        turn = _Turns(directory, SystemClock(), pairs)
        for number in range(rounds + 1):
            say(f"security: round {number} of {rounds}" if number else "security: warming up")
            turn.take(number, secrets, results if number else Results())
    return _rows(results, secrets)


def _rows(results: Results, secrets: Secrets) -> Rows:
    rows = [results.row(each.name, figure) for each in _over_tls(secrets) for figure in (*each.figures, _CPU)]
    for each in _authenticated(secrets):
        named = (each.name, _guarded_name(each.name))
        rows += [results.row(name, figure) for name in named for figure in (*each.figures, _CPU)]
        rows.append(_cost(results, *named))
    return rows


def _guarded_name(name: str) -> str:
    return f"{name}, under 10,000 lists and quotas"


def _cost(results: Results, open_: str, guarded: str) -> dict[str, Any]:
    """How much more of the processor a request takes where it is guarded, in percent: ours beside Kafka's."""

    def more(peer: str) -> float:
        before, after = (results.samples[name, peer, _CPU] for name in (open_, guarded))
        return 100 * (statistics.median(b / a for a, b in zip(before, after, strict=True)) - 1)

    return {"measurement": guarded, "figure": COST, "sparklog": more("sparklog"), "kafka": more("kafka")}


@dataclass(frozen=True)
class _Turns:
    """Every measurement once a round on each broker that it is for."""

    directory: Path
    clock: Clock
    pairs: dict[str, list[SecuredPeer]]

    def take(self, number: int, secrets: Secrets, results: Results) -> None:
        share = 1.0 if number else WARM_UP_SHARE
        order = 1 if number % 2 else -1
        self._run(number * 10, _over_tls(secrets), self.pairs[_OPEN][::order], share, results)
        for index in range(len(self.pairs[_OPEN]))[::order]:
            for place, kind in enumerate([*self.pairs][::order], 1):
                found = Results()
                self._run(number * 10 + place, _authenticated(secrets), [self.pairs[kind][index]], share, found)
                for (name, peer, figure), values in found.samples.items():
                    kept = _guarded_name(name) if kind == _GUARDED else name
                    results.samples.setdefault((kept, peer, figure), []).extend(values)

    def _run(
        self, number: int, measurements: list[Measurement], peers: list[SecuredPeer], share: float, results: Results
    ) -> None:
        Round(self.directory, number, self.clock, share, measurements).run(peers, results)
