"""Where the lists lie in ZooKeeper and how they are written: Kafka's (``ZkData.scala``, ``AclEntry.java`` of 3.9).

A literal pattern's list is ``/kafka-acl/TYPE/NAME``, a prefix's ``/kafka-acl-extended/prefixed/TYPE/NAME``. A change is
told of by a numbered znode: ``TYPE:NAME`` under ``/kafka-acl-changes``, JSON under ``/kafka-acl-extended-changes``. The
order of the fields is that in which Kafka writes them; it reads them in any. A list without entries has no znode.

What cannot be read is malformed here, where Kafka takes some of it for an empty list, or for an entry that concerns
nobody: a denial that is misspelt is none that may be left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from sparklog.errors import MalformedZnode
from sparklog.security.access import ResourceType
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.names import OPERATIONS, PERMISSIONS, RESOURCE_TYPES, pascal_case
from sparklog.security.acl.pattern import SPECIFIC, PatternType, ResourcePattern

ROOTS: Final = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES: Final = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
CHANGE_PREFIX: Final = "acl_changes_"
PERSISTENT_PATHS: Final = (
    *(f"{root}/{pascal_case(kind)}" for root in ROOTS.values() for kind in ResourceType),
    *CHANGES.values(),
)
"""What is made before the first list."""
_VERSION: Final = 1
_NOT_IN_A_PATH: Final = re.compile(r"[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|\A\.{1,2}\Z")
"""What ZooKeeper takes in no name of a znode."""


def is_storable(name: str) -> bool:
    """Whether a list of a resource of this name can be kept: whether a znode can have the name."""
    return bool(name) and not _NOT_IN_A_PATH.search(name)


def list_path(pattern: ResourcePattern) -> str:
    return f"{ROOTS[pattern.type]}/{pascal_case(pattern.kind)}/{pattern.name}"


def encode_list(entries: Iterable[AclEntry]) -> bytes:
    """Sorted, so that equal lists are equal bytes; Kafka's order is that of a hash table."""
    acls = [
        {
            "principal": each.principal,
            "permissionType": pascal_case(each.permission),
            "host": each.host,
            "operation": pascal_case(each.operation),
        }
        for each in sorted(entries)
    ]
    return _json({"acls": acls, "version": _VERSION})


def decode_list(path: str, data: bytes) -> frozenset[AclEntry]:
    """No entries where there is no data. Raises MalformedZnode unless all of it is understood."""
    if not data:
        return frozenset()
    try:
        value = _object(data)
        return frozenset(map(_entry, value["acls"]))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedZnode(f"znode {path} does not hold an access control list: {error!r}") from error


def _object(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if value["version"] != _VERSION:
        raise ValueError(f"version {value['version']!r}")
    found: dict[str, Any] = value
    return found


def _entry(value: dict[str, Any]) -> AclEntry:
    principal, host = value["principal"], value["host"]
    if not isinstance(host, str):
        raise TypeError(f"host {host!r}")
    operation = OPERATIONS[value["operation"].upper()]
    return AclEntry(checked_principal(principal), host, operation, PERMISSIONS[value["permissionType"].upper()])


def checked_principal(text: str) -> str:
    """The text. Raises ValueError where it is not KIND:NAME; Kafka lets both be empty."""
    if ":" not in text:
        raise ValueError(f"{text!r} is no principal; write it as User:NAME")
    return text


def encode_change(pattern: ResourcePattern) -> bytes:
    """What tells other brokers that the list of ``pattern`` is another one now."""
    if pattern.type is PatternType.LITERAL:
        return f"{pattern.kind.name}:{pattern.name}".encode()
    return _json(
        {
            "version": _VERSION,
            "resourceType": pattern.kind.name,
            "name": pattern.name,
            "patternType": pattern.type.name,
        }
    )


def decode_change(type_: PatternType, path: str, data: bytes) -> ResourcePattern:
    """Raises MalformedZnode."""
    try:
        return _storable(_literal_change(data) if type_ is PatternType.LITERAL else _extended_change(data))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedZnode(f"znode {path} does not tell of a change of an access control list: {error!r}") from error


def _storable(pattern: ResourcePattern) -> ResourcePattern:
    if not is_storable(pattern.name):
        raise ValueError(pattern.name)
    return pattern


def _literal_change(data: bytes) -> ResourcePattern:
    kind, separator, name = data.decode().partition(":")
    if not separator:
        raise ValueError(data)
    return ResourcePattern(ResourceType[kind.upper()], name)


def _extended_change(data: bytes) -> ResourcePattern:
    value = _object(data)
    type_ = PatternType[value["patternType"].upper()]
    if type_ not in SPECIFIC or not isinstance(value["name"], str):
        raise ValueError(data)
    return ResourcePattern(ResourceType[value["resourceType"].upper()], value["name"], type_)


def kinds_of(names: Iterable[str]) -> dict[str, ResourceType]:
    """Those of the names below a root that are types of resources, and the types; Kafka leaves others alone too."""
    return {name: RESOURCE_TYPES[name.upper()] for name in names if name.upper() in RESOURCE_TYPES}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
