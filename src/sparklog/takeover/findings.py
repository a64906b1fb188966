"""What does not work, or works otherwise, once brokers of sparklog have taken the place of Kafka's: found beforehand.

Pure: what there is to be seen stands in the ``Survey``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sparklog.config.broker import ACL_AUTHORIZER
from sparklog.config.kafka_broker import CONTROL_PLANE
from sparklog.config.protocol_version import FIRST_WITHOUT_KAFKA, ProtocolVersion, parse_protocol_version
from sparklog.errors import ConfigError
from sparklog.takeover.planned import Planned
from sparklog.takeover.survey import Survey, SurveyedBroker, SurveyedTopic

_PLAINTEXT = "PLAINTEXT"
_VERSION = "inter.broker.protocol.version"
_AUTHORIZER = "authorizer.class.name"
_MOST_NAMED = 5
_FORMAT = "message.format.version"
"""The setting of a topic; of a broker it is the same behind ``log.``, and holds for topics that say nothing."""
_KEPT_IN_KAFKA = {
    "remote.log.storage.system.enable": "there is no tiered storage",
    "zookeeper.metadata.migration.enable": "there is no migration to KRaft",
}
"""Setting to why a broker that needs it cannot be replaced."""
_OFF = ("", "false")
_BEFORE_BATCHES = ("0.8", "0.9", "0.10")
"""How the versions begin whose messages are in no batches of format v2, which are all that is stored here."""


class Finding(NamedTuple):
    """``stops`` a takeover until something is done about it, or else is to be known before."""

    stops: bool
    subject: str
    what: str
    remedy: str


def findings(survey: Survey, planned: Iterable[Planned] = ()) -> list[Finding]:
    """What stops a takeover first. ``planned``: what the new brokers are to be started with."""
    plans = list(planned)
    found = [
        *_of_cluster(survey),
        *_of_versions(survey.brokers),
        *(each for broker in survey.brokers for each in _of_broker(broker)),
        *_of_topics(survey.topics),
        *(each for plan in plans for each in _of_plan(plan, survey.brokers)),
        *_of_ids(plans),
    ]
    return sorted(found, key=lambda each: not each.stops)


def _of_cluster(survey: Survey) -> Iterator[Finding]:
    def stop(what: str, remedy: str) -> Finding:
        return Finding(True, "cluster", what, remedy)

    if not survey.brokers:
        yield stop("no broker is registered", "name the ZooKeeper, and the chroot, of the running cluster")
    elif not survey.has_controller:
        yield stop("there is no controller", "wait until a broker is the controller")
    if survey.is_migrating:
        yield stop("a migration to KRaft is under way", "end it, or roll it back: only ZooKeeper mode is spoken here")
    if survey.features:
        yield stop(f"features are finalized: {', '.join(survey.features)}", "downgrade them: none is known here")
    if survey.acls:
        text = f"there are access control lists ({survey.acls})"
        remedy = "they hold here too: keep authorizer.class.name and super.users in the settings of the new brokers"
        yield Finding(False, "cluster", text, remedy)
    if survey.tokens:
        text = f"there are delegation tokens ({survey.tokens})"
        remedy = "they hold here too: keep delegation.token.secret.key in the settings of the new brokers"
        yield Finding(False, "cluster", text, remedy)
    if survey.is_reassigning:
        yield stop("a reassignment of partitions is under way", "wait for its end, or cancel it")
    if survey.quotas:
        text = f"{survey.quotas} users, client ids (of one user or of all) or addresses have settings (quotas, SCRAM)"
        yield Finding(False, "cluster", text, "they hold here too")


def _of_versions(brokers: Iterable[SurveyedBroker]) -> Iterator[Finding]:
    known = set()
    for text in sorted(_told_versions(brokers)):
        try:
            known.add(parse_protocol_version(text))
        except ConfigError as error:
            yield Finding(True, "cluster", f"{_VERSION}: {error}", "raise it on every broker, one after another")
    unsaid = [str(each.id) for each in brokers if _VERSION in each.by_default]
    if unsaid and known and min(known) < FIRST_WITHOUT_KAFKA:
        text = f"{_VERSION} stands in no settings of brokers {', '.join(unsaid)}: it is what that release of Kafka has"
        remedy = f"give brokers of sparklog {_set(min(known))}: without it they take all brokers for sparklog's"
        yield Finding(False, "cluster", text, remedy)
    if len(known) > 1:
        text = f"the brokers differ in {_VERSION}: {', '.join(map(str, sorted(known)))}"
        remedy = (
            "end an upgrade of Kafka first; give brokers of sparklog the version of Kafka's as long as there are some"
        )
        yield Finding(True, "cluster", text, remedy)


def _told_versions(brokers: Iterable[SurveyedBroker]) -> set[str]:
    return {each.settings[_VERSION] for each in brokers if _VERSION in each.settings}


def _set(version: ProtocolVersion) -> str:
    return f"{_VERSION}={version}"


def _of_plan(plan: Planned, brokers: tuple[SurveyedBroker, ...]) -> Iterator[Finding]:
    """What keeps a broker with these settings from a place among those that run."""
    if plan.fault:
        yield Finding(True, plan.source, plan.fault, "a broker of sparklog's does not start with it: change it")
        return
    if brokers and plan.broker_id not in {each.id for each in brokers}:
        text = f"no broker has the id {plan.broker_id}"
        yield Finding(True, plan.source, text, "give it the id of the broker whose place it takes")
    running = min(filter(None, map(_parsed, _told_versions(brokers))), default=None)
    if plan.version and running and plan.version != running:
        text = f"{_VERSION} is {plan.version} there, and {running} in the cluster"
        yield Finding(True, plan.source, text, f"set {_set(running)} there")


def _of_ids(plans: Iterable[Planned]) -> Iterator[Finding]:
    """Brokers that would take one place."""
    first: dict[int, str] = {}
    for plan in plans:
        if not plan.fault and (other := first.setdefault(plan.broker_id, plan.source)) is not plan.source:
            text = f"its broker.id is {plan.broker_id}, as in {other}"
            yield Finding(True, plan.source, text, "give each the id of the broker whose place it takes")


def _parsed(text: str) -> ProtocolVersion | None:
    try:
        return parse_protocol_version(text)
    except ConfigError:
        return None  # told of by itself


def _of_broker(broker: SurveyedBroker) -> Iterator[Finding]:
    subject = f"broker {broker.id}"
    if broker.silence:
        yield Finding(True, subject, f"it could not be asked: {broker.silence}", "have it answer, and check again")
    yield from _of_listeners(subject, broker)
    if not broker.is_recent:
        yield Finding(True, subject, "it is older than Kafka 2.8", "upgrade it; what is tested is Kafka 3.9")
    authorizer = broker.settings.get(_AUTHORIZER, "")
    if authorizer not in ("", ACL_AUTHORIZER):
        yield Finding(
            True, subject, f"{_AUTHORIZER}={authorizer}", f"move its rules to {ACL_AUTHORIZER}: no other is here"
        )
    name = f"log.{_FORMAT}"
    if _is_old_format(broker.settings.get(name, "")):
        text = f"{name}={broker.settings[name]}: topics keep a message format from before Kafka 0.11"
        yield Finding(True, subject, text, "unset it, and copy what is stored so to other topics")
    for name, reason in _KEPT_IN_KAFKA.items():
        if broker.settings.get(name, "") not in _OFF:
            yield Finding(True, subject, f"{name}={broker.settings[name]}", f"{reason} here: do without, and unset it")


def _of_listeners(subject: str, broker: SurveyedBroker) -> Iterator[Finding]:
    if (_PLAINTEXT, _PLAINTEXT) not in broker.listeners:
        yield Finding(
            True,
            subject,
            f"it has no listener {_PLAINTEXT} of the protocol {_PLAINTEXT}",
            "give every broker one for the time of the takeover: the check asks brokers by it",
        )
    elif len(broker.listeners) > 1:
        names = ", ".join(each.name for each in broker.listeners if each.name != _PLAINTEXT)
        yield Finding(
            False, subject, f"it has other listeners: {names}", "name them in the settings of the new brokers too"
        )
    between = broker.settings.get("inter.broker.listener.name", "")
    if between not in ("", _PLAINTEXT):
        text = f"brokers speak to each other on the listener {between}"
        yield Finding(True, subject, text, f"have them speak on {_PLAINTEXT}")
    if of_controller := broker.settings.get(CONTROL_PLANE, ""):
        text = f"{CONTROL_PLANE}={of_controller}: the controller speaks to brokers on a listener of its own"
        remedy = (
            "unset it on every broker of Kafka's, one after another, and then remove the listener: here it would be"
            " open to clients, and the controller speaks on the listener that brokers have between them"
        )
        yield Finding(True, subject, text, remedy)


def _is_old_format(version: str) -> bool:
    return version.startswith(_BEFORE_BATCHES)


def _of_topics(topics: tuple[SurveyedTopic, ...]) -> Iterator[Finding]:
    def named(chosen: Iterable[SurveyedTopic]) -> str:
        names = [each.name for each in chosen]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return ", ".join(names[:_MOST_NAMED]) + more

    rules = (
        (True, [t for t in topics if not t.has_id], "they have no topic id", "have the controller of Kafka 2.8 or newer"
         " give them ids: restart the controller"),
        (True, [t for t in topics if t.is_moving], "replicas of them are moving", "wait for the end, or cancel it"),
        (True, [t for t in topics if t.leaderless], "partitions have no leader", "start the brokers that have them"),
        (True, [t for t in topics if t.lagging], "replicas are not in sync", "wait until they are"),
        (True, [t for t in topics if t.settings.get("remote.storage.enable", "") not in _OFF], "they have tiered"
         " storage, which there is none of here", "bring them back to the brokers' disks, and turn it off"),
        (True, [t for t in topics if _is_old_format(t.settings.get(_FORMAT, ""))], "they"
         " keep a message format from before Kafka 0.11", "unset it, and copy what is stored so to another topic"),
        (False, [t for t in topics if t.single], "partitions have one replica", "they are away while their broker is"
         " replaced; more replicas keep them served"),
    )  # fmt: skip
    for stops, chosen, what, remedy in rules:
        if chosen:
            yield Finding(stops, f"topics {named(chosen)}", what, remedy)
