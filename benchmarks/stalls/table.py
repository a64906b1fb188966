"""Every case, in the order in which they are asked, and the APIs that have none."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.stalls import brokers, groups, records, security, segments, topics, transactions
from benchmarks.stalls.cluster import Case
from sparklog.clock import SystemClock
from sparklog.protocol.api_key import ApiKey

_NOTHING_S = 1.0
_ONE = "it names one thing, and its work does not grow"
WITHOUT = {
    ApiKey.API_VERSIONS: "the client that waits asks for it all the time",
    ApiKey.SASL_HANDSHAKE: "it names a mechanism, and its answer is a list of some",
    ApiKey.HEARTBEAT: _ONE,
    ApiKey.INIT_PRODUCER_ID: _ONE,
    ApiKey.ADD_OFFSETS_TO_TXN: _ONE,
    ApiKey.RENEW_DELEGATION_TOKEN: _ONE,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _ONE,
    ApiKey.DESCRIBE_CLUSTER: "it names nothing, and its answer is the brokers",
    ApiKey.ALLOCATE_PRODUCER_IDS: _ONE,
    ApiKey.CONTROLLED_SHUTDOWN: "the broker would end; a controller's work is measured where leaders die",
    ApiKey.PROBE_BROKER: _ONE,
}
"""Why an API has no case."""


def cases() -> Iterator[Case]:
    """Some ask about what those before have made."""
    yield Case(None, "nothing", lambda _: SystemClock().sleep(_NOTHING_S))
    yield from topics.making()
    yield from topics.described()
    yield from segments.described()
    yield from groups.of_what_exists()
    yield from transactions.of_what_exists()
    yield from transactions.aborted()
    yield from topics.unmaking()
    yield from records.looked_up()
    yield from segments.of_nothing()
    yield from topics.altered()
    yield from groups.offsets()
    yield from groups.of_many()
    yield from groups.classic()
    yield from transactions.of_nothing()
    yield from brokers.cases()
    yield from security.cases()
    yield from records.written()
    yield from records.read()


def guarded_cases() -> Iterator[Case]:
    """Those of a broker that has access control lists."""
    yield from security.guarded()
