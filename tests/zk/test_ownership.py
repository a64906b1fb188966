import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from sparklog.zk.ownership import acl_of


@pytest.mark.parametrize(
    ("path", "acl"),
    [
        ("/brokers/ids/0", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/kafka-acl/Topic/a", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/controller", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/config/topics/a", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/delegation_token", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/sparklog/lives", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/config/users", CREATOR_ALL_ACL),
        ("/config/users/admin", CREATOR_ALL_ACL),
        ("/config/brokers/0", CREATOR_ALL_ACL),
        ("/delegation_token/tokens/abc", CREATOR_ALL_ACL),
        ("/consumers", OPEN_ACL_UNSAFE),
        ("/consumers/group", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
    ],
)
def test_the_list_of_a_znode_is_kafkas(path, acl):
    assert acl_of(path) == acl
