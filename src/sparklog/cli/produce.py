"""``sparklog produce``: lines into a topic."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import bootstrap_option, connected
from sparklog.cli.display import progress, rate

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.client.batch_producer import BatchProducer
    from sparklog.client.metadata import ClusterMetadata


def _separator(_ctx: click.Context, _param: click.Parameter, text: str | None) -> bytes | None:
    if text == "":
        raise click.BadParameter("must not be empty")
    return None if text is None else text.replace("\\t", "\t").encode()


@click.command()
@click.argument("topic")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-k", "--key-separator", callback=_separator,
    help="What divides key from value, such as ':' or a tab; default: no keys.",
)  # fmt: skip
@click.option("-p", "--partition", type=click.IntRange(0), help="Write to this partition only; default: by key.")
@click.option(
    "-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none",
    show_default=True, help="How batches are compressed.",
)  # fmt: skip
@click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True,
    help="Who must have a batch: all replicas in sync, the leader, nobody.",
)  # fmt: skip
@click.option("--null-empty", is_flag=True, help="An empty value becomes null: deletes its key in a compacted topic.")
@bootstrap_option
def produce(
    topic: str,
    file: Path | None,
    key_separator: bytes | None,
    partition: int | None,
    compression: str,
    acks: str,
    null_empty: bool,
    bootstrap: str,
) -> None:
    """Write the lines of FILE, or of standard input, to TOPIC: a record a line.

    A topic that does not exist is created, if the broker may (auto.create.topics.enable), and that is said.
    Records with a key go where Kafka's own clients would send them, others to all partitions in turn. With
    --key-separator, a line that does not have it becomes a value without a key; how many did is said.

    \b
    Examples:
      echo hello | sparklog produce greetings
      sparklog produce access /var/log/access.log --compression zstd
      printf 'ann:1\\nbob:2\\n' | sparklog produce scores --key-separator :
    """
    with ExitStack() as stack:
        descriptor = sys.stdin.fileno() if file is None else stack.enter_context(file.open("rb")).fileno()
        cluster = stack.enter_context(connected(bootstrap, compression_type=compression, acks=acks))
        writer = _LineWriter(cluster, topic, partition, key_separator, null_empty)
        writer.run(descriptor, os.fstat(descriptor).st_size or None)


class _LineWriter:
    """Blocks of lines in, batches out; counts what went through."""

    def __init__(
        self, cluster: ClusterMetadata, topic: str, partition: int | None, separator: bytes | None, null_empty: bool
    ) -> None:
        from sparklog.client.partitioner import Partitioner

        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._separator = separator
        self._null_empty = null_empty
        is_new = topic not in cluster.fetch([topic]).topics
        count = len(cluster.topic(topic, create=True).partitions)
        if is_new:
            click.echo(f"created topic {topic!r} with {count} partition{'s' * (count > 1)}", err=True)
        if partition is not None and partition >= count:
            raise click.BadParameter(f"topic {topic!r} has only partitions 0 to {count - 1}", param_hint="--partition")
        self._partitioner = Partitioner(count)
        self._records = 0
        self._bytes = 0
        self._keyless = 0

    def run(self, descriptor: int, size: int | None) -> None:
        """Send all that can be read, then say how much it was."""
        import pyarrow.compute as pc

        from sparklog.cli.lines import BLOCK, read_blocks, split_lines
        from sparklog.client.batch_producer import BatchProducer

        started = self._cluster.clock.monotonic()
        with BatchProducer(self._cluster) as producer, progress(f"to {self._topic}", size, "bytes") as advance:
            for lines in split_lines(read_blocks(descriptor)):
                self._send(producer, lines)
                text_bytes = pc.sum(pc.binary_length(lines)).as_py()
                if text_bytes < BLOCK // 2:
                    producer.flush()  # The input pauses: what came of it must not wait here.
                self._records += len(lines)
                self._bytes += text_bytes
                advance(text_bytes + len(lines))
        seconds = self._cluster.clock.monotonic() - started
        click.echo(f"produced {rate(self._records, self._bytes, seconds)} to {self._topic}", err=True)
        if self._keyless:
            self._warn_of_keyless()

    def _warn_of_keyless(self) -> None:
        assert self._separator is not None
        lines = f"{self._keyless:,} line{'s' if self._keyless > 1 else ''}"
        separator = repr(self._separator.decode())
        click.echo(f"{lines} without the separator {separator}: written whole as the value, without a key", err=True)

    def _send(self, producer: BatchProducer, lines: pa.Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        from sparklog.cli.lines import split_keys
        from sparklog.client.partitioner import Share
        from sparklog.record.columnar import encode_columns
        from sparklog.structs import TopicPartition

        config = self._cluster.config
        key, value = (None, lines) if self._separator is None else split_keys(lines, self._separator)
        if key is not None:
            self._keyless += key.null_count
        if self._null_empty:
            value = pc.if_else(pc.equal(pc.binary_length(value), 0), pa.scalar(None, value.type), value)
        whole = Share(self._partition or 0, 0, len(lines), None)
        shares = self._partitioner.shares(key, len(lines)) if self._partition is None else [whole]
        for share in shares:
            part = slice(share.offset, share.offset + share.length)
            batches = encode_columns(
                None if key is None else key[part],
                value[part],
                None,
                None,
                now_ms=self._cluster.clock.now_ms(),
                rows=share.rows,
                compression=config.compression_type,
                max_batch_bytes=config.batch_size,
            )
            for batch in batches:
                producer.send(TopicPartition(self._topic, share.partition), batch.data)
