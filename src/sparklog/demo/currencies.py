"""Which currencies are legal tender where, since 1694: a changelog of real inserts, updates and deletes.

The data are those of the Unicode CLDR, which the package babel carries: the first and the last day of each currency of
each territory. For each day on which that changes there is a change: the territory's currencies from that day on, or
none, when it has no currency any more (the Soviet Union, the GDR, and those that are between two).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import Any, NamedTuple

from sparklog.errors import ConfigError
from sparklog.local.extras import install_line

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Tender",
    "doc": "The currencies of a territory, by their ISO 4217 codes, and since when it has just these.",
    "fields": [
        {"name": "territory", "type": "string"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "currencies", "type": {"type": "array", "items": "string"}},
    ],
}
NAMED_SCHEMA: dict[str, Any] = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"name": "name", "type": ["null", "string"], "default": None}],
}
"""The second version of the schema: with the territory's name in English, where it has one."""


class Change(NamedTuple):
    """``currencies`` are those of the territory from ``day`` on, in the order of their codes; none: it is deleted."""

    day: date
    territory: str
    currencies: tuple[str, ...]

    def value(self) -> dict[str, Any] | None:
        """The value of the record, as of ``SCHEMA``; None is a tombstone."""
        return self._asdict() if self.currencies else None


class _Period(NamedTuple):
    first: date
    last: date | None
    currency: str

    def has(self, day: date) -> bool:
        return self.first <= day and (self.last is None or day <= self.last)


def load_changes() -> list[Change]:
    """All changes, in the order of their days. Raises ConfigError if the package with the data is not installed."""
    found = [change for territory, periods in _tender().items() for change in _changes(territory, periods)]
    return sorted(found)


def tender_on(day: date) -> dict[str, tuple[str, ...]]:
    """Territory → its currencies on that day. Territories without any are left out."""
    found = {territory: _on(day, periods) for territory, periods in _tender().items()}
    return {territory: currencies for territory, currencies in found.items() if currencies}


def territory_names() -> dict[str, str]:
    """Code → name in English. Those that are gone have none."""
    return dict(_babel().Locale("en").territories)


def replayed(changes: Iterable[Change]) -> dict[str, tuple[str, ...]]:
    """The table that the changes make."""
    table: dict[str, tuple[str, ...]] = {}
    for change in changes:
        if change.currencies:
            table[change.territory] = change.currencies
        else:
            del table[change.territory]
    return table


def _changes(territory: str, periods: list[_Period]) -> Iterator[Change]:
    days = {each.first for each in periods} | {each.last + timedelta(days=1) for each in periods if each.last}
    before: tuple[str, ...] = ()
    for day in sorted(days):
        now = _on(day, periods)
        if now != before:
            yield Change(day, territory, now)
        before = now


def _on(day: date, periods: list[_Period]) -> tuple[str, ...]:
    return tuple(sorted({each.currency for each in periods if each.has(day)}))


def _tender() -> dict[str, list[_Period]]:
    """Territory → the periods of its currencies that are legal tender."""
    rows = _babel().get_global("territory_currencies")
    return {
        territory: [
            _Period(date(*first), date(*last) if last else None, currency)
            for currency, first, last, is_tender in periods
            if is_tender and first
        ]
        for territory, periods in rows.items()
    }


def _babel() -> Any:
    try:
        import babel.core
    except ImportError:
        raise ConfigError(f"the currencies are not installed; type: {install_line('demo')}") from None
    return babel.core
