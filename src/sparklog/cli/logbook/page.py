"""``docs/log-lines.md``: what each warning and error in the log means for the one who reads it.

``python -m sparklog.cli.logbook.page > docs/log-lines.md`` writes it anew. A line without advice fails a test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from sparklog.cli.logbook import of_brokers, of_clients
from sparklog.cli.logbook.lines import LogLine, log_lines

_HEAD = """\
# What the log says

Every line of level `WARNING`, `ERROR` or `CRITICAL` that brokers, clients and Spark's jobs write, and what to do about
it. `…` stands for what a line is about: a partition, a broker, a path, the reason. Search this page for the words
between them. How to send lines elsewhere, have them as JSON and change levels: [logging.md](logging.md). What to do
about alerts: [alerts.md](alerts.md). Procedures: [runbook.md](runbook.md).

`WARNING`: something is not as it should be, and sparklog deals with it. `ERROR`: something is lost, refused or left
undone until a person sees to it, or it is a mistake of sparklog's.

This page is made from the code: `python -m sparklog.cli.logbook.page`.
"""
_AREAS = {
    "Log directories and their files": ("log",),
    "Replicas, cleaning, retention": ("replica",),
    "The broker": ("broker", "cli", "local"),
    "The controller": ("controller",),
    "What is stored in ZooKeeper": ("zk",),
    "Connections and users": ("net", "security"),
    "Groups and transactions": ("group", "txn"),
    "Settings": ("config",),
    "Clients": ("client",),
    "Spark, compaction, backups": ("spark", "compaction", "backup"),
    "The web page": ("web",),
}
"""The headings, and what the names of the modules begin with that stand under each."""

ADVICE = {**of_brokers.ADVICE, **of_clients.ADVICE}


def advice_for(line: LogLine) -> str:
    """Raises KeyError where there is none."""
    beginnings = ADVICE[line.module]
    return beginnings[max((each for each in beginnings if line.text.startswith(each)), key=len, default="")]


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(text for title, roots in _AREAS.items() for text in _area(title, roots))


def _area(title: str, roots: tuple[str, ...]) -> Iterator[str]:
    yield f"\n## {title}\n\n| level | line | logger | what to do |\n| --- | --- | --- | --- |\n"
    rows = [_row(each) for each in log_lines() if each.module.partition(".")[0] in roots]
    yield from dict.fromkeys(rows)


def _row(line: LogLine) -> str:
    text = line.text.replace("|", r"\|")
    return f"| {' or '.join(line.levels)} | `{text}` | `{line.logger}` | {advice_for(line)} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
