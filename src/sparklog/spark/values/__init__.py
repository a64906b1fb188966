"""Keys and values as columns: JSON and Avro."""
