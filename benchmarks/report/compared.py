"""One broker of ours beside one of Kafka 3.9.1, a row a figure, as ``benchmarks.broker.compare`` gives them."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.report.base import Aim, Rows, extremes, number

HEADER = ["", "figure", "sparklog", "Kafka", "ratio", "from - to"]


def compared_rows(compared: Rows) -> list[list[str]]:
    return [
        [
            row["measurement"],
            row["figure"],
            number(row["sparklog"]),
            number(row["kafka"]),
            f"{row['ratio']:.2f}",
            extremes(row["ratios"]),
        ]
        for row in compared
    ]


BESIDE_HEADER = ["", "figure", "sparklog", "beside", "other", "ratio", "from - to"]


def beside_rows(rows: Rows) -> list[list[str]]:
    """``Comparison.row``s, each beside a peer of its own, or none."""
    return [
        [
            row["measurement"],
            row["figure"],
            number(row["sparklog"]),
            row["peer"],
            number(row["other"]) if "other" in row else "",
            f"{row['ratio']:.2f}" if "other" in row else "",
            extremes(row["ratios"]) if len(row.get("ratios", ())) > 1 else "",
        ]
        for row in rows
    ]


def ratio_aim(rows: Rows, wanted: str, aim: float, figures: Mapping[str, str]) -> Aim:
    """Whether the ratio of each of these, a figure by its measurement, is at least ``aim``."""
    ratios = {
        measurement: next(row["ratio"] for row in rows if (row["measurement"], row["figure"]) == (measurement, figure))
        for measurement, figure in figures.items()
    }
    got = "; ".join(f"{measurement}: {ratio:.2f}" for measurement, ratio in ratios.items())
    return Aim(wanted, got, min(ratios.values()) >= aim)


def judgement(compared: Rows, beside: str = "Kafka 3.9.1") -> Aim:
    """Where sparklog is behind ``beside``, said by name."""
    judged = [row for row in compared if row["figure"] != "broker CPU us"]
    behind = [row for row in judged if max(row["ratios"]) < 1]
    ahead = [row for row in judged if min(row["ratios"]) > 1]
    mixed = [row for row in judged if row not in behind and row not in ahead]
    return Aim(
        f"not behind {beside} in any figure",
        f"of {len(judged)} figures {len(ahead)} are ahead in every round, "
        f"{len(behind)} behind in every round{_list(behind)}, in {len(mixed)} the rounds disagree{_list(mixed)}",
        not behind,
    )


def _list(rows: Rows) -> str:
    named = "; ".join(f"{row['measurement']}: {row['figure']}, {row['ratio']:.2f}" for row in rows)
    return f" ({named})" if named else ""
