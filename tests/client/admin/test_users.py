"""Users by the client, on a real cluster."""

import pytest

from sparklog.client.admin.admin import UserScramDeletion, UserScramUpsertion
from sparklog.errors import ApiError, ConfigError, ErrorCode

pytestmark = pytest.mark.integration


def test_users_come_change_and_go(admin, topic):
    one, two = f"{topic} one", f"{topic},two"
    admin.alter_user_scram_credentials(
        [
            UserScramUpsertion(one, "SCRAM-SHA-256", "secret"),
            UserScramUpsertion(one, "SCRAM-SHA-512", "secret", 8192),
            UserScramUpsertion(two, "SCRAM-SHA-512", "secret"),
        ]
    )
    described = {one: {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}, two: {"SCRAM-SHA-512": 4096}}
    assert admin.describe_user_scram_credentials([two, one]) == described
    assert described.items() <= admin.describe_user_scram_credentials().items()
    assert admin.describe_user_scram_credentials([]) == {}
    with pytest.raises(ApiError, match="one") as caught:
        admin.alter_user_scram_credentials(
            [UserScramDeletion(two, "SCRAM-SHA-512"), UserScramDeletion(one, "SCRAM-SHA-256"),
             UserScramUpsertion(one, "SCRAM-SHA-256", "other")]
        )  # fmt: skip
    assert caught.value.code is ErrorCode.DUPLICATE_RESOURCE
    with pytest.raises(ApiError) as caught:
        admin.describe_user_scram_credentials([one, two])
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND
    admin.alter_user_scram_credentials([UserScramDeletion(one, each) for each in described[one]])
    assert one not in admin.describe_user_scram_credentials()


def test_what_cannot_be_is_refused_before_it_is_sent(admin):
    admin.alter_user_scram_credentials([])
    for wrong in (
        UserScramUpsertion("a", "SCRAM-SHA-1", "secret"),
        UserScramUpsertion("a", "SCRAM-SHA-256", ""),
        UserScramUpsertion("a", "SCRAM-SHA-256", "secret", 4095),
        UserScramDeletion("a", "PLAIN"),
    ):
        with pytest.raises(ConfigError):
            admin.alter_user_scram_credentials([wrong])
    assert "secret" not in repr(UserScramUpsertion("a", "SCRAM-SHA-256", "secret"))
