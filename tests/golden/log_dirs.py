"""The golden log directories (captured by ``kafka_log_dirs.py``), opened by our log, beside what Kafka said of them."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from sparklog.config.topic import TopicConfig
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.record.control import ControlType, read_marker
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

HERE = Path(__file__).parent
CONFIG = replace(TopicConfig(), segment_bytes=1500, index_interval_bytes=200, segment_index_bytes=960)
COMPACTED = replace(CONFIG, segment_bytes=800, cleanup_policy=("compact",))
BLOCK = 1 << 20


@dataclass
class Golden:
    """A copy of one partition of ``kafka-3.9-NAME``, and what clients were told of it."""

    path: Path
    name: str
    topic: str

    @property
    def is_killed(self):
        return self.name == "killed"

    def said(self, what):
        """Of this topic, what Kafka said: ``uncommitted``, ``committed``, ``fetches``, ``epoch ends``."""
        return self._noted()[f"{self.topic} {what}"]

    def transaction_ends(self):
        return self._noted()["transaction_ends"]

    def _noted(self):
        return json.loads((HERE / f"kafka-3.9-{self.name}.json").read_text())

    def open(self, *, clean=None, config=CONFIG, recovery_point=0, log_start_offset=0):
        """Our log on it, at the time of the capture; recovered from ``recovery_point`` on unless it is ``clean``."""
        clean = not self.is_killed if clean is None else clean
        clock = ManualClock(self._noted()["captured_at_ms"])
        tp = TopicPartition(self.topic, 0)
        known = Knowledge(recovery_point, log_start_offset, clean=clean)
        return Log(self.path, tp, config, clock, lambda task: task(), known)

    def files(self, pattern):
        """Name → bytes of the files that match, as Kafka left them or as we have made them since."""
        return {path.name: path.read_bytes() for path in self.path.glob(pattern)}

    def remove(self, pattern):
        for path in self.path.glob(pattern):
            path.unlink()


def golden(scratch, name, topic):
    """A copy under ``scratch`` that may be written to."""
    path = shutil.copytree(HERE / f"kafka-3.9-{name}" / f"{topic}-0", Path(scratch) / f"{topic}-0")
    return Golden(Path(path), name, topic)


def batches_of(log):
    return [batch for view in log.read_all(BLOCK) for batch in iter_batches(view, partial_tail=False)]


def as_said(batch):
    """The batch's records as the notes have them: [offset, timestamp, key, value]."""
    return [[each.offset, each.timestamp, _text(each.key), _text(each.value)] for each in iter_records(batch)]


def _text(data):
    return None if data is None else bytes(data).decode()


def read_uncommitted(log):
    """What a consumer is given that reads everything."""
    return [record for batch in batches_of(log) if not batch.is_control for record in as_said(batch)]


def read_committed(log):
    """What a consumer is given that reads committed records only, by the rules that clients follow."""
    log.on_high_watermark(log.log_end_offset)
    stable = log.log_end_offset if log.first_unstable_offset is None else log.first_unstable_offset
    to_come = [(each.first_offset, each.producer_id) for each in log.aborted_transactions(0, stable)]
    to_come.sort(reverse=True)
    aborting, records = set(), []
    for batch in batches_of(log):
        while to_come and to_come[-1][0] <= batch.last_offset:
            aborting.add(to_come.pop()[1])
        if batch.base_offset >= stable:
            break
        if batch.is_control:
            if read_marker(batch).type is ControlType.ABORT:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            records += as_said(batch)
    return records


def without_times(entries):
    """What Kafka's reader takes from a snapshot of each producer, but for when it was heard of.

    In both we differ from Kafka on purpose: its snapshot has but the last batch, and that batch's own time.
    """
    return {
        id_: (
            entry.epoch,
            [batch[:4] for batch in list(entry.batches)[-1:]],
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for id_, entry in entries.items()
    }
