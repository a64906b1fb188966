"""Random lists and questions in a small world, where names, prefixes and peers meet often."""

from sparklog.security.access import CLUSTER, Operation, Resource, ResourceType
from sparklog.security.acl.binding import AclBinding
from sparklog.security.acl.entry import ALL, AclEntry, Permission
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.security.caller import Caller
from sparklog.security.principal import Principal

NAMES = ("a", "ab", "abc", "abd", "b", "ba", "*", "*a", "ab-c", "ä", "a.b:c")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice", "User:CN=a,O=b:c")
HOSTS = ("10.0.0.1", "10.0.0.2")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


def pattern(random):
    if random.random() < 0.1:
        return ResourcePattern(*CLUSTER)
    return ResourcePattern(
        random.choice(KINDS), random.choice(NAMES), random.choice((PatternType.LITERAL, PatternType.PREFIXED))
    )


def binding(random):
    entry = AclEntry(
        random.choice(PRINCIPALS),
        random.choice((*HOSTS, "*", "*")),
        random.choice((ALL, *Operation)),
        random.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )
    return AclBinding(pattern(random), entry)


def bindings(random, most=30):
    return {binding(random) for _ in range(random.randrange(most))}


def lists_of(bindings):
    lists = {}
    for about, entry in bindings:
        lists.setdefault(about, set()).add(entry)
    return {about: frozenset(entries) for about, entries in lists.items()}


def caller(random):
    return Caller(random.choice((*HOSTS, "10.0.0.3")), principal=Principal.parse(random.choice(PRINCIPALS)))


def resource(random):
    return CLUSTER if random.random() < 0.1 else Resource(random.choice(KINDS), random.choice((*NAMES, "c", "abcd")))
