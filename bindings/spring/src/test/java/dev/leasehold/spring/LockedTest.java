package dev.leasehold.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.leasehold.Lease;
import dev.leasehold.LeaseTimeoutException;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.MemoryStore;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import kotlin.coroutines.Continuation;
import org.aopalliance.intercept.MethodInterceptor;
import org.junit.jupiter.api.Test;
import org.springframework.aop.Advisor;
import org.springframework.aop.framework.ProxyFactory;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.MapPropertySource;
import reactor.core.publisher.Mono;

/** What {@code @Locked} accepts and what it refuses, without Spring Boot and without transactions. */
class LockedTest {
    @Configuration
    @EnableLocked
    static class Locks {
        @Bean
        LeaseholdClient leasehold() {
            return LeaseholdClient.connect(MemoryStore.named("locked").url());
        }
    }

    private static AnnotationConfigApplicationContext context(Class<?>... beans) {
        var context = new AnnotationConfigApplicationContext();
        context.getEnvironment().getPropertySources()
                .addFirst(new MapPropertySource("test", Map.of("shop.locks", "shop", "shop.wait", "50ms")));
        context.register(Locks.class);
        context.register(beans);
        context.refresh();
        return context;
    }

    private static Throwable rootOf(Class<?> bean) {
        Throwable thrown = assertThrows(RuntimeException.class, () -> context(bean).close());
        while (thrown.getCause() != null) {
            thrown = thrown.getCause();
        }
        return thrown;
    }

    record Order(long id) {}

    static class Shop {
        @Locked(name = "order:#{#id}")
        public String byName(Long id) {
            return CurrentLease.get().lock().name();
        }

        @Locked(name = "${shop.locks}:#{#p0.id()}:#{#p1[0]}", waitAtMost = "${shop.wait}")
        public String byExpression(Order order, int[] lines) {
            return CurrentLease.get().lock().name();
        }

        @Locked(name = "nightly", ttl = "PT20S", waitAtMost = "0s", maxHold = "2h")
        public String fixed() {
            return CurrentLease.get().lock().name();
        }

        @Locked(name = "#{#order}")
        public void byObject(Object order) {}

        @Locked(name = "order:#{#nobody.id}")
        public void unknown(long id) {}

        @Locked(name = "order:#{#id}")
        public String inner(Long id) {
            return byName(id);
        }

        @Locked(name = "nightly")
        public void interruptible() throws InterruptedException {}

        public boolean isLocked() {
            try {
                return CurrentLease.fence() > 0;
            } catch (IllegalStateException e) {
                return false;
            }
        }
    }

    @Test
    void theNameIsMadeOfParametersAndProperties() {
        try (var context = context(Shop.class)) {
            Shop shop = context.getBean(Shop.class);
            assertEquals("order:17", shop.byName(17L));
            assertEquals("shop:4:9", shop.byExpression(new Order(4), new int[] {9}));
            assertEquals("nightly", shop.fixed());
            assertEquals("order:17", shop.inner(17L));
            assertFalse(shop.isLocked());
        }
    }

    @Test
    void itWaitsForTheLockNoLongerThanItSays() throws Exception {
        try (var context = context(Shop.class)) {
            LeaseholdClient client = context.getBean(LeaseholdClient.class);
            Shop shop = context.getBean(Shop.class);
            try (Lease lease = client.lock("nightly").acquire()) {
                assertThrows(LeaseTimeoutException.class, shop::fixed);
                assertTrue(lease.isValid());
            }
            assertEquals("nightly", shop.fixed());
        }
    }

    @Test
    void anInterruptIsToldAsTheMethodCanTellIt() {
        try (var context = context(Shop.class)) {
            Shop shop = context.getBean(Shop.class);
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, shop::interruptible);
            assertFalse(Thread.interrupted());
            Thread.currentThread().interrupt();
            var thrown = assertThrows(LockInterruptedException.class, shop::fixed);
            assertTrue(Thread.interrupted());
            assertTrue(thrown.getMessage().contains("nightly"), thrown.getMessage());
            assertFalse(context.getBean(LeaseholdClient.class).lock("nightly").inspect().isHeld());
        }
    }

    static class Till {
        @Locked(name = "nightly")
        public void run(Runnable inner) {
            inner.run();
        }
    }

    @Configuration
    @EnableLocked
    static class Elsewhere {
        @Bean
        LeaseholdClient leasehold() {
            return LeaseholdClient.connect(MemoryStore.named("elsewhere").url());
        }
    }

    @Test
    void theSameNameInAnotherContextIsAnotherLock() {
        try (var context = context(Till.class);
                var elsewhere = new AnnotationConfigApplicationContext(Elsewhere.class, Till.class)) {
            var theirs = elsewhere.getBean(LeaseholdClient.class);
            Till there = elsewhere.getBean(Till.class);
            context.getBean(Till.class).run(() -> {
                assertFalse(theirs.lock("nightly").inspect().isHeld());
                there.run(() -> assertTrue(theirs.lock("nightly").inspect().isHeld()));
            });
        }
    }

    /** Its proxy has no target, as that of an HTTP client. */
    interface Remote {
        @Locked(name = "remote:#{#p0}")
        String call(long id);
    }

    @Test
    void aProxyWithoutATargetIsLockedToo() {
        try (var context = context(Shop.class)) {
            var proxy = new ProxyFactory(Remote.class, (MethodInterceptor) call -> CurrentLease.get().lock().name());
            proxy.addAdvisor(0, context.getBean("leaseholdLockedAdvisor", Advisor.class));
            assertEquals("remote:5", ((Remote) proxy.getProxy()).call(5));
        }
    }

    @Test
    void anExpressionThatNamesNothingIsRefused() {
        try (var context = context(Shop.class)) {
            Shop shop = context.getBean(Shop.class);
            assertSays("Shop.byName() has a name in which #{#id} is null", () -> shop.byName(null));
            assertSays("Shop.byObject() has a name in which #{#order} is a java.lang.Object without a toString()",
                    () -> shop.byObject(new Object()));
            assertSays("Shop.byObject() has a name in which #{#order} is empty", () -> shop.byObject(""));
            assertSays("Shop.byObject() has a name in which #{#order} is null", () -> shop.byObject(Optional.empty()));
            shop.byObject(Optional.of(4));
            assertSays("Shop.unknown() cannot evaluate #{#nobody.id}", () -> shop.unknown(1));
            assertFalse(context.getBean(LeaseholdClient.class).lock("order:").inspect().isHeld());
        }
    }

    private static void assertSays(String expected, Runnable call) {
        String said = assertThrows(IllegalArgumentException.class, call::run).getMessage();
        assertTrue(said.startsWith("the @Locked method " + expected), said);
    }

    static class PrivateMethod {
        @Locked(name = "n")
        private void run() {}

        @Override
        public String toString() {
            run();
            return "";
        }
    }

    static class FinalMethod {
        @Locked(name = "n")
        public final void run() {}
    }

    static class StaticMethod {
        @Locked(name = "n")
        public static void run() {}
    }

    static class NoDuration {
        @Locked(name = "n", ttl = "ten seconds")
        public void run() {}
    }

    static class NoName {
        @Locked(name = " ")
        public void run() {}
    }

    static class NoTemplate {
        @Locked(name = "order:#{#id")
        public void run() {}
    }

    static class NoProperty {
        @Locked(name = "${shop.nothing}")
        public void run() {}
    }

    static class Promise {
        @Locked(name = "n")
        public CompletableFuture<String> run() {
            return null;
        }
    }

    static class Reactive {
        @Locked(name = "n")
        public Mono<String> run() {
            return null;
        }
    }

    static class Suspended {
        @Locked(name = "n")
        public Object run(long id, Continuation<? super String> then) {
            return null;
        }
    }

    static final class FinalClass {
        @Locked(name = "n")
        public void run() {}
    }

    @Test
    void whatSpringCannotLockIsAnErrorWhenTheBeanIsMade() {
        for (var wrong : Map.of(
                PrivateMethod.class,
                "the @Locked method PrivateMethod.run() is private, so Spring cannot lock its calls",
                FinalMethod.class, "the @Locked method FinalMethod.run() is final, so Spring cannot lock its calls",
                StaticMethod.class, "the @Locked method StaticMethod.run() is static, so Spring cannot lock its calls",
                NoDuration.class, "the @Locked method NoDuration.run() has ttl = \"ten seconds\", which is no duration",
                NoName.class, "the @Locked method NoName.run() has no name",
                NoTemplate.class, "the @Locked method NoTemplate.run() has a name that is no template",
                // By Spring itself.
                FinalClass.class, "Cannot subclass final class").entrySet()) {
            String said = rootOf(wrong.getKey()).getMessage();
            assertTrue(said.startsWith(wrong.getValue()), said);
        }
    }

    @Test
    void whatReturnsBeforeItsWorkIsDoneIsAnErrorToo() {
        String early = ", so its lock would be released before the work is done";
        Map.of(
                Promise.class, "Promise.run() returns a java.util.concurrent.CompletableFuture" + early,
                Reactive.class, "Reactive.run() returns a reactor.core.publisher.Mono" + early,
                Suspended.class, "Suspended.run() is a suspend function" + early)
                .forEach((bean, expected) -> {
                    String said = rootOf(bean).getMessage();
                    assertTrue(said.startsWith("the @Locked method " + expected), said);
                });
    }

    @Test
    void aPropertyThatNothingSetsIsAnError() {
        String said = rootOf(NoProperty.class).getMessage();
        String expected = "NoProperty.run() has the name \"${shop.nothing}\", of which no property sets";
        assertTrue(said.startsWith("the @Locked method " + expected), said);
    }
}
