"""The decisions of Kafka's AclAuthorizer by going through all lists: slow, and easy to check."""

from sparklog.security.access import Operation
from sparklog.security.acl.entry import ALL, Permission
from sparklog.security.acl.pattern import WILDCARD, PatternType

IMPLYING = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def concerning(bindings, caller, operations, permission):
    return [
        (pattern, entry)
        for pattern, entry in bindings
        if entry.permission is permission
        and entry.principal in (str(caller.principal), "User:*")
        and entry.host in (caller.host, "*")
        and entry.operation in (*operations, ALL)
    ]


def allows(bindings, caller, operation, resource, *, allow_without_acl):
    about = [
        (pattern, entry)
        for pattern, entry in bindings
        if pattern.kind is resource.kind
        and (
            resource.name.startswith(pattern.name)
            if pattern.type is PatternType.PREFIXED
            else pattern.name in (resource.name, WILDCARD)
        )
    ]
    if not about:
        return allow_without_acl
    if concerning(about, caller, {operation}, Permission.DENY):
        return False
    return bool(concerning(about, caller, {operation} | IMPLYING.get(operation, set()), Permission.ALLOW))


def allows_somewhere(bindings, caller, operation, kind, *, allow_without_acl):
    of_kind = [each for each in bindings if each[0].kind is kind]
    denied = [pattern for pattern, _ in concerning(of_kind, caller, {operation}, Permission.DENY)]
    if any(each.name == WILDCARD and each.type is PatternType.LITERAL for each in denied):
        return False
    if allow_without_acl:
        return True
    return any(
        (pattern.name == WILDCARD and pattern.type is PatternType.LITERAL)
        or not (
            (pattern.type is PatternType.LITERAL and pattern in denied)
            or any(each.type is PatternType.PREFIXED and pattern.name.startswith(each.name) for each in denied)
        )
        for pattern, _ in concerning(of_kind, caller, {operation}, Permission.ALLOW)
    )
