"""What a local cluster keeps on disk::

DIR/lock              held (flock) by the one process that runs the cluster
DIR/ports.json        the ports it had, so that a restart is found where it was
DIR/zookeeper/        the embedded ZooKeeper's data; the cluster id lives in it
DIR/zookeeper-N/      the data of member N, where there is an ensemble instead
DIR/broker-N/         the log directory of broker N
DIR/zookeeper.pid (or zookeeper-N.pid), broker-N.pid     while they run
DIR/logs/             what they print
DIR/secure/           keys, certificates and passwords of a cluster that is secure (``secured.py``)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from sparklog.errors import ConfigError
from sparklog.local.locked import LockedDirectory

_MEMBER = re.compile(r"zookeeper-\d+")
_BROKER = re.compile(r"broker-(\d+)")


class ClusterDirectory(LockedDirectory):
    """The names above, the lock, and the remembered ports.

    Raises ConfigError for one with a comma in its path.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        if "," in str(self.root):
            raise ConfigError(
                f"no cluster can be kept in {self.root}: brokers are told by log.dirs where their records are to lie,"
                " and take a comma for the end of one directory's name; choose a directory (--data) without a comma"
            )

    def zookeeper(self, member: int | None = None) -> Path:
        """The data of the only ZooKeeper, or of a ``member`` of an ensemble."""
        return self.root / ("zookeeper" if member is None else f"zookeeper-{member}")

    def zookeepers(self) -> int:
        """How many ZooKeepers the cluster has; 0 for one that is yet to be made."""
        if self.zookeeper().is_dir():
            return 1
        remembered = sum(_MEMBER.fullmatch(name) is not None for name in self.remembered_ports())
        return max(remembered, sum(_MEMBER.fullmatch(each.name) is not None for each in self.root.glob("zookeeper-*")))

    def broker_ids(self) -> list[int]:
        """The brokers that have data here, ascending: those that a run remembers, where ``ports.json`` is there."""
        remembered = self.remembered_ports()
        found = [_BROKER.fullmatch(each.name) for each in self.root.glob("broker-*") if each.is_dir()]
        return sorted(int(each[1]) for each in found if each and (each[0] in remembered or not remembered))

    def broker(self, broker_id: int) -> Path:
        return self.root / f"broker-{broker_id}"

    @property
    def secure(self) -> Path:
        return self.root / "secure"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def log(self, name: str) -> Path:
        return self.logs / f"{_file_name(name)}.log"

    def write_pid(self, name: str, pid: int) -> None:
        """Raises ConfigError where the directory cannot be written."""
        try:
            self._pid_file(name).write_text(f"{pid}\n")
        except OSError as error:
            raise self.unusable(error) from error

    def remove_pid(self, name: str) -> None:
        self._pid_file(name).unlink(missing_ok=True)

    def remembered_ports(self) -> dict[str, int]:
        """Name to port as of the last run; empty for a new directory. Raises ConfigError where they cannot be read."""
        path = self.root / "ports.json"
        try:
            ports = json.loads(path.read_text())
            return {str(name): int(port) for name, port in ports.items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self.unusable(error) from error
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigError(f"{path} is damaged ({error}); delete it, and the cluster chooses ports anew") from None

    def remember_ports(self, ports: Mapping[str, int]) -> None:
        """Raises ConfigError where the directory cannot be written."""
        path = self.root / "ports.json"
        partial = path.with_suffix(".json.tmp")
        try:
            partial.write_text(json.dumps(dict(ports), indent=2, sort_keys=True) + "\n")
            partial.replace(path)
        except OSError as error:
            raise self.unusable(error) from error

    def _pid_file(self, name: str) -> Path:
        return self.root / f"{_file_name(name)}.pid"


def _file_name(name: str) -> str:
    return name.lower().replace(" ", "-")
