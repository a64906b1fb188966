import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Names of certificates as a JVM prints them, and the users that Kafka's rules make of them. All texts are in base64, and a line in
 * has one answer: "name CERTIFICATE", or "map RULES NAME". What cannot be is answered with "!".
 */
public class Names {
    static byte[] decoded(String text) {
        return Base64.getDecoder().decode(text);
    }

    static String text(String word) {
        return new String(decoded(word), StandardCharsets.UTF_8);
    }

    static String name(String certificate) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        X509Certificate read = (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(decoded(certificate)));
        return read.getSubjectX500Principal().getName();
    }

    static String answer(String[] words) {
        try {
            String said = words[0].equals("name")
                ? name(words[1]) : SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]));
            return "=" + Base64.getEncoder().encodeToString(said.getBytes(StandardCharsets.UTF_8));
        } catch (Exception error) {
            return "!";
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(answer(line.split("\t", -1)));
        }
        out.flush();
    }
}
