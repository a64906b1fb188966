"""Where an offload goes to: a place that takes rows and the offsets behind them in one commit, or neither.

The contract, which ``spark/batch/offload.py`` relies on and every kind of place keeps:

- ``Intake.progress`` is what the place itself says, as of the moment when the intake began. Once ``settle`` has
  returned a power cut takes nothing of it, as of what ``finish`` commits.
- ``Intake.finish`` makes all rows visible together with the offsets, or nothing. It fails if another job has moved one
  of the offsets since the intake began (``Overtaken``), or what the intake has read of the place (``Changed``).
- What a task writes is invisible until then. A task may run twice, or die: only the outcomes that ``finish`` is given
  count. ``discard`` removes the others as far as it can, and what stays is harmless.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from sparklog.errors import DataSourceError
from sparklog.spark.lake.ages import Timestamps
from sparklog.spark.lake.progress import Progress
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Overtaken(DataSourceError):
    """Another job has offloaded to the place what this one was about to."""


class Changed(DataSourceError):
    """The place was changed meanwhile, by no offload. Nothing of the intake is in it; another one may begin."""


class Outcome(Protocol):
    """What a task wrote. It is pickled."""

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Written."""

    @property
    def file_count(self) -> int: ...

    @property
    def timestamps(self) -> Timestamps:
        """Of the records that were read."""


class File(Protocol):
    """A file that a task wrote."""

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


FileT = TypeVar("FileT", bound=File)


class WrittenFiles(NamedTuple, Generic[FileT]):
    """An outcome of which all is in files."""

    files: list[FileT]
    timestamps: Timestamps

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.files)

    @property
    def file_count(self) -> int:
        return len(self.files)


OutcomeT = TypeVar("OutcomeT", bound=Outcome)
OutcomeT_co = TypeVar("OutcomeT_co", bound=Outcome, covariant=True)


class Task(Protocol[OutcomeT_co]):
    """Reads some ranges and writes them. It is pickled, and run in a Python worker of Spark."""

    def run(self) -> OutcomeT_co:
        """Raises DataSourceError; OSError and ArrowException where the place cannot be written."""


class Refused(NamedTuple):
    """Why a task could not do its work: a ``SPARKLOG_`` code, and what happened."""

    code: str
    text: str

    @classmethod
    def of(cls, error: DataSourceError) -> Refused:
        return cls(error.error_code, str(error).removeprefix(f"[{error.error_code}] "))


RunTasks = Callable[[Sequence[Task[OutcomeT]]], list["OutcomeT | Refused"]]


class Intake(ABC, Generic[OutcomeT]):
    """A commit that has begun: how far the place was then, and what is to be added. It belongs to one thread."""

    @property
    @abstractmethod
    def progress(self) -> Mapping[Progress, int]:
        """The next offset of each partition that has been offloaded to the place."""

    def settle(self) -> None:
        """Make durable what ``progress`` says: it may be the commit of a job that died before it was.

        Raises DataSourceError.
        """

    @property
    def divides_partitions(self) -> bool:
        """Whether several tasks may have the records of a partition, each a range of them."""
        return True

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Nobody has written rows to it."""

    @property
    def epochs(self) -> Mapping[Progress, int]:
        """The leader epochs that were noted with these offsets, by a place that keeps them."""
        return {}

    def note_epochs(self, epochs: Mapping[Progress, int]) -> None:
        """Keep the leader epochs in which the offsets of the commit were found, NO_EPOCH for one that is not known.

        A log that was cut off and has grown again is known by them. A place may do without.
        """

    @abstractmethod
    def expect(self, partitions: Iterable[Progress]) -> None:
        """Let the commit fail if another one writes the offsets of these before it; the first of all, if any does.

        They are all partitions of the topics. Raises DataSourceError where the place cannot take them.
        """

    @abstractmethod
    def write(
        self, reading: ReadOptions, pieces: Sequence[Sequence[OffsetRange]], run: RunTasks[OutcomeT]
    ) -> list[OutcomeT | Refused]:
        """What came of the ranges of each piece, which are a task; ``run`` runs tasks in Python workers."""

    @abstractmethod
    def finish(self, outcomes: Sequence[OutcomeT], offsets: Mapping[Progress, int]) -> int:
        """Commit; the number of the commit.

        Raises Overtaken where another job has moved one of the offsets, Changed for a place that was changed meanwhile.
        Of any other error the place alone tells whether the commit took place.
        """

    @abstractmethod
    def discard(self, outcomes: Iterable[OutcomeT]) -> None:
        """Remove what tasks wrote, as far as that can be done."""


class TaskIntake(Intake[OutcomeT]):
    """One whose ranges are written by tasks in Python workers."""

    @abstractmethod
    def task(self, reading: ReadOptions, ranges: Sequence[OffsetRange]) -> Task[OutcomeT]:
        """What is to be run for these ranges."""

    def write(
        self, reading: ReadOptions, pieces: Sequence[Sequence[OffsetRange]], run: RunTasks[OutcomeT]
    ) -> list[OutcomeT | Refused]:
        return run([self.task(reading, each) for each in pieces])


class Destination(ABC, Generic[OutcomeT]):
    """One place. It belongs to one thread."""

    @property
    @abstractmethod
    def place(self) -> str:
        """How messages name it, such as ``table /data/clicks``. Without passwords."""

    @property
    @abstractmethod
    def identity(self) -> str | None:
        """A text that no other place has, and that all names of this one give where that can be told; without
        passwords. None while nothing is in the place, where only what is in it tells. ``prepare`` comes first.

        What is offloaded to one place is not in another. So two places must not have the same, for brokers delete what
        is in one (``spark/batch/offload_groups.py``). A name alone is not enough: two machines may have the same path,
        and two catalogs a table of the same name.
        """

    @abstractmethod
    def prepare(self) -> None:
        """Make the place unless it is there. Raises DataSourceError where it is something else."""

    @abstractmethod
    def begin(self) -> Intake[OutcomeT]:
        """Begin a commit on the place as it is now. Raises DataSourceError for one that does not suit."""

    def tend(self, outcomes: Sequence[OutcomeT]) -> None:
        """What the place needs now and then, after the commit of ``outcomes``. It changes no row."""

    def close(self) -> None:
        """Give up what the destination holds, such as a connection."""


class Target(ABC):
    """The description of a place. A value, without a session or a connection."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """The name of the place, in the same words however it is written. Without passwords."""

    @abstractmethod
    def open(self, spark: SparkSession) -> Destination[Any]:
        """Raises ConfigError where the session lacks what the place needs, DataSourceError for a wrong description."""


def refuse(place: str, why: str) -> NoReturn:
    """Raises DataSourceError: the place cannot take what a log has."""
    raise DataSourceError("SPARKLOG_UNSUITABLE_TABLE", f"{place} cannot be offloaded to: {why}")
