"""Names of commands that people guess who know Kafka's tools or rpk, and what they mean here."""

from __future__ import annotations

import difflib
from collections.abc import Collection

import click

GUESSES = {
    "topics": "topic",
    "groups": "group",
    "consumer-groups": "group",
    "consumer-group": "group",
    "configs": "config",
    "acls": "acl",
    "users": "user",
    "security": "user",
    "quotas": "quota",
    "tokens": "token",
    "delegation-tokens": "token",
    "certs": "cert",
    "certificate": "cert",
    "ssl": "cert",
    "transactions": "txn",
    "transaction": "txn",
    "brokers": "broker",
    "info": "cluster describe",
    "status": "cluster describe",
    "metadata": "cluster describe",
    "broker-api-versions": "cluster describe",
    "leader-election": "cluster elect",
    "elect": "cluster elect",
    "reassign": "cluster reassign",
    "reassign-partitions": "cluster reassign",
    "decommission": "cluster drain",
    "drain": "cluster drain",
    "get-offsets": "topic describe",
    "partitions": "topic describe",
    "lag": "group describe",
    "seek": "group reset-offsets",
    "log-dirs": "log dirs",
    "logdirs": "log dirs",
    "delete-records": "topic trim",
    "trim": "topic trim",
    "dump-log": "log dump",
    "dump": "log dump",
    "verify": "log verify",
    "health": "doctor",
    "check": "doctor",
    "diagnose": "doctor",
    "monitor": "top",
    "stats": "top",
    "bench": "perf",
    "producer-perf-test": "perf produce",
    "consumer-perf-test": "perf consume",
    "e2e-latency": "perf e2e",
    "console-producer": "produce",
    "console-consumer": "consume",
    "cat": "consume",
    "tail": "consume",
    "write": "produce",
    "read": "consume",
    "start": "up",
    "container": "up",
    "server-start": "broker run",
    "zookeeper-server-start": "zookeeper",
    "clean": "compact run",
    "import": "load",
    "export": "offload",
    "generate": "completion",
    "completions": "completion",
    "topic produce": "produce",
    "topic consume": "consume",
    "topic add-partitions": "topic alter",
    "topic alter-config": "topic alter",
    "topic delete-config": "topic alter",
    "topic delete-records": "topic trim",
    "topic deleterecords": "topic trim",
    "topic trim-records": "topic trim",
    "topic trim-prefix": "topic trim",
    "topic truncate": "topic trim",
    "topic purge": "topic trim",
    "topic empty": "topic trim",
    "topic clear": "topic trim",
    "topic offsets": "topic describe",
    "group offset-delete": "group delete-offsets",
    "group seek": "group reset-offsets",
    "group offsets": "group describe",
    "group lag": "group describe",
    "group members": "group describe",
    "cluster health": "doctor",
    "cluster info": "cluster describe",
    "cluster status": "cluster describe",
    "cluster metadata": "cluster describe",
    "cluster brokers": "broker list",
    "cluster config": "config",
    "cluster logdirs": "log dirs",
    "cluster partitions": "topic describe",
    "cluster quotas": "quota",
    "cluster txn": "txn",
    "cluster decommission": "cluster drain",
    "cluster balance": "cluster reassign",
    "cluster unregister": "cluster drain",
    "user update": "user set-password",
    "user password": "user set-password",
    "log clean": "compact run",
    "broker show": "broker describe",
    "broker info": "broker describe",
    "broker config": "config describe",
    "broker configs": "config describe",
    "broker settings": "config describe",
    "broker logdirs": "log dirs",
    "broker log-dirs": "log dirs",
    "broker disks": "log dirs",
    "broker decommission": "broker drain",
    "broker remove": "broker drain",
    "txn describe-producers": "txn producers",
    "token revoke": "token expire",
}
"""What is typed after ``sparklog``, and what is to be."""

_SAME = (
    ("list", "ls", "all", "describe", "show", "status"),
    ("describe", "show", "info", "get", "status", "list", "ls"),
    ("delete", "remove", "rm", "del", "drop", "expire"),
    ("create", "add", "new", "make", "issue", "set", "run"),
    ("alter", "set", "update", "edit", "change", "put", "add"),
    ("run", "start", "now", "create"),
)
"""Verbs that mean the same in one group or the other."""
_DELETIONS = ("delete", "remove")


def guessed(path: str, name: str, known: Collection[str]) -> str | None:
    """What was meant by ``name`` in the group ``path`` (empty for the outermost), which has the commands ``known``."""
    plain = name.lower().removesuffix(".sh").replace("_", "-").removeprefix("kafka-")
    typed = f"{path} {plain}".strip()
    if typed in GUESSES:
        return GUESSES[typed]
    if not path and plain in known:
        return plain
    if path and (verb := _synonym(plain, known)):
        return f"{path} {verb}"
    near = difflib.get_close_matches(plain, [each for each in known if not _deletes_more(each, plain)], n=1)
    return f"{path} {near[0]}".strip() if near else None


def _deletes_more(command: str, typed: str) -> bool:
    """Whether ``typed`` says what is to be deleted, and ``command`` would delete what has it: delete-x is no delete."""
    return command in _DELETIONS and typed.startswith(f"{command}-")


def _synonym(verb: str, known: Collection[str]) -> str | None:
    alike = (each for verbs in _SAME if verb in verbs for each in verbs)
    return next((each for each in alike if each in known), None)


class GuessingGroup(click.Group):
    """A group that says what may have been meant by a command that it does not have."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            program, _, path = ctx.command_path.partition(" ")
            meant = guessed(path, name, self.list_commands(ctx))
            advice = f' Did you mean "{program} {meant}"?' if meant else ""
            raise click.UsageError(f"No such command {name!r}.{advice}", ctx)
        return super().resolve_command(ctx, args)
