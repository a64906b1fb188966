"""What attempts have open in a cluster, and ending it in place of drivers that are dead."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import NamedTuple

from sparklog.client.admin import Admin
from sparklog.client.config import ClientConfig
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.transaction_admin import ONGOING, TransactionListing
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.spark.attempt_names import PREFIX, AttemptName, unnamed_scope
from sparklog.spark.decider import Decider
from sparklog.spark.decisions import DecisionLog, Scope
from sparklog.structs import TopicPartition

_log = logging.getLogger(__name__)


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


def finish_abandoned(config: ClientConfig, older_ms: int) -> list[str]:
    """Finish the batch writes without a name that have begun no task for so long; which they were.

    Nobody comes back to these. One whose driver lives after all is told that its transactions have ended, and none of
    its rows are visible. What goes wrong here is a warning: the caller's own rows are written.
    """
    try:
        with Admin(config) as admin:
            scopes = abandoned(admin, older_ms)
        for scope in scopes:
            committed, aborted = finish_scope(config, scope)
            _log.warning(
                "batch write %s has begun no task for %d s: its driver is taken for dead; of its transactions %d were"
                " committed, as it had decided, and %d aborted",
                scope,
                older_ms // 1000,
                committed,
                aborted,
            )
    except SparklogError as error:
        _log.warning("what dead batch writes have left open is not known, or not ended: %s", error)
        return []
    return scopes


def abandoned(admin: Admin, older_ms: int) -> list[str]:
    """The batch writes without a name that have begun no task for so long.

    By the coordinators' clocks. What has begun meanwhile is in the second list, so it keeps its write alive. None where
    the brokers do not tell ages: these know no two-phase commit either, and end everything after its timeout.
    """
    try:
        old = _unnamed(admin.list_transactions(states=[ONGOING], open_longer_ms=older_ms))
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return []
        raise
    if not old:
        return []
    found = _unnamed(admin.list_transactions(states=[ONGOING]))
    young = {scope for key, scope in found.items() if key not in old}
    return sorted(set(old.values()) - young)


def _unnamed(listed: Collection[TransactionListing]) -> dict[str, str]:
    """The transactional ids of such writes' attempts, and their scopes."""
    names = {key: AttemptName.parse(key) for each in listed if (key := each.transactional_id).startswith(f"{PREFIX}/")}
    return {
        key: name.scope for key, name in names.items() if name is not None and name.scope == unnamed_scope(name.run)
    }
