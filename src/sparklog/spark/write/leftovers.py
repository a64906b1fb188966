"""What attempts have open in a cluster, and ending it in place of drivers that are dead."""

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

    ``batch`` is the last one that its scope has decided; where ``is_decided``, the transaction belongs to that batch.
    Both are None where the decision cannot be read. ``task`` is the number of the Spark partition.
    """

    scope: str
    batch: int | None
    is_decided: bool | None
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
    lasting = {name.scope: not name.is_unnamed for name in wanted.values()}
    decisions = {scope: _readable(log, Scope(scope, lasts)) for scope, lasts in sorted(lasting.items())}
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


def _readable(log: DecisionLog, scope: Scope) -> Decision | None:
    try:
        return log.last(scope)
    except DataSourceError as error:
        _log.warning("%s", error)
        return None


def unknown_scopes(admin: Admin, scopes: Collection[str]) -> list[str]:
    """Those of ``scopes`` under which nobody has written, or not for so long that brokers have forgotten it."""
    listed = {each.transactional_id for each in admin.list_transactions()}
    known = {name.scope for each in listed if (name := AttemptName.parse(each)) is not None}
    return [each for each in scopes if each not in known and Scope(each).decider_id not in listed]


def is_known(cluster: ClusterMetadata, admin: Admin, scope: str) -> bool:
    """Whether anything is known of a scope: its transactions, or a decision, be it one that cannot be read."""
    if not unknown_scopes(admin, [scope]):
        return True
    try:
        return DecisionLog(cluster, admin).knows(Scope(scope))
    except DataSourceError:
        return True


def finish_scope(config: ClientConfig, scope: str) -> tuple[int, int]:
    """Commit what the scope has decided and abort what else it has open; how many were open of each."""
    with Admin(config) as admin:
        is_unnamed = scope in _unnamed(admin.list_transactions(states=[ONGOING])).values()
    with Decider(config, Scope(scope, lasts=not is_unnamed), is_anothers=True) as decider:
        before = decider.survey()
        last, aborted = decider.finish_all()
        return len(before.intersection(last.transactions)), len(aborted)


def declare_last_batch(config: ClientConfig, scope: str, batch: int) -> None:
    """Have ``batch`` count as the scope's last one, written and finished, whatever was decided; ends no transaction."""
    with Decider(config, Scope(scope), is_anothers=True) as decider:
        decider.declare(batch)


def finish_abandoned(config: ClientConfig, older_ms: int) -> list[str]:
    """Finish the batch writes without a name that have begun no task for so long; which they were.

    Nobody comes back to these. One whose driver lives after all is told that its transactions have ended, and none of
    its rows are visible. What goes wrong here is a warning: the caller's own rows are written.
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
    return {key: name.scope for key, name in names.items() if name is not None and name.is_unnamed}
