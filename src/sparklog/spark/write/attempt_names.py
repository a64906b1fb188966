"""The transactional ids of task attempts: ``sparklog-spark/SCOPE/RUN/PARTITION-ATTEMPT-SLOT-TURN``."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

PREFIX = "sparklog-spark"


class AttemptName(NamedTuple):
    """A transactional id of a task attempt.

    ``slot`` is the batch's number modulo 2. So the next batch uses other ids, and until it is decided each id of this
    batch still tells how its transaction ended.
    """

    scope: str
    run: str
    partition: int
    attempt: int
    slot: int
    turn: int = 0
    """Rises while the id has a transaction open that another process left."""

    @property
    def transactional_id(self) -> str:
        return f"{ids_prefix(self.scope, self.run)}{self.partition}-{self.attempt}-{self.slot}-{self.turn}"

    @property
    def is_unnamed(self) -> bool:
        """Whether it belongs to a batch write without a name, whose scope no later run continues."""
        return self.scope == unnamed_scope(self.run)

    @classmethod
    def parse(cls, transactional_id: str) -> AttemptName | None:
        """The name in a transactional id; None for an id that no task attempt made."""
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
    """The prefix of the ids of all attempts of a scope, or of one run in it."""
    prefix = f"{PREFIX}/{quote(scope, safe='')}/"
    return prefix if run is None else f"{prefix}{quote(run, safe='')}/"
