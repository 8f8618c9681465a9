package dev.leasehold.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.leasehold.Fences;
import dev.leasehold.Lease;
import dev.leasehold.LeaseLostException;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.spring.CurrentLease;
import dev.leasehold.spring.Locked;
import java.io.IOException;
import java.sql.Connection;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiConsumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.jdbc.core.ConnectionCallback;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.transaction.annotation.Transactional;

/** Locks and transactions of a program with Spring Boot, on a PostgreSQL that has both its rows and its locks. */
class LockedTransactionTest {
    private static final AtomicLong SKUS = new AtomicLong();
    private static Process kit;
    private static ConfigurableApplicationContext context;
    private static ExecutorService threads;

    private final long sku = SKUS.incrementAndGet();
    private final Stock stock = context.getBean(Stock.class);
    private final Careless careless = context.getBean(Careless.class);
    private final LeaseholdClient client = context.getBean(LeaseholdClient.class);
    private final JdbcTemplate jdbc = context.getBean(JdbcTemplate.class);

    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class App {
        @Bean
        Stock stock(JdbcTemplate jdbc) {
            return new Stock(jdbc);
        }

        @Bean
        Careless careless(JdbcTemplate jdbc, LeaseholdClient client) {
            return new Careless(jdbc, client);
        }

        @Bean
        Order order() {
            return new Order();
        }
    }

    /** Reads a number, and writes one less: nobody else may do so between. */
    private static void sellOne(JdbcTemplate jdbc, long sku, Runnable hasRead) {
        Integer count = jdbc.queryForObject("SELECT count FROM stock WHERE sku = ?", Integer.class, sku);
        hasRead.run();
        jdbc.update("UPDATE stock SET count = ? WHERE sku = ?", count - 1, sku);
    }

    static class Stock {
        private final JdbcTemplate jdbc;

        Stock(JdbcTemplate jdbc) {
            this.jdbc = jdbc;
        }

        @Locked(name = "stock:#{#sku}", ttl = "30s", waitAtMost = "30s")
        @Transactional
        public void sell(long sku, Runnable hasRead) {
            sellOne(jdbc, sku, hasRead);
        }

        /** For a loss on purpose, which the renewal after a third of the ttl notices. */
        @Locked(name = "stock:#{#sku}", ttl = "3s")
        @Transactional
        public void sellBriefly(long sku, Runnable hasRead) {
            sellOne(jdbc, sku, hasRead);
        }

        @Locked(name = "stock:#{#sku}")
        @Transactional
        public void sellWithFence(long sku) {
            jdbc.execute((ConnectionCallback<Void>) (Connection connection) -> {
                Fences.check(connection, "stock:" + sku, CurrentLease.fence());
                return null;
            });
            sellOne(jdbc, sku, () -> {});
        }
    }

    /** Releases within the transaction. */
    static class Careless {
        private final JdbcTemplate jdbc;
        private final LeaseholdClient client;

        Careless(JdbcTemplate jdbc, LeaseholdClient client) {
            this.jdbc = jdbc;
            this.client = client;
        }

        @Transactional
        public void sell(long sku, Runnable hasRead, Runnable hasReleased) throws InterruptedException {
            try (Lease lease = client.lock("stock:" + sku).acquire()) {
                assertTrue(lease.isValid());
                sellOne(jdbc, sku, hasRead);
            }
            hasReleased.run();
        }
    }

    /** Begins the transaction before the lock. */
    static class Order {
        @Transactional
        public void sellTwice(BiConsumer<Long, Runnable> sell, long sku, Runnable hasSold) {
            sell.accept(sku, () -> {});
            sell.accept(sku, hasSold);
        }
    }

    @BeforeAll
    static void start() throws IOException {
        String program = System.getenv().getOrDefault("KIT_PROGRAM", "../../tests/kit/run");
        kit = new ProcessBuilder(program, "postgres").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String[] parts = kit.inputReader().readLine().split("[= ]")[1].split("://|@", 3);
        context = new SpringApplicationBuilder(App.class)
                .web(WebApplicationType.NONE)
                // LEASEHOLD_URL is of other tests.
                .initializers(each -> each.getEnvironment().getPropertySources().remove("systemEnvironment"))
                .properties("spring.datasource.url=jdbc:postgresql://" + parts[2],
                        "spring.datasource.username=" + parts[1],
                        "leasehold.initialize=true",
                        "spring.main.banner-mode=off",
                        "logging.level.root=warn")
                .run();
        threads = Executors.newCachedThreadPool();
        context.getBean(JdbcTemplate.class).execute("CREATE TABLE stock (sku BIGINT PRIMARY KEY, count INTEGER);"
                + "CREATE TABLE leasehold_fences"
                + " (name TEXT PRIMARY KEY, fence BIGINT NOT NULL, writes BIGINT NOT NULL)");
    }

    @AfterAll
    static void stop() throws IOException {
        threads.shutdownNow();
        context.close();
        kit.getOutputStream().close();
    }

    private void stock(int count) {
        jdbc.update("INSERT INTO stock VALUES (?, ?)", sku, count);
    }

    private int stock() {
        return jdbc.queryForObject("SELECT count FROM stock WHERE sku = ?", Integer.class, sku);
    }

    private static Future<?> run(Callable<?> call) {
        return threads.submit(call);
    }

    private static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void aReleaseBeforeTheCommitLosesAnUpdate() throws Exception {
        stock(20);
        var secondHasRead = new CountDownLatch(1);
        var second = new ArrayList<Future<?>>();
        // The lock is free, and the transaction has not committed: the second one reads what it was.
        careless.sell(sku, () -> {}, () -> {
            second.add(run(() -> {
                careless.sell(sku, secondHasRead::countDown, () -> {});
                return null;
            }));
            await(secondHasRead);
        });
        second.get(0).get(60, TimeUnit.SECONDS);
        assertEquals(19, stock(), "two were sold");
    }

    @Test
    void aLockedMethodIsReleasedAfterItsCommit() throws Exception {
        stock(20);
        var secondHasRead = new CountDownLatch(1);
        var second = new ArrayList<Future<?>>();
        stock.sell(sku, () -> {
            second.add(run(() -> {
                stock.sell(sku, secondHasRead::countDown);
                return null;
            }));
            try {
                assertFalse(secondHasRead.await(300, TimeUnit.MILLISECONDS));
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        second.get(0).get(60, TimeUnit.SECONDS);
        assertEquals(18, stock());
    }

    @Test
    void noUpdateIsLostByManyThreads() throws Exception {
        stock(100);
        var sellers = new ArrayList<Future<?>>();
        for (int i = 0; i < 4; i++) {
            sellers.add(run(() -> {
                for (int sold = 0; sold < 10; sold++) {
                    stock.sell(sku, Thread::yield);
                    stock.sellWithFence(sku);
                }
                return null;
            }));
        }
        for (Future<?> seller : sellers) {
            seller.get(60, TimeUnit.SECONDS);
        }
        assertEquals(20, stock());
    }

    @Test
    void aTransactionOfTheCallerKeepsTheLockUntilItsEnd() throws Exception {
        stock(20);
        context.getBean(Order.class).sellTwice(stock::sell, sku, () -> {
            assertNull(elsewhere(() -> client.lock("stock:" + sku).tryAcquire()));
        });
        assertEquals(18, stock());
        client.lock("stock:" + sku).tryAcquire().release();
        // Also after a rollback.
        var order = context.getBean(Order.class);
        assertThrows(IllegalStateException.class, () -> order.sellTwice(stock::sell, sku, () -> {
            throw new IllegalStateException("sold out");
        }));
        assertEquals(18, stock());
        client.lock("stock:" + sku).tryAcquire().release();
    }

    @Test
    void aLossRollsBackATransactionOfTheCaller() {
        stock(20);
        var order = context.getBean(Order.class);
        assertThrows(LeaseLostException.class, () -> order.sellTwice(stock::sellBriefly, sku, this::lose));
        assertEquals(20, stock());
    }

    @Test
    void aLossIsToldAtTheEndOfAMethod() {
        stock(20);
        assertThrows(LeaseLostException.class, () -> stock.sellBriefly(sku, this::lose));
        assertEquals(19, stock(), "the transaction has committed");
        // Its own exception comes first.
        var thrown = assertThrows(IllegalStateException.class, () -> stock.sellBriefly(sku, () -> {
            lose();
            throw new IllegalStateException("sold out");
        }));
        assertEquals(List.of(LeaseLostException.class), List.of(thrown.getSuppressed()[0].getClass()));
        assertEquals(19, stock());
    }

    private void lose() {
        Lease lease = CurrentLease.get();
        assertTrue(client.lock("stock:" + sku).breakHeld("an operator").isPresent());
        while (lease.isValid()) {
            Thread.onSpinWait();
        }
    }

    private static <T> T elsewhere(Callable<T> call) {
        try {
            return threads.submit(call).get(60, TimeUnit.SECONDS);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
