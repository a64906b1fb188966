"""An authorizer for tests: it allows what is in a list, and remembers what it was asked."""

from __future__ import annotations

from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.security.caller import Caller


class ListedRights:
    """Allows what is written out in ``allowed``, as ``"READ topic t"``, to whoever asks."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = set(allowed)
        self.questions: list[str] = []
        """In the words of ``allowed``; between parentheses what was asked quietly."""

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:  # noqa: ARG002
        text = _words(operation, resource)
        self.questions.append(text)
        return text in self.allowed

    def allows_quietly(self, caller: Caller, operation: Operation, resource: Resource) -> bool:  # noqa: ARG002
        text = _words(operation, resource)
        self.questions.append(f"({text})")
        return text in self.allowed

    def allows_somewhere(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:  # noqa: ARG002
        """Listed as ``"WRITE any topic"``."""
        text = f"{operation.name} any {_named(kind)}"
        self.questions.append(text)
        return text in self.allowed


def _words(operation: Operation, resource: Resource) -> str:
    return f"{operation.name} {_named(resource.kind)} {resource.name}"


def _named(kind: ResourceType) -> str:
    return kind.name.lower().replace("_", " ")
