"""Reports of erasures as JSON: for whoever has to prove what was done, and for checking it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import click

from sparklog.cli.display import in_words
from sparklog.record.layout import MAX_INT32, MAX_INT64

if TYPE_CHECKING:
    from sparklog.client.admin.erasure import ErasedReplica, ErasureReport
    from sparklog.client.admin.log_dirs import Replica

_FORMAT = 1


class KnownErasure(NamedTuple):
    """What of a report is needed to check it again."""

    topic: str
    topic_id: UUID
    ends: dict[int, int]
    """By partition."""
    key_count: int
    keys_sha256: str


def document_of(report: ErasureReport) -> dict[str, Any]:
    """The report as it is written."""
    return {
        "format": _FORMAT,
        "complete": report.is_complete,
        "searched_only": report.scan_only,
        "cluster_id": report.cluster_id,
        "topic": report.topic,
        "topic_id": str(report.topic_id),
        "erasure_id": str(report.erasure_id),
        "begun": _date(report.begun_ms),
        "ended": _date(report.ended_ms),
        "keys": {"count": report.key_count, "sha256": report.keys_sha256},
        "replicas": [_of_replica(*each) for each in report.replicas.items()],
    }


def _of_replica(replica: Replica, each: ErasedReplica) -> dict[str, Any]:
    return {
        "partition": replica.tp.partition,
        "broker": replica.broker,
        "up_to_offset": each.up_to_offset,
        "log_start_offset": each.log_start_offset,
        "records_scanned": each.records_scanned,
        "bytes_scanned": each.bytes_scanned,
        "records_erased": each.erased,
        "segments_rewritten": each.segments_rewritten,
        "records_left": each.left,
        "obstacle": each.obstacle,
        "segments": [
            {"file": f"{one.base_offset:020d}.log", "size": one.size, "sha256": one.sha256} for one in each.segments
        ],
    }


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def default_path(topic: str) -> Path:
    """Where a report is written that is given no name."""
    return Path(f"erasure-{topic}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json")


@contextmanager
def reserved(path: Path) -> Iterator[None]:
    """Make the file of a report, empty, before there is one; it goes again where the body fails.

    Raises click.UsageError where none can be written.
    """
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already: --report names another file") from None
    except OSError as error:
        why = in_words(error) if path.absolute().parent.is_dir() else f"there is no directory {path.parent}"
        raise click.UsageError(f"{path} cannot be written: {why}; --report names another file") from None
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def write_report(path: Path, report: ErasureReport) -> None:
    """Into a file that is ``reserved``. Raises OSError."""
    path.write_text(json.dumps(document_of(report), indent=2) + "\n")


def read_report(path: Path) -> KnownErasure:
    """Raises click.UsageError for a file that is no report."""
    try:
        found = json.loads(path.read_bytes())
        ends = {int(each["partition"]): int(each["up_to_offset"]) for each in found["replicas"]}
        if not ends or min(*ends, *ends.values()) < 0 or max(ends) > MAX_INT32 or max(ends.values()) > MAX_INT64:
            raise ValueError
        keys = found["keys"]
        return KnownErasure(found["topic"], UUID(found["topic_id"]), ends, int(keys["count"]), str(keys["sha256"]))
    except (ValueError, KeyError, TypeError):
        raise click.UsageError(f"{path} is not the report of an erasure") from None
