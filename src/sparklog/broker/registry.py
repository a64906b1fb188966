"""From an API's number to its handler and the versions it is served in.

What ApiVersions offers is derived from here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from sparklog.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    lease_segments,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_handshake,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_metadata,
    write_txn_markers,
)
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Encoded, Message, decode_request, encode
from sparklog.structs import Chunk


class Handler(NamedTuple):
    """How one API is served."""

    api: ApiKey
    versions: range
    decode: Callable[[memoryview, int], Any]
    handle: Callable[[Any, Any], Any]
    encode: Callable[[Any, int], list[Chunk] | None]
    module: str
    """Where ``handle`` is; its first paragraph says what it does, in a sentence that begins with the API's name."""
    by_schema: bool = False
    """Whether its messages are the schema library's, which can be decoded and encoded in steps."""


def _handler(module: ModuleType) -> Handler:
    api: ApiKey = module.API
    decode = getattr(module, "decode", None)
    if decode is not None:
        return Handler(api, module.VERSIONS, decode, module.handle, module.encode, module.__name__)
    by_schema = partial(_decode, api)
    return Handler(api, module.VERSIONS, by_schema, module.handle, _encode, module.__name__, by_schema=True)


def _decode(api: ApiKey, body: memoryview, version: int) -> Message:
    return decode_request(api, version, body)


def _encode(message: Message | Encoded, version: int) -> list[Chunk] | None:
    return [message.body if isinstance(message, Encoded) else encode(message, version)]


HANDLERS: dict[int, Handler] = {
    handler.api.value: handler
    for handler in map(
        _handler,
        (
            add_offsets_to_txn,
            add_partitions_to_txn,
            alter_configs,
            alter_partition_reassignments,
            api_versions,
            consumer_group_describe,
            consumer_group_heartbeat,
            create_partitions,
            create_topics,
            delete_records,
            delete_groups,
            delete_topics,
            describe_cluster,
            describe_configs,
            describe_groups,
            describe_log_dirs,
            describe_producers,
            describe_topic_partitions,
            describe_transactions,
            elect_leaders,
            end_txn,
            fetch,
            find_coordinator,
            heartbeat,
            incremental_alter_configs,
            init_producer_id,
            join_group,
            leader_and_isr,
            lease_segments,
            leave_group,
            list_groups,
            list_offsets,
            list_partition_reassignments,
            list_transactions,
            metadata,
            offset_commit,
            offset_delete,
            offset_fetch,
            offset_for_leader_epoch,
            produce,
            sasl_handshake,
            stop_replica,
            sync_group,
            txn_offset_commit,
            update_metadata,
            write_txn_markers,
        ),
    )
}

OFFERED: dict[ApiKey, range] = {handler.api: handler.versions for handler in HANDLERS.values()}
