"""``docs/client.md``: Producer, Consumer and Admin in full, told by their own signatures and docstrings.

``python -m sparklog.client.client_page > docs/client.md`` writes it anew.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, ForwardRef

from sparklog import errors
from sparklog.client.admin import admin
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.offsets import OffsetAndTimestamp
from sparklog.client.consumer.async_consumer import AsyncConsumer
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.group.metadata import GroupMetadata
from sparklog.client.consumer.record import ConsumerRecord
from sparklog.client.producer import delivery
from sparklog.client.producer.async_producer import AsyncProducer
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.producer import Producer
from sparklog.cluster import info as cluster_info
from sparklog.config.definition import definitions
from sparklog.structs import TopicPartition

_HEAD = """\
# The Python client

`sparklog.client` has three clients: `Producer`, `Consumer` and `Admin`. Each blocks. `AsyncProducer`, `AsyncConsumer`
and `AsyncAdmin` have the same methods on an event loop: a call marked *await* is awaited there, and `with` is `async
with`. All work with sparklog's brokers and with Kafka's. The [tutorial](tutorial.md) begins with programs. What a
program gets that crashes: [guarantees.md](guarantees.md#exactly-once).

```python
import pyarrow as pa

from sparklog.client import Admin, Consumer, NewTopic, Producer

with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
    future = producer.send("clicks", "a value", key="a key", headers={"h": b"1"})
    print(future.result())
    producer.send_arrow("clicks", pa.table({"key": ["a", "b"], "value": ["1", "2"]}))

with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="readers", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["clicks"])
    print(consumer.poll(timeout=10, max_records=3))
    print(consumer.poll_arrow(timeout=10).schema)

with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
    admin.create_topics([NewTopic("orders", partitions=3)])
    print([topic.name for topic in admin.list_topics()])
```

On an event loop `send` is awaited twice, `await (await producer.send("clicks", "v"))`: first for room to queue the
record, then for its delivery.

Settings have Kafka's names. Give them in a mapping, `Producer({"bootstrap.servers": "127.0.0.1:9092"})`, or as keywords
with `_` for the dots, `Producer(bootstrap_servers="127.0.0.1:9092")`. Kafka's settings that mean nothing here are left
out with a warning; those of TLS and SASL are in [security.md](security.md).

Made from the code: `python -m sparklog.client.client_page`.
"""
_CLIENTS: tuple[tuple[type, type, type], ...] = (
    (Producer, AsyncProducer, ProducerConfig),
    (Consumer, AsyncConsumer, ConsumerConfig),
    (admin.Admin, admin.AsyncAdmin, ClientConfig),
)
_VALUES: tuple[type, ...] = (
    TopicPartition,
    delivery.RecordFuture,
    delivery.BatchFuture,
    delivery.RecordMetadata,
    delivery.BatchMetadata,
    ConsumerRecord,
    admin.OffsetAndMetadata,
    OffsetAndTimestamp,
    GroupMetadata,
    admin.NewTopic,
    cluster_info.ClusterInfo,
    cluster_info.TopicInfo,
    cluster_info.PartitionInfo,
    admin.ConfigEntry,
    admin.AclBinding,
    admin.ResourcePattern,
    admin.AclEntry,
    admin.AclFilter,
    admin.UserScramUpsertion,
    admin.UserScramDeletion,
    admin.DelegationToken,
    admin.LogDir,
    admin.CompactionDescription,
    admin.BrokerCompaction,
    admin.CompactionState,
    admin.CompactionOutcome,
    admin.Compaction,
    admin.ErasureReport,
    admin.ErasedReplica,
    admin.SearchedSegment,
    admin.ErasureProgress,
    admin.RetentionState,
    admin.GroupListing,
    admin.GroupDescription,
    admin.GroupMember,
    admin.TransactionListing,
    admin.TransactionDescription,
    admin.ActiveProducer,
    admin.PreparedTransaction,
)
_WHERE_VALUES_ARE = """\
`NewTopic`, `OffsetAndMetadata` and `TopicPartition` are imported from `sparklog.client`; what else a program makes to
hand it to an `Admin` is in `sparklog.client.admin.admin`.
"""
_ERRORS: tuple[type[Exception], ...] = (
    errors.ApiError,
    errors.PartlyQueued,
    errors.PartlyWritten,
    errors.ConnectionFailed,
    errors.ConfigError,
    errors.LocalProtocolError,
    errors.ClientClosed,
    errors.CorruptRecord,
    errors.DeserializationError,
    errors.WokenUp,
)


def page() -> str:
    """The whole file."""
    parts = [_HEAD]
    for blocking, awaited, config in _CLIENTS:
        parts += [f"## {blocking.__name__} and {awaited.__name__}\n", _theory(awaited), *_methods(blocking, awaited)]
        parts += [f"### Settings of {blocking.__name__}\n", _settings(config)]
    parts += ["## Values\n", _WHERE_VALUES_ARE, *(_value(each) for each in _VALUES)]
    parts += ["## Errors\n", "Every error is a `SparklogError` of `sparklog.errors`.\n", _errors()]
    return "\n".join(parts)


def names(blocking: type) -> list[str]:
    """The public methods and properties of a client, in the order of its source."""
    return [name for name in vars(blocking) if not name.startswith("_")]


def promise(blocking: type, awaited: type, name: str) -> str:
    """What a method promises: the twin on the event loop says it in full."""
    return inspect.getdoc(getattr(awaited, name, None)) or inspect.getdoc(getattr(blocking, name)) or ""


def _theory(awaited: type) -> str:
    """What the client as a whole promises: its module's docstring, then its own."""
    _, _, theory = (inspect.getdoc(sys.modules[awaited.__module__]) or "").partition("\n\n")
    return f"{_text(theory)}\n\n{_text(inspect.getdoc(awaited) or '')}\n"


def _methods(blocking: type, awaited: type) -> Iterator[str]:
    for name in names(blocking):
        found, twin = getattr(blocking, name), getattr(awaited, name, None)
        if isinstance(found, property):
            head = f"`{name}` *property* → `{_annotation(inspect.signature(found.fget).return_annotation)}`"  # type: ignore[arg-type]
        else:
            head = f"`{_signature(name, found)}`" + (" *await*" if inspect.iscoroutinefunction(twin) else "")
        yield f"#### {name}\n\n{head}\n\n{_text(promise(blocking, awaited, name))}\n"


def _signature(name: str, method: Any) -> str:
    signature = inspect.signature(method)
    parts: list[str] = []
    for each in list(signature.parameters.values())[1:]:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(_parameter(each))
    returned = _annotation(signature.return_annotation)
    return f"{name}({', '.join(parts)})" + (f" -> {returned}" if returned != "None" else "")


def _parameter(each: inspect.Parameter) -> str:
    star = "*" if each.kind is inspect.Parameter.VAR_POSITIONAL else ""
    text = f"{star}{each.name}: {_annotation(each.annotation)}"
    return text if each.default is inspect.Parameter.empty else f"{text} = {each.default!r}"


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return text.replace('"', "")


def _settings(config: type) -> str:
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for name, (_, each) in definitions(config).items():
        default = each.format(each.default)
        rows.append(f"| `{name}` | {f'`{default}`' if default else ''} | {_text(each.doc)} |")
    return "\n".join(rows) + "\n"


def _value(cls: type) -> str:
    fields = getattr(cls, "_fields", None) or tuple(
        each.name for each in (dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ())
    )
    annotations = inspect.get_annotations(cls)
    shown = ", ".join(f"{name}: {_annotation(annotations.get(name, ''))}" for name in fields)
    lines = [f"### {cls.__name__}\n"] + ([f"`{cls.__name__}({shown})`\n"] if shown else [])
    lines.append(_text(inspect.getdoc(cls) or "") + "\n")
    if not fields:
        for name in dict.fromkeys(name for each in reversed(cls.__mro__) for name in vars(each) if name[0] != "_"):
            method = getattr(cls, name)
            if callable(method) and name != "tell":
                lines.append(f"- `{_signature(name, method)}`: {_text(inspect.getdoc(method) or '')}")
        lines.append("")
    return "\n".join(lines)


def _errors() -> str:
    rows = ["| error | when |", "| --- | --- |"]
    rows += [f"| `{each.__name__}` | {_text(inspect.getdoc(each) or '').splitlines()[0]} |" for each in _ERRORS]
    return "\n".join(rows) + "\n"


def _text(docstring: str) -> str:
    """A docstring as Markdown: code in single backticks, a literal block fenced."""
    return re.sub(r"``([^`]+)``", r"`\1`", inspect.cleandoc(docstring))


if __name__ == "__main__":
    sys.stdout.write(page())
