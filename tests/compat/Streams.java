import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** Counts the words of the topic "lines" into "counts", exactly once, until it is killed; says what state it restores. */
public class Streams {
    static class Teller implements StateRestoreListener {
        public void onRestoreStart(TopicPartition partition, String store, long from, long end) {}

        public void onBatchRestored(TopicPartition partition, String store, long end, long restored) {}

        public void onRestoreEnd(TopicPartition partition, String store, long restored) {
            System.out.println("restored " + restored);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("state.dir", arguments[1]);
        properties.put("application.id", "words");
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("replication.factor", 1);
        properties.put("commit.interval.ms", 100);
        properties.put("statestore.cache.max.bytes", 0);
        properties.put("default.key.serde", Serdes.StringSerde.class);
        properties.put("default.value.serde", Serdes.StringSerde.class);
        properties.put("consumer.session.timeout.ms", 6000);
        properties.put("consumer.heartbeat.interval.ms", 1000);
        properties.put("consumer.auto.offset.reset", "earliest");
        properties.put("producer.transaction.timeout.ms", 6000);
        properties.put("repartition.purge.interval.ms", 1000);
        // Segments are small, so that much is cleaned, and a batch must fit into one.
        properties.put("producer.batch.size", 2000);
        properties.put("topic.segment.bytes", 4000);
        properties.put("topic.min.cleanable.dirty.ratio", 0.01);
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, Long> counts =
                builder.<String, String>stream("lines")
                        .flatMapValues(line -> Arrays.asList(line.split(" ")))
                        .groupBy((key, word) -> word, Grouped.as("words"))
                        .count(Materialized.as("counts"));
        counts.toStream().mapValues(count -> Long.toString(count)).to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(properties), properties);
        streams.setGlobalStateRestoreListener(new Teller());
        streams.setUncaughtExceptionHandler(
                error -> {
                    error.printStackTrace();
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.start();
        Thread.sleep(Long.MAX_VALUE);
    }
}
