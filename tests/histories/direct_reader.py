"""Reading topics from the start, again and again, as a task of Spark does: from the brokers' files where it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from histories.history import READ_COMMITTED, READ_UNCOMMITTED, Recorder
from histories.repeating import Repeating
from histories.rows import from_wire

from sparklog.errors import SparklogError
from sparklog.spark.read.batch_reader import RangesPartition, SparklogReader
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import source_schema

_PAUSE_S = 0.3
_SCHEMA = source_schema(include_headers=True)


class DirectReader(Repeating):
    """``settings`` are those of a client now, ``bootstrap.servers`` among them."""

    def __init__(self, history: Path, topics: Sequence[str], settings: Callable[[], Mapping[str, str]]) -> None:
        super().__init__("direct reader", _PAUSE_S)
        self.from_files = 0
        """Ranges that were read from files alone."""
        self._history = history
        self._topics = topics
        self._settings = settings
        self._ways = cycle(
            (path, isolation) for path in ("always", "auto") for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
        )

    def start(self) -> None:
        self._record = Recorder(self._history, "direct-reader")
        super().start()

    def once(self) -> None:
        path, isolation = next(self._ways)
        try:
            self._read(path, isolation)
        except SparklogError as error:  # brokers are away, or do not let it at their files now
            self._record("note", text=f"{path}: {error}"[:500])

    def _read(self, path: str, isolation: str) -> None:
        """Raises SparklogError; then what was read of a range is told of nowhere."""
        given = {f"kafka.{name}": value for name, value in self._settings().items()}
        given |= {"subscribe": ",".join(self._topics), "includeHeaders": "true", "directRead": path}
        reader = SparklogReader(ReadOptions.for_batch({**given, "kafka.isolation.level": isolation}), _SCHEMA)
        for task in reader.partitions():
            for each in task.ranges:
                records = [*_texts(reader, RangesPartition((each,)))]
                place = {"topic": each.tp.topic, "partition": each.tp.partition, "isolation": isolation}
                self._record("read", first=each.start, next=each.end, records=records, **place)
                self.from_files += path == "always"


def _texts(reader: SparklogReader, part: RangesPartition) -> Iterator[tuple[int, str]]:
    for batch in reader.read(part):
        for row in batch.to_pylist():
            headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
            yield row["offset"], from_wire(row["key"], row["value"], headers)
