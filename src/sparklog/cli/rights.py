"""What the user of each command needs, which one that is refused is told (docs/security.md: What each request needs).

Commands that start jobs, or do what a job does, have theirs in ``config/job_clients.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

_DESCRIBE, _ALTER = "DESCRIBE on the cluster", "ALTER on the cluster"
_MOVES = f"{_ALTER} (DESCRIBE for --list), for --throttle ALTER_CONFIGS on the cluster and the topics"
_WRITES = "DESCRIBE and WRITE on the transactional ids, READ on groups 'spark-decisions...' and on __spark_decisions"
RIGHTS_OF_COMMANDS: Final[Mapping[str, str]] = {
    "produce": "WRITE on the topic",
    "consume": "READ on the topics, and with --group on the group",
    "web": _DESCRIBE,
    "top": f"{_DESCRIBE}, the topics and the groups",
    "doctor": f"{_DESCRIBE}, the topics, the groups and the transactional ids",
    "perf produce": "WRITE on the topic",
    "perf consume": "READ on the topic",
    "perf e2e": "READ and WRITE on the topic",
    "topic create": "CREATE on the topic or on the cluster, and DESCRIBE on the topic",
    "topic list": "DESCRIBE on the topics",
    "topic describe": "DESCRIBE and DESCRIBE_CONFIGS on the topic",
    "topic alter": "DESCRIBE on the topic, ALTER_CONFIGS for its settings, ALTER for --partitions",
    "topic trim": "DELETE on the topic",
    "topic delete": "DELETE on the topic",
    "group list": "DESCRIBE on the groups",
    "group describe": "DESCRIBE on the group and on its topics",
    "group delete": "DELETE on the group",
    "group delete-offsets": "DELETE on the group and READ on its topics",
    "group migrate": "READ on the group and on its topics",
    "group reset-offsets": "READ on the group and on its topics",
    "cluster describe": f"{_DESCRIBE} and the topics",
    "cluster elect": _ALTER,
    "cluster reassign": _MOVES,
    "cluster drain": _MOVES,
    "broker list": f"{_DESCRIBE} and the topics",
    "broker describe": f"{_DESCRIBE} and the topics, DESCRIBE_CONFIGS on the cluster for its settings",
    "broker drain": _MOVES,
    "config describe": "DESCRIBE_CONFIGS on the topic, for a broker on the cluster",
    "config alter": "ALTER_CONFIGS on the topic, for a broker on the cluster",
    "compact run": "ALTER on the topic",
    "compact status": "DESCRIBE on the topic",
    "txn list": "DESCRIBE on the transactional ids",
    "txn describe": "DESCRIBE on the transactional id",
    "txn commit": "WRITE on the transactional id",
    "txn abort": f"WRITE on the transactional id, for one that hangs READ on the topic and {_ALTER}",
    "txn find-hanging": "READ on the topics and DESCRIBE on the transactional ids",
    "txn producers": "READ on the topic",
    "writes list": _WRITES,
    "writes finish": _WRITES,
    "writes declare": _WRITES,
    "log dirs": _DESCRIBE,
    "log move": f"{_ALTER} and DESCRIBE on the topic",
    "user list": _DESCRIBE,
    "user add": _ALTER,
    "user set-password": _ALTER,
    "user delete": _ALTER,
    "token create": "CREATE_TOKENS on the owner, where that is another user",
    "token describe": "DESCRIBE on the token, or DESCRIBE_TOKENS on its owner, where that is another user",
    "token renew": "to be the token's owner or one of its renewers",
    "token expire": "to be the token's owner or one of its renewers",
    "acl list": _DESCRIBE,
    "acl add": _ALTER,
    "acl remove": _ALTER,
    "quota list": "DESCRIBE_CONFIGS on the cluster",
    "quota set": "ALTER_CONFIGS on the cluster",
    "quota remove": "ALTER_CONFIGS on the cluster",
}


def needed() -> str:
    """What the user of the running command needs; empty where that is not known, or there is none."""
    context = click.get_current_context(silent=True)
    return "" if context is None else RIGHTS_OF_COMMANDS.get(context.command_path.partition(" ")[2], "")
