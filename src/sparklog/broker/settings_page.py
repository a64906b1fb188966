"""``docs/settings.md``: every setting of a broker and of a topic, told by their definitions.

``python -m sparklog.broker.settings_page > docs/settings.md`` writes it anew.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import ConfigType, Definition, definitions
from sparklog.config.dynamic import DYNAMIC_DEFINITIONS
from sparklog.config.kafka_broker import LEFT_OUT, LEFT_OUT_PREFIXES, LIVE
from sparklog.config.spellings import COARSER_TIMES, DEPRECATED
from sparklog.config.topic import TopicConfig
from sparklog.config.zookeeper_security import ZooKeeperSecurity
from sparklog.security.tls.settings import TlsSettings

_HEAD = """\
# Settings of brokers and topics

The names, the types and the defaults are those of Kafka 3.9. Names that begin with `sparklog.` are sparklog's own. The
settings of clients are in [client.md](client.md), the options of Spark's source in [spark.md](spark.md).

A broker reads its settings from a file in the format of Kafka's `server.properties`: `sparklog broker --config FILE`.
`conf/broker.properties` is one to begin with. A name that is not known ends the start with an error, and
the error says which known name is near.

Some settings change while brokers run: *live* in the tables. `sparklog config alter` sets one for one broker or for
all, and `sparklog topic alter` sets one for a topic. ZooKeeper keeps them. Of several values for one setting the first
of these counts:

1. the topic's own;
2. the one set for this broker while it runs;
3. the one set for all brokers while they run;
4. the one in the broker's file;
5. the default.

`sparklog config describe --broker 0 --all` shows each value and where it comes from.

`9223372036854775807` is the largest number of 64 bits, and `1.7976931348623157e+308` the largest of a double: as a
default they mean that there is no bound. A time is in milliseconds where the name ends in `.ms`, a size in bytes.

This page is made from the code: `python -m sparklog.broker.settings_page`.
"""
_OF_TOPICS = """
## Settings of topics

Each may be set for a topic, and every one changes while brokers run. The default for all topics is a setting of the
broker, in the last column, which is *live* too.

| setting | type | default | allowed | meaning | the broker's name |
| --- | --- | --- | --- | --- | --- |
"""
_OF_BROKERS = """
## Settings of brokers

| setting | type | default | allowed | live | meaning |
| --- | --- | --- | --- | --- | --- |
"""
_OF_TLS = """
## TLS

Each may stand for all listeners, `ssl.keystore.location`, or for one, `listener.name.NAME.ssl.keystore.location`, with
the listener's name in small letters. A broker reads them when it starts; the files that they name are read again when
they change. Clients take the same names. What belongs to SASL is in [security.md](security.md).

| setting | type | default | allowed | meaning |
| --- | --- | --- | --- | --- |
"""
_OF_ZOOKEEPER = """
## Connections to ZooKeeper

A broker reads them when it starts.

| setting | type | default | allowed | meaning |
| --- | --- | --- | --- | --- |
"""
_OTHER_NAMES = """
## Other names

`log.dir` is `log.dirs` with one directory. A time may be given in a coarser unit; the finest that is given counts.

| setting | is |
| --- | --- |
"""
_LEFT_OUT = """
## Settings of Kafka's that mean nothing here

A file of Kafka's may hold these. The broker leaves them out, and one line of its log names those that it found.
"""
_LIVE = """
Kafka changes these while it runs: {}.
A tool may set them here too. They are kept, and DescribeConfigs tells of them once they are set.
"""
_TYPES = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "text",
    ConfigType.INT: "int",
    ConfigType.SHORT: "short",
    ConfigType.LONG: "long",
    ConfigType.DOUBLE: "double",
    ConfigType.LIST: "list",
    ConfigType.PASSWORD: "password",
}
_NUMBERS = (-math.inf, math.inf)
_MUST = "must "


def page() -> str:
    """The whole file."""
    return "".join(_parts())


def allowed(definition: Definition) -> str:
    """What the setting's check says that a value must be; empty where any value of its type is taken."""
    if definition.check is None or definition.kind is ConfigType.PASSWORD:
        return ""
    said = (definition.check(each) for each in _impossible(definition.kind))
    found = next((each for each in said if each is not None and each.startswith(_MUST)), "")
    return found.removeprefix(_MUST).removeprefix("be ").removeprefix("list only ").replace("one of , ", "empty, ")


def _impossible(kind: ConfigType) -> tuple[object, ...]:
    """Values that a check of this kind refuses, if it refuses any."""
    if kind is ConfigType.BOOLEAN:
        return (True, False)
    if kind is ConfigType.LIST:
        return ((), ("?",))
    return ("?",) if kind is ConfigType.STRING else _NUMBERS


def _parts() -> Iterator[str]:
    yield from (_HEAD, _OF_TOPICS)
    for _, each in definitions(TopicConfig).values():
        yield _row(*_beginning(each), each.doc, _code(each.broker_synonym or ""))
    yield _OF_BROKERS
    for _, each in definitions(BrokerConfig).values():
        yield _row(*_beginning(each), "live" if each.name in DYNAMIC_DEFINITIONS else "", each.doc)
    for head, table in ((_OF_TLS, TlsSettings), (_OF_ZOOKEEPER, ZooKeeperSecurity)):
        yield head
        yield from (_row(*_beginning(each), each.doc) for _, each in definitions(table).values())
    yield _OTHER_NAMES
    for name, coarser in COARSER_TIMES.items():
        yield from (_row(_code(other), f"`{name}`, times {unit:,}") for other, unit in coarser)
    yield from (_row(_code(name), f"deprecated: {advice}") for name, advice in DEPRECATED.items())
    yield f"{_LEFT_OUT}\n{', '.join(map(_code, sorted(LEFT_OUT)))}, and all that begin with"
    yield f" {', '.join(map(_code, LEFT_OUT_PREFIXES))}.\n"
    yield _LIVE.format(", ".join(map(_code, LIVE)))


def _beginning(each: Definition) -> tuple[str, ...]:
    """The cells that every table has first."""
    return _code(each.name), _TYPES[each.kind], _code(each.format(each.default)), allowed(each)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
