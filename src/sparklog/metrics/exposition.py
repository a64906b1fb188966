"""The text that Prometheus reads, version 0.0.4: families one after another, each with its samples.

Source: prometheus.io, "Exposition formats". prometheus-client's own writer makes an object of each sample,
which takes as long as thousands of requests where a broker has thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LINES_A_STEP = 2000


class Family(NamedTuple):
    """Samples of one name. ``kind`` is Prometheus's: counter, gauge or histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    @property
    def head(self) -> str:
        """The lines that stand before its samples."""
        text = self.help.replace("\\", "\\\\").replace("\n", "\\n")
        return f"# HELP {self.name} {text}\n# TYPE {self.name} {self.kind}\n"

    def sample(self, value: float, *labels: str) -> str:
        """The line of one sample, with the values of ``labels`` in their order."""
        return f"{self.name}{label_text(self.labels, labels)} {value}\n"


def label_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """``{name="value",…}``; empty without labels."""
    pairs = [f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True)]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def escaped(value: str) -> str:
    """A label's value between its quotes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Exposition:
    """Collects samples of families in any order; ``text`` has those of a family together."""

    def __init__(self) -> None:
        self._lines: dict[Family, list[str]] = {}

    def lines(self, family: Family) -> list[str]:
        """The samples of the family, to add to. Without any it is told all the same."""
        found = self._lines.get(family)
        if found is None:
            found = self._lines[family] = []
        return found

    def add(self, family: Family, value: float, *labels: str) -> None:
        """One more sample."""
        self.lines(family).append(family.sample(value, *labels))

    @property
    def families(self) -> set[Family]:
        """Those that something was said of."""
        return set(self._lines)

    def encoding(self, parts: list[bytes]) -> Generator[None, None, None]:
        """Add the page to ``parts``, some thousand samples a step."""
        for family, lines in self._lines.items():
            parts.append(family.head.encode())
            for first in range(0, len(lines), _LINES_A_STEP):
                parts.append("".join(lines[first : first + _LINES_A_STEP]).encode())
                yield
