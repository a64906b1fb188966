"""Writes whose first task Spark does twice at a time: ``speculated_write.py SERVERS SOURCE HOME``.

Each is into a topic of its own, which is there; ``HOME/attempts/TOPIC`` has a file for each attempt whose rows have all
gone to the writer.
"""

import sys
from pathlib import Path

from pyspark import TaskContext
from spark.speculation import BOTH, FIRST, PATIENCE_S, SECOND, speculating_session

from sparklog.testing.eventually import eventually

BATCH, STREAM = "batch", "stream"
ROUNDS = [(kind, heard) for kind in (BATCH, STREAM) for heard in (FIRST, SECOND, BOTH)]


def slow(attempts, heard):
    """Rows as they are; of the first task two attempts have given theirs to the writer before one comes to its end."""

    def act(rows):
        yield from rows
        if TaskContext.get().partitionId() == 0:
            number = TaskContext.get().attemptNumber()
            (attempts / f"{number}").touch()
            eventually(lambda: len([*attempts.iterdir()]) == 2, PATIENCE_S, "another attempt that has given its rows")
            if heard == (SECOND if number == 0 else FIRST):
                eventually(lambda: False, PATIENCE_S, "its death")

    return act


def main(servers, source, home):
    with speculating_session() as spark:
        for kind, heard in ROUNDS:
            topic = f"{kind}-{heard}"
            attempts = home / "attempts" / topic
            attempts.mkdir(parents=True)
            options = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest"}
            if kind == BATCH:
                frame = spark.read.format("sparklog").options(subscribe=source, **options).load()
            else:
                frame = spark.readStream.format("sparklog").options(subscribe=source, **options).load()
            slowed = frame.select("key", "value").mapInArrow(slow(attempts, heard), "key BINARY, value BINARY")
            if kind == BATCH:
                slowed.write.format("sparklog").mode("append").options(topic=topic, **options).save()
            else:
                writer = slowed.writeStream.format("sparklog").options(topic=topic, **options)
                writer = writer.option("checkpointLocation", str(home / "checkpoints" / topic))
                writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
