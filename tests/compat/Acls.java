import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import kafka.security.authorizer.AclAuthorizer;
import kafka.zk.AclChangeNode;
import kafka.zk.ResourceZNode;
import kafka.zk.ZkAclStore;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Kafka's AclAuthorizer, without ZooKeeper: it is told lists and asked questions, a line each, the fields between tabs. */
public class Acls {
    static AclAuthorizer authorizer;
    static Map<ResourcePattern, Set<AclEntry>> lists;
    static List<AclBinding> bindings;

    record Caller(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    static <T> scala.collection.immutable.Set<T> asScala(Set<T> set) {
        return scala.jdk.javaapi.CollectionConverters.asScala(set).toSet();
    }

    static void set(String name, Object value) throws Exception {
        Field field = AclAuthorizer.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(authorizer, value);
    }

    static void begin(String[] words) throws Exception {
        authorizer = new AclAuthorizer();
        lists = new HashMap<>();
        bindings = new ArrayList<>();
        Set<KafkaPrincipal> superUsers = new HashSet<>();
        if (!words[1].isEmpty()) superUsers.add(SecurityUtils.parseKafkaPrincipal(words[1]));
        set("superUsers", asScala(superUsers));
        set("shouldAllowEveryoneIfNoAclIsFound", Boolean.parseBoolean(words[2]));
    }

    static ResourcePattern pattern(String[] words) {
        return new ResourcePattern(
            ResourceType.fromString(words[1]), words[2], PatternType.fromString(words[3]));
    }

    static AccessControlEntry entry(String[] words) {
        return new AccessControlEntry(
            words[4], words[5], AclOperation.fromString(words[6]), AclPermissionType.fromString(words[7]));
    }

    static void add(String[] words) {
        ResourcePattern pattern = pattern(words);
        Set<AclEntry> list = lists.computeIfAbsent(pattern, each -> new HashSet<>());
        list.add(new AclEntry(entry(words)));
        bindings.add(new AclBinding(pattern, entry(words)));
        authorizer.updateCache(pattern, new AclAuthorizer.VersionedAcls(asScala(list), 0));
    }

    static Caller caller(String[] words) throws Exception {
        return new Caller(SecurityUtils.parseKafkaPrincipal(words[1]), InetAddress.getByName(words[2]));
    }

    static String answer(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? "yes" : "no";
    }

    static String ask(String[] words) throws Exception {
        ResourcePattern resource = new ResourcePattern(
            ResourceType.fromString(words[4]), words[5], PatternType.LITERAL);
        Action action = new Action(AclOperation.fromString(words[3]), resource, 1, true, true);
        return answer(authorizer.authorize(caller(words), List.of(action)).get(0));
    }

    static String somewhere(String[] words) throws Exception {
        return answer(authorizer.authorizeByResourceType(
            caller(words), AclOperation.fromString(words[3]), ResourceType.fromString(words[4])));
    }

    static String orNull(String word) {
        return word.equals("-") ? null : word;
    }

    /** The numbers of the bindings, in the order in which they were told, that a filter finds. */
    static String find(String[] words) {
        AclBindingFilter filter = new AclBindingFilter(
            new ResourcePatternFilter(
                ResourceType.fromString(words[1]), orNull(words[2]), PatternType.fromString(words[3])),
            new AccessControlEntryFilter(
                orNull(words[4]), orNull(words[5]), AclOperation.fromString(words[6]),
                AclPermissionType.fromString(words[7])));
        Set<AclBinding> found = new HashSet<>();
        authorizer.acls(filter).forEach(found::add);
        StringBuilder numbers = new StringBuilder("found");
        for (int each = 0; each < bindings.size(); each++) {
            if (found.contains(bindings.get(each))) numbers.append(' ').append(each);
        }
        return numbers.toString();
    }

    /** Where and how the list of one entry is kept, and how a change of it is told of. */
    static String znodes(String[] words) {
        ResourcePattern pattern = pattern(words);
        byte[] list = ResourceZNode.encode(asScala(Set.of(new AclEntry(entry(words)))));
        AclChangeNode change = ZkAclStore.apply(pattern.patternType()).changeStore().createChangeNode(pattern);
        return String.join("\t", ResourceZNode.path(pattern), new String(list, StandardCharsets.UTF_8),
            change.path(), new String(change.bytes(), StandardCharsets.UTF_8));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "begin" -> begin(words);
                case "add" -> add(words);
                case "ask" -> out.println(ask(words));
                case "somewhere" -> out.println(somewhere(words));
                case "find" -> out.println(find(words));
                case "znodes" -> out.println(znodes(words));
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }
}
