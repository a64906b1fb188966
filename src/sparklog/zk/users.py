"""Users' SCRAM credentials in ZooKeeper itself: how the first administrator comes to be, before a broker starts."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.errors import ApiError, ErrorCode
from sparklog.security.sasl.scram_credential import MIN_ITERATIONS, ScramCredential, ScramMechanism
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import USERS, parts, user_entity


def add_user(
    zk: ZkClient,
    user: str,
    password: str,
    mechanisms: Iterable[ScramMechanism] = tuple(ScramMechanism),
    iterations: int = MIN_ITERATIONS,
) -> None:
    """Give a user, who may be new, a password for the mechanisms. What else the znode has stays.

    Raises ConfigError for a name, a password or a number of iterations that cannot be.
    """
    credentials = {each.title: ScramCredential.of_password(each, password, iterations).format() for each in mechanisms}
    zk.change_entity_config(user_entity(user), credentials)


def delete_user(zk: ZkClient, user: str, mechanisms: Iterable[ScramMechanism]) -> None:
    """Take away a user's passwords. Raises ApiError (RESOURCE_NOT_FOUND) if it lacks one of them."""
    titles = {each.title for each in mechanisms}

    def change(stored: dict[str, str]) -> dict[str, str]:
        if not titles <= stored.keys():
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no such credential")
        return {name: text for name, text in stored.items() if name not in titles}

    zk.change_config(user_entity(user), change)


def scram_users(zk: ZkClient) -> dict[str, dict[str, int]]:
    """For each user with credentials its mechanisms, and of how many iterations each is.

    Raises ConfigError for a credential that is malformed. A znode that is malformed is named in the log, and left out.
    """
    found = {}
    for entity, properties in zk.entity_configs(USERS).items():
        (_, user), *below = parts(entity)
        own = {
            each.title: ScramCredential.parse(properties[each.title]).iterations
            for each in ScramMechanism
            if properties and each.title in properties
        }
        if user is not None and not below and own:
            found[user] = own
    return found
