"""One broker of ours, in its own process, for tests to stop, kill and start again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from sparklog.local.broker import PROGRAM, BrokerProcess, BrokerSpec
from sparklog.local.ports import free_port


class BrokerHarness(BrokerProcess):
    """A broker on ``zookeeper`` (``host:port``), its log directory and its output under ``data_dir``.

    ``arguments`` go to the ``broker`` command as they are. The port, if 0, is picked once and kept over restarts.
    """

    program: ClassVar[Sequence[str]] = PROGRAM
    """What it is run with, before ``broker --id N ...``."""

    def __init__(
        self, data_dir: Path, zookeeper: str, broker_id: int = 0, port: int = 0, arguments: Sequence[str] = ()
    ) -> None:
        name = f"broker-{broker_id}"
        spec = BrokerSpec(
            broker_id=broker_id,
            zookeeper=zookeeper,
            data_dir=data_dir / name,
            port=port or free_port(),
            arguments=tuple(arguments),
            program=self.program,
        )
        super().__init__(spec, data_dir / f"{name}.log")

    def restart(self) -> None:
        """A clean stop, then a start."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
