import java.io.FileReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * What Kafka's clients do with each of several files of settings: all three of them write, read as a group, and look at it.
 * A line a file, the fields between tabs: its name, "ok" and how many records were read, or what went wrong with its causes.
 */
public class Clients {
    static final int RECORDS = 50;

    static Properties settings(Path file) throws Exception {
        Properties found = new Properties();
        try (FileReader reader = new FileReader(file.toFile())) {
            found.load(reader);
        }
        for (String each : List.of("key", "value")) {
            found.put(each + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            found.put(each + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return found;
    }

    static void write(Properties settings, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            List<Future<?>> sent = new ArrayList<>();
            producer.send(new ProducerRecord<>(topic, "k", "value 0")).get();
            for (int number = 1; number < RECORDS; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, "k", "value " + number)));
            }
            for (Future<?> each : sent) each.get();
        }
    }

    static int read(Properties settings, String topic) {
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        Set<String> found = new HashSet<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            while (found.size() < RECORDS && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500))) found.add(each.value());
            }
            consumer.commitSync();
        }
        return found.size();
    }

    static String use(Path file) {
        String topic = file.getFileName().toString();
        try {
            Properties settings = settings(file);
            write(settings, topic);
            int found = read(settings, topic);
            try (Admin admin = Admin.create(settings)) {
                int committed = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().size();
                return topic + "\tok\t" + found + "\t" + committed;
            }
        } catch (Exception error) {
            return topic + "\t" + told(error);
        }
    }

    static String told(Throwable error) {
        if (error instanceof ExecutionException) return told(error.getCause());
        String own = error.getClass().getSimpleName() + "\t" + error.getMessage();
        return error.getCause() == null ? own : own + "\t" + told(error.getCause());
    }

    static String waited(String file, Future<String> told) throws Exception {
        try {
            return told.get(45, TimeUnit.SECONDS);
        } catch (TimeoutException error) {
            return Path.of(file).getFileName() + "\tno end";
        }
    }

    public static void main(String[] files) throws Exception {
        ExecutorService workers = Executors.newFixedThreadPool(8);
        List<Future<String>> told = new ArrayList<>();
        for (String file : files) told.add(workers.submit(() -> use(Path.of(file))));
        for (int number = 0; number < files.length; number++) {
            System.out.println(waited(files[number], told.get(number)));
        }
        System.exit(0);
    }
}
