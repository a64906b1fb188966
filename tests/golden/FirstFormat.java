import java.io.DataInputStream;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import kafka.javaapi.message.ByteBufferMessageSet;
import kafka.message.CompressionCodec$;
import kafka.message.FileMessageSet;
import kafka.message.Message;

/**
 * Writes a segment file with the classes of Kafka 0.7. Standard input says what, as ints and bytes: how many sets;
 * of each its compression code and how many payloads; of each payload its length and the bytes.
 */
public class FirstFormat {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        FileMessageSet file = new FileMessageSet(new File(args[0]), true);
        for (int sets = in.readInt(); sets > 0; sets--) {
            int code = in.readInt();
            List<Message> messages = new ArrayList<>();
            for (int left = in.readInt(); left > 0; left--) {
                byte[] payload = new byte[in.readInt()];
                in.readFully(payload);
                messages.add(new Message(payload));
            }
            file.append(new ByteBufferMessageSet(CompressionCodec$.MODULE$.getCompressionCodec(code), messages).underlying());
        }
        file.close();
    }
}
