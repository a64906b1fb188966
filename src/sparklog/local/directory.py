"""What a local cluster keeps on disk::

DIR/lock              held (flock) by the one process that runs the cluster
DIR/ports.json        the ports it had, so that a restart is found where it was
DIR/zookeeper/        the embedded ZooKeeper's data; the cluster id lives in it
DIR/broker-N/         the log directory of broker N
DIR/zookeeper.pid, broker-N.pid     while they run
DIR/logs/             what they print
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path

from sparklog.errors import ConfigError
from sparklog.local.disk import shortage


class ClusterDirectory:
    """The names above, the lock, and the remembered ports."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root).absolute()
        self._lock: TextIOWrapper | None = None

    @property
    def zookeeper(self) -> Path:
        return self.root / "zookeeper"

    def broker(self, broker_id: int) -> Path:
        return self.root / f"broker-{broker_id}"

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{_file_name(name)}.log"

    def lock(self) -> None:
        """Hold the directory, or raise ConfigError: why it cannot hold a cluster, or which process holds it."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / "lock").open("a+")
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise ConfigError(
                f"{self.root} is in use by a running cluster (process {holder}); stop it or choose another directory"
            ) from None
        self._lock = lock
        try:
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def is_locked(self) -> bool:
        """Whether we hold it."""
        return self._lock is not None

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_pid(self, name: str, pid: int) -> None:
        try:
            self._pid_file(name).write_text(f"{pid}\n")
        except OSError as error:
            raise self._unusable(error) from error

    def remove_pid(self, name: str) -> None:
        self._pid_file(name).unlink(missing_ok=True)

    def remembered_ports(self) -> dict[str, int]:
        """Name to port as of the last run; empty for a new directory."""
        path = self.root / "ports.json"
        try:
            ports = json.loads(path.read_text())
            return {str(name): int(port) for name, port in ports.items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unusable(error) from error
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigError(f"{path} is damaged ({error}); delete it, and the cluster chooses ports anew") from None

    def remember_ports(self, ports: Mapping[str, int]) -> None:
        path = self.root / "ports.json"
        partial = path.with_suffix(".json.tmp")
        try:
            partial.write_text(json.dumps(dict(ports), indent=2, sort_keys=True) + "\n")
            partial.replace(path)
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> ConfigError:
        full = shortage(self.root, str(error)) if error.errno == errno.ENOSPC else None
        if full:
            return ConfigError(f"no cluster can be kept in {self.root}: {full}")
        return ConfigError(
            f"no cluster can be kept in {self.root}: {error.filename or self.root}: {error.strerror};"
            " choose a directory (--data) that exists and may be written to, or that can be made"
        )

    def _pid_file(self, name: str) -> Path:
        return self.root / f"{_file_name(name)}.pid"


def _file_name(name: str) -> str:
    return name.lower().replace(" ", "-")
