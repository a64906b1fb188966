"""Delta tables written by hand: a log of JSON commits, and Parquet files by pyarrow. No JVM has a part in it."""

import json
from contextlib import suppress
from urllib.parse import quote, unquote
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.spark.lake.columns import TableColumns
from sparklog.spark.lake.files import TableFiles, WriteRanges
from sparklog.spark.lake.history.snapshot import Snapshot
from sparklog.spark.lake.progress import APPLICATION, EPOCH_APPLICATION, Progress
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.read.resolver import OffsetResolver
from sparklog.structs import TopicPartition

TOPIC, TOPIC_ID, CLUSTER = "clicks", UUID(int=7), "cluster"
_KINDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def wanted(start, end, partition=0, topic=TOPIC):
    return OffsetRange(TopicPartition(topic, partition), start, end, TOPIC_ID)


def progress(partition=0, topic=TOPIC):
    return Progress(CLUSTER, TopicPartition(topic, partition), TOPIC_ID)


def rows(offsets, partition=0, topic=TOPIC, time_ms=lambda offset: offset * 1000, value=lambda offset: b"v%d" % offset):
    """Rows of these offsets, in the order in which they are given."""
    return pa.Table.from_pydict(
        {
            "key": [b"k%d" % each for each in offsets],
            "value": [value(each) for each in offsets],
            "topic": [topic] * len(offsets),
            "partition": [partition] * len(offsets),
            "offset": list(offsets),
            "timestamp": [time_ms(each) * 1000 for each in offsets],
            "timestampType": [0] * len(offsets),
            "headers": [[{"key": "h", "value": b"%d" % each}] if each % 2 else None for each in offsets],
        },
        schema=pa.schema(_KINDS.items()),
    )


class DeltaLog:
    """A table at ``path``; a commit is a number."""

    def __init__(self, path, schema=None, configuration=(), protocol=(1, 2), features=()):
        self.path, self.version = path, -1
        (path / "_delta_log").mkdir(parents=True)
        told = {"minReaderVersion": protocol[0], "minWriterVersion": protocol[1]}
        if features:
            told |= {"readerFeatures": list(features), "writerFeatures": list(features)}
        self._commit(
            {"protocol": told},
            {
                "metaData": {
                    "id": str(uuid4()),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": (schema or TableColumns().of_new_table(())).json(),
                    "partitionColumns": [],
                    "configuration": dict(configuration),
                    "createdTime": 0,
                }
            },
        )

    def append(
        self, *tables, ends=None, told=("topic", "partition", "offset", "timestamp"), remove=(), directory="", **writing
    ):
        """A file a table; ``ends``: partition → next offset. The paths of the files."""
        actions = [self._written(table, told, writing, directory) for table in tables]
        for partition, end in (ends or {}).items():
            actions.append({"txn": {"appId": progress(partition).to_application(), "version": end}})
        actions += [{"remove": {"path": path, "dataChange": False, "deletionTimestamp": 0}} for path in remove]
        self._commit(*actions)
        return [unquote(each["add"]["path"]) for each in actions if "add" in each]

    def _written(self, table, told, writing, directory):
        path = f"{directory}part-{uuid4()}.parquet"
        (self.path / path).parent.mkdir(exist_ok=True)
        pq.write_table(table, self.path / path, **writing)
        stats = {
            "numRecords": table.num_rows,
            "minValues": _ends(table, told, min),
            "maxValues": _ends(table, told, max),
        }
        size = (self.path / path).stat().st_size
        return {
            "add": {
                "path": quote(path),
                "partitionValues": {},
                "size": size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps(stats),
            }
        }

    def offload(self, servers, *topics, **limits):
        """What a job of an offload does, but for Delta's own code in a JVM: the same files, the same offsets."""
        options = ReadOptions.for_batch(
            {
                "kafka.bootstrap.servers": servers,
                "subscribe": ",".join(topics),
                "kafka.isolation.level": "read_committed",
            }
        )
        with ClusterMetadata(options.client) as cluster:
            resolver = OffsetResolver(cluster, options)
            ids = resolver.partitions()
            first, (last, epochs) = resolver.earliest(ids), resolver.ends_and_epochs(ids)
            known = {tp: Progress(cluster.cluster_id, tp, topic_id) for tp, topic_id in ids.items()}
        snapshot = Snapshot.open(str(self.path))
        starts = {tp: max(snapshot.end(each), first[tp]) for tp, each in known.items()}
        ranges = [OffsetRange(tp, starts[tp], last[tp], ids[tp]) for tp in ids if starts[tp] < last[tp]]
        table = TableFiles(str(self.path), tuple(TableColumns().of_new_table(()).names), (), **limits)
        written = [WriteRanges(options, (each,), table).run() for each in ranges]
        adds = [{"add": file.to_action()} for each in written for file in each.files]
        ends = [
            {"txn": {"appId": known[each.tp].to_application(kind), "version": version}}
            for each in ranges
            for kind, version in ((APPLICATION, each.end), (EPOCH_APPLICATION, epochs[each.tp]))
        ]
        if ranges:
            self._commit(*adds, *ends)

    def _commit(self, *actions):
        """Under the next number that nobody has."""
        text = "".join(json.dumps(each) + "\n" for each in actions)
        while True:
            self.version += 1
            with suppress(FileExistsError), (self.path / "_delta_log" / f"{self.version:020}.json").open("x") as file:
                file.write(text)
                return


def _ends(table, names, end):
    return {name: _text(end(table.column(name).to_pylist())) for name in names if name in table.column_names}


def _text(value):
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if hasattr(value, "isoformat") else value
