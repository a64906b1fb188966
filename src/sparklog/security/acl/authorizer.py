"""What a principal may do, by the lists that are in force (``AclAuthorizer.scala``)."""

from __future__ import annotations

from collections.abc import Collection

from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.security.acl.snapshot import AclSnapshot
from sparklog.security.audit import AuditLog
from sparklog.security.caller import Caller
from sparklog.security.principal import Principal


class AclAuthorizer:
    """An ``Authorizer``. ``snapshot`` holds the lists in force; whoever follows them sets the next one.

    ``allow_without_acl``: whether everybody may do everything with a resource that no list concerns, be it by its name,
    by a prefix or by ``*``.
    """

    def __init__(self, super_users: Collection[Principal], audit: AuditLog, *, allow_without_acl: bool) -> None:
        self.snapshot = AclSnapshot({})
        self._super_users = frozenset(super_users)
        self._audit = audit
        self._allow_without_acl = allow_without_acl

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        allowed = self.allows_quietly(caller, operation, resource)
        if not allowed:
            self._audit.refused(caller, operation, resource)
        return allowed

    def allows_quietly(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        if caller.principal in self._super_users:
            return True
        grants = self.snapshot.grants(caller.principal, caller.host, resource)
        return grants.allow(operation) if grants.has_list else self._allow_without_acl

    def allows_somewhere(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        if caller.principal in self._super_users:
            return True
        allowed = self.snapshot.allows_somewhere(
            caller.principal, caller.host, operation, kind, unless_listed=self._allow_without_acl
        )
        if not allowed:
            self._audit.refused(caller, operation, Resource(kind, "(any)"))
        return allowed
