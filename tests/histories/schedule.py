"""What is done to a replicated cluster, drawn from a seed before it begins.

A harm that takes no data from a disk may meet any other. A loss of power does so only where brokers flush before they
acknowledge: elsewhere all replicas are to be in sync before, and again after, for what no disk has is with the others.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from histories.network import CLIENTS, ZOOKEEPER, broker_name

_SESSION_S = 4.5
"""Longer than a session of ZooKeeper."""
_MOST_PARTITIONS = 10
"""As many as there may be; a number that is too high begins again at 0."""


class Harm(NamedTuple):
    """``name`` is a method of ``fire.Fire``; it lasts for ``seconds``, with ``lingers`` until after the next one."""

    name: str
    how: dict[str, Any]
    seconds: float = 0.0
    lingers: bool = False

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.name} {self.how}{lasting}{' and longer' if self.lingers else ''}"


Ways = list[tuple[str, str]]
Rounds = list[list[tuple[int, list[int]]]]
Draw = Callable[[Random, int], Harm]


def draw(chance: Random, brokers: int, count: int, *, flushes: bool, log_dirs: int = 1) -> list[Harm]:
    """So many harms, one after the other. ``log_dirs``: how many log directories a broker has."""
    weights = _WEIGHTS if log_dirs == 1 else {**_WEIGHTS, _change_log_dirs: 4}
    kinds = [each for each, weight in weights.items() for _ in range(weight)]
    harms = [chance.choice(kinds)(chance, brokers) for _ in range(count)]
    return [each if flushes or each.name != "lose_power" else _one_at_a_time(each) for each in harms]


def _one_at_a_time(harm: Harm) -> Harm:
    return harm._replace(how={**harm.how, "brokers": harm.how["brokers"][:1], "alone": True}, lingers=False)


def _some(chance: Random, brokers: int) -> list[int]:
    """One most often, all sometimes."""
    count = chance.choice([1] * 6 + [2, 2, brokers])
    return chance.sample(range(brokers), min(count, brokers))


def _one(chance: Random, brokers: int) -> int:
    return chance.randrange(brokers)


def _lingers(chance: Random) -> bool:
    return chance.random() < 0.4


def _kill(chance: Random, brokers: int) -> Harm:
    return Harm("kill", {"brokers": _some(chance, brokers)}, chance.choice([0.0, 1.0, _SESSION_S]), _lingers(chance))


def _kill_leader(chance: Random, brokers: int) -> Harm:
    return Harm("kill_leader", {"number": chance.randrange(5)}, chance.choice([0.0, _SESSION_S]), _lingers(chance))


def _stop(chance: Random, brokers: int) -> Harm:
    return Harm("stop", {"broker": _one(chance, brokers)}, chance.uniform(0, 1), _lingers(chance))


def _roll(chance: Random, brokers: int) -> Harm:
    return Harm("roll", {"brokers": chance.sample(range(brokers), brokers)})


def _freeze(chance: Random, brokers: int) -> Harm:
    seconds = chance.choice([0.5, 1.5, _SESSION_S, _SESSION_S])
    return Harm("freeze", {"brokers": _some(chance, brokers)[: brokers - 1]}, seconds, _lingers(chance))


def _part(chance: Random, brokers: int) -> Harm:
    one = _one(chance, brokers)
    others = [broker_name(number) for number in range(brokers) if number != one]
    sides = chance.choice(
        [others, others[:1], [ZOOKEEPER], [ZOOKEEPER], [CLIENTS], [*others, CLIENTS], [*others, ZOOKEEPER]]
    )
    ways = _ways(chance, broker_name(one), sides)
    how = {"ways": ways, "breaks": chance.random() < 0.5}
    return Harm("part", how, chance.choice([1.0, 3.5, _SESSION_S]), _lingers(chance))


def _ways(chance: Random, one: str, others: list[str]) -> Ways:
    direction = chance.choice(["both", "both", "out", "in"])
    out = [(one, other) for other in others if direction != "in"]
    return out + [(other, one) for other in others if direction != "out"]


def _slow(chance: Random, brokers: int) -> Harm:
    one = broker_name(_one(chance, brokers))
    others = [broker_name(number) for number in range(brokers)] + [ZOOKEEPER, CLIENTS]
    ways = _ways(chance, one, [each for each in others if each != one])
    how = {"ways": ways, "delay_s": chance.choice([0.02, 0.1, 0.4])}
    return Harm("slow", how, chance.uniform(1, 2), _lingers(chance))


def _reset(chance: Random, brokers: int) -> Harm:
    return Harm("reset", {})


def _stop_zookeeper(chance: Random, brokers: int) -> Harm:
    return Harm("stop_zookeeper", {}, chance.choice([0.0, 2.0, _SESSION_S]))


def _lose_power(chance: Random, brokers: int) -> Harm:
    how = {"brokers": _some(chance, brokers), "seed": chance.getrandbits(32), "page": chance.choice([512, 4096])}
    return Harm("lose_power", how, chance.choice([0.0, 1.0, _SESSION_S]), _lingers(chance))


def _fill_disk(chance: Random, brokers: int) -> Harm:
    how = {"broker": _one(chance, brokers), "error": errno.ENOSPC, "steps": ["write", "pwrite", "mkdir"]}
    return Harm("break_disk", how, chance.uniform(1, 4), _lingers(chance))


def _break_disk(chance: Random, brokers: int) -> Harm:
    steps = chance.choice([["fsync", "fdatasync"], ["write", "pwrite"], ["open", "rename", "unlink"]])
    how = {"broker": _one(chance, brokers), "error": errno.EIO, "steps": steps}
    return Harm("break_disk", how, chance.uniform(1, 3), _lingers(chance))


def _step_clock(chance: Random, brokers: int) -> Harm:
    return Harm("step_clock", {"broker": _one(chance, brokers), "ahead_ms": chance.randint(-1_200_000, 1_200_000)})


def _move_leaders(chance: Random, brokers: int) -> Harm:
    return Harm("move_leaders", {})


def _reassign(chance: Random, brokers: int) -> Harm:
    """Two rounds: the second finds what the first asked for under way, or done."""
    moved = chance.sample(range(_MOST_PARTITIONS), chance.choice([1, 1, 2, 4]))
    rounds: Rounds = [[(number, _target(chance, brokers)) for number in moved] for _ in range(chance.choice([1, 1, 2]))]
    rate = chance.choice([None, None, 1, 20_000])
    how = {"rounds": rounds, "rate": rate, "cancels": chance.random() < 0.3}
    return Harm("reassign", how, chance.choice([0.0, 1.0, 3.0]), _lingers(chance))


def _target(chance: Random, brokers: int) -> list[int]:
    """Never fewer than two, for ``min.insync.replicas`` is that: what one broker alone has is lost with its power."""
    return chance.sample(range(brokers), chance.randint(2, brokers))


def _change_log_dirs(chance: Random, brokers: int) -> Harm:
    moved = chance.sample(range(_MOST_PARTITIONS), chance.choice([1, 2, 4]))
    how = {"broker": _one(chance, brokers), "moves": [(number, chance.randrange(2)) for number in moved]}
    return Harm("change_log_dirs", how, chance.choice([0.0, 1.0]))


def _harm_actor(chance: Random, brokers: int) -> Harm:
    return Harm("harm_actor", {"number": chance.randrange(100), "kills": chance.random() < 0.5}, chance.uniform(0, 1))


_WEIGHTS: dict[Draw, int] = {
    _kill: 3,
    _kill_leader: 2,
    _stop: 1,
    _roll: 1,
    _freeze: 3,
    _part: 6,
    _slow: 1,
    _reset: 1,
    _stop_zookeeper: 2,
    _lose_power: 3,
    _fill_disk: 1,
    _break_disk: 2,
    _step_clock: 1,
    _move_leaders: 2,
    _harm_actor: 2,
    _reassign: 5,
}


def told(harms: list[Harm]) -> Iterator[str]:
    """A line for each."""
    for number, harm in enumerate(harms):
        yield f"{number + 1}. {harm}"
