"""What a decoded table says of its values, written and read back."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sparklog.spark.lake.value_schema import ValueSchema
from sparklog.spark.values.formats import ValueFormat

CLICK = StructType([StructField("n", LongType(), nullable=False), StructField("kind", StringType())])
AVRO = '{"type": "record", "name": "Click", "fields": [\n{"name": "n", "type": "long", "doc": "a -> b"}]}'


@pytest.mark.parametrize(
    "schema",
    [
        ValueSchema(ValueFormat("json", CLICK.json())),
        ValueSchema(ValueFormat("json", CLICK.json()), is_text_key=True, into="click", has_dead_letters=True),
        ValueSchema(ValueFormat("avro", AVRO)),
        ValueSchema(ValueFormat("avro", AVRO, {7: AVRO})),
    ],
)
def test_it_is_one_line_and_is_read_back(schema):
    text = schema.to_json()
    assert "\n" not in text
    assert pickle.loads(pickle.dumps(ValueSchema.from_json(text))) == schema
    assert schema.decoding().columns == ValueSchema.from_json(text).decoding().columns


def test_what_is_not_null_stays_a_demand():
    decoder = ValueSchema.from_json(ValueSchema(ValueFormat("json", CLICK.json())).to_json()).decoding().decoder
    assert decoder.decode(pa.array([b'{"n": 1}', b'{"kind": "a"}'])).reasons == {1: "it has no n"}


def test_schemas_in_a_registry_are_not_told_and_nor_is_its_password():
    settings = {"schema.registry.url": "http://h", "basic.auth.credentials.source": "USER_INFO"}
    secret = {"basic.auth.user.info": "user:secret"}
    values = ValueFormat.of_registry("avro", settings | secret, schema=AVRO)
    text = ValueSchema(values).to_json()
    assert "secret" not in text
    with pytest.raises(ValueError, match=r"schemas in a registry.*the option schema\.registry\.url names it"):
        ValueSchema.from_json(text)
    assert ValueSchema.from_json(text, values.writers) == ValueSchema(values)
    plain = ValueSchema(ValueFormat("avro", AVRO))
    assert ValueSchema.from_json(plain.to_json(), values.writers) == plain, "its schemas are in no registry"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "xml", "schema": "", "writers": null}'])
def test_another_text(text):
    with pytest.raises(ValueError, match=r"its property sparklog\.values is not as an offload writes it"):
        ValueSchema.from_json(text)
