"""``format("sparklog-pausing")``: a sink that waits at known moments of its batches until a test lets it go on.

Option ``pauses`` beside sparklog's: a directory with an empty file ``MOMENT-BATCH`` for each pause. Moments are

- ``writing``: a task has handed a part of its rows to its producer;
- ``prepared``: all tasks have written all rows, and the driver has not begun to decide;
- ``recorded``: the decision is recorded, and nothing is committed yet;
- ``committed``: readers see the batch, and Spark has not been told.

Workers get it all by value: they need not find this module.
"""

import sys
from pathlib import Path

from pyspark import TaskContext, cloudpickle

from sparklog.spark.source import SparklogDataSource
from sparklog.spark.write.decider import Decider
from sparklog.spark.write.decisions import Scope
from sparklog.spark.write.options import WriteOptions
from sparklog.spark.write.writer import Sink, SparklogStreamWriter
from sparklog.testing.eventually import eventually

cloudpickle.register_pickle_by_value(sys.modules[__name__])

PATIENCE_S = 150.0


class Pauses:
    """The pauses in a directory, for both sides."""

    def __init__(self, directory):
        self._directory = directory

    def plan(self, moment, batch):
        Path(self._directory).mkdir(exist_ok=True)
        self._path(moment, batch).touch()

    def is_reached(self, moment, batch):
        return self._path(moment, batch, ".reached").exists()

    def go_on(self, moment, batch, failing=False):
        """Let those who wait there go on, or fail."""
        self._path(moment, batch, ".fail" if failing else ".go").touch()

    def pause(self, moment, batch):
        """Wait here if that is planned."""
        if not self._path(moment, batch).exists():
            return
        self._path(moment, batch, ".reached").touch()
        ends = [self._path(moment, batch, suffix) for suffix in (".go", ".fail")]
        eventually(lambda: any(each.exists() for each in ends), PATIENCE_S, "the word to go on")
        if not ends[0].exists():
            raise RuntimeError("the driver dies here")

    def _path(self, moment, batch, suffix=""):
        return Path(self._directory, f"{moment}-{batch}{suffix}")


class PausingDecider(Decider):
    def __init__(self, config, scope, pauses):
        super().__init__(config, scope)
        self._pauses = pauses

    def record(self, decision):
        super().record(decision)
        self._pauses.pause("recorded", decision.batch)


class PausingSink(Sink):
    def __init__(self, options, pauses):
        super().__init__(options)
        self._pauses = pauses

    def decider(self, scope, *, is_resumable):
        return PausingDecider(self._options.client, Scope(scope, is_resumable), self._pauses)


class PausingWriter(SparklogStreamWriter):
    def __init__(self, options, schema, pauses):
        super().__init__(options, schema)
        self._sink = PausingSink(options, pauses)
        self._pauses = pauses

    def write(self, iterator):
        return super().write(self._pausing(iterator))

    def _pausing(self, iterator):
        for number, rows in enumerate(iterator):
            if number == 1:
                self._pauses.pause("writing", int(TaskContext.get().getLocalProperty("streaming.sql.batchId")))
            yield rows

    def commit(self, messages, batchId):  # noqa: N803
        self._pauses.pause("prepared", batchId)
        super().commit(messages, batchId)
        self._pauses.pause("committed", batchId)

    def abort(self, messages, batchId):  # noqa: N803
        """What fails here stands for a dead driver, which aborts nothing."""


class PausingSource(SparklogDataSource):
    @classmethod
    def name(cls):
        return "sparklog-pausing"

    def streamWriter(self, schema, overwrite):
        return PausingWriter(WriteOptions.for_stream(self.options), schema, Pauses(self.options["pauses"]))
