"""From an API's number to its handler and the versions it is served in.

What ApiVersions offers is derived from here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from sparklog.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_metadata,
    write_txn_markers,
)
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message, decode_request, encode
from sparklog.structs import Chunk


class Handler(NamedTuple):
    """How one API is served."""

    api: ApiKey
    versions: range
    decode: Callable[[memoryview, int], Any]
    handle: Callable[[Any, Any], Any]
    encode: Callable[[Any, int], list[Chunk] | None]


def _handler(module: ModuleType) -> Handler:
    api: ApiKey = module.API
    decode = getattr(module, "decode", None) or (lambda body, version: decode_request(api, version, body))
    return Handler(api, module.VERSIONS, decode, module.handle, getattr(module, "encode", None) or _encode)


def _encode(message: Message, version: int) -> list[Chunk] | None:
    return [encode(message, version)]


HANDLERS: dict[int, Handler] = {
    handler.api.value: handler
    for handler in map(
        _handler,
        (
            add_offsets_to_txn,
            add_partitions_to_txn,
            api_versions,
            create_topics,
            delete_topics,
            describe_cluster,
            describe_configs,
            describe_groups,
            describe_producers,
            describe_transactions,
            end_txn,
            fetch,
            find_coordinator,
            heartbeat,
            init_producer_id,
            join_group,
            leader_and_isr,
            leave_group,
            list_groups,
            list_offsets,
            list_transactions,
            metadata,
            offset_commit,
            offset_fetch,
            produce,
            stop_replica,
            sync_group,
            txn_offset_commit,
            update_metadata,
            write_txn_markers,
        ),
    )
}

OFFERED: dict[ApiKey, range] = {handler.api: handler.versions for handler in HANDLERS.values()}
