"""What Spark's Kafka connector and ours are both asked, option by option; $-names stand for topics of the data set.

The data set: ``$t`` has ten records in partition 0 (timestamps 1000 to 1009), three in partition 1 (2000 to 2002) and
none in partition 2; ``$x`` has one partition of transactions: three records committed, two aborted, two committed;
``$other`` is a topic whose name holds that of ``$t`` in its middle; ``$decisions`` is the one in which the sink keeps
what it has decided, with a record.
"""

from dataclasses import dataclass, field
from string import Template

NO_SELECTION = "no selection"


@dataclass(frozen=True)
class Case:
    """A read. ``ours`` says how ours differs from the connector on purpose: "refuses", "reads", "reads other rows"."""

    name: str
    options: dict[str, str] = field(default_factory=dict)
    stream: bool = False
    ours: str = ""

    def filled(self, names):
        """The options, with the topics' real names; ``$t`` is subscribed to where nothing is selected."""
        selected = self.options.keys() & {"assign", "subscribe", "subscribePattern"}
        implied = {} if selected or self.name == NO_SELECTION else {"subscribe": "$t"}
        return {name: Template(value).substitute(names) for name, value in (implied | self.options).items()}


def _both(name, **options):
    """The case as a batch and as a stream."""
    return [Case(name, options), Case(f"{name}, streaming", {"startingOffsets": "earliest", **options}, stream=True)]


def _starts(name, **options):
    return [Case(name, options), Case(f"{name}, streaming", options, stream=True)]


_ALL = '{"$t": {"0": 0, "1": 0, "2": 0}}'

CASES = [
    *_both("everything"),
    *_both("headers", includeHeaders="true"),
    *_both("two topics", subscribe="$t, $x,,"),
    *_both("a pattern", subscribePattern="$t"),
    *_both("a pattern of a part of the name", subscribePattern="middle-of-[a-z]+"),
    *_both("a pattern with an anchor", subscribePattern="^$t$$"),
    Case("a pattern that nothing matches", {"subscribePattern": "no-such-topic.*"}),
    Case("a pattern that matches internal topics too", {"subscribePattern": "($t|__consumer_.*|__transaction_.*)"}),
    Case("a pattern that matches the sink's topic too", {"subscribePattern": "($t|__.*)"}, ours="reads other rows"),
    *_both("the sink's topic by its name", subscribe="$decisions"),
    *_both("some partitions", assign='{"$t": [0, 2]}'),
    Case("a partition that does not exist", {"assign": '{"$t": [0, 7]}'}, ours="refuses"),
    Case("a topic that does not exist", {"subscribe": "no-such-topic"}),
    Case(NO_SELECTION),
    Case("two selections", {"subscribe": "$t", "assign": '{"$t": [0]}'}),
    Case("an empty list", {"subscribe": " , "}),
    Case("an empty pattern", {"subscribePattern": " "}),
    Case("partitions that are no JSON", {"assign": "$t"}),
    Case("no partitions", {"assign": "{}"}, ours="refuses"),
    # Where to start.
    *_starts("from the earliest", startingOffsets="earliest"),
    *_starts("in capitals", startingOffsets="EARLIEST"),
    *_starts("from the latest", startingOffsets="latest"),
    *_starts("from offsets", startingOffsets='{"$t": {"0": 4, "1": 3, "2": 0}}'),
    *_starts("from the earliest by number", startingOffsets='{"$t": {"0": -2, "1": 1, "2": -2}}'),
    *_starts("from the latest by number", startingOffsets='{"$t": {"0": -1, "1": 0, "2": 0}}'),
    *_starts("from below the latest by number", startingOffsets='{"$t": {"0": -3, "1": 0, "2": 0}}'),
    *_starts("a partition is missing", startingOffsets='{"$t": {"0": 4, "1": 3}}'),
    *_starts("a partition too many", startingOffsets='{"$t": {"0": 4, "1": 3, "2": 0, "3": 0}}'),
    *_starts("no JSON", startingOffsets="soon"),
    *_starts("offsets as text", startingOffsets='{"$t": {"0": "4", "1": 3, "2": 0}}'),
    Case("a partition twice", {"startingOffsets": '{"$t": {"0": 1, "00": 4, "1": 0, "2": 0}}'}, ours="refuses"),
    Case("a topic twice", {"assign": '{"$t": [0], "$t": [1]}'}, ours="refuses"),
    *_starts("from beyond the end", startingOffsets='{"$t": {"0": 40, "1": 0, "2": 0}}'),
    Case(
        "from beyond the end, though data is lost",
        {"startingOffsets": '{"$t": {"0": 40, "1": 0, "2": 0}}', "failOnDataLoss": "false"},
        ours="reads",
    ),
    *_starts("from a time", startingTimestamp="1004", startingOffsetsByTimestampStrategy="latest"),
    *_starts("from a time that one partition does not reach", startingTimestamp="1004"),
    *_starts("from before all", subscribe="$x", startingTimestamp="1"),
    *_starts("from a time after all", startingTimestamp="3000", startingOffsetsByTimestampStrategy="LATEST"),
    *_starts("from no time", startingTimestamp="yesterday"),
    *_starts("from the latest as a time", startingTimestamp="-1"),
    *_starts("from the earliest as a time", startingTimestamp="-2"),
    *_starts("from a negative time", startingTimestamp="-9"),
    *_starts(
        "from the ends as times",
        startingOffsetsByTimestamp='{"$t": {"0": 1007, "1": -2, "2": -1}}',
    ),
    *_starts(
        "from times",
        startingOffsetsByTimestamp='{"$t": {"0": 1007, "1": 2001, "2": 5}}',
        startingOffsetsByTimestampStrategy="latest",
    ),
    *_starts(
        "from times, a partition missing",
        startingOffsetsByTimestamp='{"$t": {"0": 1007}}',
        startingOffsetsByTimestampStrategy="latest",
    ),
    *_starts("a strategy that is none", startingTimestamp="1004", startingOffsetsByTimestampStrategy="earliest"),
    *_starts(
        "a time goes before times and offsets",
        startingTimestamp="1005",
        startingOffsetsByTimestamp=_ALL,
        startingOffsets="earliest",
        startingOffsetsByTimestampStrategy="latest",
    ),
    *_starts(
        "times go before offsets",
        startingOffsetsByTimestamp='{"$t": {"0": 1007, "1": 2001, "2": 5}}',
        startingOffsets="earliest",
        startingOffsetsByTimestampStrategy="latest",
    ),
    # Where to end.
    Case("to the latest", {"endingOffsets": "latest"}),
    Case("to the earliest", {"endingOffsets": "earliest"}),
    Case("to offsets", {"endingOffsets": '{"$t": {"0": 4, "1": -1, "2": 0}}'}),
    Case("to the earliest by number", {"endingOffsets": '{"$t": {"0": 4, "1": -2, "2": 0}}'}),
    Case("to an end that one does not name", {"endingOffsets": '{"$t": {"0": 4}}'}),
    Case(
        "from offsets to offsets",
        {"startingOffsets": '{"$t": {"0": 2, "1": 1, "2": 0}}', "endingOffsets": '{"$t": {"0": 4, "1": 1, "2": 0}}'},
    ),
    Case(
        "to offsets before the start",
        {"startingOffsets": '{"$t": {"0": 5, "1": 1, "2": 0}}', "endingOffsets": '{"$t": {"0": 4, "1": 1, "2": 0}}'},
    ),
    Case(
        "to offsets of other partitions",
        {"startingOffsets": '{"$t": {"0": 5, "1": 1, "2": 0}}', "endingOffsets": '{"$t": {"0": 4, "1": 1}}'},
    ),
    Case(
        "to offsets beyond the end",
        {"endingOffsets": '{"$t": {"0": 40, "1": 1, "2": 0}}', "kafkaConsumer.pollTimeoutMs": "2000"},
    ),
    Case(
        "to offsets beyond the end, though data is lost",
        {
            "endingOffsets": '{"$t": {"0": 40, "1": 1, "2": 0}}',
            "failOnDataLoss": "false",
            "kafkaConsumer.pollTimeoutMs": "2000",
        },
    ),
    Case("to a time", {"endingTimestamp": "1004"}),
    Case("to a time after all", {"endingTimestamp": "5000"}),
    Case("to the latest as a time", {"endingTimestamp": "-1"}),
    Case("to the earliest as a time", {"endingTimestamp": "-2"}),
    Case("to the greatest time as Kafka's protocol has it", {"endingTimestamp": "-3"}, ours="refuses"),
    Case("to a negative time", {"endingTimestamp": "-9"}),
    Case("to the ends as times", {"endingOffsetsByTimestamp": '{"$t": {"0": 1003, "1": -2, "2": -1}}'}),
    Case("to times", {"endingOffsetsByTimestamp": '{"$t": {"0": 1003, "1": 2002, "2": 1}}'}),
    Case(
        "from a time to a time",
        {
            "subscribe": "$t",
            "startingTimestamp": "1002",
            "endingTimestamp": "1006",
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ),
    Case(
        "from a time to one before it",
        {"startingTimestamp": "1006", "endingTimestamp": "1002", "startingOffsetsByTimestampStrategy": "latest"},
        ours="reads",
    ),
    Case(
        "from times to ones before them",
        {
            "startingOffsetsByTimestamp": '{"$t": {"0": 1006, "1": 2000, "2": 1}}',
            "endingOffsetsByTimestamp": '{"$t": {"0": 1003, "1": 2002, "2": 1}}',
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ),
    Case(
        "an end's time goes before times and offsets",
        {"endingTimestamp": "1003", "endingOffsetsByTimestamp": _ALL, "endingOffsets": "latest"},
    ),
    Case("a stream to an offset", {"endingOffsets": "latest"}, stream=True),
    Case("a stream to times", {"endingOffsetsByTimestamp": _ALL}, stream=True),
    Case("a stream to a time", {"startingOffsets": "earliest", "endingTimestamp": "1003"}, stream=True, ours="refuses"),
    # How much, in how many pieces.
    *_both("more partitions", minPartitions="7"),
    *_both("partitions of a few records", maxRecordsPerPartition="2"),
    *_both("both", minPartitions="3", maxRecordsPerPartition="4"),
    *_both("no partitions at least", minPartitions="0"),
    *_both("no records a partition", maxRecordsPerPartition="0"),
    *_both("a number that is none", minPartitions="many"),
    Case("a few offsets a trigger", {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}, stream=True),
    Case("many offsets a trigger", {"startingOffsets": "earliest", "minOffsetsPerTrigger": "9"}, stream=True),
    Case("more at least than at most", {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "4"}, stream=True),
    Case("limits of a trigger in a batch", {"maxOffsetsPerTrigger": "4", "minOffsetsPerTrigger": "2"}),
    # The rest.
    *_both("a word for a yes", failOnDataLoss="yes"),
    *_both("a word for headers", includeHeaders="yes"),
    *_both("a group", **{"kafka.group.id": "mine"}),
    *_both("a prefix of groups", groupIdPrefix="mine"),
    *_both("retries", **{"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "5"}),
    *_both("all that is in the log", subscribe="$x"),
    *_both("what is committed", subscribe="$x", **{"kafka.isolation.level": "read_committed"}),
    *_both("no isolation", subscribe="$x", **{"kafka.isolation.level": "mine"}),
    *[
        Case(f"kafka.{name}", {f"kafka.{name}": "x"}, stream)
        for name in (
            "auto.offset.reset",
            "key.deserializer",
            "value.deserializer",
            "enable.auto.commit",
            "interceptor.classes",
        )
        for stream in (False, True)
    ],
]
