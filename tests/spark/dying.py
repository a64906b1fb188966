"""``format("sparklog-dying")``: a sink that dies at a step of its decider, and tasks that fail.

Options beside sparklog's: ``dieAt`` is STEP/MOMENT, as ``record/before``, ``finish/after`` or ``finish/amid``, of the
decision about batch 1, or STEP/MOMENT/BATCH; where steps come twice the one after the recording counts. ``dieBy`` is
the process to kill, else an error is raised. With ``failTasks`` the first attempt at every second partition fails when
all its rows are written. Workers get it all by value: they need not find this module.
"""

import os
import signal
import sys

from pyspark import TaskContext, cloudpickle

from sparklog.spark.source import SparklogDataSource
from sparklog.spark.write.decider import Decider
from sparklog.spark.write.decisions import Scope
from sparklog.spark.write.options import WriteOptions
from sparklog.spark.write.writer import Sink, SparklogStreamWriter

cloudpickle.register_pickle_by_value(sys.modules[__name__])

_LATE = ("finish", "abort_orphans")


class Death:
    """When to die, and how."""

    def __init__(self, options):
        self.step, self.moment, batch = [*options.get("dieAt", "never").split("/"), "", ""][:3]
        self.batch = int(batch or 1)
        self.process = options.get("dieBy")
        self.fail_tasks = options.get("failTasks") == "true"

    def die(self):
        if self.process is None:
            raise RuntimeError("the driver dies here")
        os.kill(int(self.process), signal.SIGKILL)
        signal.pause()


class DyingDecider(Decider):
    """Dies as it is told to."""

    def __init__(self, config, scope, death):
        super().__init__(config, scope)
        self._death = death
        self._deciding = -1
        self._has_recorded = False

    def _at(self, step, moment):
        death = self._death
        is_here = self._deciding == death.batch and (step, moment) == (death.step, death.moment)
        if is_here and (self._has_recorded or step not in _LATE):
            death.die()

    def commit(self, batch, *args, **kwargs):
        self._deciding = batch
        decided = super().commit(batch, *args, **kwargs)
        self._at("commit", "after")
        return decided

    def take_over(self):
        self._at("take_over", "before")
        last = super().take_over()
        self._at("take_over", "after")
        return last

    def record(self, decision):
        self._at("record", "before")
        super().record(decision)
        self._has_recorded = True
        self._at("record", "after")

    def finish(self, decision, **options):
        self._at("finish", "before")
        if self._has_recorded and self._death.moment == "amid" and self._deciding == self._death.batch:
            self._admin.end_prepared(decision.transactions[:1], commit=True)
            self._death.die()
        super().finish(decision, **options)
        self._at("finish", "after")


class DyingSink(Sink):
    def __init__(self, options, death):
        super().__init__(options)
        self._death = death

    def decider(self, scope, *, is_resumable):
        return DyingDecider(self._options.client, Scope(scope, is_resumable), self._death)


class DyingWriter(SparklogStreamWriter):
    def __init__(self, options, schema, death):
        super().__init__(options, schema)
        self._sink = DyingSink(options, death)
        self._fail_tasks = death.fail_tasks

    def write(self, iterator):
        written = super().write(iterator)
        context = TaskContext.get()
        if self._fail_tasks and context.attemptNumber() == 0 and context.partitionId() % 2 == 0:
            raise RuntimeError("this attempt fails")
        return written

    def abort(self, messages, batchId):  # noqa: N803
        """The driver is dead: nobody aborts."""


class DyingSource(SparklogDataSource):
    @classmethod
    def name(cls):
        return "sparklog-dying"

    def streamWriter(self, schema, overwrite):
        return DyingWriter(WriteOptions.for_stream(self.options), schema, Death(self.options))
