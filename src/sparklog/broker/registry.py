"""From an API's number to its handler and the versions it is served in.

Every module of the rooms of ``apis`` is one. What ApiVersions offers is derived from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from sparklog.broker import apis
from sparklog.config.protocol_version import FIRST_WITHOUT_KAFKA, ProtocolVersion
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Encoded, Message, decode_request, encode
from sparklog.protocol.slices import Steps, decoding
from sparklog.structs import Chunk


class Handler(NamedTuple):
    """How one API is served."""

    api: ApiKey
    versions: range
    decode: Callable[[memoryview, int], Any]
    handle: Callable[[Any, Any], Any]
    encode: Callable[[Any, int, int], list[Chunk] | Steps[list[Chunk]] | None]
    """The answer's body in a version, or steps to it where it is large; with the milliseconds that its client is to
    wait, which a message of the schema library holds already."""
    module: str
    """Where ``handle`` is; its first paragraph says what it does, in a sentence that begins with the API's name."""
    by_schema: bool = False
    """Whether its messages are the schema library's, which can be decoded and encoded in steps."""
    decoding: Callable[[memoryview, int], Any | Steps[Any]] | None = None
    """``decode`` for requests of many bytes: in steps, where they have many elements too."""
    waits_for_others: bool = False
    """Whether its answer may wait for what others do, and nothing asked behind it has to see what it does."""

    @property
    def name(self) -> str:
        """As Kafka's documentation writes the API."""
        return "".join(word.capitalize() for word in self.api.name.split("_"))


def _handlers() -> Iterator[Handler]:
    for room in _within(apis, rooms=True):
        yield from map(_handler, _within(room, rooms=False))


def _within(package: ModuleType, *, rooms: bool) -> Iterator[ModuleType]:
    """Its packages or its modules; not what an older checkout has compiled in the place of the others."""
    for found in iter_modules(package.__path__):
        if found.ispkg == rooms:
            yield import_module(f"{package.__name__}.{found.name}")


def _handler(module: ModuleType) -> Handler:
    api: ApiKey = module.API
    served = partial(Handler, api, module.VERSIONS, handle=module.handle, module=module.__name__)
    waits = getattr(module, "WAITS_FOR_OTHERS", False)
    decode = getattr(module, "decode", None)
    if decode is not None:
        steps = getattr(module, "decoding", None)
        return served(decode=decode, encode=module.encode, decoding=steps, waits_for_others=waits)
    by_schema, steps = partial(_decode, api), partial(_decoding, api)
    return served(decode=by_schema, encode=_encode, by_schema=True, decoding=steps, waits_for_others=waits)


def _decoding(api: ApiKey, body: memoryview, version: int) -> Steps[Message]:
    return decoding(api, version, body)


def _decode(api: ApiKey, body: memoryview, version: int) -> Message:
    return decode_request(api, version, body)


def _encode(message: Message | Encoded, version: int, _throttle_ms: int = 0) -> list[Chunk] | None:
    return [message.body if isinstance(message, Encoded) else encode(message, version)]


HANDLERS: dict[int, Handler] = {handler.api.value: handler for handler in _handlers()}
OFFERED: dict[ApiKey, range] = {handler.api: handler.versions for handler in HANDLERS.values()}

_LAST_OF_KAFKA = {
    ApiKey.PRODUCE: 11,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: -1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: -1,
}
"""The newest version that Kafka 3.9 serves in ZooKeeper mode, -1 for none, where sparklog serves newer ones, and a
client that was offered them by one broker counts on them with all."""


def offered(version: ProtocolVersion) -> dict[ApiKey, range]:
    """What clients are offered where brokers may say to each other what is in ``version``."""
    if version >= FIRST_WITHOUT_KAFKA:
        return OFFERED
    bounded = {
        api: range(served.start, min(served.stop, _LAST_OF_KAFKA.get(api, served.stop) + 1))
        for api, served in OFFERED.items()
    }
    return {api: served for api, served in bounded.items() if served}
