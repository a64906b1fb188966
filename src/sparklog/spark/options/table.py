"""Every option of ``format("sparklog")``, in the order of the documentation.

The names, defaults and precedence of those that Spark's Kafka source has are its own. An option that is added here is
known to the suggestions for misspelt names and to ``docs/spark.md`` (``python -m sparklog.spark.options.page``); a
field of ReadOptions or WriteOptions made by ``option_field`` holds its value.
"""

from __future__ import annotations

from sparklog.spark.options.definition import Option, RefusedSetting, Use
from sparklog.spark.options.directories import DIRECT_MODE, LOG_DIRECTORIES, MOUNTS, DirectMode, Mounts
from sparklog.spark.options.history import AS_OF, TABLE_LOCATION, AsOf
from sparklog.spark.options.kinds import (
    BOOLEAN,
    BOOLEAN_FALSE_FIRST,
    DURATION,
    GROUP,
    SIZE,
    TEXT,
    VERBATIM_TEXT,
    choice,
    integer,
)
from sparklog.spark.options.limits import (
    OFFSETS,
    TIMESTAMP,
    TIMESTAMPS,
    Edge,
    GlobalTimestamp,
    Limit,
    SpecificTimestamps,
)
from sparklog.spark.options.selection import PARTITIONS, TOPIC_PATTERN, TOPICS, Selection

CLIENT_PREFIX = "kafka."
"""What begins so is a setting of the client (``client/cluster/config.py``)."""
_NO_END = "a streaming query has no end"
_NAMES_A_BATCH = "it names a batch write; a streaming query has its name from its checkpoint"

BOOTSTRAP_SERVERS: Option[str | None] = Option(
    "kafka.bootstrap.servers",
    TEXT,
    Use.READ | Use.WRITE,
    "Brokers to ask for the cluster, `host:port,host:port`. Required, unless a read has `path`.",
    None,
)
TASK_TOKEN: Option[int | None] = Option(
    "taskToken",
    DURATION,
    Use.READ | Use.WRITE,
    "Tasks come to the brokers by a delegation token that lasts so long, and are not sent the credentials of"
    " `kafka.sasl.*`. A streaming read renews it. See [security.md](security.md#delegation-tokens).",
    None,
)
ASSIGN: Option[Selection | None] = Option(
    "assign",
    PARTITIONS,
    Use.READ,
    "The partitions to read. Exactly one of `assign`, `subscribe` and `subscribePattern` must be given.",
    None,
)
SUBSCRIBE: Option[Selection | None] = Option(
    "subscribe", TOPICS, Use.READ, "The topics to read, with all their partitions.", None
)
SUBSCRIBE_PATTERN: Option[Selection | None] = Option(
    "subscribePattern",
    TOPIC_PATTERN,
    Use.READ,
    "Reads the topics in whose name the pattern is found, anywhere; internal topics are left out.",
    None,
)
STARTING_TIMESTAMP: Option[GlobalTimestamp | None] = Option(
    "startingTimestamp",
    TIMESTAMP,
    Use.READ,
    "Starts every partition at its first record of this time or later. Goes before the next two options.",
    None,
)
STARTING_OFFSETS_BY_TIMESTAMP: Option[SpecificTimestamps | None] = Option(
    "startingOffsetsByTimestamp",
    TIMESTAMPS,
    Use.READ,
    "The same with a time for each partition; all that are read must be named. Goes before `startingOffsets`.",
    None,
)
STARTING_OFFSETS: Option[Limit] = Option(
    "startingOffsets",
    OFFSETS,
    Use.READ,
    "Where a query without a checkpoint starts. In JSON -2 is the earliest offset and -1 the latest. A batch cannot"
    " start at the latest.",
    Edge.EARLIEST,
    stream_default=Edge.LATEST,
)
STARTING_STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    choice({"error": False, "latest": True}),
    Use.READ,
    "What happens to a partition without a record as late as its starting time: the query fails, or starts at its end.",
    False,
)
ENDING_TIMESTAMP: Option[GlobalTimestamp | None] = Option(
    "endingTimestamp",
    TIMESTAMP,
    Use.BATCH_READ,
    "Ends every partition before its first record of this time or later. Goes before the next two options.",
    None,
    elsewhere=_NO_END,
)
ENDING_OFFSETS_BY_TIMESTAMP: Option[SpecificTimestamps | None] = Option(
    "endingOffsetsByTimestamp",
    TIMESTAMPS,
    Use.BATCH_READ,
    "The same with a time for each partition; all that are read must be named. Goes before `endingOffsets`.",
    None,
    elsewhere=_NO_END,
)
ENDING_OFFSETS: Option[Limit] = Option(
    "endingOffsets",
    OFFSETS,
    Use.BATCH_READ,
    "The offsets before which a read ends; in JSON -1 is the latest. A read cannot end at the earliest.",
    Edge.LATEST,
    elsewhere=_NO_END,
)
MAX_OFFSETS_PER_TRIGGER: Option[int | None] = Option(
    "maxOffsetsPerTrigger", integer(least=1), Use.STREAM_READ, "The most offsets that a micro-batch takes.", None
)
MAX_BYTES_PER_TRIGGER: Option[int | None] = Option(
    "maxBytesPerTrigger",
    SIZE,
    Use.STREAM_READ,
    "The most bytes of the log that a micro-batch takes. Every partition with something to read gives one record at"
    " least.",
    None,
)
MIN_OFFSETS_PER_TRIGGER: Option[int | None] = Option(
    "minOffsetsPerTrigger",
    integer(least=1),
    Use.STREAM_READ,
    "A micro-batch waits for this many offsets, but no longer than `maxTriggerDelay`.",
    None,
)
MAX_TRIGGER_DELAY = Option(
    "maxTriggerDelay",
    DURATION,
    Use.STREAM_READ,
    "How long a micro-batch waits for `minOffsetsPerTrigger`.",
    15 * 60_000,
)
MIN_PARTITIONS: Option[int | None] = Option(
    "minPartitions",
    integer(least=1),
    Use.READ,
    "The fewest tasks of a read, of even bytes; a task has one offset at least. See *Bytes*.",
    None,
)
MAX_RECORDS_PER_PARTITION: Option[int | None] = Option(
    "maxRecordsPerPartition", integer(least=1), Use.READ, "The most offsets that a task reads.", None
)
MAX_BYTES_PER_PARTITION: Option[int | None] = Option(
    "maxBytesPerPartition", SIZE, Use.READ, "The most bytes of the log that a task reads, by estimate.", None
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    BOOLEAN,
    Use.READ,
    "Offsets that are gone fail the query; the message has the topic, the partition and the offsets.",
    True,
)
INCLUDE_HEADERS = Option("includeHeaders", BOOLEAN_FALSE_FIRST, Use.READ, "Adds the column `headers`.", False)
COMMIT_TO_GROUP: Option[str | None] = Option(
    "commitToGroup",
    GROUP,
    Use.STREAM_READ,
    "Commits the query's progress to this consumer group. See *Lag and progress*.",
    None,
)
FETCH_OFFSET_RETRIES = Option(
    "fetchOffset.numRetries",
    integer(least=0),
    Use.READ,
    "Times the next option: how long a partition may end before the offset up to which a stream has read it, until"
    " that is data loss.",
    3,
)
FETCH_OFFSET_RETRY_INTERVAL_MS = Option(
    "fetchOffset.retryIntervalMs", integer(least=0), Use.READ, "See `fetchOffset.numRetries`; milliseconds.", 1000
)
POLL_TIMEOUT_MS: Option[int | None] = Option(
    "kafkaConsumer.pollTimeoutMs",
    integer(least=1),
    Use.READ | Use.WRITE,
    "The client's `kafka.default.api.timeout.ms`, in milliseconds, unless that is given.",
    None,
)
GROUP_ID_PREFIX: Option[str | None] = Option(
    "groupIdPrefix", TEXT, Use.READ, "Has no effect, like `kafka.group.id`: a read uses no consumer group.", None
)
DIRECT_READ = Option(
    "directRead",
    DIRECT_MODE,
    Use.READ,
    "Whether tasks read segment files without the broker. See *Reading segment files directly*.",
    DirectMode.AUTO,
)
DIRECT_READ_MAPPING: Option[Mounts] = Option(
    "directReadMapping", MOUNTS, Use.READ, "Where directories of brokers are mounted on the machines of the tasks.", ()
)
PATH: Option[tuple[str, ...]] = Option(
    "path",
    LOG_DIRECTORIES,
    Use.BATCH_READ,
    "Log directories to read in place of a cluster. See *Reading a log directory without a broker*.",
    (),
    elsewhere="log directories are read by batch queries; a stream needs a broker",
)
HISTORY: Option[str | None] = Option(
    "history",
    TABLE_LOCATION,
    Use.READ,
    "The table of an [offload](offload.md): older records are read from it, later ones from the log. See"
    " [history.md](history.md).",
    None,
)
HISTORY_AS_OF: Option[AsOf | None] = Option(
    "historyAsOf",
    AS_OF,
    Use.BATCH_READ,
    "Reads that version of `history`, and nothing of the log.",
    None,
    elsewhere="a stream goes on with what is new; a version of a table is read by a batch",
)
TOPIC: Option[str | None] = Option(
    "topic", TEXT, Use.WRITE, "The topic of all rows. Goes before the column `topic`.", None
)
DELIVERY = Option(
    "delivery",
    choice({"exactly-once": True, "at-least-once": False}),
    Use.WRITE,
    "`at-least-once` uses no transactions: a run of a task writes each row once and in order (unless `kafka.acks` or"
    " `kafka.enable.idempotence` say otherwise), and a task that Spark runs again writes its rows again.",
    True,
)
TXN_APP_ID: Option[str | None] = Option(
    "txnAppId",
    TEXT,
    Use.BATCH_WRITE,
    "The name of a batch write. With `txnVersion`, each version of a name is written once. See *Exactly once*.",
    None,
    elsewhere=_NAMES_A_BATCH,
)
TXN_VERSION: Option[int | None] = Option(
    "txnVersion",
    integer(least=0),
    Use.BATCH_WRITE,
    "The number of a batch write under its `txnAppId`; it must rise.",
    None,
    elsewhere=_NAMES_A_BATCH,
)
ABANDONED_AFTER = Option(
    "abandonedAfter",
    DURATION,
    Use.BATCH_WRITE,
    "This batch write finishes those without a name that have begun no task for so long; `0`: it finishes none.",
    24 * 3_600_000,
)
CHECKPOINT_LOCATION: Option[str | None] = Option(
    "checkpointLocation", VERBATIM_TEXT, Use.STREAM_WRITE, "Spark's own: the checkpoint of a streaming query.", None
)
TRANSACTION_TIMEOUT_MS = Option(
    "kafka.transaction.timeout.ms",
    integer(least=1, most=2**31 - 1),
    Use.WRITE,
    "How long a transaction may stay open, in milliseconds. Only clusters without two-phase commit obey it.",
    900_000,
)
IDEMPOTENCE: Option[bool | None] = Option(
    "kafka.enable.idempotence",
    BOOLEAN,
    Use.WRITE,
    "`false`, for `at-least-once` only: batches have no numbers, so what a run of a task sends again may be written"
    " twice, or out of order. Otherwise they have numbers where `kafka.acks` is `all` and at most 5 requests are in"
    " flight; with `true` anything else is an error.",
    None,
)

OPTIONS: tuple[Option[object], ...] = tuple(each for each in list(globals().values()) if isinstance(each, Option))

REFUSED_SETTINGS = (
    RefusedSetting(
        "auto.offset.reset",
        Use.READ,
        "set the option 'startingOffsets' instead; Spark keeps track of what was read",
    ),
    RefusedSetting("key.deserializer", Use.READ, "keys arrive as binary; decode them in Spark"),
    RefusedSetting("value.deserializer", Use.READ, "values arrive as binary; decode them in Spark"),
    RefusedSetting("enable.auto.commit", Use.READ, "the source commits no offsets; Spark's checkpoint holds them"),
    RefusedSetting("interceptor.classes", Use.READ, "interceptors are Java classes"),
    RefusedSetting(
        "transactional.id",
        Use.WRITE,
        "each task has one of its own; name a batch write with 'txnAppId' and 'txnVersion'",
    ),
    RefusedSetting("key.serializer", Use.WRITE, "keys are written as binary; encode them in Spark"),
    RefusedSetting("value.serializer", Use.WRITE, "values are written as binary; encode them in Spark"),
)
"""Settings of Kafka's clients that would contradict the query."""
