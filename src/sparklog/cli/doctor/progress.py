"""What does not go on: groups that lag, transactions that nobody ends, logs that are not cleaned."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.doctor.finding import Finding, Severity

if TYPE_CHECKING:
    from sparklog.cli.extents import Extents
    from sparklog.client.admin.compaction import CompactionDescription, CompactionState
    from sparklog.client.admin.groups import GroupListing
    from sparklog.client.admin.transactions import ActiveProducer, TransactionListing
    from sparklog.structs import BrokerId, TopicPartition

IO_LIMIT = "log.cleaner.io.max.bytes.per.second"
_CLEANED_WITHIN_S = 3600
"""A log that waits for longer is told of, as SparklogCleaningBehind does."""
_TELLING_BYTES = 16 << 20
"""A cleaning of less says little of how fast the next one is: it has hardly begun before it ends."""
_REBALANCING = {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
"""The states of both protocols in which members wait for one another."""


class GroupProgress(NamedTuple):
    """How far a group has come: what it has committed."""

    group_id: str
    state: str
    committed: Mapping[TopicPartition, int]


def group_findings(groups: Iterable[GroupProgress], extents: Extents, max_lag: int) -> Iterator[Finding]:
    """Groups that are more than ``max_lag`` records behind, or whose next records are gone."""
    for group in groups:
        lag = sum(max(extents.end[tp] - at, 0) for tp, at in group.committed.items() if tp in extents.end)
        where, typed = (f"group {group.group_id}",), quote(group.group_id)
        describe = f"sparklog group describe {typed}"
        lost = {tp: extents.first[tp] - at for tp, at in group.committed.items() if extents.first.get(tp, 0) > at}
        if lost:
            yield Finding(
                Severity.WARNING, f"{sum(lost.values()):,} offsets were deleted before the group read them",
                (*where, *map(str, sorted(lost))), f"keep the topic for longer (retention.ms); {describe}",
            )  # fmt: skip
        if lag > max_lag and group.state == "Empty":
            yield Finding(
                Severity.NOTE, f"{lag:,} records behind, and without members", where,
                f"start its consumers; or, if it is not needed: sparklog group delete {typed}",
            )  # fmt: skip
        elif lag > max_lag:
            yield Finding(Severity.WARNING, f"{lag:,} records behind", where, f"add consumers; {describe}")


def rebalancing(listed: Iterable[GroupListing]) -> set[str]:
    """The ids of the groups whose members wait for one another."""
    return {each.group_id for each in listed if each.state in _REBALANCING}


def rebalance_findings(group_ids: Collection[str], apart_s: float) -> Iterator[Finding]:
    """Groups that were in a rebalance at two looks, ``apart_s`` seconds apart: most end sooner."""
    for group_id in sorted(group_ids):
        yield Finding(
            Severity.WARNING,
            f"a rebalance has not ended within {apart_s:.0f} s: until all members have joined again, they read nothing",
            (f"group {group_id}",),
            f"sparklog group describe {quote(group_id)}; see by their logs which of these members does not poll, and"
            " stop it: the others wait for it as long as its max.poll.interval.ms, 5 minutes unless set",
        )


def transaction_findings(
    hanging: Mapping[TopicPartition, Sequence[ActiveProducer]], long_open: Sequence[TransactionListing], open_s: int
) -> Iterator[Finding]:
    """Those that no coordinator will end, and those that have been open for more than ``open_s`` seconds."""
    for tp, producers in sorted(hanging.items()):
        for each in producers:
            place = f"--topic {tp.topic} --partition {tp.partition} --start-offset {each.open_since}"
            yield Finding(
                Severity.ERROR, f"a transaction hangs: read_committed reads no further than offset {each.open_since}",
                (str(tp),), f"sparklog txn abort {place}",
            )  # fmt: skip
    for listing in long_open:
        name = listing.transactional_id
        yield Finding(
            Severity.WARNING, f"a transaction has been open for more than {open_s} s",
            (name,), f"sparklog txn describe {quote(name)}; sparklog writes list",
        )  # fmt: skip


def compaction_findings(found: CompactionDescription, limits: Mapping[BrokerId, float]) -> Iterator[Finding]:
    """Logs that cannot be cleaned, brokers that clean none of theirs, and those that do not keep up.

    ``limits`` are the brokers' ``log.cleaner.io.max.bytes.per.second``, where there are any.
    """
    for replica, state in sorted(found.replicas.items()):
        if state.uncleanable is not None:
            yield Finding(
                Severity.ERROR, f"a compacted log cannot be cleaned: {state.uncleanable}",
                (f"{replica.tp} on broker {replica.broker}",),
                f"sparklog compact status {replica.tp.topic}; then: sparklog compact run {replica.tp.topic}",
            )  # fmt: skip
    idle = {broker for broker, each in found.brokers.items() if not each.is_enabled or not each.threads}
    holders = {replica.broker for replica in found.replicas}
    for broker in sorted(idle & holders):
        yield Finding(
            Severity.WARNING, "a broker has compacted logs and cleans none", (f"broker {broker}",),
            "set log.cleaner.enable=true there, and start it again",
        )  # fmt: skip
    for broker in sorted(holders - idle):
        theirs = {replica.tp: state for replica, state in found.replicas.items() if replica.broker == broker}
        yield from _cleaning_behind(broker, theirs, found.brokers[broker].threads, limits.get(broker))


def _cleaning_behind(
    broker: BrokerId, logs: Mapping[TopicPartition, CompactionState], threads: int, limit: float | None
) -> Iterator[Finding]:
    """Of one broker: logs that are overdue, or else more to clean than can be done soon; ``limit``: bytes a second."""
    runs = [each.last_run for each in logs.values() if each.last_run and each.last_run.bytes_before >= _TELLING_BYTES]
    seconds = sum(run.seconds for run in runs)
    speed = threads * sum(run.bytes_before for run in runs) / seconds if seconds else math.inf
    is_limited = limit is not None and limit < speed
    speed = min(speed, limit or math.inf)
    raised = (
        f"sparklog config alter --broker {broker} --delete-config {IO_LIMIT}" if is_limited
        else f"sparklog config alter --broker {broker} --config log.cleaner.threads={threads + 1}, and as much more"
        " log.cleaner.dedupe.buffer.size, which they share"
    )  # fmt: skip
    overdue = {tp: each.delay_ms / 1000 for tp, each in logs.items() if each.delay_ms / 1000 > _CLEANED_WITHIN_S}
    due = sum(each.clean_bytes + each.cleanable_bytes for each in logs.values() if each.is_due)
    if overdue:
        hours = max(overdue.values()) / 3600
        yield Finding(
            Severity.WARNING, f"compacted logs are past their max.compaction.lag.ms by up to {hours:.0f} h",
            tuple(f"{tp} on broker {broker}" for tp in sorted(overdue)),
            f"sparklog compact status {min(overdue).topic}; if none is being cleaned, the broker's log says why; if the"
            f" cleaner is too slow: {raised}",
        )  # fmt: skip
    elif due > _CLEANED_WITHIN_S * speed:
        slow = f", at {IO_LIMIT}={limit:,.0f}" if is_limited else ""
        yield Finding(
            Severity.WARNING,
            f"the cleaner is behind: compacted logs of {due:,} bytes wait for about {due / speed / 3600:.1f} h{slow}",
            (f"broker {broker}",),
            f"sparklog compact status; {raised}",
        )
