"""What brokers tell by their HTTP ports: whether they are ready, and what time it is there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple

from sparklog.cli.doctor.finding import Finding, Severity
from sparklog.clock import Clock
from sparklog.structs import BrokerId, Endpoint

MAX_SKEW_S = 2.0
"""The time is told in whole seconds, so that less cannot be seen."""


class Told(NamedTuple):
    """``ahead_s``: the least and the most seconds by which the broker's clock is ahead of ours."""

    why_not_ready: str | None
    ahead_s: tuple[float, float]


def ask(endpoint: Endpoint, clock: Clock, timeout: float) -> Told:
    """Raises OSError, HTTPException or ValueError where nothing like this is told there."""
    connection = HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)
    try:
        before = clock.now_ms() / 1000
        connection.request("GET", "/ready")
        answer = connection.getresponse()
        text, date = answer.read().decode("utf-8", "replace").strip(), answer.getheader("Date", "")
        after = clock.now_ms() / 1000
    finally:
        connection.close()
    if answer.status not in (200, 503):
        raise HTTPException(f"/ready answers {answer.status}")
    there = parsedate_to_datetime(date).timestamp()
    return Told(None if answer.status == 200 else text, (there - after, there + 1 - before))


def http_findings(told: Mapping[BrokerId, Told]) -> Iterator[Finding]:
    """Brokers that are not ready, and clocks that differ by more than can be explained."""
    for broker, each in sorted(told.items()):
        if each.why_not_ready is not None:
            yield Finding(
                Severity.ERROR, f"a broker is not ready: {each.why_not_ready}", (f"broker {broker}",),
                "see its log; sparklog cluster describe",
            )  # fmt: skip
    if not told:
        return
    first = max(told, key=lambda broker: told[broker].ahead_s[0])
    last = min(told, key=lambda broker: told[broker].ahead_s[1])
    apart = told[first].ahead_s[0] - told[last].ahead_s[1]
    if apart > MAX_SKEW_S:
        yield Finding(
            Severity.WARNING, f"clocks differ by {apart:.0f} s or more: timestamps and retention go by them",
            (f"broker {first} is ahead of broker {last}",), "have both set by NTP: timedatectl set-ntp true",
        )  # fmt: skip


def unheard_findings(
    brokers: Collection[BrokerId], heard: Collection[BrokerId], here: Collection[BrokerId]
) -> Iterator[Finding]:
    """Brokers of several that answer clients and tell no time; those that run ``here`` have this machine's clock."""
    unheard = sorted({*brokers}.difference(heard, here))
    if unheard and len(brokers) > 1:
        yield Finding(
            Severity.NOTE,
            "whether the clock is right and the broker is ready is not known: no HTTP port answers from here",
            tuple(f"broker {broker}" for broker in unheard),
            "set sparklog.metrics.port to a fixed number, and sparklog.metrics.host to an address that is reached from"
            " here; then start the broker again. Until then: timedatectl status on its host",
        )
