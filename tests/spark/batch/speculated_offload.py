"""Offloads whose first task Spark does twice at a time: ``speculated_offload.py SERVERS TOPIC HOME``.

Each goes to a place of its own in HOME; ``HOME/attempts/NAME`` has a file for each attempt that has written its rows.
"""

import sys
from pathlib import Path

from pyspark import TaskContext
from spark.speculation import BOTH, FIRST, PATIENCE_S, SECOND, speculating_session

from sparklog.spark.batch import offload
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.spark.lake.delta.upsert_table import UpsertTable
from sparklog.spark.lake.places.file_place import FilesTarget
from sparklog.testing.eventually import eventually

RAW, UPSERT, FILES = "raw", "upsert", "files"
ROUNDS = [(RAW, SECOND), (RAW, FIRST), (RAW, BOTH), (UPSERT, SECOND), (FILES, SECOND)]


def slow(attempts, heard):
    """What begins the tasks in a worker: two attempts of the first one write its rows, and end if they are heard of."""

    def begin():
        def act(named):
            outcome = offload._perform(named)
            if TaskContext.get().partitionId() == 0:
                number = TaskContext.get().attemptNumber()
                (attempts / f"{number}").touch()
                eventually(lambda: len([*attempts.iterdir()]) == 2, PATIENCE_S, "another attempt that has written")
                if heard == (SECOND if number == 0 else FIRST):
                    eventually(lambda: False, PATIENCE_S, "its death")
            return outcome

        return act

    return begin


def target_of(kind, place):
    if kind == FILES:
        return FilesTarget(place)
    return UpsertTable(place) if kind == UPSERT else RawTable(place, ())


def main(servers, topic, home):
    with speculating_session() as spark:
        for kind, heard in ROUNDS:
            name = f"{kind}-{heard}"
            attempts = home / "attempts" / name
            attempts.mkdir(parents=True)
            offload._begin = slow(attempts, heard)
            options = OffloadOptions(servers, (topic,), target_of(kind, str(home / name)), task_bytes=1500)
            run(spark, options)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
