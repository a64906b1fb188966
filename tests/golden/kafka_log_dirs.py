"""Whole log directories of a real Kafka 3.9.1: transactions, leader epochs, a compacted topic; stopped, and killed.

Run as a script it captures them anew: ``python tests/golden/kafka_log_dirs.py`` from the repository's root. Beside
each directory a JSON file says what clients were told of it: what both kinds of consumer read, which aborted
transactions each fetch named, where each leader epoch ended.
"""

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka.admin import AdminClient
from kafka_answers import epoch_ends, fetch_answers, read_topic
from kafka_histories import (
    Topic,
    let_go_of_producers,
    write_compacted,
    write_transactions,
    write_trimmed,
    write_under_one_epoch,
)

from sparklog.clock import SystemClock
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

HERE = Path(__file__).parent
INDEX_BYTES = 960
SETTINGS = {
    # Indexes are allocated whole, and a killed broker leaves them so: small ones can be kept here.
    "log.index.size.max.bytes": INDEX_BYTES,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    # So that the checkpoints of a killed broker say something.
    "log.initial.task.delay.ms": 200,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "log.flush.start.offset.checkpoint.interval.ms": 500,
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
}
TRIMMED_TO = 20
EPOCHS_WITH_DATA = (True, True, False, True)
"""Of each run of the broker: whether anything is written under the leader epoch that it begins."""


def _capture():
    with TemporaryDirectory() as scratch, EmbeddedZooKeeper(Path(scratch) / "zookeeper", fsync=False) as zookeeper:
        broker = KafkaBroker(Path(scratch) / "kafka", zookeeper.connect_string, extra_props=SETTINGS)
        # A partition gets a new leader epoch only if another broker is there to see its leader go.
        other = KafkaBroker(Path(scratch) / "other", zookeeper.connect_string, broker_id=1)
        with other:
            for number, with_data in enumerate(EPOCHS_WITH_DATA):
                with broker:
                    epochs = Topic(broker.bootstrap_servers, "epochs")
                    if with_data:
                        write_under_one_epoch(epochs, number)
            broker.start()
            Topic(broker.bootstrap_servers, "epochs")
        _await_controller(broker)
        _write_the_rest(broker)
        broker.stop()
        _keep(broker.log_dir, "stopped", ["txn-0", "epochs-0", "compacted-0", "trimmed-0", "__transaction_state-0"])
        with other:
            broker.start()
            write_under_one_epoch(Topic(broker.bootstrap_servers, "epochs"), len(EPOCHS_WITH_DATA))
        _await_controller(broker)
        ends = write_transactions(Topic(broker.bootstrap_servers, "txn-killed"))
        _await_checkpoint(broker.log_dir, "txn-killed 0 ")
        _note(broker, "killed", ["txn-killed", "epochs"], ends)
        broker.kill()
        _keep(broker.log_dir, "killed", ["txn-killed-0", "epochs-0"])


def _write_the_rest(broker):
    bootstrap = broker.bootstrap_servers
    ends = write_transactions(Topic(bootstrap, "txn"))
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "800"}
    compacted = Topic(bootstrap, "compacted", settings)
    write_compacted(compacted, lambda: _await_cleaner(broker.log_dir, "compacted"))
    write_trimmed(Topic(bootstrap, "trimmed"), TRIMMED_TO)
    eventually(lambda: not (broker.log_dir / "trimmed-0" / f"{0:020d}.log").exists(), 60)
    _note(broker, "stopped", ["txn", "epochs", "compacted", "trimmed"], ends)


def _await_controller(broker):
    """Until the broker, now alone, says that it is the controller."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    eventually(lambda: admin.list_topics(timeout=10).controller_id == broker.broker_id, 60)


def _await_cleaner(log_dir, topic):
    """Until the cleaner has been through all but the active segment."""

    def is_clean():
        active = max(int(path.stem) for path in (log_dir / f"{topic}-0").glob("*.log"))
        checkpoint = log_dir / "cleaner-offset-checkpoint"
        return checkpoint.exists() and f"{topic} 0 {active}\n" in checkpoint.read_text()

    eventually(is_clean, 60)


def _await_checkpoint(log_dir, prefix):
    """Until the recovery point of a partition is that of its last full segment."""

    def is_written():
        lines = (log_dir / "recovery-point-offset-checkpoint").read_text().splitlines()
        active = max(int(path.stem) for path in (log_dir / "txn-killed-0").glob("*.log"))
        return f"{prefix}{active}" in lines

    eventually(is_written, 60)


def _note(broker, name, topics, transaction_ends):
    noted = {"captured_at_ms": SystemClock().now_ms(), "transaction_ends": transaction_ends}
    bootstrap = broker.bootstrap_servers
    for topic in topics:
        noted[f"{topic} uncommitted"] = read_topic(bootstrap, topic, "read_uncommitted")
        noted[f"{topic} committed"] = read_topic(bootstrap, topic, "read_committed")
        noted[f"{topic} fetches"] = fetch_answers(broker, topic)
        noted[f"{topic} epoch ends"] = epoch_ends(broker, topic)
    (HERE / f"kafka-3.9-{name}.json").write_text(_as_lines(noted))


def _as_lines(noted):
    """JSON with a line for each row."""
    parts = []
    for key, value in noted.items():
        rows = ",\n".join(f"  {json.dumps(row)}" for row in value) if isinstance(value, list) else None
        parts.append(f" {json.dumps(key)}: " + (f"[\n{rows}\n ]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _keep(log_dir, name, partitions):
    target = HERE / f"kafka-3.9-{name}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for partition in partitions:
        shutil.copytree(log_dir / partition, target / partition)
    for path in log_dir.iterdir():
        if path.is_file() and path.name != ".lock":
            shutil.copy2(path, target)
    sizes = [path.stat().st_size for path in target.rglob("*") if path.is_file()]
    sys.stdout.write(f"{target.name}: {len(sizes)} files, {sum(sizes)} bytes\n")


if __name__ == "__main__":
    _capture()
    let_go_of_producers()
