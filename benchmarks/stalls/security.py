"""The worst of what is asked about users, their rights and quotas, of a broker that lets everybody ask."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.security.brokers import LISTS
from benchmarks.stalls.cluster import MANY, Case, request
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message

_PROOF = 7 << 20
_USERS = MANY // 3


def cases() -> Iterator[Case]:
    """Passwords; access control lists and tokens, which this broker does not have; quotas of users that nobody is."""
    yield request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, f"{MANY} of a user", _passwords_of_one, 0)
    yield request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, f"{MANY} users", _passwords, 0)
    yield request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, f"{MANY} names", _described_users, 0)
    yield request(ApiKey.CREATE_ACLS, f"{MANY} entries", _created_entries, 3)
    yield request(ApiKey.DELETE_ACLS, f"{MANY} filters", _deleted_entries, 3)
    yield request(ApiKey.ALTER_CLIENT_QUOTAS, f"{_USERS} users", _altered_quotas, 1)
    yield request(ApiKey.DESCRIBE_CLIENT_QUOTAS, f"{MANY} components", _described_quotas, 1)
    yield request(ApiKey.CREATE_DELEGATION_TOKEN, f"{MANY} renewers", _created_token, 3)
    yield request(ApiKey.DESCRIBE_DELEGATION_TOKEN, f"{MANY} owners", _described_tokens, 3)
    proof = partial(messages.SaslAuthenticateRequest, auth_bytes=bytes(_PROOF))
    yield request(ApiKey.SASL_AUTHENTICATE, f"{_PROOF >> 20} MB", proof, 2)


def guarded() -> Iterator[Case]:
    """Of a broker with lists, that still lets everybody ask."""
    yield request(ApiKey.DESCRIBE_ACLS, f"all of {LISTS} lists", _described_lists, 3)


def _described_lists() -> Message:
    """A filter that finds every entry."""
    return messages.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def _passwords_of_one() -> Message:
    """One user that is named too often to be changed."""
    upsertion = messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="nobody", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
    )
    return messages.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion] * MANY)


def _passwords() -> Message:
    deletion = messages.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    deletions = [deletion(name=f"nobody-{n}", mechanism=9) for n in range(MANY)]
    return messages.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])


def _described_users() -> Message:
    """Each is named twice."""
    user = messages.DescribeUserScramCredentialsRequest.UserName
    return messages.DescribeUserScramCredentialsRequest(users=[user(name=f"nobody-{n // 2}") for n in range(MANY)])


def _created_entries() -> Message:
    entry = messages.CreateAclsRequest.AclCreation
    entries = [
        entry(
            resource_type=2,
            resource_name=f"t{n}",
            resource_pattern_type=3,
            principal="User:nobody",
            host="*",
            operation=3,
            permission_type=3,
        )
        for n in range(MANY)
    ]
    return messages.CreateAclsRequest(creations=entries)


def _deleted_entries() -> Message:
    one = messages.DeleteAclsRequest.DeleteAclsFilter
    filters = [
        one(
            resource_type_filter=2,
            resource_name_filter=f"t{n}",
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        for n in range(MANY)
    ]
    return messages.DeleteAclsRequest(filters=filters)


def _altered_quotas() -> Message:
    entry = messages.AlterClientQuotasRequest.EntryData
    operations = [entry.OpData(key="nothing", value=1.0, remove=False)]
    entries = [
        entry(entity=[entry.EntityData(entity_type="user", entity_name=f"nobody-{n}")], ops=operations)
        for n in range(_USERS)
    ]
    return messages.AlterClientQuotasRequest(entries=entries, validate_only=True)


def _described_quotas() -> Message:
    component = messages.DescribeClientQuotasRequest.ComponentData
    components = [component(entity_type=f"kind-{n}", match_type=0, match=f"nobody-{n}") for n in range(MANY)]
    return messages.DescribeClientQuotasRequest(components=components, strict=False)


def _created_token() -> Message:
    renewer = messages.CreateDelegationTokenRequest.CreatableRenewers
    renewers = [renewer(principal_type="User", principal_name=f"nobody-{n}") for n in range(MANY)]
    return messages.CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=renewers, max_lifetime_ms=-1
    )


def _described_tokens() -> Message:
    owner = messages.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    owners = [owner(principal_type="User", principal_name=f"nobody-{n}") for n in range(MANY)]
    return messages.DescribeDelegationTokenRequest(owners=owners)
