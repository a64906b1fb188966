"""One broker of ours, in its own process, for tests to stop, kill and start again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from sparklog.local.broker import PROGRAM, BrokerProcess, BrokerSpec
from sparklog.local.ports import free_port
from sparklog.local.running import Running

QUICK_SETTINGS = {
    "zookeeper.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "86400000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""What every test wants of a broker: notice a death soon, do not wait, delete no old record, make few files."""


def settings_arguments(settings: Mapping[str, object] | None) -> tuple[str, ...]:
    """``settings`` over ``QUICK_SETTINGS``, as the ``broker`` command takes them."""
    merged = {**QUICK_SETTINGS, **(settings or {})}
    return tuple(word for name, value in merged.items() for word in ("--set", f"{name}={value}"))


class BrokerHarness(BrokerProcess, Running):
    """A broker on ``zookeeper`` (``host:port``), its log directory and its output under ``data_dir``.

    ``settings``: by their names in a ``server.properties`` file, over ``QUICK_SETTINGS``. The port, if 0, is picked
    once and kept over restarts.
    """

    program: ClassVar[Sequence[str]] = PROGRAM
    """What it is run with, before ``broker --id N ...``."""

    def __init__(
        self,
        data_dir: Path,
        zookeeper: str,
        broker_id: int = 0,
        port: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        name = f"broker-{broker_id}"
        spec = BrokerSpec(
            broker_id=broker_id,
            zookeeper=zookeeper,
            data_dir=data_dir / name,
            port=port or free_port(),
            arguments=settings_arguments(settings),
            program=self.program,
        )
        super().__init__(spec, data_dir / f"{name}.log")

    def restart(self) -> None:
        """A clean stop, then a start."""
        self.stop()
        self.start()
