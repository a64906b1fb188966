import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** A Kafka 4 client: transactions of both ends with offsets, a fenced one, and what a reader sees of them. */
public class Transactions {
    static String bootstrap, topic;

    static Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (String each : List.of("key", "value")) {
            properties.put(each + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            properties.put(each + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return properties;
    }

    static KafkaProducer<String, String> producer() {
        Properties properties = common();
        properties.put("transactional.id", topic);
        properties.put("linger.ms", 0);
        return new KafkaProducer<>(properties);
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        topic = arguments[1];
        TopicPartition first = new TopicPartition(topic, 0);
        KafkaProducer<String, String> producer = producer();
        producer.initTransactions();
        for (int number = 0; number < 6; number++) {
            producer.beginTransaction();
            String word = number % 3 == 1 ? "aborted" : "committed";
            for (int partition = 0; partition < 2; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, "k", word + " " + number));
            }
            producer.sendOffsetsToTransaction(
                Map.of(first, new OffsetAndMetadata(100 + number)), new ConsumerGroupMetadata(topic));
            if (word.equals("aborted")) producer.abortTransaction();
            else producer.commitTransaction();
        }
        producer.beginTransaction();
        producer.abortTransaction(); // of nothing
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, "k", "left open"));
        producer.flush();
        KafkaProducer<String, String> successor = producer();
        successor.initTransactions();
        try {
            producer.commitTransaction();
            System.out.println("zombie committed");
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            System.out.println("zombie fenced");
        }
        successor.beginTransaction();
        successor.send(new ProducerRecord<>(topic, 0, "k", "committed by the successor"));
        successor.commitTransaction();
        producer.close(Duration.ZERO);
        successor.close();
        read(first);
    }

    static void read(TopicPartition first) {
        Properties properties = common();
        properties.put("group.id", topic);
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            TopicPartition second = new TopicPartition(topic, 1);
            System.out.println("offset " + consumer.committed(java.util.Set.of(first)).get(first).offset());
            consumer.assign(List.of(first, second));
            consumer.seekToBeginning(List.of(first, second));
            Map<TopicPartition, Long> ends = consumer.endOffsets(List.of(first, second));
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                consumer.poll(Duration.ofMillis(200)).forEach(
                    each -> System.out.println(each.partition() + " " + each.value()));
            }
        }
    }
}
