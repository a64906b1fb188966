"""Users that authenticate by SCRAM: who there is, and new passwords."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sparklog.client.admin.base import AdminBase, raise_error, raise_first
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from sparklog.security.sasl.scram_credential import (
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
    check_iterations,
    new_salt,
)

_UserName = DescribeUserScramCredentialsRequest.UserName
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


@dataclass(frozen=True)
class UserScramUpsertion:
    """A new password of a user for one mechanism, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``; the user may be new as well.

    The password is hashed here, and does not leave this process.
    """

    user: str
    mechanism: str
    password: str = field(repr=False)
    iterations: int = MIN_ITERATIONS


@dataclass(frozen=True)
class UserScramDeletion:
    """A user has no password any more for one mechanism."""

    user: str
    mechanism: str


class UserAdmin(AdminBase):
    """Any broker describes users; the controller changes them. A change is in force there at once, and on the other
    brokers moments later.
    """

    async def describe_user_scram_credentials(self, users: Collection[str] | None = None) -> dict[str, dict[str, int]]:
        """For each user its mechanisms, and of how many iterations each is; by default all users that have any.

        Raises ApiError: RESOURCE_NOT_FOUND for a user without credentials, CLUSTER_AUTHORIZATION_FAILED where the
        caller may not DESCRIBE the cluster.
        """
        if users is not None and not users:
            return {}
        names = None if users is None else [_UserName(name=each) for each in dict.fromkeys(users)]

        def check(answer: DescribeUserScramCredentialsResponse) -> None:
            raise_error(answer, "cannot describe users")
            raise_first(answer.results, lambda each: f"cannot describe user {each.user!r}")

        answer = await self._session.any_broker_request(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            lambda _: DescribeUserScramCredentialsRequest(users=names),
            check=check,
        )
        return {
            each.user: {ScramMechanism(info.mechanism).title: info.iterations for info in each.credential_infos}
            for each in answer.results
        }

    async def alter_user_scram_credentials(self, changes: Collection[UserScramUpsertion | UserScramDeletion]) -> None:
        """Give users passwords, and take them away; what is asked for one user is done together, or none of it.

        Raises ConfigError for a mechanism, a password or a number of iterations that cannot be. Raises ApiError, which
        names the first user that was refused; the others are changed. RESOURCE_NOT_FOUND: it has no such password;
        DUPLICATE_RESOURCE: it is named twice for a mechanism; CLUSTER_AUTHORIZATION_FAILED: the caller may not ALTER
        the cluster.
        """
        deletions = [_deletion(each) for each in changes if isinstance(each, UserScramDeletion)]
        upsertions = [_upsertion(each) for each in changes if isinstance(each, UserScramUpsertion)]
        if not deletions and not upsertions:
            return

        def check(answer: AlterUserScramCredentialsResponse) -> None:
            for each in answer.results:
                if each.error_code == ErrorCode.NOT_CONTROLLER:
                    raise ApiError(ErrorCode.NOT_CONTROLLER, "the controller has changed")

        answer = await self._session.controller_request(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            lambda _: AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions),
            check=check,
        )
        raise_first(answer.results, lambda each: f"cannot change user {each.user!r}")


def _deletion(asked: UserScramDeletion) -> _Deletion:
    return _Deletion(name=asked.user, mechanism=_mechanism(asked.mechanism))


def _upsertion(asked: UserScramUpsertion) -> _Upsertion:
    check_iterations(asked.iterations)
    if not asked.password:
        raise ConfigError("a password must not be empty")
    mechanism, salt = _mechanism(asked.mechanism), new_salt()
    return _Upsertion(
        name=asked.user,
        mechanism=mechanism,
        iterations=asked.iterations,
        salt=salt,
        salted_password=mechanism.salted(asked.password, salt, asked.iterations),
    )


def _mechanism(name: str) -> ScramMechanism:
    if name not in SCRAM_MECHANISMS:
        raise ConfigError(f"there is no SCRAM mechanism {name!r}; there are {', '.join(SCRAM_MECHANISMS)}")
    return SCRAM_MECHANISMS[name]
