"""Running functions in Spark's Python workers: a task is a value, and so is what it returns."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
_SCHEMA = "task long, outcome binary"


def run_in_workers(
    spark: SparkSession, tasks: Sequence[Task], begin: Callable[[], Callable[[Task], Any]], slices: int | None = None
) -> list[Any]:
    """What comes of each task, in their order; each is a task of Spark, or in one of ``slices`` of these, in turn.

    A worker calls ``begin`` first, and then what that returns for each of its tasks. Both are sent to the workers. What
    they raise fails the Spark job, after Spark has tried it again where it does so.
    """
    if not tasks:
        return []
    chosen, count = list(tasks), min(len(tasks), slices or len(tasks))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        act = begin()
        for batch in batches:
            numbers = [number for first in batch.column(0).to_pylist() for number in range(first, len(chosen), count)]
            outcomes = [pickle.dumps(act(chosen[number])) for number in numbers]
            columns = [pyarrow.array(numbers, pyarrow.int64()), pyarrow.array(outcomes, pyarrow.binary())]
            yield pyarrow.RecordBatch.from_arrays(columns, names=["task", "outcome"])

    rows = spark.range(0, count, 1, count).mapInArrow(work, _SCHEMA).collect()
    outcomes = {row.task: pickle.loads(row.outcome) for row in rows}
    return [outcomes[number] for number in range(len(chosen))]
