"""Which replicas stand with all that was ever acknowledged (KIP-966): pure.

A replica *stands* when it is in the ISR or eligible, and has not begun another life since, in which it may lack what
was not on its disk. A replica that stood and has begun another life is *last known* to have everything.

Invariants: the high watermark moves only while the ISR has ``min.insync.replicas`` members, and not beyond what all of
them have (``replica/partition``). So as long as the ISR is smaller, whoever was in it when it fell below has all that
was ever acknowledged, and is eligible. Once it is large enough again the rest have not, and nobody is eligible or last
known.
Source: Kafka 4.1, ``PartitionChangeBuilder``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from sparklog.zk.znodes import PartitionState


class LogEnd(NamedTuple):
    """Where a replica's log ends. Of two that once had the same, the greater one has lost less."""

    epoch: int
    """The leader epoch of the last record; -1 without any."""
    offset: int


UNTOLD = LogEnd(-1, -1)
"""Of a broker that cannot tell: it does not offer GetReplicaLogInfo."""


def standing(state: PartitionState, restarted: Collection[int] = ()) -> list[int]:
    """Those that have all that was acknowledged, the ISR first."""
    return [each for each in (*state.isr, *state.eligible) if each not in restarted and each not in state.last_known]


def fallen(state: PartitionState, replicas: Collection[int], restarted: Collection[int] = ()) -> tuple[int, ...]:
    """Those that are last known to have everything, who led last first."""
    stood = dict.fromkeys((state.leader, *state.isr, *state.last_known, *state.eligible))
    back = {*restarted, *state.last_known}
    return tuple(each for each in stood if each in back and (each in replicas or each in state.isr))


class OutOfSync(NamedTuple):
    """The replicas that are not in the ISR, and count when all of it is gone."""

    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


def out_of_sync(
    state: PartitionState,
    isr: Collection[int],
    replicas: Sequence[int],
    min_isr: int,
    restarted: Collection[int] = (),
) -> OutOfSync:
    """Which replicas count when the partition has a leader and ``isr`` follows the ISR of ``state``."""
    if len(isr) >= min_isr:
        return OutOfSync()
    members = standing(state, restarted)
    return OutOfSync(
        eligible=tuple(each for each in replicas if each in members and each not in isr),
        last_known=tuple(each for each in fallen(state, replicas, restarted) if each not in isr),
    )
