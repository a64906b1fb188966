"""The open transactions of task attempts in a cluster, and how to end them for drivers that are dead."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import NamedTuple

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.transactions import ONGOING, TransactionListing
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.errors import ApiError, DataSourceError, ErrorCode, SparklogError
from sparklog.spark.write.attempt_names import PREFIX, AttemptName
from sparklog.spark.write.decider import Decider
from sparklog.spark.write.decisions import Decision, DecisionLog, Scope
from sparklog.structs import TopicPartition

_log = logging.getLogger(__name__)


class OpenWrite(NamedTuple):
    """One open transaction of a task attempt.

    ``batch`` is the last one that its scope has decided; if ``is_decided``, the transaction belongs to that batch. Both
    are None if the decision cannot be read. ``task`` is the number of the Spark partition.
    """

    scope: str
    batch: int | None
    is_decided: bool | None
    open_for_s: float
    task: int
    transactional_id: str
    partitions: tuple[TopicPartition, ...]


def open_writes(cluster: ClusterMetadata, admin: Admin, scopes: Collection[str] = ()) -> list[OpenWrite]:
    """The transactions that are open now, of these scopes or of all; by scope, the oldest first."""
    listed = [each.transactional_id for each in admin.list_transactions(states=[ONGOING])]
    named = {each: AttemptName.parse(each) for each in listed}
    wanted = {key: name for key, name in named.items() if name is not None and (not scopes or name.scope in scopes)}
    log = DecisionLog(cluster, admin)
    scopes_found = sorted({Scope(name.scope, is_resumable=not name.is_unnamed) for name in wanted.values()})
    decisions = {scope.name: _last_or_none(log, scope) for scope in scopes_found}
    now = cluster.clock.now_ms()
    found = [
        OpenWrite(
            name.scope,
            None if (last := decisions[name.scope]) is None else last.batch,
            None if last is None else (key, state.producer_id, state.producer_epoch) in last.transactions,
            max(now - state.start_ms, 0) / 1000,
            name.partition,
            key,
            state.partitions,
        )
        for key, state in admin.open_transactions(wanted).items()
        if state.state == ONGOING and (name := wanted[key])
    ]
    return sorted(found, key=lambda each: (each.scope, -each.open_for_s))


def _last_or_none(log: DecisionLog, scope: Scope) -> Decision | None:
    try:
        return log.last(scope)
    except DataSourceError as error:
        _log.warning("what scope %s decided last is not known: %s", scope.name, error)
        return None


def unknown_scopes(admin: Admin, scopes: Collection[str]) -> list[str]:
    """Those of ``scopes`` of which the brokers know no transaction: misspelt ones, or forgotten ones."""
    listed = {each.transactional_id for each in admin.list_transactions()}
    known = {name.scope for each in listed if (name := AttemptName.parse(each)) is not None}
    return [each for each in scopes if each not in known and Scope(each).decider_id not in listed]


def is_known(cluster: ClusterMetadata, admin: Admin, scope: str) -> bool:
    """Whether the cluster knows the scope: by a transaction, or by a decision, even an unreadable one."""
    if not unknown_scopes(admin, [scope]):
        return True
    try:
        return DecisionLog(cluster, admin).knows(Scope(scope))
    except DataSourceError:
        return True


def finish_scope(config: ClientConfig, scope: str) -> tuple[int, int]:
    """Commit the scope's decided transactions and abort its other open ones. Returns how many of each were open."""
    with Admin(config) as admin:
        is_unnamed = scope in _unnamed(admin.list_transactions(states=[ONGOING])).values()
    with Decider(config, Scope(scope, is_resumable=not is_unnamed), for_dead_driver=True) as decider:
        before = decider.list_open()
        last, aborted = decider.finish_all()
        return len(before.intersection(last.transactions)), len(aborted)


def declare_last_batch(config: ClientConfig, scope: str, batch: int) -> None:
    """Record ``batch`` as the scope's last one, written and finished, whatever was decided. Ends no transaction."""
    with Decider(config, Scope(scope), for_dead_driver=True) as decider:
        decider.declare(batch)


def finish_abandoned(config: ClientConfig, older_ms: int) -> list[str]:
    """Finish the unnamed batch writes that have begun no task for ``older_ms``. Returns their scopes.

    No later run continues such a write. If its driver is alive after all, the driver's commit fails, and none of its
    rows are visible. An error here is only logged: the caller's own rows are written.
    """
    try:
        with Admin(config) as admin:
            scopes = abandoned(admin, older_ms)
    except SparklogError as error:
        _log.warning("what dead batch writes have left open is not known: %s", error)
        return []
    return [each for each in scopes if _is_finished_now(config, each, older_ms)]


def _is_finished_now(config: ClientConfig, scope: str, older_ms: int) -> bool:
    try:
        committed, aborted = finish_scope(config, scope)
    except SparklogError as error:
        _log.warning("what the dead batch write %s has left open is not ended: %s", scope, error)
        return False
    _log.warning(
        "batch write %s has begun no task for %d s: its driver is taken for dead; of its transactions %d were"
        " committed, as it had decided, and %d aborted",
        scope,
        older_ms // 1000,
        committed,
        aborted,
    )
    return True


def abandoned(admin: Admin, older_ms: int) -> list[str]:
    """The unnamed batch writes that have begun no task for ``older_ms``, by the coordinators' clocks.

    A task that begins between the two requests is in the second list, so it keeps its write alive. Empty if the brokers
    do not tell ages: such brokers have no two-phase commit either, and abort every transaction after its timeout.
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
    """Transactional id → scope, of the attempts of unnamed batch writes."""
    names = {key: AttemptName.parse(key) for each in listed if (key := each.transactional_id).startswith(f"{PREFIX}/")}
    return {key: name.scope for key, name in names.items() if name is not None and name.is_unnamed}
