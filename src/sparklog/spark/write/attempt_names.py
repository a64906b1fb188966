"""The transactional ids of task attempts: ``sparklog-spark/SCOPE/RUN/PARTITION-ATTEMPT-SLOT-TURN``."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

PREFIX = "sparklog-spark"


class AttemptName(NamedTuple):
    """A transactional id of a task attempt.

    ``slot`` is the batch's number modulo 2: the ids of one batch are not used for the next, so before the next is
    decided each of them still tells how its transaction ended.
    """

    scope: str
    run: str
    partition: int
    attempt: int
    slot: int
    turn: int = 0
    """Counts on where an id has a transaction open that somebody else left there."""

    @property
    def transactional_id(self) -> str:
        return f"{ids_prefix(self.scope, self.run)}{self.partition}-{self.attempt}-{self.slot}-{self.turn}"

    @property
    def is_unnamed(self) -> bool:
        """Whether it is of a batch write without a name, to whose scope nobody comes back."""
        return self.scope == unnamed_scope(self.run)

    @classmethod
    def parse(cls, transactional_id: str) -> AttemptName | None:
        """None for an id of somebody else."""
        parts = transactional_id.split("/")
        if len(parts) != 4 or parts[0] != PREFIX:
            return None
        try:
            partition, attempt, slot, turn = map(int, parts[3].split("-"))
        except ValueError:
            return None
        return cls(unquote(parts[1]), unquote(parts[2]), partition, attempt, slot, turn)


def unnamed_scope(run: str) -> str:
    """The scope of a batch write without a name."""
    return f"write-{run}"


def ids_prefix(scope: str, run: str | None = None) -> str:
    """What the ids of all attempts of a scope, or of a run in it, begin with."""
    prefix = f"{PREFIX}/{quote(scope, safe='')}/"
    return prefix if run is None else f"{prefix}{quote(run, safe='')}/"
