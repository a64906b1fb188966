"""Names of topics and groups on the command line, which a shell completes from the cluster.

The cluster is the one that the line names by then, or else the environment. A shell waits for the answer: a cluster
that does not answer within two seconds, or refuses to, completes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from shlex import quote
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from sparklog.cli.connection import administered, client_settings
from sparklog.cli.internal import is_internal_group, is_internal_topic

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin

_PATIENCE_MS = 2000
_QUICK = dict.fromkeys(
    ("default_api_timeout_ms", "socket_connection_setup_timeout_ms", "request_timeout_ms"), str(_PATIENCE_MS)
)


class ClusterName(StringParamType):
    """A text, of which ``listed`` knows the likely ones."""

    def __init__(self, listed: Callable[[Admin, str], Iterable[str]]) -> None:
        self._listed = listed

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so, but those that the line has already.

        Names that need quotes are left out: a shell puts a name on the line as it is, and would run what is in it.
        """
        given = ctx.params.get(str(param.name))
        has = set(given) if isinstance(given, tuple) else set()
        names = sorted(self._names(ctx, incomplete))
        return [
            CompletionItem(each)
            for each in names
            if each.startswith(incomplete) and quote(each) == each and each not in has
        ]

    def _names(self, ctx: click.Context, incomplete: str) -> list[str]:
        bootstrap = ctx.params.get("bootstrap") or client_settings(ctx).get("bootstrap.servers")
        if not bootstrap:
            return []
        try:
            with ctx.scope(cleanup=False), administered(bootstrap, **_QUICK) as admin:
                return list(self._listed(admin, incomplete))
        except Exception:  # whatever it is, a line of it would spoil what is being typed
            return []


def _topics(admin: Admin, incomplete: str) -> Iterable[str]:
    """The brokers' own where an underscore is typed."""
    topics = admin.describe_cluster().topics
    return [name for name, each in topics.items() if incomplete.startswith("_") or not is_internal_topic(each)]


def _groups(admin: Admin, _incomplete: str) -> Iterable[str]:
    found, _ = admin.reachable_groups(timeout=_PATIENCE_MS / 1000)
    return [each.group_id for each in found if not is_internal_group(each.group_id)]


TOPIC = ClusterName(_topics)
GROUP = ClusterName(_groups)
