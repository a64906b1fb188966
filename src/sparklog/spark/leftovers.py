"""What attempts have open in a cluster, and ending it in place of drivers that are dead."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sparklog.client.admin import Admin
from sparklog.client.config import ClientConfig
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.transaction_admin import ONGOING
from sparklog.spark.attempt_names import AttemptName
from sparklog.spark.decider import Decider
from sparklog.spark.decisions import DecisionLog, Scope
from sparklog.structs import TopicPartition


class OpenWrite(NamedTuple):
    """One open transaction of a task attempt.

    ``batch`` is the last one that its scope has decided; where ``is_decided``, the transaction belongs to that batch.
    ``task`` is the number of the Spark partition.
    """

    scope: str
    batch: int
    is_decided: bool
    open_for_s: float
    task: int
    transactional_id: str
    partitions: tuple[TopicPartition, ...]


def open_writes(cluster: ClusterMetadata, admin: Admin, scopes: Collection[str] = ()) -> list[OpenWrite]:
    """What is open now, of these scopes or of all; by scope, the oldest first."""
    listed = [each.transactional_id for each in admin.list_transactions(states=[ONGOING])]
    named = {each: AttemptName.parse(each) for each in listed}
    wanted = {key: name for key, name in named.items() if name is not None and (not scopes or name.scope in scopes)}
    log = DecisionLog(cluster, admin)
    decisions = {scope: log.last(Scope(scope)) for scope in sorted({name.scope for name in wanted.values()})}
    now = cluster.clock.now_ms()
    found = [
        OpenWrite(
            name.scope,
            decisions[name.scope].batch,
            (key, state.producer_id, state.producer_epoch) in decisions[name.scope].transactions,
            max(now - state.start_ms, 0) / 1000,
            name.partition,
            key,
            state.partitions,
        )
        for key, state in admin.open_transactions(wanted).items()
        if state.state == ONGOING and (name := wanted[key])
    ]
    return sorted(found, key=lambda each: (each.scope, -each.open_for_s))


def unknown_scopes(admin: Admin, scopes: Collection[str]) -> list[str]:
    """Those of ``scopes`` under which nobody has written, or not for so long that brokers have forgotten it."""
    listed = {each.transactional_id for each in admin.list_transactions()}
    known = {name.scope for each in listed if (name := AttemptName.parse(each)) is not None}
    return [each for each in scopes if each not in known and Scope(each).decider_id not in listed]


def finish_scope(config: ClientConfig, scope: str) -> tuple[int, int]:
    """Commit what the scope has decided and abort what else it has open; how many were open of each."""
    with Decider(config, Scope(scope)) as decider:
        before = decider.survey()
        last, aborted = decider.finish_all()
        return len(before.intersection(last.transactions)), len(aborted)
