"""The Spark data source ``format("sparklog")``: Spark's Kafka source's options and schema, without a JAR."""
