import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from sparklog.errors import DataSourceError
from sparklog.spark.schema import READ_COLUMNS, WRITE_COLUMNS, check_read_schema, check_write_schema, source_schema


def _schema(**columns):
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_the_schema_is_that_of_sparks_kafka_source():
    assert source_schema(include_headers=True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert source_schema(include_headers=False).names == [name for name in READ_COLUMNS if name != "headers"]


def test_a_projection_is_some_of_the_columns_in_any_order():
    check_read_schema(_schema(offset=LongType(), value=BinaryType()))


@pytest.mark.parametrize("schema", [_schema(Value=BinaryType()), _schema(value=StringType()), _schema(x=LongType())])
def test_other_columns_or_types_are_refused_by_name(schema):
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_UNSUPPORTED_SCHEMA.*{schema.names[0]}"):
        check_read_schema(schema)


_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADER_WITH_A_VALUE = StructType([StructField("key", StringType()), StructField("value", BinaryType(), False)])


@pytest.mark.parametrize(
    ("name", "kind", "nullable"),
    [
        ("key", BinaryType(), False),
        ("value", BinaryType(), False),
        ("headers", ArrayType(_HEADER), False),
        ("headers", ArrayType(_HEADER, containsNull=False), True),
        ("headers", ArrayType(_HEADER_WITH_A_VALUE), True),
    ],
)
def test_what_may_be_null_is_not_read_as_not_null(name, kind, nullable):
    with pytest.raises(DataSourceError, match=f"SPARKLOG_UNSUPPORTED_SCHEMA.*'{name}' may have nulls"):
        check_read_schema(StructType([StructField(name, kind, nullable)]))


def test_what_is_never_null_may_be_read_as_not_null():
    never = source_schema(include_headers=True).fields[2:7]
    check_read_schema(StructType([StructField(each.name, each.dataType, False) for each in never]))


@pytest.mark.parametrize("kind", [BinaryType(), StringType()])
def test_a_write_takes_binary_and_string(kind):
    check_write_schema(_schema(key=kind, value=kind, topic=StringType(), partition=IntegerType()), None)


def test_a_write_leaves_out_what_it_does_not_know():
    check_write_schema(_schema(value=BinaryType(), offset=LongType(), other=IntegerType()), "t")


@pytest.mark.parametrize("name", ["Key", "HEADERS", "Topic", "Partition", "VALUE"])
def test_a_column_of_the_sink_in_other_case_is_refused(name):
    schema = StructType().add(name, StringType())
    if name != "VALUE":
        schema.add("value", StringType())
    with pytest.raises(DataSourceError, match=f"column '{name}' would not be written: the sink's is '{name.lower()}'"):
        check_write_schema(schema, "t")
    check_write_schema(schema.add(name.lower(), WRITE_COLUMNS[name.lower()][0]), "t")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (_schema(key=BinaryType()), "no column 'value'"),
        (_schema(value=IntegerType()), "'value'.*int"),
        (_schema(value=BinaryType(), key=LongType()), "'key'.*bigint"),
        (_schema(value=BinaryType(), partition=LongType()), "'partition'.*bigint"),
        (_schema(value=BinaryType(), topic=BinaryType()), "'topic'.*binary"),
        (_schema(value=BinaryType(), headers=StringType()), "'headers'.*string"),
    ],
)
def test_what_cannot_be_written(schema, message):
    with pytest.raises(DataSourceError, match=message):
        check_write_schema(schema, "t")


def test_a_write_needs_a_topic():
    with pytest.raises(DataSourceError, match="SPARKLOG_MISSING_TOPIC"):
        check_write_schema(_schema(value=BinaryType()), None)
