"""The options of reading with ``format("sparklog")``, checked against one another.

``spark/options/table.py`` defines each. What starts with ``kafka.`` goes to the client. Every refusal is a
DataSourceError that names the option.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparklog.client.cluster.config import ClientConfig
from sparklog.config.definition import parse
from sparklog.errors import ConfigError, DataSourceError
from sparklog.spark.options import table
from sparklog.spark.options.definition import Option, Use, invalid, option_field, unsupported
from sparklog.spark.options.directories import DirectMode, Mounts
from sparklog.spark.options.history import AsOf
from sparklog.spark.options.limits import Edge, Limit, SpecificOffsets, SpecificTimestamps
from sparklog.spark.options.raw import RawOptions, client_config
from sparklog.spark.options.selection import Selection
from sparklog.spark.read.direct_options import DirectOptions

if TYPE_CHECKING:
    from sparklog.spark.values.registry_schemas import RegistryWriters

_log = logging.getLogger(__name__)
_SELECTIONS = (table.ASSIGN, table.SUBSCRIBE, table.SUBSCRIBE_PATTERN)
_STARTINGS: tuple[Option[Limit | None], ...] = (
    table.STARTING_TIMESTAMP,
    table.STARTING_OFFSETS_BY_TIMESTAMP,
    table.STARTING_OFFSETS,
)
_ENDINGS: tuple[Option[Limit | None], ...] = (
    table.ENDING_TIMESTAMP,
    table.ENDING_OFFSETS_BY_TIMESTAMP,
    table.ENDING_OFFSETS,
)
_SETTINGS_WITHOUT_CLUSTER = ("isolation.level", "check.crcs")


@dataclass(frozen=True)
class ReadOptions:
    """The options of one query. Counts are offsets, sizes bytes, times milliseconds; None is no limit."""

    client: ClientConfig
    selection: Selection
    starting: Limit
    ending: Limit
    directories: tuple[str, ...]
    """Log directories to read in place of a cluster."""
    latest_if_no_match: bool = option_field(table.STARTING_STRATEGY)
    fail_on_data_loss: bool = option_field(table.FAIL_ON_DATA_LOSS)
    include_headers: bool = option_field(table.INCLUDE_HEADERS)
    min_partitions: int | None = option_field(table.MIN_PARTITIONS)
    max_records_per_partition: int | None = option_field(table.MAX_RECORDS_PER_PARTITION)
    max_bytes_per_partition: int | None = option_field(table.MAX_BYTES_PER_PARTITION)
    max_offsets_per_trigger: int | None = option_field(table.MAX_OFFSETS_PER_TRIGGER)
    max_bytes_per_trigger: int | None = option_field(table.MAX_BYTES_PER_TRIGGER)
    min_offsets_per_trigger: int | None = option_field(table.MIN_OFFSETS_PER_TRIGGER)
    max_trigger_delay_ms: int = option_field(table.MAX_TRIGGER_DELAY)
    offset_retries: int = option_field(table.FETCH_OFFSET_RETRIES)
    offset_retry_interval_ms: int = option_field(table.FETCH_OFFSET_RETRY_INTERVAL_MS)
    task_token_ms: int | None = option_field(table.TASK_TOKEN)
    """How long the token lasts by which tasks come; None where they come as the driver does."""
    direct_read: DirectMode = option_field(table.DIRECT_READ)
    direct_read_mapping: Mounts = option_field(table.DIRECT_READ_MAPPING)
    commit_to_group: str | None = option_field(table.COMMIT_TO_GROUP)
    history: str | None = option_field(table.HISTORY)
    """The table that has what the log had. It has committed records only, so of the log no others are read then."""
    history_as_of: AsOf | None = option_field(table.HISTORY_AS_OF)
    registry: RegistryWriters | None = None
    """The schemas of the values of that table, if they are in a schema registry."""

    @property
    def direct(self) -> DirectOptions:
        return DirectOptions(self.direct_read, self.direct_read_mapping)

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> ReadOptions:
        """Of ``spark.read``. Raises DataSourceError for what it must not start or end at, too."""
        raw = RawOptions(options)
        starting, ending = _limit(raw, _STARTINGS, Use.BATCH_READ), _limit(raw, _ENDINGS, Use.BATCH_READ)
        _refuse_edge(table.STARTING_OFFSETS, starting, Edge.LATEST)
        _refuse_edge(table.ENDING_OFFSETS, ending, Edge.EARLIEST)
        _check_same_partitions(starting, ending)
        raw.warn_of_stream_options()
        return cls._from(raw, starting, ending, Use.BATCH_READ)

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> ReadOptions:
        """Of ``spark.readStream``. Raises DataSourceError for an end, too."""
        raw = RawOptions(options)
        raw.refuse_elsewhere(Use.STREAM_READ)
        return cls._from(raw, _limit(raw, _STARTINGS, Use.STREAM_READ), Edge.LATEST, Use.STREAM_READ)

    @classmethod
    def _from(cls, raw: RawOptions, starting: Limit, ending: Limit, use: Use) -> ReadOptions:
        raw.warn_of_unknown()
        minimum, maximum = raw.value(table.MIN_OFFSETS_PER_TRIGGER), raw.value(table.MAX_OFFSETS_PER_TRIGGER)
        if minimum is not None and maximum is not None and minimum > maximum:
            raise invalid("minOffsetsPerTrigger", str(minimum), f"it exceeds maxOffsetsPerTrigger, {maximum}")
        directories = _directories(raw)
        _check_history(raw)
        _check_task_token(raw)
        client = _without_cluster(raw) if directories else client_config(raw, use)
        return cls(
            client=replace(client, isolation="read_committed") if raw.has(table.HISTORY) else client,
            selection=_selection(raw),
            starting=starting,
            ending=ending,
            directories=directories,
            registry=_registry(raw),
            **raw.fields_of(cls),
        )


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column ``headers``."""
    return RawOptions(options).value(table.INCLUDE_HEADERS)


def history_of(options: Mapping[str, str]) -> tuple[str, AsOf | None, RegistryWriters | None] | None:
    """The table to read with the log, its version, and the registry of its schemas; None if no option names a table."""
    raw = RawOptions(options)
    name = raw.value(table.HISTORY)
    return None if name is None else (name, raw.value(table.HISTORY_AS_OF), _registry(raw))


def _registry(raw: RawOptions) -> RegistryWriters | None:
    """What the options ``schema.registry.…`` name. Raises DataSourceError for what cannot be."""
    settings = raw.registry()
    if not settings:
        return None
    from sparklog.spark.values.registry_schemas import RegistryWriters, registry_settings  # takes long

    if not raw.has(table.HISTORY):
        _log.warning("options of a schema registry mean nothing without 'history'; registry_values decodes values")
    try:
        return RegistryWriters(registry_settings(settings))
    except ConfigError as error:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", f"option {error}") from error


def _directories(raw: RawOptions) -> tuple[str, ...]:
    found = raw.value(table.PATH)
    if found and raw.has(table.BOOTSTRAP_SERVERS):
        raise DataSourceError(
            "SPARKLOG_CONFLICTING_OPTIONS",
            "options 'path' and 'kafka.bootstrap.servers' are both given: read log directories, or ask a cluster",
        )
    return found


def _check_history(raw: RawOptions) -> None:
    """Raises DataSourceError for options that a read of table and log cannot have together."""
    others: list[Option[Any]] = [each for each in (*_ENDINGS, table.PATH) if raw.has(each)]
    if raw.has(table.HISTORY_AS_OF) and not raw.has(table.HISTORY):
        raise DataSourceError("SPARKLOG_MISSING_OPTION", "option 'historyAsOf' needs the option 'history'")
    if raw.has(table.HISTORY) and raw.has(table.PATH):
        said = "options 'history' and 'path' are both given: history is read with the log of a cluster"
        raise DataSourceError("SPARKLOG_CONFLICTING_OPTIONS", said)
    if raw.has(table.HISTORY_AS_OF) and others:
        said = f"options 'historyAsOf' and '{others[0].name}' are both given: the version says where the read ends"
        raise DataSourceError("SPARKLOG_CONFLICTING_OPTIONS", said)
    level = raw.kafka().get("isolation.level", "read_committed")
    if raw.has(table.HISTORY) and level.strip().lower() != "read_committed":
        raise unsupported("kafka.isolation.level", f"a table has committed records only, so {level} would differ")


def _check_task_token(raw: RawOptions) -> None:
    """Raises DataSourceError for a token where no broker is asked."""
    if raw.has(table.TASK_TOKEN) and raw.has(table.PATH):
        said = (
            "options 'taskToken' and 'path' are both given: tasks that read log directories ask no broker, so they need"
            " no token. Remove 'taskToken', and the credentials too"
        )
        raise DataSourceError("SPARKLOG_CONFLICTING_OPTIONS", said)


def _without_cluster(raw: RawOptions) -> ClientConfig:
    """The client's settings that decide which records are visible."""
    settings = {name: text for name, text in raw.kafka().items() if name in _SETTINGS_WITHOUT_CLUSTER}
    try:
        return parse(ClientConfig, settings)
    except ConfigError as error:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", f"option kafka.{error}") from error


def _selection(raw: RawOptions) -> Selection:
    found = [option for option in _SELECTIONS if raw.has(option)]
    if len(found) != 1:
        said = f"{' and '.join(option.name for option in found)} are given" if found else "none is given"
        raise DataSourceError(
            "SPARKLOG_CONFLICTING_OPTIONS" if found else "SPARKLOG_MISSING_OPTION",
            f"exactly one of the options {', '.join(option.name for option in _SELECTIONS)} must be given; {said}",
        )
    selection = found[0].parse((raw.text(found[0]) or "").strip())
    assert selection is not None
    return selection


def _limit(raw: RawOptions, options: tuple[Option[Limit | None], ...], use: Use) -> Limit:
    """The first of the options that is given, in Spark's order; the default of the last where none is."""
    option = next((each for each in options if raw.has(each)), options[-1])
    limit = raw.value(option, use)
    assert limit is not None
    return limit


def _refuse_edge(option: Option[Limit], limit: Limit, edge: Edge) -> None:
    word = edge.name.lower()
    if limit is edge:
        raise invalid(option.name, word, f"a batch query may have any {option.name} but {word}")
    if isinstance(limit, SpecificOffsets):
        for tp, offset in limit.offsets.items():
            if offset == edge.value:
                raise invalid(option.name, str(offset), f"partition {tp} may not be {word} in a batch query")


def _check_same_partitions(starting: Limit, ending: Limit) -> None:
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        first, last, unit = starting.offsets, ending.offsets, "Offsets"
    elif isinstance(starting, SpecificTimestamps) and isinstance(ending, SpecificTimestamps):
        first, last, unit = starting.timestamps, ending.timestamps, "OffsetsByTimestamp"
    else:
        return
    if first.keys() != last.keys():
        only = ", ".join(str(tp) for tp in sorted(first.keys() ^ last.keys()))
        raise invalid(f"ending{unit}", only, f"the partitions differ from those of starting{unit}")
    for tp, start in first.items():
        if 0 <= last[tp] < start:
            raise invalid(f"ending{unit}", str(last[tp]), f"partition {tp} starts at {start}, after that")
