"""What is offloaded, and how it is judged: records by chance, and a table or files beside the log that they are of."""

from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyarrow.parquet import ParquetFile

from sparklog.spark.lake.places.file_manifest import read_manifest

COLUMNS = ("partition", "offset", "key", "value", "timestamp", "timestampType", "topic", "headers")


class Sent:
    """Makes records by chance."""

    def __init__(self, chance, topic, partitions, value=None, keys=None):
        """Of so many keys; None for a new one each time."""
        self._chance, self._topic, self._partitions, self._keys = chance, topic, partitions, keys
        self._value = value or (lambda chance: chance.randbytes(chance.randrange(80)) or None)
        self._number = 0

    def write(self, producer, least=0):
        """So many at least; the partition, key and value of each."""
        written = []
        for _ in range(self._chance.randrange(least, 25)):
            self._number += 1
            value = self._value(self._chance)
            key = b"%d" % (self._number if self._keys is None else self._chance.randrange(self._keys))
            partition = self._chance.randrange(self._partitions)
            producer.send(
                self._topic,
                value,
                key=key,
                partition=partition,
                timestamp=self._chance.randrange(10**12),
                headers=[(f"h{number}", self._chance.choice([None, b"", b"v"])) for number in range(self._number % 3)],
            )
            written.append((partition, key, value))
        producer.flush()
        return written


def in_table(spark, table):
    """The rows of a Delta table, all columns of a log."""
    return sorted_rows(spark.read.format("delta").load(table))


def in_parquet(spark, uri):
    """The rows of the Parquet files of a place."""
    return sorted_rows(spark.read.parquet(*read_manifest(uri).paths))


def in_log(spark, servers, topic):
    """What ``read_committed`` readers see of a topic."""
    settings = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    return sorted_rows(spark.read.format("sparklog").options(**settings, includeHeaders="true").load())


def sorted_rows(frame):
    """The rows, all columns of them; no headers are none, however they are told."""
    rows = (tuple(row) for row in frame.select(*COLUMNS).collect())
    return sorted(((*row[:-1], [tuple(each) for each in row[-1] or ()]) for row in rows), key=repr)


def last_of_each_key(rows):
    """Those rows of a log that a table of its keys has, once tombstones have deleted."""
    last = {(row[0], row[2]): row for row in sorted(rows, key=lambda row: row[:2])}
    return sorted((row for row in last.values() if row[3] is not None), key=repr)


def files_in_order(spark, table):
    """Whether each file has the records of a partition in the order of the log."""
    names = spark.read.format("delta").load(table).inputFiles()
    for name in names:
        columns = ParquetFile(unquote(urlsplit(name).path)).read().to_pydict()
        partitions = columns.get("partition", [0] * len(columns["offset"]))
        places = list(zip(partitions, columns["offset"], strict=True))
        if any(one[0] == two[0] and one[1] >= two[1] for one, two in pairwise(places)):
            return False
    return len(names) > 0


def bytes_in_files(uri, tp):
    """What the segments of a place have of a partition, in the order of its offsets."""
    found = read_manifest(uri)
    mine = sorted((each.start, path) for each, path in zip(found.files, found.paths, strict=True) if each.tp == tp)
    return b"".join(Path(path).read_bytes() for _, path in mine)


def log_bytes(cluster, tp, broker=0):
    """What a broker's replica has on its disk."""
    directory = cluster.directory.broker(broker) / str(tp)
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
