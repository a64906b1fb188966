"""Many JSON values at once: each becomes what it becomes alone, whatever its neighbours are."""

import datetime
import json
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")
types = pytest.importorskip("pyspark.sql.types")
to_arrow_type = pytest.importorskip("pyspark.sql.pandas.types").to_arrow_type

from sparklog.spark.values import json_decoder  # noqa: E402
from sparklog.spark.values.decoded import Unreadable  # noqa: E402
from sparklog.spark.values.json_decoder import JsonDecoder  # noqa: E402
from sparklog.spark.values.json_value import json_value  # noqa: E402

_STRING, _LONG, _DOUBLE = types.StringType(), types.LongType(), types.DoubleType()


def _struct(**kinds):
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


FLAT = _struct(
    n=_LONG,
    i=types.IntegerType(),
    b=types.ByteType(),
    x=_DOUBLE,
    f=types.FloatType(),
    t=_STRING,
    yes=types.BooleanType(),
)
NESTED = types.StructType(
    [
        types.StructField("n", _LONG, nullable=False),
        types.StructField("s", _struct(t=_STRING, inner=_struct(x=_DOUBLE))),
        types.StructField("l", types.ArrayType(_struct(n=_LONG), containsNull=False)),
        types.StructField("when", types.TimestampType()),
        types.StructField("local", types.TimestampNTZType()),
        types.StructField("day", types.DateType()),
    ]
)
SLOW = _struct(n=_LONG, m=types.MapType(_STRING, _LONG), d=types.DecimalType(6, 2))


def alone(schema, values):
    """What each value is by itself: rows, and the reasons of those that are none."""
    decode, rows, reasons = json_value(schema), [], {}
    for number, value in enumerate(values):
        try:
            rows.append(None if value is None else decode(value))
        except Unreadable as error:
            rows.append(None)
            reasons[number] = str(error)
    kind = to_arrow_type(JsonDecoder(schema).schema, timezone="UTC")
    return pa.array(rows, kind), reasons


def together(schema, values):
    found = JsonDecoder(schema).decode(pa.array(values, pa.binary()))
    found.data.validate(full=True)
    return found.data, dict(found.reasons)


def assert_same(schema, values):
    (rows, reasons), (expected, expected_reasons) = together(schema, values), alone(schema, values)
    assert reasons == expected_reasons
    assert rows.type == expected.type
    assert repr(rows.to_pylist()) == repr(expected.to_pylist())  # -0.0 is not 0.0 here


# Values

_numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-200, 200).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["-0", "1e999", "-1e999", "1e-999", "3.5e38", "1E2", "0.10", "1" * 400, "NaN", "-Infinity", "01", "1."]
    ),
)
_texts = st.one_of(
    st.text(max_size=8).map(json.dumps),
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(
        [
            '"\\ud800"',
            '"\\udc00"',
            '"\\uD83D\\uDE00"',
            '"\\u0000"',
            '"Infinity"',
            '"a:NaN"',
            '":NaN"',
            '"\n"',
            '"\\x"',
            '"',
        ]
    ),
    st.datetimes(datetime.datetime(1, 1, 1)).map(lambda each: f'"{each.isoformat()}"'),
    st.sampled_from(
        [
            '"2024-02-30"',
            '"2024-02-29"',
            '"2024-02-29T10:00:00Z"',
            '"2024-02-29 10:00:00.123456+02:30"',
            '"10:00"',
            '"0000-01-01"',
        ]
    ),
)
_plain = st.one_of(_numbers, _texts, st.sampled_from(["null", "true", "false", "[]", "{}", " 1 ", ""]))
_names = st.sampled_from(
    ["n", "i", "b", "x", "f", "t", "yes", "s", "l", "when", "local", "day", "m", "d", "inner", "other"]
)


def _object(children):
    pairs = st.tuples(_names, children).map(lambda each: f'"{each[0]}":{each[1]}')
    return st.lists(pairs, max_size=5).map(lambda each: "{" + ",".join(each) + "}")


_json = st.recursive(
    _plain,
    lambda children: st.one_of(
        _object(children), st.lists(children, max_size=3).map(lambda each: "[" + ",".join(each) + "]")
    ),
    max_leaves=8,
)
_fragments = st.lists(
    st.sampled_from(
        [
            '{"n":1',
            "{",
            "}",
            "[",
            "]",
            ",",
            '"n":2',
            '"v":[',
            "{}",
            '"',
            "\\",
            "\n",
            "\r\n",
            " ",
            "\0",
            "\ufeff",
            "1",
            "null",
            ":",
        ]
    ),
    max_size=7,
).map("".join)
_values = st.one_of(
    _object(_json).map(str.encode),
    _json.map(lambda text: text.encode(errors="surrogatepass")),
    _fragments.map(str.encode),
    st.binary(max_size=6),
    st.tuples(_object(_json), st.binary(max_size=2), st.integers(0, 20)).map(
        lambda each: each[0].encode()[: each[2]] + each[1] + each[0].encode()[each[2] :]
    ),
    st.none(),
    st.sampled_from([b'{"n":1}', b'{"n":2,"t":"two"}', b' {"n":3}\n', b'{"n":4,"l":[{"n":5},{}],"s":{"t":"x"}}']),
)


@pytest.mark.parametrize("schema", [FLAT, NESTED, SLOW], ids=["flat", "nested", "slow"])
@given(values=st.lists(_values, max_size=12))
def test_each_value_becomes_what_it_becomes_alone(schema, values):
    assert_same(schema, values)


@given(values=st.lists(_values, max_size=60), few=st.integers(1, 8))
def test_a_bad_value_takes_no_neighbour_with_it(values, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_decoder, "_FEW", few)
        assert_same(NESTED, [b'{"n":1}'] * 20 + values)


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "n": st.integers(-(2**63), 2**63 - 1),
                "t": st.text(),
                "x": st.floats(allow_nan=False, allow_infinity=False),
            }
        ),
        max_size=50,
    )
)
def test_what_json_reads_is_read(rows):
    found, reasons = together(_struct(n=_LONG, t=_STRING, x=_DOUBLE), [json.dumps(each).encode() for each in rows])
    assert (found.to_pylist(), reasons) == (rows, {})


@pytest.mark.parametrize(
    "values",
    [
        [b'{"n":1}{"n":2}', b""],
        [b'{"n":1', b',"i":2}', b"{}{}"],
        [b'{"n":1},{"n":2}'],
        [b'{"n":1}],"v":[{"n":1}', b'{"n":2}'],
        [b'{"n":1}]}{"v":[{"n":1}', b"{}", b'{}]}{"v":[{}'],
        [b'"', b'"'],
        [b'{"t":"', b'"}'],
        [b'{"n":1}\n{"n":2}'],
        [b"\xff", b'{"n":1}', b'{"t":"\xff"}'],
        [b'{"t":"\\udc00"}', b'{"n":1}'],
        [b"null", b"1", b"[]", None, b"", b" "],
        [b'{"x":NaN}', b'{"x":1}', b'{"other":-Infinity}', b'{"t":": Inf"}'],
        [b'{"n":1,"n":2}', b'{"n":1,"N":2}'],
    ],
)
def test_values_that_would_flow_into_one_another(values):
    assert_same(FLAT, values)
    assert_same(FLAT, [b'{"n":7}'] * 50 + values + [b'{"n":8}'] * 50)


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (FLAT, b"", "it is not JSON: Expecting value, at character 0"),
        (FLAT, b'{"n":1', "it is not JSON: Expecting ',' delimiter, at character 6"),
        (FLAT, b'{"n":1}{}', "something follows the JSON object"),
        (FLAT, b"[1]", "it is not a JSON object"),
        (FLAT, b"a\xff", "it is not UTF-8, from byte 1 on"),
        (FLAT, b'{"n":NaN}', "it is not JSON: NaN is no number of it"),
        (FLAT, b'{"n":9223372036854775808}', "it is not of the schema: n is not bigint"),
        (FLAT, b'{"n":1.0}', "it is not of the schema: n is not bigint"),
        (FLAT, b'{"b":128}', "it is not of the schema: b is not tinyint"),
        (FLAT, b'{"f":4e38}', "it is not of the schema: f is not float"),
        (FLAT, b'{"t":1}', "it is not of the schema: t is not string"),
        (FLAT, b'{"t":"\\ud800"}', "it has half of a surrogate pair in t"),
        (NESTED, b"{}", "it has no n"),
        (NESTED, b'{"n":1,"l":[null]}', "it has a null in l"),
        (NESTED, b'{"n":1,"s":{"inner":{"x":"1"}}}', "it is not of the schema: s.inner.x is not double"),
        (NESTED, b'{"n":1,"when":1}', "it is not of the schema: when is not timestamp"),
        (NESTED, b'{"n":1,"local":"2024-01-01T00:00:00Z"}', "it is not of the schema: local is not timestamp_ntz"),
        (SLOW, b'{"m":{"a":1,"a":2}}', "it has a key twice in m"),
        (SLOW, b'{"d":1.005}', "it is not of the schema: d is not decimal(6,2)"),
        (SLOW, b'{"d":" 1"}', "it is not of the schema: d is not decimal(6,2)"),
    ],
)
def test_a_reason_says_what_is_wrong_and_where(schema, value, reason):
    assert together(schema, [value])[1] == {0: reason}


def test_times_maps_and_decimals():
    (row,) = together(
        NESTED, [b'{"n":1,"when":"2024-02-29T10:00:00.5+01:00","local":"2024-02-29T10:00","day":"2024-02-29"}']
    )[0].to_pylist()
    assert row["when"] == datetime.datetime(2024, 2, 29, 9, 0, 0, 500_000, datetime.UTC)
    assert row["local"] == datetime.datetime(2024, 2, 29, 10)
    assert row["day"] == datetime.date(2024, 2, 29)
    (row,) = together(SLOW, [b'{"m":{"a":1,"b":null},"d":"12.5"}'])[0].to_pylist()
    assert (dict(row["m"]), row["d"]) == ({"a": 1, "b": None}, Decimal("12.50"))


def test_it_is_pickled_and_reads_a_part_of_an_array():
    decoder = pickle.loads(pickle.dumps(JsonDecoder(FLAT)))
    values = pa.array([b'{"n":%d}' % number for number in range(100)] + [None], pa.binary())
    found = decoder.decode(values[90:])
    assert [each and each["n"] for each in found.data.to_pylist()] == [*range(90, 100), None]
    assert len(decoder.decode(values[:0]).data) == 0


def test_plain_values_are_read_at_once(monkeypatch):
    """Else it is slow, though right."""
    monkeypatch.setattr(JsonDecoder, "_one_by_one", None)
    values = [
        json.dumps({"n": number, "s": {"t": "é\n"}, "l": [{"n": 1}], "day": "2024-01-01"}).encode()
        for number in range(1000)
    ]
    found, _ = together(NESTED, [*values, None, b' {\r\n"n" : 1}'])
    assert found.field("n").to_pylist() == [*range(1000), None, 1]
