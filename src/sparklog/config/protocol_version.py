"""``inter.broker.protocol.version``: what the brokers of a cluster may say to each other, and offer to clients.

It is Kafka's setting, in Kafka's values (Kafka 3.9, ``MetadataVersion``). A cluster with brokers of Kafka 3.9 in it is
told the version that these have; the default is beyond what any broker in ZooKeeper mode of Kafka's speaks, and says
that all brokers are sparklog's. Only then are clients offered what Kafka 3.9 lacks in ZooKeeper mode: a client chooses
by what one broker says, and then asks it of all.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sparklog.errors import ConfigError

_FORM = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)(?:\.\d+)?(?:-IV(?P<step>\d+))?", re.ASCII)
_LAST_STEPS = {
    **{(2, 8): 1, (3, 0): 1, (3, 1): 0, (3, 2): 0, (3, 3): 3, (3, 4): 0, (3, 5): 2, (3, 6): 2, (3, 7): 4},
    **{(3, 8): 0, (3, 9): 0, (4, 0): 1},
}
"""By release, the last step on the way to it, which the release itself stands for."""


class ProtocolVersion(NamedTuple):
    """A release of Kafka's, and how far on the way to it."""

    major: int
    minor: int
    step: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}-IV{self.step}"


OLDEST = ProtocolVersion(2, 8, 1)
"""From here on topics have ids, and leaders have the controller write their ISRs (Kafka 2.8, KIP-516 and KIP-497)."""
FIRST_WITHOUT_KAFKA = ProtocolVersion(4, 0, 0)
"""From here on no broker of Kafka's is in ZooKeeper mode."""
NEWEST = ProtocolVersion(4, 0, _LAST_STEPS[4, 0])


def parse_protocol_version(text: str) -> ProtocolVersion:
    """Raises ConfigError for what Kafka does not know, and for what is too old to share a cluster with."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is not a version as Kafka writes it, such as 3.9 or 3.9-IV0")
    major, minor = int(found["major"]), int(found["minor"])
    if (major, minor) < OLDEST[:2]:
        raise ConfigError(
            f"{text} is older than {OLDEST}, the oldest that is spoken here: raise it on all brokers of Kafka first"
        )
    last = _LAST_STEPS.get((major, minor))
    step = last if found["step"] is None else int(found["step"])
    if last is None or step is None or step > last:
        raise ConfigError(f"there is no version {text}; the newest is {NEWEST}")
    version = ProtocolVersion(major, minor, step)
    if version < OLDEST:
        raise ConfigError(f"{text} is older than {OLDEST}, the oldest that is spoken here: raise it")
    return version


def complaint_about_protocol_version(text: str) -> str | None:
    """Why it cannot be the setting's value."""
    try:
        parse_protocol_version(text)
    except ConfigError as error:
        return str(error)
    return None
