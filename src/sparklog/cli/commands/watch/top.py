"""``sparklog top``: what goes on in a cluster, live."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from sparklog.cli.connection import GROUPS, TOPICS, administered, bootstrap_option, say_if_partial
from sparklog.cli.display import output_option, show_json, show_table
from sparklog.cli.numbers import Number
from sparklog.errors import SparklogError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparklog.cli.top.view import View
    from sparklog.client.admin.admin import Admin
    from sparklog.clock import Clock

_SORTS = ("records", "bytes", "read", "size", "lag", "name")


@click.command()
@click.option(
    "--interval", type=Number(0, min_open=True), default=2.0, show_default=True, metavar="SECONDS",
    help="How often to look.",
)  # fmt: skip
@click.option("--sort", type=click.Choice(_SORTS), default="records", show_default=True, help="What comes first.")
@click.option("--once", is_flag=True, help="Print one interval and end; so it is where there is no terminal.")
@click.option("--internal", is_flag=True, help="The topics too that brokers and Spark's sinks keep for themselves.")
@output_option
@bootstrap_option
def top(interval: float, sort: str, once: bool, internal: bool, as_json: bool, bootstrap: str) -> None:
    """Show brokers, the busiest topics, and groups with their lag, as it goes on.

    A broker that is gone and has replicas is a row too. One that is silent tells no bytes, nor does any to a user
    without DESCRIBE of the cluster.

    Records come from offsets, bytes from the sizes of the logs (of all replicas, as they are stored), and what is read
    from what groups commit: a consumer without a group is not seen. Keys: q ends it; r, b, o, s, l, n sort by records
    written, bytes written, records read (out), size, lag, name. --output json prints one interval.

    \b
    Examples:
      sparklog top
      sparklog top --interval 10 --sort lag
      sparklog top --once --output json | jq '.groups[] | select(.lag > 1000)'
    """
    from sparklog.clock import SystemClock

    clock = SystemClock()
    with administered(bootstrap) as admin:
        if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            _print(_one(admin, clock, interval, internal), sort, as_json)
            say_if_partial(admin, TOPICS, GROUPS)
        else:
            _live(admin, clock, interval, sort, internal)


def _one(admin: Admin, clock: Clock, interval: float, internal: bool) -> View:
    from sparklog.cli.top.sample import take_sample
    from sparklog.cli.top.view import compare

    before = take_sample(admin, clock)
    clock.sleep(interval)
    return compare(before, take_sample(admin, clock), internal=internal)


def _print(view: View, sort: str, as_json: bool) -> None:
    from sparklog.cli.top.screen import cells, headings
    from sparklog.cli.top.view import BrokerRow, GroupRow, TopicRow, sorted_rows

    topics, groups = sorted_rows(view.topics, sort), sorted_rows(view.groups, sort)
    if as_json:
        lists: dict[str, Sequence[Any]] = {"brokers": view.brokers, "topics": topics, "groups": groups}
        show_json({"seconds": view.seconds} | {name: [each._asdict() for each in rows] for name, rows in lists.items()})
        return
    tables = ((BrokerRow._fields, view.brokers), (TopicRow._fields, topics), (GroupRow._fields, groups))
    for fields, rows in tables:
        names = headings(fields)
        show_table(names, [cells(row) for row in rows], right=names[1:])


def _live(admin: Admin, clock: Clock, interval: float, sort: str, internal: bool) -> None:
    """Until q or Ctrl-C."""
    from rich.live import Live

    from sparklog.cli.top.sample import take_sample
    from sparklog.cli.top.screen import KEYS, QUIT, drawn, keyboard, pressed
    from sparklog.cli.top.view import compare

    view, trouble = compare(before := take_sample(admin, clock), before, internal=internal), ""
    next_at = clock.monotonic() + min(interval, 1.0)
    with keyboard(), Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(drawn(view, sort, live.console.height, trouble), refresh=True)
            key = pressed(max(next_at - clock.monotonic(), 0))
            if key == QUIT:
                return
            sort = KEYS.get(key or "", sort)
            if clock.monotonic() >= next_at:
                try:
                    after = take_sample(admin, clock)
                except SparklogError as error:  # one who watches a cluster wants to see it come back
                    trouble = str(error)
                else:
                    view, before, trouble = compare(before, after, internal=internal), after, ""
                next_at = clock.monotonic() + interval
