package dev.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** The numbers that stand in Java are those of leasehold.h. */
class HeaderTest {
    private static final Path HEADER = Path.of("..", "..", "include", "leasehold.h");

    /** The constants whose name begins so, by what follows. */
    private static Map<String, Integer> constants(String prefix) throws IOException {
        var found = new TreeMap<String, Integer>();
        var line = Pattern.compile("(?m)^#define LEASEHOLD_" + prefix + "([A-Z_]+) \\(?(-?[0-9]+)\\)?$")
                .matcher(Files.readString(HEADER));
        while (line.find()) {
            found.put(line.group(1), Integer.parseInt(line.group(2)));
        }
        assertTrue(found.size() > 1, "the header looks different now: " + found);
        return found;
    }

    /** One version for all: a jar says of which library it is. */
    @Test
    void theVersionIsTheHeaders() throws IOException {
        String header = Files.readString(HEADER);
        String version = header.replaceAll("(?s).*#define LEASEHOLD_VERSION \"([^\"]*)\".*", "$1");
        for (String pom : new String[] {"pom.xml", "bench/pom.xml", "../../examples/java/pom.xml"}) {
            String project = Files.readString(Path.of(pom));
            assertEquals(version, project.replaceAll("(?s).*?<version>(.*?)</version>.*", "$1"), pom);
        }
    }

    @Test
    void statusesAreTheHeaders() throws IOException {
        var expected = constants("ERR_");
        for (String outcome : new String[] {"BUSY", "TIMEOUT", "INTERRUPTED", "LOST", "UNKNOWN"}) {
            expected.put(outcome, constants("").get(outcome));
        }
        var found = new TreeMap<String, Integer>();
        for (Status status : Status.values()) {
            found.put(status.name(), status.code());
        }
        found.remove("OTHER");
        assertEquals(expected, found);
        assertEquals(Status.OTHER, Status.of(-1000));
        assertTrue(Status.BUSY.isRetriable());
    }

    @Test
    void eventsAreTheHeaders() throws IOException {
        var kinds = new TreeMap<String, Integer>(Map.of("NONE", 0));
        for (LeaseEvent.Kind kind : LeaseEvent.Kind.values()) {
            kinds.put(kind.name(), kind.code);
        }
        kinds.remove("OTHER");
        assertEquals(constants("EVENT_"), kinds);

        var reasons = new TreeMap<String, Integer>();
        for (LeaseEvent.Reason reason : LeaseEvent.Reason.values()) {
            reasons.put(reason.name(), reason.code);
        }
        reasons.remove("OTHER");
        assertEquals(constants("LOSS_"), reasons);

        var unknown = new LeaseEvent(77, 78, new byte[] {'x'}, 1, 2, "");
        assertEquals(LeaseEvent.Kind.OTHER, unknown.kind());
        assertEquals(LeaseEvent.Reason.OTHER, unknown.reason());
    }

    @Test
    void statesOfElectionsAndEndsOfTermsAreTheHeaders() throws IOException {
        var states = new TreeMap<String, Integer>();
        for (Election.State state : Election.State.values()) {
            states.put(state.name(), state.ordinal());
        }
        states.remove("OTHER");
        assertEquals(constants("ELECTION_"), states);
        var ends = new TreeMap<String, Integer>(Map.of("LASTS", 0));
        for (Term.End end : Term.End.values()) {
            ends.put(end.name(), end.code);
        }
        ends.remove("OTHER");
        assertEquals(constants("TERM_"), ends);
    }

    @Test
    void waitModesAreTheHeaders() throws IOException {
        var found = new TreeMap<String, Integer>();
        for (WaitMode mode : WaitMode.values()) {
            found.put(mode.name(), mode.code);
        }
        assertEquals(constants("WAIT_MODE_"), found);
    }

    @Test
    void countersAreTheHeaders() throws IOException {
        var found = new TreeMap<String, Integer>();
        int number = 1;
        for (var component : Counters.class.getRecordComponents()) {
            String name = component.getName().replaceAll("([A-Z])", "_$1").toUpperCase(Locale.ROOT);
            found.put(name, number++);
        }
        assertEquals(constants("COUNTER_"), found);
    }
}
