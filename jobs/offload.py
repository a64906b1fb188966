"""Offload topics to a Delta table, to files or to a database, exactly once: what is there now, or again and again."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.cli.connection import check_topics
from sparklog.config.job_clients import OFFLOAD
from sparklog.config.properties import load_properties
from sparklog.errors import ConfigError, DataSourceError, SparklogError
from sparklog.spark import session
from sparklog.spark.batch.arguments import (
    add_cluster,
    add_output,
    add_task_token,
    client_settings,
    progress_settings,
)
from sparklog.spark.batch.offload import Offload, OffloadOptions
from sparklog.spark.batch.repetition import duration, rounds
from sparklog.spark.batch.unattended import keep_on
from sparklog.spark.lake.columns import DAY
from sparklog.spark.lake.delta.decoded_table import KEY_FORMATS, DecodedTable
from sparklog.spark.lake.delta.decoded_upsert_table import DecodedUpsertTable
from sparklog.spark.lake.delta.maintenance import Maintenance
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.spark.lake.delta.upsert_table import UpsertTable
from sparklog.spark.lake.destination import Target
from sparklog.spark.lake.places.file_place import FilesTarget
from sparklog.spark.lake.places.jdbc import Database
from sparklog.spark.lake.places.jdbc_table import JdbcTable
from sparklog.spark.sessions import stop
from sparklog.spark.values.formats import FORMATS, ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FRESHNESS_S = 30.0
"""Of a job that runs on and on, and is not told how old a record may be."""


class _Job:
    """An offload that is opened anew after it has failed, for a connection may be what failed. Close it."""

    def __init__(
        self, spark: "SparkSession", options: OffloadOptions, freshness_s: float | None, *, as_json: bool
    ) -> None:
        self._spark = spark
        self._as_json = as_json
        self._options = options
        self._freshness_s = freshness_s
        self._offload: Offload | None = None

    def close(self) -> None:
        if self._offload is not None:
            self._offload.close()
            self._offload = None

    def round(self) -> int:
        """Offload what is there, or on and on where it is to stay fresh; how many commits that took."""
        self._offload = offload = self._offload or Offload(self._spark, self._options)
        number = 0
        try:
            for commit in offload.fresh(self._freshness_s) if self._freshness_s else offload.commits():
                print(json.dumps(commit._asdict()) if self._as_json else commit, flush=True)
                number += 1
        except Exception:
            self.close()
            raise
        return number

    def once(self) -> int:
        if not self.round() and not self._as_json:
            print("nothing new", flush=True)
        return 0

    def again_and_again(self, pause_s: float) -> int:
        return keep_on(rounds(pause_s), self.round, lambda line: print(f"offload: {line}", file=sys.stderr, flush=True))


def _add_decoding(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("decoding: the table has the fields of the values as columns")
    group.add_argument("--value-format", choices=FORMATS, help="how values are written")
    group.add_argument("--schema", type=Path, help="a file: Spark's DDL or JSON for json, an .avsc for avro")
    group.add_argument("--writer-schema", action="append", default=[], metavar="ID=FILE", help="of avro with ids")
    group.add_argument("--registry", metavar="URL", help="a schema registry, which has the schemas of avro with ids")
    group.add_argument("--registry-config", type=Path, metavar="FILE", help="its settings: schema.registry.url, ….")
    group.add_argument("--subject", help="of the registry: the table has the fields of its newest schema, not --schema")
    group.add_argument("--key-format", choices=KEY_FORMATS, default="binary")
    group.add_argument("--with", default="", help="more columns: value,headers,timestampType")
    group.add_argument("--into", help="one column for all fields, a struct")
    group.add_argument("--evolve", action="store_true", help="add fields that the table does not have")
    group.add_argument("--dead-letters", help="the table for records that do not decode; else they stop the job")


def _add_maintenance(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("maintenance of the table")
    group.add_argument("--merge-files", type=int, help="merge small files where a partition has more than so many")
    group.add_argument("--vacuum", type=duration, help="remove files that no version of so long has: 7d")
    group.add_argument("--unsafe-vacuum", action="store_true", help="accept a --vacuum below Delta's safe limit")


def _add_upserting(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("upserting: the table has the last value of each key")
    group.add_argument("--upsert", action="store_true", help="replace rows by their keys; tombstones delete them")
    group.add_argument("--skip-keyless", action="store_true", help="leave out records without a key")
    group.add_argument("--accept-partitions", action="store_true", help="go on with a topic that has more partitions")


def _add_database(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a relational database")
    group.add_argument("--jdbc", metavar="URL", help="a database instead: jdbc:postgresql://HOST:5432/DATABASE")
    group.add_argument("--jdbc-table", help="TABLE or SCHEMA.TABLE; the topic's name, with _ for dots")
    group.add_argument("--jdbc-user")
    group.add_argument("--jdbc-password-file", metavar="PATH", help="a file that has the password, and nothing else")
    group.add_argument("--jdbc-password-env", metavar="NAME", help="an environment variable that has the password")
    group.add_argument("--jdbc-jar", metavar="PATH", type=Path, action="append", default=[], help="the driver's JAR")
    group.add_argument("--jdbc-driver", metavar="CLASS", help="of the JDBC driver; known for PostgreSQL")


_NEEDED = {
    "upsert": ("skip_keyless", "accept_partitions"),
    "value_format": (
        *("schema", "writer_schema", "registry", "registry_config", "subject"),
        *("key_format", "with", "into", "evolve", "dead_letters"),
    ),
    "vacuum": ("unsafe_vacuum",),
    "table": ("upsert", "value_format", "partition_by", "merge_files", "vacuum"),
    "files": ("format",),
    "jdbc": ("jdbc_table", "jdbc_user", "jdbc_password_file", "jdbc_password_env", "jdbc_jar", "jdbc_driver"),
}
"""Each option, and those that mean something only with it."""


def _refuse_without_effect(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End with a message about an option that would do nothing, for its user means something by it."""
    for needed, others in _NEEDED.items():
        given = [each for each in others if vars(args)[each] != parser.get_default(each)]
        if given and vars(args)[needed] == parser.get_default(needed):
            parser.error(f"{_flag(given[0])} does nothing without {_flag(needed)}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _upsert_table(args: argparse.Namespace) -> Target:
    if args.partition_by is not None:
        said = "--upsert takes no --partition-by: the table is partitioned by topic and partition"
        raise DataSourceError("SPARKLOG_INVALID_OPTION", said)
    if args.value_format is not None:
        return DecodedUpsertTable(
            **_decoding(args), skip_keyless=args.skip_keyless, more_partitions=args.accept_partitions
        )
    return UpsertTable(
        args.table,
        args.compression,
        skip_keyless=args.skip_keyless,
        more_partitions=args.accept_partitions,
        maintenance=_maintenance(args),
    )


def _maintenance(args: argparse.Namespace) -> Maintenance:
    return Maintenance(args.merge_files, args.vacuum, args.unsafe_vacuum)


def _target(args: argparse.Namespace) -> Target:
    """Raises DataSourceError for what does not go together, and for a file that cannot be read."""
    if args.upsert:
        return _upsert_table(args)
    partition_by = tuple(filter(None, (DAY if args.partition_by is None else args.partition_by).split(",")))
    if args.value_format is None:
        if args.files is not None:
            return FilesTarget(args.files, args.format, args.compression)
        if args.jdbc is not None:
            return _jdbc_table(args)
        return RawTable(args.table, partition_by, args.compression, maintenance=_maintenance(args))
    return DecodedTable(**_decoding(args), partition_by=partition_by)


def _decoding(args: argparse.Namespace) -> dict[str, Any]:
    """What all kinds of decoded tables are made with."""
    return {
        "name": args.table,
        "values": _value_format(args),
        "key_format": args.key_format,
        "extra": tuple(filter(None, vars(args)["with"].split(","))),
        "into": args.into,
        "evolve": args.evolve,
        "dead_letters": args.dead_letters,
        "compression": args.compression,
        "maintenance": _maintenance(args),
    }


def _value_format(args: argparse.Namespace) -> ValueFormat:
    registry = _registry(args)
    if registry is None and args.schema is None:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", "--value-format needs --schema FILE")
    if registry is None:
        if args.subject is not None:
            raise DataSourceError("SPARKLOG_INVALID_OPTION", "--subject is of a --registry")
        return ValueFormat(args.value_format, _text(args.schema), _writers(args.writer_schema))
    if args.writer_schema:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", "a --registry has the schemas: give no --writer-schema")
    if (args.schema is None) == (args.subject is None):
        raise DataSourceError(
            "SPARKLOG_INVALID_OPTION", "say which schema values are read as: --schema FILE, or --subject NAME"
        )
    text = None if args.schema is None else _text(args.schema)
    return ValueFormat.of_registry(args.value_format, registry, schema=text, subject=args.subject)


def _registry(args: argparse.Namespace) -> dict[str, str] | None:
    """The settings of the registry, if there is one. Raises ConfigError for a file that cannot be read."""
    given = {} if args.registry_config is None else load_properties(args.registry_config)
    if args.registry is not None:
        given["schema.registry.url"] = args.registry
    return given or None


def _writers(given: list[str]) -> dict[int, str] | None:
    found = {}
    for each in given:
        number, equals, path = each.partition("=")
        if not equals or not number.isdecimal():
            raise DataSourceError("SPARKLOG_INVALID_OPTION", f"--writer-schema is ID=FILE, not {each!r}")
        found[int(number)] = _text(Path(path))
    return found or None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", f"schema {path} cannot be read: {error}") from error


def _options(args: argparse.Namespace, client: dict[str, str]) -> OffloadOptions:
    return OffloadOptions(
        client["bootstrap.servers"],
        tuple(args.topic),
        _target(args),
        add_topics=args.add_topics,
        fail_on_data_loss=not args.accept_loss,
        group=args.group,
        client=client,
        task_token_ms=args.task_token,
    )


def _jdbc_table(args: argparse.Namespace) -> JdbcTable:
    database = Database(args.jdbc, args.jdbc_user, _password(args), args.jdbc_driver)
    return JdbcTable(database, args.jdbc_table or args.topic[0].replace(".", "_"))


def _password(args: argparse.Namespace) -> str | None:
    """From where only its owner can read it: a command line is seen by everybody on the machine."""
    try:
        if args.jdbc_password_file is not None:
            return Path(args.jdbc_password_file).read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise ConfigError(f"the password cannot be read from {args.jdbc_password_file}: {why}") from None
    if args.jdbc_password_env is None:
        return None
    if args.jdbc_password_env not in os.environ:
        raise ConfigError(f"there is no environment variable {args.jdbc_password_env} with the password")
    return os.environ[args.jdbc_password_env]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add_cluster(parser)
    add_task_token(parser)
    add_output(parser)
    parser.add_argument("-t", "--topic", action="append", required=True, help="may be repeated")
    parser.add_argument("--table", help="a path or URI (with a slash in it), or a table of the catalog")
    parser.add_argument("--files", metavar="URI", help="files instead: a directory, or webhdfs://NAMENODE:9870/PATH")
    parser.add_argument("--format", default="parquet", help="of --files: parquet, or segments (the brokers' bytes)")
    parser.add_argument(
        "--partition-by", help="of a new table: day (the default), hour, topic, partition, a field, or '' for none"
    )
    parser.add_argument("--add-topics", action="store_true", help="the table may have other topics already")
    parser.add_argument("--accept-loss", action="store_true", help="go on behind records that are gone, with a warning")
    parser.add_argument("--group", help="a consumer group whose offsets follow, for those who watch lag")
    parser.add_argument("--compression", default="snappy", help="of the files: snappy, zstd, lz4, gzip, none")
    parser.add_argument("--once", action="store_true", help="what is there now, and then end (the default)")
    parser.add_argument("--every", type=duration, help="again and again, so long after the last: 5s, 10m, 2h")
    parser.add_argument("--freshness", type=duration, help="on and on: how old a record may be in the table: 10s, 5m")
    parser.add_argument("--continuous", action="store_true", help="on and on, as --freshness 30s does")
    _add_upserting(parser)
    _add_decoding(parser)
    _add_maintenance(parser)
    _add_database(parser)
    return parser


def main() -> int:
    parser = arguments()
    args = parser.parse_args()
    if args.continuous and args.freshness is None:
        args.freshness = _FRESHNESS_S
    if bool(args.once) + (args.every is not None) + (args.freshness is not None) > 1:
        parser.error("--once, --every and --freshness (or --continuous) exclude each other")
    if [args.table, args.files, args.jdbc].count(None) != 2:
        parser.error("say where to: --table, --files or --jdbc")
    _refuse_without_effect(parser, args)
    try:
        client = client_settings(parser, args)
        options = _options(args, client)
    except DataSourceError as error:
        if error.error_code.startswith("SPARKLOG_REGISTRY"):  # what was typed is right
            print(f"offload: {error}", file=sys.stderr)
            return 1
        parser.error(str(error))
    except SparklogError as error:
        parser.error(str(error))
    pause_s = args.every or args.freshness
    try:
        _require_jars(args.jdbc_jar)
        if not pause_s:
            check_topics(client, options.topics, OFFLOAD)
        return _offload(options, args, pause_s)
    except SparklogError as error:
        print(f"offload: {error}", file=sys.stderr)
        return 1


def _require_jars(jars: Sequence[Path]) -> None:
    """Raises ConfigError: Spark would go on without it, and lack the driver in the end."""
    for each in jars:
        if not each.is_file():
            raise ConfigError(f"--jdbc-jar: there is no file {each}")


def _offload(options: OffloadOptions, args: argparse.Namespace, pause_s: float | None) -> int:
    spark = session("offload", delta=args.jdbc is None, jars=args.jdbc_jar, **progress_settings())
    try:
        with closing(_Job(spark, options, args.freshness, as_json=args.output == "json")) as job:
            return job.again_and_again(pause_s) if pause_s else job.once()
    finally:
        stop(spark)


if __name__ == "__main__":
    sys.exit(main())
