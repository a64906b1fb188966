"""Kafka's own programs by their classes, and what the tests ask of them."""

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
KEYED = ("--property", "parse.key=true", "--property", "key.separator=:")

MOVED = {
    "kafka": {
        CONSOLE_PRODUCER: "kafka.tools.ConsoleProducer",
        API_VERSIONS: "kafka.admin.BrokerApiVersionsCommand",
    },
    "kafka-4": {},
}
"""By JAR set, the classes that are elsewhere in it."""


def write(tool, topic, *records, settings=()):
    properties = [word for setting in settings for word in ("--producer-property", setting)]
    tool(CONSOLE_PRODUCER, "--topic", topic, *properties, *KEYED, stdin="".join(f"{each}\n" for each in records))


def consumed(tool, topic, count):
    """Key, tab, value of ``count`` records from the start; the consumer is a group of one."""
    asked = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000", "--property", "print.key=true")
    return set(tool(CONSOLE_CONSUMER, "--topic", topic, *asked).splitlines())


def offsets(tool, topic, when):
    lines = tool(OFFSETS, "--topic", topic, "--time", when).split()
    return {int(number): int(offset) for _, number, offset in (line.rsplit(":", 2) for line in lines)}
