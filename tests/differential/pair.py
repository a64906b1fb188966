"""Two brokers, Kafka's and ours, that are asked the same, and what their answers differ in.

A sequence of requests is written once, against ``Pair``. An answer is a ``Both``: one value a side, whose attributes
and items are again such pairs; put into the fields of a later request, each side gets its own back (its producer id,
its member id). Every pair of answers is compared after ``normal.Names`` has replaced what may differ by nature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from differential.normal import Names, compare

from sparklog.errors import ConnectionFailed
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import SCHEMAS, Message, decode_response, encode
from sparklog.structs import Endpoint
from sparklog.testing.eventually import eventually

SIDES = ("kafka", "ours")
HUNG_UP = "the broker hung up"
TIMEOUT_S = 30.0


class Both:
    """A value of Kafka's and the one of ours."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __getattr__(self, name: str) -> Both:
        return Both([getattr(each, name) for each in self.values])

    def __getitem__(self, key: Any) -> Both:
        return Both([each[key] for each in self.values])

    def map(self, change: Callable[[Any], Any]) -> Both:
        return Both([change(each) for each in self.values])


def of_side(value: Any, side: int) -> Any:
    """``value`` with every pair in it replaced by what it holds for this side."""
    if isinstance(value, Both):
        return of_side(value.values[side], side)
    if isinstance(value, Mapping):
        return {key: of_side(each, side) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [of_side(each, side) for each in value]
    return value


def build(schema: Any, fields: Mapping[str, Any]) -> Any:
    """A message of the schema from plain dicts and lists."""
    values = {}
    for name, value in fields.items():
        field = schema._struct.fields[name]
        if value is not None and field.is_struct_array():
            value = [build(getattr(schema, field.type_str), each) for each in value]
        values[name] = value
    return schema(**values)


class Difference(NamedTuple):
    """What one place of one answer says here and there; ``sequence`` and ``step`` say which answer."""

    sequence: str
    step: str
    api: str
    version: int
    path: str
    kafka: str
    ours: str

    def __str__(self) -> str:
        where = f"{self.sequence}/{self.step}: {self.api} v{self.version} {self.path}"
        return f"{where}\n    Kafka:    {self.kafka}\n    sparklog: {self.ours}"


class Pair:
    """The two brokers during one run of one sequence; ``level`` 0 asks in every API's oldest shared version."""

    def __init__(
        self, addresses: list[Endpoint], versions: Mapping[ApiKey, range], sequence: str, level: int = 0
    ) -> None:
        self.differences: list[Difference] = []
        self.steps = 0
        self._addresses = addresses
        self._versions = versions
        self.sequence = sequence
        self.level = level
        self.names = [Names(f"{sequence}-{level}-") for _ in SIDES]
        self._clients: dict[str, Client] = {}
        self.main = self.client("main")

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def name(self, kind: str) -> str:
        """A name, of a topic or a group, that no other run has."""
        return f"{self.sequence}-{self.level}-{kind}"

    def version(self, api: ApiKey) -> int:
        served = self._versions[api]
        return min(served.start + self.level, served.stop - 1)

    def client(self, name: str) -> Client:
        """A client with a connection of its own to each broker."""
        if name not in self._clients:
            self._clients[name] = Client(self, name, self._addresses)
        return self._clients[name]

    def ask(self, step: str, api: ApiKey, /, **fields: Any) -> Both:
        return self.main.ask(step, api, **fields)

    def record(self, step: str, api: ApiKey, version: int, answers: list[Any]) -> None:
        self.steps += 1
        kafka, ours = (names.normal(api, answer) for names, answer in zip(self.names, answers, strict=True))
        for path, theirs, mine in compare(kafka, ours):
            self.differences.append(Difference(self.sequence, step, api.name, version, path, repr(theirs), repr(mine)))


class Client:
    """One client of both brokers."""

    def __init__(self, pair: Pair, name: str, addresses: list[Endpoint]) -> None:
        self.pair = pair
        self._name = name
        self._addresses = addresses
        self._connections: list[BlockingConnection | None] = [None, None]
        self._due: list[tuple[str, ApiKey, int, list[bool]]] = []

    def close(self) -> None:
        for connection in self._connections:
            if connection is not None:
                connection.close()

    def ask(
        self,
        step: str,
        api: ApiKey,
        /,
        *,
        version: int | None = None,
        until: Callable[[Message], bool] | None = None,
        compared: bool = True,
        **fields: Any,
    ) -> Both:
        """Ask both and compare. With ``until``, each is asked again until its own answer is so: what is under way in
        one may be done in the other."""
        version = self.pair.version(api) if version is None else version

        def answer_of(side: int) -> Any:
            self._send(side, api, version, fields)
            return self._receive(side, step)

        if until is None:
            answers = [answer_of(side) for side in (0, 1)]
        else:
            answers = [_again(partial(answer_of, side), until, f"{step} at {SIDES[side]}") for side in (0, 1)]
        if compared:
            self.pair.record(step, api, version, answers)
        return Both(answers)

    def send(self, step: str, api: ApiKey, /, **fields: Any) -> None:
        """Ask both, and let ``receive`` wait for the answers."""
        version = self.pair.version(api)
        sent = [self._send(side, api, version, fields) for side in (0, 1)]
        self._due.append((step, api, version, sent))

    def receive(self) -> Both:
        """The answers to the oldest ``send``, compared."""
        step, api, version, sent = self._due.pop(0)
        answers = [self._receive(side, step) if sent[side] else HUNG_UP for side in (0, 1)]
        self.pair.record(step, api, version, answers)
        return Both(answers)

    def _send(self, side: int, api: ApiKey, version: int, fields: Mapping[str, Any]) -> bool:
        message = build(SCHEMAS[api].request, of_side(fields, side))
        connection = self._connections[side]
        if connection is None or connection.closed:
            connection = BlockingConnection(self._addresses[side], client_id=self._name, request_timeout=TIMEOUT_S)
            self._connections[side] = connection
        with suppress(ConnectionFailed):
            connection.send(api, version, [encode(message, version)])
            return True
        return False

    def _receive(self, side: int, step: str) -> Any:
        connection = self._connections[side]
        assert connection is not None
        try:
            api, version, body = connection.receive()
        except ConnectionFailed as failure:
            if isinstance(failure.__cause__, TimeoutError):
                raise AssertionError(f"{SIDES[side]} did not answer «{step}» for {TIMEOUT_S:g} s") from failure
            return HUNG_UP
        return decode_response(api, version, body)


def _again(answer: Callable[[], Message], until: Callable[[Message], bool], what: str) -> Any:
    kept: list[Any] = []

    def good() -> bool:
        kept[:] = [answer()]
        return until(kept[0])

    eventually(good, TIMEOUT_S, what)
    return kept[0]
