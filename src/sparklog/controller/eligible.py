"""Which replicas stand with all that was ever acknowledged (KIP-966): pure.

A replica *stands* when it is in the ISR or eligible, and has not come back since without what was not on its disk.

Invariants: the high watermark moves only while the ISR has ``min.insync.replicas`` members, and not beyond what all of
them have (``replica/partition``). So as long as the ISR is smaller, whoever was in it when it fell below has all that
was ever acknowledged, and is eligible. Once it is large enough again the rest have not, and nobody is eligible.
Source: Kafka 4.1, ``PartitionChangeBuilder``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparklog.zk.znodes import PartitionState


def standing(state: PartitionState, restarted: Collection[int] = ()) -> list[int]:
    """Those that have all that was acknowledged, the ISR first."""
    return [each for each in (*state.isr, *state.eligible) if each not in restarted]


def eligible_beside(
    state: PartitionState,
    isr: Collection[int],
    replicas: Sequence[int],
    min_isr: int,
    restarted: Collection[int] = (),
) -> tuple[int, ...]:
    """The eligible replicas when the partition has a leader and ``isr`` follows the ISR of ``state``."""
    if len(isr) >= min_isr:
        return ()
    members = standing(state, restarted)
    return tuple(each for each in replicas if each in members and each not in isr)
