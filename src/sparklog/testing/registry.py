"""A small schema registry, for tests: Confluent's API over HTTP, as far as clients use it, in a thread of this process.

It keeps what it is told in memory. Of compatibility it knows what Avro's records of plain fields need: it compares
names, types and defaults of fields, not what is within them.
"""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

_PROMOTED = {("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double")} | {
    ("float", "double"), ("string", "bytes"), ("bytes", "string")
}  # fmt: skip


class Refusal(Exception):
    """What is answered in place of a result."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Kept(NamedTuple):
    """A schema as a client gave it."""

    schema: str
    kind: str
    references: str

    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = {"schema": self.schema}
        if self.kind != "AVRO":
            found["schemaType"] = self.kind
        return {**found, "references": json.loads(self.references)} if self.references != "[]" else found


class Registry:
    """What it knows. ``requests`` counts the questions, as ``"GET /schemas/ids/1"``."""

    def __init__(self) -> None:
        self.ids: dict[Kept, int] = {}
        self.subjects: dict[str, list[Kept]] = {}
        self.levels: dict[str, str] = {}
        self.requests: Counter[str] = Counter()
        self.broken: Callable[[], Refusal | None] = lambda: None
        """Asked before each answer: what is answered instead."""
        self.user: str | None = None
        """``user:password`` that must be shown, if any must be."""

    def answer(self, method: str, path: str, body: Any) -> Any:
        if (refusal := self.broken()) is not None:
            raise refusal
        parts = [unquote(each) for each in path.strip("/").split("/")]
        if method == "GET":
            return self._got(parts)
        kept = Kept(body["schema"], body.get("schemaType", "AVRO"), json.dumps(body.get("references", [])))
        if parts[0] == "compatibility":
            complaints = self._complaints(parts[2], kept, parts[4])
            return {"is_compatible": not complaints, "messages": complaints}
        return self._registered(parts[1], kept) if len(parts) == 3 else self._looked_up(parts[1], kept)

    def _got(self, parts: list[str]) -> Any:
        if parts[0] == "config":
            return {"compatibilityLevel": self.levels.get(parts[1] if len(parts) > 1 else "", "BACKWARD")}
        if parts[0] == "schemas":
            known = [kept for kept, number in self.ids.items() if str(number) == parts[2]]
            if not known:
                raise Refusal(404, 40403, "Schema not found")
            return known[0].answer()
        if len(parts) == 1:
            return list(self.subjects)
        if len(parts) == 3:
            return list(range(1, len(self._versions(parts[1])) + 1))
        return self._version(parts[1], parts[3])

    def _versions(self, subject: str) -> list[Kept]:
        if subject not in self.subjects:
            raise Refusal(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _version(self, subject: str, version: str) -> Any:
        versions = self._versions(subject)
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            raise Refusal(404, 40402, f"Version {version} not found.")
        kept = versions[number - 1]
        return {"subject": subject, "version": number, "id": self.ids[kept], **kept.answer()}

    def _looked_up(self, subject: str, kept: Kept) -> Any:
        versions = self._versions(subject)
        if kept not in versions:
            raise Refusal(404, 40403, "Schema not found")
        return self._version(subject, str(versions.index(kept) + 1))

    def _registered(self, subject: str, kept: Kept) -> Any:
        if kept not in self.subjects.get(subject, []):
            if complaints := self._complaints(subject, kept, "latest"):
                raise Refusal(409, 409, f"Schema being registered is incompatible with an earlier schema: {complaints}")
            self.subjects.setdefault(subject, []).append(kept)
            self.ids.setdefault(kept, len(self.ids) + 1)
        return {"id": self.ids[kept]}

    def _complaints(self, subject: str, kept: Kept, version: str) -> list[str]:
        if subject not in self.subjects or kept.kind != "AVRO" or self.levels.get(subject) == "NONE":
            return []
        return _unreadable(json.loads(self._version(subject, version)["schema"]), json.loads(kept.schema))


def _unreadable(writer: Any, reader: Any) -> list[str]:
    """Why ``reader`` cannot read what ``writer`` wrote."""
    if not (isinstance(writer, dict) and isinstance(reader, dict) and "fields" in writer and "fields" in reader):
        return [] if writer == reader or (writer, reader) in _PROMOTED else [f"TYPE_MISMATCH: {reader}"]
    known = {each["name"]: each["type"] for each in writer["fields"]}
    found = []
    for field in reader["fields"]:
        if field["name"] not in known and "default" not in field:
            found.append(f"READER_FIELD_MISSING_DEFAULT_VALUE: {field['name']}")
        elif field["name"] in known and isinstance(field["type"], str):
            found += _unreadable(known[field["name"]], field["type"])
    return found


@contextmanager
def schema_registry(tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, Registry]]:
    """The URL of a registry that runs in this process, and what it knows."""
    registry = Registry()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry)) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}", registry
        finally:
            server.shutdown()
            thread.join()


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve(None)

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _serve(self, body: Any) -> None:
            path = urlsplit(self.path).path
            with lock:
                registry.requests[f"{self.command} {path}"] += 1
                try:
                    self._check_user()
                    status, found = 200, registry.answer(self.command, path, body)
                except Refusal as error:
                    status, found = error.status, {"error_code": error.code, "message": error.message}
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _check_user(self) -> None:
            if registry.user is not None:
                wanted = f"Basic {b64encode(registry.user.encode()).decode()}"
                if self.headers["Authorization"] != wanted:
                    raise Refusal(401, 40101, "Unauthorized")

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: a test reads what it counts."""

    return Handler
