"""The client's half of transactions: which state it is in, what it may do there, and what each error means.

States::

    UNINITIALIZED ──init──▶ READY ──begin──▶ OPEN ──commit, abort──▶ ENDING ──▶ READY
                              ▲               │ └──prepare──▶ PREPARED ──complete──▶ ENDING
                              │               ▼
                              └──abort── ABORTABLE                       any ──fenced, or worse──▶ FATAL

An error either passes by itself (asked again), or spoils the transaction (ABORTABLE: only ``abort`` is left), or ends
the producer (FATAL: every later call raises it). A fenced producer is FATAL: another has its transactional id.

Two protocols (KIP-890). In the first each partition, and each group with offsets, is added to the transaction before
anything is sent to it. In the second the brokers do that themselves (Produce 12, TxnOffsetCommit 5) and raise the
epoch with the end of every transaction (EndTxn 5); it is spoken where the cluster's finalized ``transaction.version``
is at least 2. Two-phase commit (KIP-939) lets another system decide: ``prepare`` gives a text that names the prepared
transaction; after a restart ``init(keep_prepared)`` finds it again and ``complete`` compares: the same text commits,
any other aborts.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from sparklog.client.producer.sequences import ProducerId
from sparklog.errors import ApiError, ConfigError, ErrorCode, SparklogError
from sparklog.structs import TopicPartition

_E = ErrorCode
_FENCED = frozenset({_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED, _E.TRANSACTION_COORDINATOR_FENCED})
_ABORTABLE = frozenset(
    {
        _E.TRANSACTION_ABORTABLE,
        _E.UNKNOWN_PRODUCER_ID,
        _E.INVALID_PRODUCER_ID_MAPPING,
        _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        _E.TOPIC_AUTHORIZATION_FAILED,
        _E.GROUP_AUTHORIZATION_FAILED,
        _E.OPERATION_NOT_ATTEMPTED,
        _E.UNKNOWN_TOPIC_OR_PARTITION,
        _E.FENCED_INSTANCE_ID,
        _E.UNKNOWN_MEMBER_ID,
        _E.ILLEGAL_GENERATION,
        _E.OFFSET_METADATA_TOO_LARGE,
        _E.INVALID_COMMIT_OFFSET_SIZE,
    }
)
_GONE_ON = (
    "the group has gone on without its member, and others may read the partitions: abort the transaction, poll, and go"
    " on at the group's offsets; poll more often, or raise max.poll.interval.ms"
)
_REASONS = {
    _E.UNKNOWN_MEMBER_ID: _GONE_ON,
    _E.ILLEGAL_GENERATION: _GONE_ON,
    _E.FENCED_INSTANCE_ID: "another consumer has taken this group.instance.id; give each its own",
    _E.INVALID_TXN_STATE: "the coordinator has ended the transaction, as it does after transaction.timeout.ms",
    _E.INVALID_TRANSACTION_TIMEOUT: "lower transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms",
}
NO_TRANSACTION = ProducerId(-1, -1)
LAST_PRODUCE_OF_FIRST_PROTOCOL = 11
"""The newest Produce in whose transactions partitions must have been added before."""


class Step(Enum):
    """Where a producer is in the life of its transactions."""

    UNINITIALIZED = auto()
    READY = auto()
    OPEN = auto()
    PREPARED = auto()
    ENDING = auto()
    ABORTABLE = auto()
    FATAL = auto()


class Severity(Enum):
    """What an error of a transactional request means for the producer."""

    RETRIABLE = auto()
    ABORTABLE = auto()
    FATAL = auto()


def severity(error: SparklogError) -> Severity:
    """A network failure and what passes by itself are asked again; what is not known to be harmless is fatal."""
    if not isinstance(error, ApiError):
        return Severity.RETRIABLE if isinstance(error, ConnectionError) else Severity.FATAL
    if error.code in _ABORTABLE:
        return Severity.ABORTABLE
    return Severity.RETRIABLE if error.code.retriable else Severity.FATAL


def is_fenced(error: SparklogError | None) -> bool:
    """Whether the error says that another producer has taken over the transactional id."""
    return isinstance(error, ApiError) and error.code in _FENCED


class Transaction:
    """The state of one transactional producer; it says what to ask, and is told what was answered."""

    def __init__(self, transactional_id: str, *, two_phase: bool = False) -> None:
        self.transactional_id = transactional_id
        self.two_phase = two_phase
        self.step = Step.UNINITIALIZED
        self.error: SparklogError | None = None
        """What spoiled the transaction, until it is ended, or what ended the producer."""
        self.producer: ProducerId | None = None
        self.second_version = False
        self.prepared = NO_TRANSACTION
        """The transaction that a predecessor prepared, or this producer did."""
        self.added: set[TopicPartition] = set()
        self.pending: set[TopicPartition] = set()
        self.commits = False
        """How it is being ended."""
        self.is_known = False
        """Whether the coordinator knows of something in this transaction."""
        self._is_doubtful = False
        """Whether it may, since a question was not answered clearly."""
        self._asking = 0
        """Questions under way that add something."""
        self._needs_epoch = False

    # What the program asks for. Each raises ApiError(INVALID_TXN_STATE) where it has no place.

    def begin(self) -> None:
        self._require("begin a transaction", Step.READY)
        self.step = Step.OPEN
        self._clear()

    def _clear(self) -> None:
        self.added, self.pending = set(), set()
        self.is_known = self._is_doubtful = self._needs_epoch = False

    @property
    def has_begun(self) -> bool:
        """Whether the coordinator knows, or may know, of something in this transaction."""
        return self.is_known or self._is_doubtful or self._asking > 0

    def require_open(self) -> None:
        """Records may be sent now."""
        self._require("send", Step.OPEN)

    def joins(self, tp: TopicPartition) -> bool:
        """A record waits to be sent to ``tp``; whether the partition is new to the transaction.

        It is said of what waits already, too: a send that was interrupted may not have said so. What waits cannot be
        refused any more, so this never raises.
        """
        if tp in self.added or tp in self.pending:
            return False
        if self.second_version:
            self.added.add(tp)
        else:
            self.pending.add(tp)
        return True

    def goes_out(self) -> None:
        """A batch of it is sent to its leader, who tells the coordinator in the second version."""
        self.is_known = True

    def sends_offsets(self) -> None:
        """Offsets are sent to a group's coordinator, who tells the transaction's in the second version."""
        self._require("send offsets", Step.OPEN)
        self.is_known = self.is_known or self.second_version

    def asks_to_add(self) -> None:
        """The coordinator is asked to add something; ``add_answered`` follows, whatever happens."""
        self._asking += 1

    def add_answered(self, added: bool | None) -> None:
        """It was added, or was not, or (None) nobody knows."""
        self._asking -= 1
        self.is_known = self.is_known or added is True
        self._is_doubtful = self._is_doubtful or added is None

    def prepare(self) -> str:
        """Nothing more can be sent, only ``complete``; returns the text that names this transaction.

        Raises ConfigError unless two-phase commits are switched on.
        """
        if not self.two_phase:
            raise ConfigError("prepare_transaction needs transaction.two.phase.commit.enable=true")
        self._require("prepare", Step.OPEN)
        assert self.producer is not None
        self.step = Step.PREPARED
        self.prepared = self.producer if self.has_begun else NO_TRANSACTION
        return prepared_text(self.prepared)

    def decide(self, state: str) -> bool:
        """Whether the prepared transaction is to be committed: only if ``state`` names it."""
        self._require("complete a prepared transaction", Step.PREPARED)
        return parse_prepared(state) == self.prepared and self.prepared != NO_TRANSACTION

    def end(self, commit: bool) -> None:
        """Nothing more joins the transaction. May be said again while it is being ended."""
        if self.step is Step.ENDING and self.commits == commit:
            return  # asked again, because its fate is not known
        steps = (Step.OPEN, Step.PREPARED) if commit else (Step.OPEN, Step.PREPARED, Step.ABORTABLE)
        self._require("commit" if commit else "abort", *steps)
        self.step, self.commits = Step.ENDING, commit

    def check(self) -> None:
        """Raises what ended the producer, or spoiled its transaction."""
        if self.error is not None and self.step in (Step.FATAL, Step.ABORTABLE):
            raise self._again()

    def _require(self, what: str, *steps: Step) -> None:
        if self.step in steps:
            return
        if self.step is Step.FATAL or (self.step is Step.ABORTABLE and self.error is not None):
            raise self._again()
        hint = {
            Step.UNINITIALIZED: "call init_transactions first",
            Step.READY: "call begin_transaction first",
            Step.OPEN: "a transaction is open: commit or abort it first",
            Step.PREPARED: "a prepared transaction waits for complete_transaction",
            Step.ENDING: "the transaction is being ended; call commit or abort again if it was interrupted",
        }.get(self.step, self.step.name)
        raise ApiError(_E.INVALID_TXN_STATE, f"cannot {what} now: {hint}")

    def _again(self) -> SparklogError:
        """What spoiled the transaction may have been of the sort that passes; the transaction does not: a program that
        tries again what may pass must not try this."""
        assert self.error is not None
        if self.step is Step.FATAL:
            hint = "this producer cannot go on; close it"
        else:
            hint = "call abort_transaction, then try again"
        code = self.error.code if isinstance(self.error, ApiError) else _E.TRANSACTION_ABORTABLE
        return ApiError(_E.TRANSACTION_ABORTABLE if code.retriable else code, f"{self.error}: {hint}")

    # What was answered.

    def explained(self, error: SparklogError) -> SparklogError:
        """A broker's error with what it means for this producer. Whichever broker it was that noticed a fence, and by
        whatever code, it is PRODUCER_FENCED."""
        code = error.code if isinstance(error, ApiError) else None
        if code in (_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED):
            text = (
                f"a newer producer has the transactional id {self.transactional_id!r} and fenced this one, or its"
                f" transaction lasted longer than transaction.timeout.ms and was aborted ({error})"
            )
            return ApiError(_E.PRODUCER_FENCED, text)
        return error if code not in _REASONS else ApiError(code, f"{error}: {_REASONS[code]}")

    def initialized(self, producer: ProducerId, prepared: ProducerId = NO_TRANSACTION) -> None:
        """An id and epoch were given; ``prepared`` is the transaction that was kept, if there was one."""
        self.producer, self.error, self.prepared = producer, None, prepared
        self.step = Step.READY if prepared == NO_TRANSACTION else Step.PREPARED
        self._clear()
        self.is_known = prepared != NO_TRANSACTION

    def partitions_added(self, partitions: Iterable[TopicPartition]) -> None:
        added = set(partitions)
        self.pending -= added
        self.added |= added
        self.is_known = True

    def may_send(self, tp: TopicPartition) -> bool:
        """Whether the coordinator knows that ``tp`` is in the transaction, and it is not spoiled."""
        return tp in self.added and self.step not in (Step.ABORTABLE, Step.FATAL)

    @property
    def obstacle(self) -> SparklogError | None:
        """Why nothing that waits will be sent any more."""
        if self.step is Step.ENDING and not self.commits:
            return ApiError(_E.OPERATION_NOT_ATTEMPTED, "the transaction was aborted")
        return self.error if self.step in (Step.ABORTABLE, Step.FATAL) else None

    @property
    def is_spoiled(self) -> bool:
        """Whether the next transaction needs a higher epoch than this one's; so it is until this one is ended."""
        return self.error is not None or self._needs_epoch

    def never_began(self) -> None:
        """Nothing that may have been added was. It may be yet, but for a higher epoch."""
        self._needs_epoch = True

    def end_answered(self) -> None:
        """The coordinator has ended it: it must not be asked for that again."""
        self.is_known = self._is_doubtful = False

    def ended(self, producer: ProducerId | None) -> None:
        """It is committed or aborted; ``producer`` is the next epoch's where the answer told one."""
        self.step, self.error, self.prepared = Step.READY, None, NO_TRANSACTION
        self._clear()
        if producer is not None:
            self.producer = producer

    def failed(self, error: SparklogError) -> None:
        """A request of the transaction, or a batch in it, was refused for good."""
        if self.step is Step.FATAL:
            return
        if severity(error) is Severity.FATAL:
            self.step, self.error = Step.FATAL, error
        elif self.step in (Step.OPEN, Step.ENDING):
            self.step, self.error = Step.ABORTABLE, error

    def batch_failed(self, error: SparklogError) -> None:
        """A batch will not be written: the transaction can only be aborted, unless the producer was fenced."""
        if is_fenced(error):
            self.failed(error)
        elif self.step is Step.OPEN or (self.step is Step.ENDING and self.commits):
            self.step, self.error = Step.ABORTABLE, error


def prepared_text(producer: ProducerId) -> str:
    """As Kafka's ``PreparedTxnState`` has it: ``id:epoch``, empty for no transaction."""
    return "" if producer == NO_TRANSACTION else f"{producer.producer_id}:{producer.epoch}"


def parse_prepared(text: str) -> ProducerId:
    """Raises ConfigError for what ``prepare_transaction`` never returned."""
    if not text:
        return NO_TRANSACTION
    number, _, epoch = text.partition(":")
    try:
        producer = ProducerId(int(number), int(epoch))
    except ValueError:
        producer = NO_TRANSACTION
    if producer.producer_id < 0 or producer.epoch < 0:
        raise ConfigError(f"{text!r} is no state of a prepared transaction; pass on what prepare_transaction returned")
    return producer
