package dev.leasehold.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import dev.leasehold.LeaseholdClient;
import dev.leasehold.LeaseholdException;
import dev.leasehold.MemoryStore;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import org.junit.platform.launcher.listeners.TestExecutionSummary;

/** The extension, with JUnit itself. */
@ExtendWith(MemoryStoreExtension.class)
class MemoryStoreExtensionTest {
    private static final Set<String> SEEN = new HashSet<>();
    private static LeaseholdClient former;

    private MemoryStore before;

    @BeforeEach
    void sees(MemoryStore store) {
        before = store;
    }

    @AfterEach
    void seesTheSame(MemoryStore store) {
        assertSame(before, store);
    }

    @RepeatedTest(3)
    void eachTestHasAFreshStoreAndClientsThatAreClosedAfterIt(
            MemoryStore store, LeaseholdClient one, LeaseholdClient other) {
        assertSame(before, store);
        assertTrue(SEEN.add(store.url()));
        assertEquals(List.of(), store.held());
        assertNotSame(one, other);
        assertTrue(one.lock("a").tryAcquire().isValid());
        assertNull(other.lock("a").tryAcquire());
        if (former != null) {
            assertNotEquals(former.store(), store.url());
            assertThrows(LeaseholdException.class, former::ping);
        }
        former = one;
    }

    @Test
    void aTestThatFailsItsStoreLeavesNothingToTheNext(MemoryStore store, LeaseholdClient client) {
        store.busy("orders:42");
        assertNull(client.lock("orders:42").tryAcquire());
        store.pause();
    }

    // ---- Classes whose tests have to fail -------------------------------------------------------

    private static TestExecutionSummary run(Class<?> tests) {
        var summary = new SummaryGeneratingListener();
        var request = LauncherDiscoveryRequestBuilder.request().selectors(selectClass(tests)).build();
        LauncherFactory.create().execute(request, summary);
        return summary.getSummary();
    }

    private static List<String> failures(TestExecutionSummary summary) {
        return summary.getFailures().stream()
                .map(failure -> failure.getTestIdentifier().getDisplayName() + ": "
                        + failure.getException().getMessage().replaceAll("memory:\\S+:", "URL:"))
                .collect(Collectors.toList());
    }

    static class Leaves {
        @RegisterExtension
        static final MemoryStoreExtension STORE = MemoryStoreExtension.released();

        @Test
        void releases(LeaseholdClient client) {
            client.lock("orders:42").tryAcquire().release();
        }

        @Test
        void forgets(LeaseholdClient client) {
            assertTrue(client.lock("orders:42").tryAcquire().isValid());
        }

        @Test
        void fails(LeaseholdClient client) {
            assertFalse(client.lock("orders:42").tryAcquire().isValid(), "it is valid");
        }

        @Test
        void hasNoStore() {}
    }

    @Test
    void aTestThatLeavesALockHeldFailsIfThatIsAsked() {
        var summary = run(Leaves.class);
        assertEquals(2, summary.getTestsSucceededCount());
        assertEquals(
                Set.of(
                        "forgets(LeaseholdClient): not every lock was released; locks held in URL: 'orders:42'",
                        "fails(LeaseholdClient): it is valid ==> expected: <false> but was: <true>"),
                Set.copyOf(failures(summary)));
    }

    @ExtendWith(MemoryStoreExtension.class)
    static class ForAll {
        @BeforeAll
        static void takes(MemoryStore store) {
            assertNull(store);
        }

        @Test
        void isNeverRun() {}
    }

    @Test
    void aStoreForAllTestsOfAClassIsRefusedWithWhatToDo() {
        var summary = run(ForAll.class);
        assertEquals(0, summary.getTestsStartedCount());
        String said = failures(summary).get(0);
        assertTrue(said.contains("a MemoryStore belongs to one test"), said);
        assertTrue(said.contains("MemoryStore.create()"), said);
    }
}
