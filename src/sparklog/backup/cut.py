"""The point that a backup is of: groups' offsets, and the first and the last offset of each partition.

It is read in this order: ends, transactions, groups' offsets, transactions, ends. If the ends are the same both times,
they are those of any moment between, for they only rise. A transaction that is parted at such a moment, with a marker
below the end of one partition and another to come elsewhere, is on its way to its end, and its coordinator says so. If
it ended after that and took a group's offset with it, it moved an end. So with equal ends and no transaction that is
ending the cut is whole. Otherwise the later ends are taken: output that a group's offset speaks of was written before
it, so is below them.

Brokers list only the groups and transactions that a user may describe. Where it may not describe all of them, the cut
says so, and is not taken for whole: a transaction that nobody sees may be ending.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sparklog.backup.manifest import GroupOffset, Unseen
from sparklog.client.admin.admin import Admin
from sparklog.client.cluster.offsets import EARLIEST, LATEST, plain_offsets
from sparklog.clock import Clock
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import IsolationLevel, TopicPartition

_PAUSE_S = 0.1
_ENDING = ("PrepareCommit", "PrepareAbort")
"""The states in which a transaction's markers are being written, and some partitions may have theirs and others not."""
Groups = dict[str, dict[TopicPartition, GroupOffset]]


class Cut(NamedTuple):
    """One point of some partitions."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    """Last stable offsets."""
    groups: Groups
    is_consistent: bool
    """No transaction ended meanwhile."""
    unseen: Unseen


def take_cut(admin: Admin, partitions: Collection[TopicPartition], patience_s: float, clock: Clock) -> Cut:
    """Take it, again and again for ``patience_s`` seconds until no transaction ends meanwhile. Raises ApiError."""
    deadline = clock.monotonic() + patience_s
    unseen = Unseen(groups=not admin.sees_all_groups(), transactions=not _sees_all_transactions(admin))
    while True:
        cut = _take_once(admin, partitions, unseen)
        if cut.is_consistent or unseen.transactions or clock.monotonic() >= deadline:
            return cut
        clock.sleep(_PAUSE_S)


def _take_once(admin: Admin, partitions: Collection[TopicPartition], unseen: Unseen) -> Cut:
    before = _ends(admin, partitions)
    is_quiet = _is_quiet(admin)
    committed, refused = _committed(admin, partitions)
    is_quiet = is_quiet and _is_quiet(admin)
    ends = _ends(admin, partitions)
    firsts = plain_offsets(admin.list_offsets(dict.fromkeys(partitions, EARLIEST)))
    starts = {tp: min(firsts[tp], ends[tp]) for tp in partitions}
    is_consistent = is_quiet and not unseen.transactions and (before == ends or not _is_used(admin))
    return Cut(starts, ends, _within(committed, starts, ends), is_consistent, unseen._replace(refused=refused))


def _ends(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return plain_offsets(admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation=IsolationLevel.READ_COMMITTED))


def _sees_all_transactions(admin: Admin) -> bool:
    """True where brokers tell nothing of transactions: no right would help."""
    try:
        return admin.sees_all_transactions()
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return True
        raise


def _is_quiet(admin: Admin) -> bool:
    """Whether no transaction is on its way to its end. Not so where a broker does not tell."""
    try:
        return not admin.list_transactions(states=_ENDING)
    except ApiError as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
            return False
        raise


def _is_used(admin: Admin) -> bool:
    """Whether there is any transactional id."""
    return bool(admin.list_transactions())


def _committed(admin: Admin, partitions: Collection[TopicPartition]) -> tuple[Groups, tuple[str, ...]]:
    """What each group has committed for these partitions; where a transaction may change it, what is decided. And the
    groups whose offsets we may not read.
    """
    wanted = set(partitions)
    found: Groups = {}
    refused = []
    for each in admin.list_groups():
        try:
            committed = admin.group_offsets(each.group_id)
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
                raise
            refused.append(each.group_id)
            continue
        offsets = {tp: GroupOffset(at.offset, at.metadata) for tp, at in committed.items() if tp in wanted}
        if offsets:
            found[each.group_id] = offsets
    return found, tuple(refused)


def _within(groups: Groups, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> Groups:
    """The offsets, none below its partition's start or above its end."""
    return {
        group: {tp: at._replace(offset=bounded(at.offset, starts[tp], ends[tp])) for tp, at in offsets.items()}
        for group, offsets in groups.items()
    }


def bounded(offset: int, first: int, last: int) -> int:
    """The offset, or the nearer of the two where it is not between them."""
    return max(first, min(offset, last))
