import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Names of certificates as a JVM prints them, and the users that Kafka's rules make of them and of Kerberos principals. All texts are in base64, and a line in
 * has one answer: "name CERTIFICATE", "map RULES NAME", or "kerberos RULES NAME". What cannot be is answered with "!".
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

    static String shortName(String rules, String principal) throws Exception {
        List<String> divided = rules.isBlank() ? List.of() : Arrays.asList(rules.trim().split("\\s*,\\s*", -1));
        return KerberosShortNamer.fromUnparsedRules("REALM.COM", divided).shortName(KerberosName.parse(principal));
    }

    static String answer(String[] words) {
        try {
            String said = switch (words[0]) {
                case "name" -> name(words[1]);
                case "map" -> SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]));
                default -> shortName(text(words[1]), text(words[2]));
            };
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
