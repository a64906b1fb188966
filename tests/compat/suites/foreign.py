"""A suite of another project, which runs in processes of its own against the address of a broker."""

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

from compat.suites.outcomes import Outcome

NICENESS = 10
KAFKA_VERSION = "3.9.1"
"""What the suites are told that they talk to, as some of their tests depend on it."""


class PeerMissing(Exception):
    """The other project's sources, or what they need, are not on this machine; the text says what to do."""


def checkout(project: str) -> Path:
    """The directory of another project's sources."""
    root = os.environ.get("SPARKLOG_PEERS")
    if not root:
        raise PeerMissing("SPARKLOG_PEERS is not set; docs/compatibility.md says what it names")
    directory = Path(root).absolute() / project
    if not directory.is_dir():
        raise PeerMissing(f"there is no {directory}; docs/compatibility.md says what goes there")
    return directory


class ForeignSuite(ABC):
    """One suite: which broker settings it wants, and how its tests are run."""

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, object]]
    """Of all brokers, by their names in a ``server.properties`` file."""
    brokers: ClassVar[int] = 1
    """How many it wants, of Kafka's and of ours."""

    @property
    def racks(self) -> list[str]:
        """The brokers' racks, by their ids."""
        return [f"RACK{id_}" for id_ in range(self.brokers)]

    @abstractmethod
    def run(self, bootstrap: str, scratch: Path, only: Collection[str] | None = None) -> dict[str, Outcome]:
        """Every test's outcome, or those of ``only``. Output is kept under ``scratch``. Raises PeerMissing."""


def run_bounded(
    command: list[str], directory: Path, environment: Mapping[str, str], output: Path, timeout_s: float
) -> int | None:
    """The exit status of a command, None if it was killed with all its children when the time was up."""
    with output.open("ab") as sink:
        child = subprocess.Popen(
            ["nice", "-n", str(NICENESS), *command],
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill_group(child)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """End the session that ``child`` leads: itself, and what it left behind."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        child.wait()
