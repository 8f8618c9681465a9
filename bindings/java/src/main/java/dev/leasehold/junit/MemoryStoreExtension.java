package dev.leasehold.junit;

import dev.leasehold.LeaseholdClient;
import dev.leasehold.MemoryStore;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolutionException;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Gives each test of JUnit 5 a fresh {@link MemoryStore}, and closes it after the test.
 *
 * <pre>{@code
 * @ExtendWith(MemoryStoreExtension.class)
 * class ShopTest {
 *     @Test
 *     void anOrderThatAnotherProcessShips(MemoryStore store, LeaseholdClient client) {
 *         store.busy("orders:42");
 *         assertFalse(new Shop(client).ship(42));
 *     }
 * }
 * }</pre>
 *
 * <p>Test methods, {@code @BeforeEach} and {@code @AfterEach} of one test get the same store. A
 * {@code LeaseholdClient} as a parameter is a new client on it, one for each parameter.
 *
 * <p>To fail a test that leaves a lock held, register it in a field:
 * {@code @RegisterExtension static final MemoryStoreExtension STORE = MemoryStoreExtension.released();}
 */
public final class MemoryStoreExtension implements ParameterResolver, AfterEachCallback {
    private static final ExtensionContext.Namespace NAMESPACE =
            ExtensionContext.Namespace.create(MemoryStoreExtension.class);

    private final boolean released;

    /** For {@code @ExtendWith}: a test may leave locks held. */
    public MemoryStoreExtension() {
        this(false);
    }

    private MemoryStoreExtension(boolean released) {
        this.released = released;
    }

    /**
     * An extension that fails a test which leaves a lock held.
     *
     * @return a value for a field with {@code @RegisterExtension}
     */
    public static MemoryStoreExtension released() {
        return new MemoryStoreExtension(true);
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        Class<?> type = parameter.getParameter().getType();
        return type == MemoryStore.class || type == LeaseholdClient.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        if (context.getTestMethod().isEmpty()) {
            throw new ParameterResolutionException(
                    "a MemoryStore belongs to one test: take it as a parameter of a @Test, @BeforeEach or"
                            + " @AfterEach method, or make one with MemoryStore.create()");
        }
        MemoryStore store = context.getStore(NAMESPACE)
                .getOrComputeIfAbsent(MemoryStore.class, type -> MemoryStore.create(), MemoryStore.class);
        return parameter.getParameter().getType() == MemoryStore.class ? store : store.connect();
    }

    @Override
    public void afterEach(ExtensionContext context) {
        MemoryStore store = context.getStore(NAMESPACE).remove(MemoryStore.class, MemoryStore.class);
        if (store == null) {
            return;
        }
        try (store) {
            // A test that has failed already says more.
            if (released && context.getExecutionException().isEmpty()) {
                store.assertNothingHeld();
            }
        }
    }
}
