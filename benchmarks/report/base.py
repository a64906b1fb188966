"""What every section is: a table, what was aimed at, and whether it was reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Aim:
    """Something wanted, and what came of it."""

    wanted: str
    got: str
    reached: bool

    def __str__(self) -> str:
        return f"{'Reached' if self.reached else '**Not reached**'}: {self.wanted}; {self.got}."


@dataclass
class Section:
    """One table with what is to be said about it. The first column is text, the others are numbers."""

    title: str
    text: str
    header: list[str]
    rows: list[list[str]]
    aims: list[Aim]
    notes: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        widths = [max(len(row[column]) for row in [self.header, *self.rows]) for column in range(len(self.header))]
        lines = [
            "  ".join(
                cell.ljust(width) if number == 0 else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in [self.header, *self.rows]
        ]
        said = [str(aim).replace("*", "") for aim in self.aims] + self.notes
        return "\n".join([self.title, "", *lines, "", *said]) + "\n"

    def as_markdown(self) -> str:
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        table = [f"| {' | '.join(row)} |" for row in [self.header, rule, *self.rows]]
        said = [f"- {line}" for line in (*map(str, self.aims), *self.notes)]
        return "\n".join([f"## {self.title}", "", self.text, "", *table, "", *said]) + "\n"


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def extremes(ratios: list[float]) -> str:
    """From the least to the most of the rounds."""
    return f"{min(ratios):.2f} - {max(ratios):.2f}"
