"""Every error that sparklog raises, and every error code that it speaks.

The tree::

    SparklogError
    ├── ConfigError                 a setting is unknown, malformed or out of its range
    ├── LogError                    the log on disk
    │   ├── CorruptRecord           bytes that are not the format they claim (code CORRUPT_MESSAGE)
    │   ├── LogClosed               an append or a read after close
    │   ├── InconsistentTopicId     a directory of another topic of that name (code INCONSISTENT_TOPIC_ID)
    │   ├── SegmentsLeased          segments to be replaced that a task reads by name; try later
    │   └── LogDirFailed            the disk refused; its partitions go offline
    │       └── DiskFull            no room, or no descriptor: its partitions stay, and take appends when there is
    ├── ProtocolError               the wire
    │   ├── RemoteProtocolError     the peer sent what the protocol does not allow
    │   │   └── AnotherProtocol     the peer speaks TLS or HTTP; ``.answer`` is what it understands
    │   └── LocalProtocolError      we were asked to send what the protocol does not allow
    ├── ConnectionFailed            a peer cannot be reached, or hung up
    │   └── PeerSilent              it accepts connections, and answers nothing
    ├── AuthenticationFailed        a peer is not who it says, or does not take us for who we say
    │   └── DelegationTokenRefused  the delegation token that we show has ended
    ├── PeerBusy                    too many requests wait for a broker already; try later
    ├── DeserializationError        a consumer's deserializer raised
    ├── SerializationError          a value is not of its schema, or bytes are no value of a schema registry's
    ├── RegistryError               a schema registry refused what was asked; ``.status`` is HTTP's, ``.code`` its own
    │   ├── RegistryUnavailable     it cannot be reached, or cannot answer now; try later
    │   ├── SchemaNotFound          it has no such schema, subject or version
    │   └── IncompatibleSchema      a schema does not go with the earlier ones of its subject
    ├── WokenUp                     wakeup() interrupted a consumer that waited
    ├── ClientClosed                a client was used after close, in a forked child, or where it would wait for itself
    ├── StorageError                files beside the log, such as a backup's: damaged, or not what they should be
    ├── CoordinationError           ZooKeeper: lost session, duplicate broker id, stale epoch
    │   ├── BrokerIdTaken           another session is registered under the broker's id; ``.owner`` is it
    │   ├── ConsumerIdTaken         another session is registered under the consumer's id; ``.owner`` is it
    │   ├── LayoutConflict          a group has members that share partitions by another rule
    │   └── MalformedZnode          a znode does not hold what it must
    ├── DataSourceError             an option or a state that the Spark source cannot serve
    │   └── NotDirect               segment files that a Spark task cannot read itself; ``.reason`` is one of a few
    └── ApiError                    an answer with an error code; ``.code`` says which
        ├── BatchRefused            a whole batch of ours was refused; ``.batch`` is it
        ├── RecordsRefused          a batch, for some of its records; ``.records`` says which
        ├── RefusedUnseen           records, before their partition was looked at
        ├── PartlyQueued            a part of a table of ours was queued; ``.futures`` tell what becomes of it
        └── PartlyWritten           a batch of ours was sent in parts; ``.written`` says which records are in the log

``ErrorCode`` is Kafka's own table (``org.apache.kafka.common.protocol.Errors``): number, name, and
whether a client may retry. A number that is not in the table becomes ``UNKNOWN_SERVER_ERROR``. What a code in an answer
means is said where it is met: ``fetch/position.py`` for readers, ``client/producer/refusal.py`` for producers,
``cluster/leader_errors.py`` for both, ``broker/replication/fetcher.py`` for followers, ``spark/failures.py`` for users.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from sparklog.structs import TopicPartition


class ErrorCode(IntEnum):
    """An error code of the Kafka protocol."""

    retriable: bool

    def __new__(cls, value: int, retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, value)
        member._value_ = value
        member.retriable = retriable
        return member

    @classmethod
    def _missing_(cls, _value: object) -> ErrorCode:
        return cls.UNKNOWN_SERVER_ERROR

    UNKNOWN_SERVER_ERROR = (-1, False)
    NONE = (0, False)
    OFFSET_OUT_OF_RANGE = (1, False)
    CORRUPT_MESSAGE = (2, True)
    UNKNOWN_TOPIC_OR_PARTITION = (3, True)
    INVALID_FETCH_SIZE = (4, False)
    LEADER_NOT_AVAILABLE = (5, True)
    NOT_LEADER_OR_FOLLOWER = (6, True)
    REQUEST_TIMED_OUT = (7, True)
    BROKER_NOT_AVAILABLE = (8, False)
    REPLICA_NOT_AVAILABLE = (9, True)
    MESSAGE_TOO_LARGE = (10, False)
    STALE_CONTROLLER_EPOCH = (11, False)
    OFFSET_METADATA_TOO_LARGE = (12, False)
    NETWORK_EXCEPTION = (13, True)
    COORDINATOR_LOAD_IN_PROGRESS = (14, True)
    COORDINATOR_NOT_AVAILABLE = (15, True)
    NOT_COORDINATOR = (16, True)
    INVALID_TOPIC_EXCEPTION = (17, False)
    RECORD_LIST_TOO_LARGE = (18, False)
    NOT_ENOUGH_REPLICAS = (19, True)
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (20, True)
    INVALID_REQUIRED_ACKS = (21, False)
    ILLEGAL_GENERATION = (22, False)
    INCONSISTENT_GROUP_PROTOCOL = (23, False)
    INVALID_GROUP_ID = (24, False)
    UNKNOWN_MEMBER_ID = (25, False)
    INVALID_SESSION_TIMEOUT = (26, False)
    REBALANCE_IN_PROGRESS = (27, False)
    INVALID_COMMIT_OFFSET_SIZE = (28, False)
    TOPIC_AUTHORIZATION_FAILED = (29, False)
    GROUP_AUTHORIZATION_FAILED = (30, False)
    CLUSTER_AUTHORIZATION_FAILED = (31, False)
    INVALID_TIMESTAMP = (32, False)
    UNSUPPORTED_SASL_MECHANISM = (33, False)
    ILLEGAL_SASL_STATE = (34, False)
    UNSUPPORTED_VERSION = (35, False)
    TOPIC_ALREADY_EXISTS = (36, False)
    INVALID_PARTITIONS = (37, False)
    INVALID_REPLICATION_FACTOR = (38, False)
    INVALID_REPLICA_ASSIGNMENT = (39, False)
    INVALID_CONFIG = (40, False)
    NOT_CONTROLLER = (41, True)
    INVALID_REQUEST = (42, False)
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, False)
    POLICY_VIOLATION = (44, False)
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, False)
    DUPLICATE_SEQUENCE_NUMBER = (46, False)
    INVALID_PRODUCER_EPOCH = (47, False)
    INVALID_TXN_STATE = (48, False)
    INVALID_PRODUCER_ID_MAPPING = (49, False)
    INVALID_TRANSACTION_TIMEOUT = (50, False)
    CONCURRENT_TRANSACTIONS = (51, True)
    TRANSACTION_COORDINATOR_FENCED = (52, False)
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53, False)
    SECURITY_DISABLED = (54, False)
    OPERATION_NOT_ATTEMPTED = (55, False)
    KAFKA_STORAGE_ERROR = (56, True)
    LOG_DIR_NOT_FOUND = (57, False)
    SASL_AUTHENTICATION_FAILED = (58, False)
    UNKNOWN_PRODUCER_ID = (59, False)
    REASSIGNMENT_IN_PROGRESS = (60, False)
    DELEGATION_TOKEN_AUTH_DISABLED = (61, False)
    DELEGATION_TOKEN_NOT_FOUND = (62, False)
    DELEGATION_TOKEN_OWNER_MISMATCH = (63, False)
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (64, False)
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (65, False)
    DELEGATION_TOKEN_EXPIRED = (66, False)
    INVALID_PRINCIPAL_TYPE = (67, False)
    NON_EMPTY_GROUP = (68, False)
    GROUP_ID_NOT_FOUND = (69, False)
    FETCH_SESSION_ID_NOT_FOUND = (70, True)
    INVALID_FETCH_SESSION_EPOCH = (71, True)
    LISTENER_NOT_FOUND = (72, True)
    TOPIC_DELETION_DISABLED = (73, False)
    FENCED_LEADER_EPOCH = (74, True)
    UNKNOWN_LEADER_EPOCH = (75, True)
    UNSUPPORTED_COMPRESSION_TYPE = (76, False)
    STALE_BROKER_EPOCH = (77, False)
    OFFSET_NOT_AVAILABLE = (78, True)
    MEMBER_ID_REQUIRED = (79, False)
    PREFERRED_LEADER_NOT_AVAILABLE = (80, True)
    GROUP_MAX_SIZE_REACHED = (81, False)
    FENCED_INSTANCE_ID = (82, False)
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, True)
    ELECTION_NOT_NEEDED = (84, True)
    NO_REASSIGNMENT_IN_PROGRESS = (85, False)
    GROUP_SUBSCRIBED_TO_TOPIC = (86, False)
    INVALID_RECORD = (87, False)
    UNSTABLE_OFFSET_COMMIT = (88, True)
    THROTTLING_QUOTA_EXCEEDED = (89, True)
    PRODUCER_FENCED = (90, False)
    RESOURCE_NOT_FOUND = (91, False)
    DUPLICATE_RESOURCE = (92, False)
    UNACCEPTABLE_CREDENTIAL = (93, False)
    INVALID_UPDATE_VERSION = (95, False)
    UNKNOWN_TOPIC_ID = (100, True)
    INCONSISTENT_TOPIC_ID = (103, True)
    TRANSACTIONAL_ID_NOT_FOUND = (105, False)
    FETCH_SESSION_TOPIC_ID_ERROR = (106, True)
    INELIGIBLE_REPLICA = (107, False)
    FENCED_MEMBER_EPOCH = (110, False)
    UNRELEASED_INSTANCE_ID = (111, False)
    UNSUPPORTED_ASSIGNOR = (112, False)
    STALE_MEMBER_EPOCH = (113, False)
    TRANSACTION_ABORTABLE = (120, False)
    INVALID_REGULAR_EXPRESSION = (128, False)


_LONGEST_REASON = 2000
"""Characters; a string on the wire has 32767 bytes at most."""
_MOST_RUNS = 20
"""Runs of records that an error names; its attribute has them all."""


class SparklogError(Exception):
    """The root: catch this to catch all that sparklog raises on purpose."""


class ConfigError(SparklogError, ValueError):
    """A setting is unknown, malformed or out of its range; the message names it and what is allowed."""


class ApiError(SparklogError):
    """A request was answered, or must be answered, with an error code."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        if len(message) > _LONGEST_REASON:  # a client's own words may be in it
            message = f"{message[:_LONGEST_REASON]}..."
        super().__init__(message or code.name)
        self.code = code
        self.reason = message
        """What went wrong, without the code: what an error message on the wire holds."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.code.name in text else f"{self.code.name}: {text}"


class RecordsRefused(ApiError):
    """A batch was refused for some of its records; a client may send the others again without them."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[int]) -> None:
        super().__init__(code, message)
        self.records = tuple(records)
        """Which ones, counted from the batch's first, which is 0."""


class RefusedUnseen(ApiError):
    """Records were refused before their partition was looked at: the answer tells nothing of the partition."""


class PartlyQueued(ApiError):
    """Some batches of a table were queued before ``error``; the other rows were not, and will not be sent."""

    def __init__(self, error: SparklogError, futures: Sequence[Any]) -> None:
        code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
        super().__init__(code, f"only the first {len(futures)} batches were queued, see .futures: {error}")
        self.futures = tuple(futures)
        """Those of the batches that were queued, each a ``BatchFuture``."""


class PartlyWritten(ApiError):
    """A batch of ours had to be sent in parts, and some of them were not written, for the reason of ``error``."""

    def __init__(self, error: SparklogError, count: int, written: Sequence[range]) -> None:
        runs = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in written[:_MOST_RUNS]]
        named = ", ".join(runs) + (", and more" if len(written) > _MOST_RUNS else "")
        code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
        super().__init__(
            code, f"a batch was sent in parts; of its records 0 to {count - 1} these are written: {named}; {error}"
        )
        self.written = tuple(written)
        """Which records are known to be in the log, counted from the batch's first, which is 0."""


class BatchRefused(ApiError):
    """A broker refused a whole batch of ours."""

    def __init__(self, code: ErrorCode, message: str, batch: bytes | bytearray) -> None:
        super().__init__(code, message)
        self.batch = batch
        """As it was sent."""


class LogError(SparklogError):
    """The log on disk."""


class CorruptRecord(LogError):
    """Bytes that are not the record format they claim to be."""

    code = ErrorCode.CORRUPT_MESSAGE


class LogClosed(LogError):
    """The log was closed; nothing may be read from or appended to it."""


class InconsistentTopicId(LogError):
    """A partition's directory belongs to another topic of the same name, deleted since; nothing of it is served."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class SegmentsLeased(LogError):
    """Segments cannot be replaced while a lease on them runs."""


class LogDirFailed(LogError):
    """The disk under a log directory refused an operation; ``errno`` is what the system said, if it said anything."""

    code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class DiskFull(LogDirFailed):
    """There is no room for what was to be written, or no descriptor left to open it with; nothing has changed."""


class ProtocolError(SparklogError):
    """The wire protocol was broken."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol does not allow."""


class AnotherProtocol(RemoteProtocolError):
    """The peer speaks ``protocol`` where Kafka's is spoken. ``answer`` says so in that protocol's own words."""

    def __init__(self, protocol: str, reason: str, answer: bytes) -> None:
        super().__init__(reason)
        self.protocol = protocol
        self.answer = answer


class LocalProtocolError(ProtocolError):
    """We were asked to send what the protocol does not allow."""


class ConnectionFailed(SparklogError, ConnectionError):
    """A peer cannot be reached, or hung up in the middle of an exchange."""


class PeerSilent(ConnectionFailed):
    """A peer accepts connections, and answers nothing: it is frozen, overloaded, or not what it is taken for."""


class AuthenticationFailed(SparklogError):
    """A certificate, a password or a token was not accepted, here or by the peer."""


class DelegationTokenRefused(AuthenticationFailed):
    """A broker does not know the delegation token that we show, or not any more."""


class PeerBusy(SparklogError):
    """So many requests wait for a broker already that no further one is sent to it."""


class DeserializationError(SparklogError):
    """A deserializer raised. The consumer stays before the record; ``seek(tp, offset + 1)`` passes over it."""

    def __init__(self, tp: TopicPartition, offset: int, error: Exception) -> None:
        super().__init__(
            f"the record at offset {offset} of partition {tp} cannot be deserialized: {error!r};"
            f" seek to {offset + 1} to pass over it"
        )
        self.tp = tp
        self.offset = offset


class SerializationError(SparklogError):
    """A value is not of its schema, or bytes are not a value in the wire format of schema registries."""


class RegistryError(SparklogError):
    """A schema registry refused what was asked. ``status`` is HTTP's, ``code`` the registry's own; 0 for none."""

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryUnavailable(RegistryError):
    """No schema registry can be reached, or none can answer now. It says nothing about a schema; try later."""


class SchemaNotFound(RegistryError):
    """The registry has no such schema, subject or version."""


class IncompatibleSchema(RegistryError):
    """A schema does not go with the earlier ones of its subject, by the compatibility that is set for that."""


class WokenUp(SparklogError):
    """``wakeup`` was called while a consumer waited, or before."""


class ClientClosed(SparklogError):
    """A client was used where it cannot work: after ``close``, in a forked child, or where it would wait for itself.

    A callback of the client would, and a signal handler that came in the midst of a call.
    """


class StorageError(SparklogError):
    """Files beside the log, such as those of a backup, are damaged, or are not what they should be."""


class CoordinationError(SparklogError):
    """ZooKeeper: a lost session, a duplicate broker id, a stale epoch."""


class RegistrationTaken(CoordinationError):
    """Another session, ``owner``, is registered in ZooKeeper with what only one broker may have."""

    def __init__(self, text: str, owner: int) -> None:
        super().__init__(text)
        self.owner = owner


class BrokerIdTaken(RegistrationTaken):
    """It is registered under the broker's id."""

    def __init__(self, broker_id: int, owner: int) -> None:
        super().__init__(
            f"broker id {broker_id} is already registered in ZooKeeper by another session (0x{owner:x}); give this "
            "broker another id, or stop the other broker",
            owner,
        )


class BrokerAddressTaken(RegistrationTaken):
    """It is a broker of another id, and has told everybody the same address."""

    def __init__(self, address: str, holder: int, owner: int) -> None:
        super().__init__(
            f"{address} is the address of broker {holder} already, as ZooKeeper has it; give this broker another one "
            "(advertised.listeners, --advertised-host), or stop the other broker",
            owner,
        )


class ConsumerIdTaken(CoordinationError):
    """Another session, ``owner``, is registered in a group in ZooKeeper under the consumer's id."""

    def __init__(self, group: str, consumer: str, owner: int) -> None:
        super().__init__(
            f"consumer id {consumer!r} is registered in group {group!r} by another session (0x{owner:x}); stop the"
            " other consumer, or set another consumer.id, or none: then each consumer makes one of its own"
        )
        self.owner = owner


class LayoutConflict(CoordinationError):
    """A member of a group in ZooKeeper shares partitions by another rule: both would read everything."""


class MalformedZnode(CoordinationError):
    """A znode does not hold what it must."""


class DataSourceError(SparklogError):
    """An option or a state that the Spark data source cannot serve.

    Spark hands only the text of a Python exception to the user, so the message opens with a stable code.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"[{code}] {message}")
        self.error_code = code


class NotDirect(DataSourceError):
    """A range, or its rest, cannot be read from segment files: the broker is to be asked for it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__("SPARKLOG_DIRECT_READ_IMPOSSIBLE", f"{reason}: {detail}; directRead=auto reads by Fetch")
        self.reason = reason
        self.detail = detail
