"""Users' SCRAM credentials in ZooKeeper itself: how the first administrator comes to be, before a broker starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.security.sasl.scram_credential import ScramCredential, ScramMechanism
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import USERS, parts, user_entity


def set_password(zk: ZkClient, user: str, password: str, iterations: Mapping[ScramMechanism, int]) -> None:
    """Give a user, who may be new, a password for these mechanisms. What else the znode has stays.

    Raises ConfigError for a name, a password or a number of iterations that cannot be.
    """
    credentials = {
        each.title: ScramCredential.of_password(each, password, number).format() for each, number in iterations.items()
    }
    zk.configs.update(user_entity(user), credentials)


def delete_password(zk: ZkClient, user: str, mechanisms: Collection[ScramMechanism]) -> None:
    """Take away a user's password for these mechanisms. Raises ApiError (RESOURCE_NOT_FOUND) if one is not there."""
    titles = {each.title for each in mechanisms}

    def change(stored: dict[str, str]) -> dict[str, str]:
        if not titles <= stored.keys():
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no such credential")
        return {name: text for name, text in stored.items() if name not in titles}

    zk.configs.change(user_entity(user), change)


def iterations_of(zk: ZkClient, user: str) -> dict[str, int]:
    """A user's mechanisms, and of how many iterations each is. Raises ConfigError for a malformed credential."""
    return _iterations(user, zk.configs.of(user_entity(user)))


def scram_users(zk: ZkClient) -> dict[str, dict[str, int]]:
    """``iterations_of`` every user that has credentials.

    Raises ConfigError as it does. A znode that is malformed is named in the log, and left out.
    """
    found = {}
    for entity, properties in zk.configs.of_kind(USERS).items():
        (_, user), *below = parts(entity)
        if user is not None and not below and (own := _iterations(user, properties or {})):
            found[user] = own
    return found


def _iterations(user: str, properties: Mapping[str, str]) -> dict[str, int]:
    found = {}
    for title in (each.title for each in ScramMechanism if each.title in properties):
        try:
            found[title] = ScramCredential.parse(properties[title]).iterations
        except ConfigError as error:
            raise ConfigError(f"user {user!r}, {title}: {error}; delete it, and add it anew") from error
    return found
