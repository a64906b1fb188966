"""``sparklog cluster reassign`` and ``drain``: move replicas to other brokers, and watch them move."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparklog.cli.connection import (
    TOPICS,
    administered,
    bootstrap_option,
    is_refusal,
    partial_kinds,
    say_if_partial,
)
from sparklog.cli.display import counted, done_option, is_json, say_done, show_json, show_table
from sparklog.cli.extents import name_partitions
from sparklog.cli.names import TOPIC
from sparklog.cli.numbers import Number, WholeNumber
from sparklog.errors import ApiError, SparklogError

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.cluster.info import ClusterInfo, PartitionInfo
    from sparklog.cluster.plan import Plan
    from sparklog.structs import TopicPartition

_LOOK_EVERY_S = 0.5
_LOOKS = 10
"""How often to look before what is not described counts as hidden."""
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_MEGABYTE = 1_000_000
_TOGETHER = {
    "--plan": ("--dry-run", "--throttle"),
    "--topic": ("--brokers", "--replication", "--dry-run", "--throttle"),
    "--list": (),
    "--cancel": ("--topic",),
    "--follow": (),
}
"""What "reassign" can be asked for, and the options that it takes then."""

throttle_option = click.option(
    "--throttle", type=Number(0, min_open=True), metavar="MB/S",
    help="Copy no more than so many megabytes a second from each broker, and to each.",
)  # fmt: skip


@click.command(short_help="Move replicas to other brokers.")
@click.option(
    "--plan", "plan_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Where replicas are to be, as JSON of kafka-reassign-partitions.sh.",
)  # fmt: skip
@click.option(
    "-t", "--topic", "topics", type=TOPIC, multiple=True, help="Spread this topic over --brokers; may be repeated."
)
@click.option("--brokers", metavar="ID,ID,...", help="The brokers for --topic; default: all that live.")
@click.option("--replication", type=WholeNumber(1), help="Replicas of each partition of --topic; default: as now.")
@click.option("--dry-run", is_flag=True, help="Print the plan as JSON and move nothing.")
@click.option("--list", "actions", flag_value="list", multiple=True, help="Show what is on the move.")
@click.option(
    "--cancel",
    "actions",
    flag_value="cancel",
    multiple=True,
    help="Give up what is on the move: all, or that of --topic.",
)
@click.option(
    "--follow",
    "actions",
    flag_value="follow",
    multiple=True,
    help="Wait for what is on the move, then end all throttles.",
)
@throttle_option
@done_option
@bootstrap_option
def reassign(
    plan_file: Path | None,
    topics: tuple[str, ...],
    brokers: str | None,
    replication: int | None,
    dry_run: bool,
    actions: tuple[str, ...],
    throttle: float | None,
    bootstrap: str,
) -> None:
    """Move replicas to other brokers: by a plan, or so that topics are spread evenly, over racks too if brokers say
    theirs. Returns when all have moved; clients go on meanwhile. Interrupted, the moves go on: --follow waits again.
    Exit code 1 where one ends elsewhere, given up by somebody else. --topic takes none that is on the move already.

    \b
    Examples:
      sparklog cluster reassign --topic clicks --brokers 1,2,3 --dry-run > plan.json
      sparklog cluster reassign --plan plan.json --throttle 20
      sparklog cluster reassign --topic clicks --replication 3
      sparklog cluster reassign --list
      sparklog cluster reassign --cancel
    """
    given = {
        "--plan": plan_file is not None,
        **{each: each.removeprefix("--") in actions for each in ("--list", "--cancel", "--follow")},
        "--topic": bool(topics),
        "--brokers": brokers is not None,
        "--replication": replication is not None,
        "--dry-run": dry_run,
        "--throttle": throttle is not None,
    }
    asked = _what_is_asked([name for name, is_given in given.items() if is_given])
    with administered(bootstrap) as admin:
        if asked == "--list":
            _list(admin)
        elif asked == "--cancel":
            _cancel(admin, topics)
        elif asked == "--follow":
            _follow(admin)
        else:
            info = admin.describe_cluster()
            plan = None if plan_file is None else _read(plan_file)
            _check_described(admin, info, topics if plan is None else {tp.topic for tp in plan})
            if plan is None:
                _check_settled(admin, lambda tp: tp.topic in topics)
                plan = _spread(info, topics, sorted(info.brokers) if brokers is None else _ids(brokers), replication)
            _execute(admin, info, plan, throttle, dry_run=dry_run)


@click.command(short_help="Move every replica off a broker.")
@click.argument("broker", type=WholeNumber(0), metavar="BROKER")
@click.option("--dry-run", is_flag=True, help="Print the plan as JSON and move nothing.")
@throttle_option
@done_option
@bootstrap_option
def drain(broker: int, dry_run: bool, throttle: float | None, bootstrap: str) -> None:
    """Move every replica off a broker, each to the broker that has the least, so that it can be switched off for good.
    Exit code 1 where it has replicas at the end, as of a topic that was made meanwhile, or one of its is on the move.

    \b
    Examples:
      sparklog cluster drain 2
      sparklog cluster drain 2 --throttle 20
      sparklog cluster drain 2 --dry-run > plan.json
    """
    from sparklog.cluster.plan import drained

    with administered(bootstrap) as admin:
        info = admin.describe_cluster()
        plan = drained(info, broker)
        _check_settled(admin, plan.__contains__)
        _check_seen(admin, broker)
        _execute(admin, info, plan, throttle, dry_run=dry_run)
        if not dry_run:
            _check_drained(admin, broker)


def _check_settled(admin: Admin, is_meant: Callable[[TopicPartition], bool]) -> None:
    """Raises SparklogError where one of the partitions that are meant is on the move: those that it moves to and those
    that it leaves are all among its replicas, so a plan that is made of these would keep them all."""
    if moving := sorted(filter(is_meant, admin.list_partition_reassignments())):
        raise SparklogError(
            f"{name_partitions(moving)} {'is' if len(moving) == 1 else 'are'} on the move: nothing was begun; wait for"
            " the end (sparklog cluster reassign --follow), or give it up (--cancel)"
        )


def _check_drained(admin: Admin, broker: int) -> None:
    """Raises SparklogError where the broker has replicas again, as of topics that were made meanwhile."""
    from sparklog.cluster.plan import present

    def held() -> list[TopicPartition]:
        return sorted(tp for tp, replicas in present(admin.describe_cluster()).items() if broker in replicas)

    if left := _lasting(held):
        raise SparklogError(f"broker {broker} has replicas of {name_partitions(left)}, made meanwhile: drain it again")


def _check_seen(admin: Admin, broker: int) -> None:
    """Raises SparklogError where the broker, if it lives, has replicas of topics that the user may not describe, or
    may not be asked for them.

    Brokers leave such topics out without a word, so their replicas would stay, and be lost with the broker. What is
    being deleted is not described any more, and soon gone: so it is looked again.
    """
    if unseen := _lasting(lambda: _unseen(admin, broker)):
        raise SparklogError(
            f"broker {broker} has replicas of what this user may not describe ({name_partitions(unseen)}):"
            " nothing was moved; ask as a user who may DESCRIBE every topic"
        )


def _lasting(look: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """What is found by every look; a broker may hear of a change some time after the controller."""
    found = look()
    for _ in range(_LOOKS - 1):
        if not found:
            break
        time.sleep(_LOOK_EVERY_S)
        found = look()
    return found


def _unseen(admin: Admin, broker: int) -> list[TopicPartition]:
    from sparklog.cluster.plan import present
    from sparklog.structs import BrokerId

    found, failures = admin.reachable_log_dirs()
    error = failures.get(BrokerId(broker))
    if error is not None and is_refusal(error):
        raise error
    there = {tp for each in found.get(BrokerId(broker), ()) for tp in each.sizes}
    return sorted(there - present(admin.describe_cluster()).keys())  # asked after: topics may just have been made


def _what_is_asked(given: Sequence[str]) -> str:
    """One of _TOGETHER. Raises UsageError where that is not one, or an option would be passed over in silence."""
    asked = [each for each in _TOGETHER if each in given]
    if len(asked) > 1:  # it may go with another
        asked = [each for each in asked if each != "--topic"]
    if len(asked) != 1:
        raise click.UsageError("say what to do: one of --plan, --topic, --list, --cancel, --follow")
    astray = [each for each in given if each != asked[0] and each not in _TOGETHER[asked[0]]]
    if astray:
        raise click.UsageError(f"{', '.join(astray)} cannot be given with {asked[0]}")
    return asked[0]


def _read(plan_file: Path) -> Plan:
    from sparklog.cluster.plan import parse_plan

    try:
        return parse_plan(plan_file.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{plan_file} is not UTF-8 text: {error.reason}", param_hint="--plan") from error


def _check_described(admin: Admin, info: ClusterInfo, topics: Iterable[str]) -> None:
    """Raises ApiError where the user may not describe one of the topics: ``info`` lacks it then, though it is there."""
    missing = sorted(name for name in topics if name not in info.topics)
    if missing and partial_kinds(admin, TOPICS):
        admin.describe_topics(missing)


def _ids(text: str) -> list[int]:
    try:
        return sorted({int(each) for each in text.split(",")})
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of brokers' ids", param_hint="--brokers") from None


def _spread(info: ClusterInfo, topics: Collection[str], brokers: list[int], replication: int | None) -> Plan:
    """As new topics would be, one after the other round the brokers."""
    from sparklog.controller.assignment import assign_replicas
    from sparklog.structs import TopicPartition

    plan: Plan = {}
    for name in topics:
        if name not in info.topics:
            raise click.BadParameter(f"there is no topic {name!r}", param_hint="--topic")
        partitions = info.topics[name].partitions
        factor = replication or _factor(name, partitions)
        racks = {broker: info.racks.get(each) for each in info.brokers if (broker := int(each)) in brokers}
        found = assign_replicas(brokers, len(partitions), factor, start=len(plan), racks=racks)
        plan |= {TopicPartition(name, number): replicas for number, replicas in found.items()}
    return plan


def _factor(topic: str, partitions: Sequence[PartitionInfo]) -> int:
    """How many replicas each has. Raises UsageError where some have more than others."""
    found = sorted({len(each.replicas) for each in partitions})
    if len(found) > 1:
        counts = ", ".join(map(str, found))
        raise click.UsageError(f"partitions of topic {topic!r} have {counts} replicas: say how many by --replication")
    return found[0]


def _execute(admin: Admin, info: ClusterInfo, plan: Plan, throttle: float | None, *, dry_run: bool) -> None:
    from sparklog.cluster.plan import changed, format_plan

    wanted = changed(info, plan)
    if dry_run:
        click.echo(format_plan(plan))
        return
    if not wanted:
        say_done("nothing is to be moved: all replicas are where they are to be", moved=[])
        return
    with _throttled(admin, info, wanted, throttle):
        outcomes = admin.alter_partition_reassignments(wanted)
        begun = [tp for tp, error in outcomes.items() if error is None]
        failures = [error for error in outcomes.values() if error is not None]
        _await_end(admin, begun)
    astray = _astray(admin, {tp: wanted[tp] for tp in begun})
    moved = [tp for tp in begun if tp not in astray]
    say_done(f"moved {counted(len(moved), 'partition')}", moved=[tp._asdict() for tp in moved])
    _raise_astray(astray)
    if failures:
        raise ApiError(failures[0].code, f"{counted(len(failures), 'partition')} cannot be moved: {failures[0]}")


@contextmanager
def _throttled(admin: Admin, info: ClusterInfo, plan: Plan, throttle: float | None) -> Iterator[None]:
    """With the throttles set, which go when all has moved; a failure or an interruption leaves them in force."""
    from sparklog.cluster.plan import newcomers, sources, throttled

    if throttle is None:
        yield
        return
    copied, copying = sources(info, plan), newcomers(info, plan)
    brokers = sorted(set().union(*copied.values(), *copying.values()) & info.brokers.keys())
    try:
        for name, replicas in zip(_REPLICAS, (copied, copying), strict=True):
            for topic, entries in throttled(replicas).items():
                admin.alter_topic_configs(topic, {name: entries})
        _set_rates(admin, brokers, str(int(throttle * _MEGABYTE)))
        yield
    except BaseException:
        click.echo('the throttles stay; "sparklog cluster reassign --follow" removes them at the end', err=True)
        raise
    _unthrottle(admin, {tp.topic for tp in plan}, brokers)


def _set_rates(admin: Admin, brokers: Collection[int], rate: str | None) -> None:
    from sparklog.structs import BrokerId

    for broker in brokers:
        admin.alter_broker_configs(BrokerId(broker), dict.fromkeys(_RATES, rate))


def _unthrottle(admin: Admin, topics: Collection[str], brokers: Collection[int]) -> None:
    for topic in sorted(topics):
        admin.alter_topic_configs(topic, dict.fromkeys(_REPLICAS))
    _set_rates(admin, brokers, None)


def _await_end(admin: Admin, partitions: Collection[TopicPartition]) -> None:
    """Until they are listed no more; says on standard error how many are left, when that changes."""
    told = len(partitions)
    while partitions:
        left = len(admin.list_partition_reassignments(partitions))
        if left != told:
            click.echo(f"{len(partitions) - left} of {counted(len(partitions), 'partition')} moved", err=True)
            told = left
        if not left:
            return
        time.sleep(_LOOK_EVERY_S)


def _astray(admin: Admin, wanted: Plan) -> list[TopicPartition]:
    """Those whose moves have ended, and that are not where they were to be."""
    from sparklog.cluster.plan import present

    def elsewhere() -> list[TopicPartition]:
        now = present(admin.describe_cluster())
        return [tp for tp, replicas in wanted.items() if now.get(tp) != replicas]

    return _lasting(elsewhere) if wanted else []


def _raise_astray(partitions: Collection[TopicPartition]) -> None:
    """Raises SparklogError where there are any."""
    if partitions:
        raise SparklogError(
            f"{name_partitions(sorted(partitions))} {'is' if len(partitions) == 1 else 'are'} not where the move was to"
            " end: somebody has given it up meanwhile, moved them elsewhere, or deleted the topic"
        )


def _list(admin: Admin) -> None:
    moving = admin.list_partition_reassignments()
    if is_json():
        show_json([{**tp._asdict(), **move._asdict()} for tp, move in sorted(moving.items())])
        return
    if not moving:
        click.echo("nothing is on the move", err=True)
        return
    rows = [
        [tp.topic, tp.partition, *(",".join(map(str, each)) for each in move)] for tp, move in sorted(moving.items())
    ]
    show_table(["topic", "partition", "replicas", "adding", "removing"], rows, right=("partition",))


def _cancel(admin: Admin, topics: Collection[str]) -> None:
    moving = [tp for tp in admin.list_partition_reassignments() if not topics or tp.topic in topics]
    if others := sorted(set(topics) - {tp.topic for tp in moving}):
        admin.describe_topics(others)  # raises ApiError for one that there is not
    outcomes = admin.alter_partition_reassignments(dict.fromkeys(moving)) if moving else {}
    failures = [error for error in outcomes.values() if error is not None]
    _unthrottle(admin, {tp.topic for tp in moving}, () if topics else sorted(admin.describe_cluster().brokers))
    given_up = [tp._asdict() for tp, error in outcomes.items() if error is None]
    say_done(f"gave up the moves of {counted(len(given_up), 'partition')}", given_up=given_up)
    if failures:
        raise failures[0]


def _follow(admin: Admin) -> None:
    moves = admin.list_partition_reassignments()
    moving = {tp: tuple(each for each in move.replicas if each not in move.removing) for tp, move in moves.items()}
    described = admin.describe_cluster().topics  # where others end is not told to this user
    _await_end(admin, list(moving))
    astray = _astray(admin, {tp: replicas for tp, replicas in moving.items() if tp.topic in described})
    info = admin.describe_cluster()
    throttled = [
        name for name in info.topics if any(each.name in _REPLICAS and each.value for each in admin.topic_configs(name))
    ]
    _unthrottle(admin, throttled, sorted(info.brokers))
    say_if_partial(admin, TOPICS, done="looked at")
    moved = [tp._asdict() for tp in moving if tp not in astray]
    say_done(f"{counted(len(moved), 'partition')} moved; nothing is throttled", moved=moved)
    _raise_astray(astray)
