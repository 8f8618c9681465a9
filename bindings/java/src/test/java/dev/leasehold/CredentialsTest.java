package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Credentials that a program looks up while it runs, and that end. */
class CredentialsTest {
    /** A new secret comes so often, is told to be good for so long, and so many come. */
    private static final Duration EVERY = ofSeconds(2);

    private static final Duration LIFE = ofSeconds(6);
    private static final int ROUNDS = 5;
    private static final Duration LIMIT = ofSeconds(60);
    /** The lock is acquired more often than this. A slow machine gets more rounds for it. */
    private static final int TURNS = 20;

    private final String name = Names.fresh();

    /** Stands in for the maker of tokens of a cloud. */
    private static final class Maker implements Credentials {
        private final List<Endpoint> asked = new CopyOnWriteArrayList<>();
        private Login newest;

        /** The server knows it before anybody is told. */
        synchronized void next(Login login, Eventually.Test change) throws Exception {
            change.run();
            newest = login;
        }

        @Override
        public Login lookUp(Endpoint endpoint) {
            asked.add(endpoint);
            synchronized (this) {
                return newest;
            }
        }
    }

    /** Makes the server know the secret of a round, and says what to log in with. */
    private interface Rotation {
        void turn(int round) throws Exception;
    }

    private static LeaseholdClient open(String url, Credentials credentials) {
        return LeaseholdClient.configure(url).credentials(credentials).ioTimeout(ofSeconds(20)).connect();
    }

    /**
     * Two threads acquire one lock in turns, so that one of them waits and is told; one lease is held, and
     * lives by its renewals. Meanwhile the credentials change again and again.
     */
    private void livesThrough(LeaseholdClient client, Rotation rotation) throws Exception {
        var over = new AtomicBoolean();
        var turns = new AtomicInteger();
        var failed = new AtomicReference<Throwable>();
        Lease held = client.lock(name + ":held").ttl(ofSeconds(9)).acquire();
        Runnable takeTurns = () -> {
            while (!over.get()) {
                try (Lease lease = client.lock(name).waitAtMost(LIMIT).acquire()) {
                    turns.incrementAndGet();
                    Thread.sleep(5);
                } catch (Exception | Error e) {
                    failed.compareAndSet(null, e);
                    return;
                }
            }
        };
        var threads = List.of(new Thread(takeTurns), new Thread(takeTurns));
        threads.forEach(Thread::start);
        long start = System.nanoTime();
        // Without a next secret, the last one would end while the test waits.
        for (int round = 1; round <= ROUNDS || turns.get() <= TURNS; round++) {
            if (failed.get() != null || System.nanoTime() - start > LIMIT.toNanos()) {
                break;
            }
            Thread.sleep(EVERY.toMillis());
            rotation.turn(round);
        }
        over.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        assertNull(failed.get(), () -> failed.get().toString());
        assertTrue(turns.get() > TURNS, turns + " turns");
        assertTrue(held.isValid());
        held.release();
    }

    /** Each secret has a user of its own; a Redis hangs up on each connection of one who is deleted. */
    @Test
    void noLeaseIsLostAndNoAcquireFailsWhileUserAndSecretChange() throws Exception {
        try (var redis = RedisServer.start()) {
            var maker = new Maker();
            Rotation add = round -> {
                var login = new Credentials.Login("app" + round, "p" + round, Instant.now().plus(LIFE));
                maker.next(login, () -> allow(redis, login.user(), login.secret()));
                if (round >= 3) {
                    redis.command("ACL", "DELUSER", "app" + (round - 3));
                }
            };
            add.turn(0);
            try (var client = open(redis.url(), maker)) {
                livesThrough(client, add);
            }
            assertTrue(maker.asked.size() >= 3, maker.asked.toString());
            assertEquals("127.0.0.1", maker.asked.get(0).host());
            assertTrue(redis.url().endsWith(":" + maker.asked.get(0).port()), maker.asked.toString());
            assertNull(maker.asked.get(0).user());
        }
    }

    private static void allow(RedisServer redis, String user, String secret) {
        String[] rights = {"on", "allkeys", "allchannels", "allcommands"};
        String done = redis.command("ACL", "SETUSER", user, ">" + secret, rights[0], rights[1], rights[2], rights[3]);
        assertEquals("+OK", done);
    }

    /** A user with one password at a time: each connection that is made shows the newest. */
    private void passwordsChange(String url, Connection database, String change) throws Exception {
        var maker = new Maker();
        Rotation alter = round -> {
            String password = "p" + round;
            var login = new Credentials.Login(null, password, Instant.now().plus(LIFE), true);
            maker.next(login, () -> sql(database, change + " '" + password + "'"));
        };
        alter.turn(0);
        try (var client = open(url, maker)) {
            livesThrough(client, alter);
        }
        assertTrue(maker.asked.size() >= 3, maker.asked.toString());
        assertEquals("app", maker.asked.get(0).user());
    }

    private static void sql(Connection database, String statement) throws SQLException {
        try (var of = database.createStatement()) {
            of.execute(statement);
        }
    }

    @Test
    void passwordsOfAMariaDbChange() throws Exception {
        try (var kit = new Kit("mysql");
                var store = LeaseholdClient.connect(kit.url())) {
            store.initialize(false);
            String[] parts = kit.url().split("://|@|:|/");
            String place = "127.0.0.1:" + kit.ports().get(0) + "/" + parts[parts.length - 1];
            try (var database = DriverManager.getConnection("jdbc:mariadb://" + place, parts[1], null)) {
                sql(database, "CREATE USER app@'%' IDENTIFIED BY 'none'");
                sql(database, "GRANT ALL ON *.* TO app@'%'");
                passwordsChange("mysql://app@" + place, database, "ALTER USER app@'%' IDENTIFIED BY");
            }
        }
    }

    @Test
    void passwordsOfAPostgresChange() throws Exception {
        try (var kit = new Kit("postgres");
                var store = LeaseholdClient.connect(kit.url())) {
            store.initialize(false);
            String[] parts = kit.url().split("://|@|:|/");
            String place = "127.0.0.1:" + kit.ports().get(0) + "/" + parts[parts.length - 1];
            try (var database = DriverManager.getConnection("jdbc:postgresql://" + place, parts[1], null)) {
                sql(database, "CREATE ROLE app LOGIN SUPERUSER");
                askForPasswords(database);
                String nobodys = "postgres://app:wrong@" + place;
                Eventually.holds(LIMIT, () -> {
                    try (var client = LeaseholdClient.connect(nobodys)) {
                        client.ping();
                        return false; // the rules are read soon after
                    } catch (LeaseholdException e) {
                        return e.status() == Status.AUTH;
                    }
                });
                passwordsChange("postgres://app@" + place, database, "ALTER ROLE app PASSWORD");
            }
        }
    }

    /** Of the user of this test, and of no other. */
    private static void askForPasswords(Connection database) throws Exception {
        try (var of = database.createStatement();
                var shown = of.executeQuery("SHOW hba_file")) {
            assertTrue(shown.next());
            Path rules = Path.of(shown.getString(1));
            Files.writeString(rules, "host all app all scram-sha-256\n" + Files.readString(rules));
        }
        sql(database, "SELECT pg_reload_conf()");
    }

    // ---- what goes wrong -----------------------------------------------------------------------

    private static Credentials returning(String user, String secret, Instant until) {
        return endpoint -> new Credentials.Login(user, secret, until);
    }

    static Stream<Arguments> wrong() {
        Instant later = Instant.now().plusSeconds(3600);
        Credentials sealed = endpoint -> {
            throw new SecurityException("the vault is sealed");
        };
        Credentials fatal = endpoint -> {
            throw new NoClassDefFoundError("com/cloud/Tokens");
        };
        Credentials hostile = endpoint -> {
            throw new IllegalStateException() {
                private static final long serialVersionUID = 1;

                @Override
                public String toString() {
                    throw new IllegalStateException("again");
                }
            };
        };
        return Stream.of(
                Arguments.of(sealed, "java.lang.SecurityException: the vault is sealed"),
                Arguments.of(fatal, "java.lang.NoClassDefFoundError: com/cloud/Tokens"),
                Arguments.of(hostile, "dev.leasehold.CredentialsTest$"),
                Arguments.of((Credentials) endpoint -> null, "it returned null, and not a Credentials.Login"),
                Arguments.of(returning("app", null, later), "the secret that it returned is null"),
                Arguments.of(returning("app", "", later), "returned an empty secret"),
                Arguments.of(returning("app", "a\0b", later), "the secret that it returned has a zero character"),
                Arguments.of(returning("a\ud800b", "a", later), "the user that it returned has half of a surrogate"),
                Arguments.of(
                        returning("app", "a", Instant.ofEpochSecond(1)), "a secret that ended at 1970-01-01T00:00:01Z"),
                Arguments.of(returning("app", "a", Instant.EPOCH), "a secret that ended at 1970-01-01"),
                Arguments.of(returning("app", "a", Instant.MIN), "a secret that ended at 1970-01-01"));
    }

    @ParameterizedTest
    @MethodSource("wrong")
    void whatItDoesWrongIsTheTextOfOneError(Credentials credentials, String says) throws Exception {
        try (var client = open(RedisServer.shared().url(), credentials)) {
            var error = assertThrows(LeaseholdException.class, () -> client.lock(name).tryAcquire());
            assertEquals(Status.AUTH, error.status());
            assertTrue(error.getMessage().contains(says), error.getMessage());
        }
    }

    /** The last secret is used until it ends; then the reason is told, until there is another secret. */
    @Test
    void itMayFailForAWhile() throws Exception {
        RedisServer redis = RedisServer.shared();
        var sealed = new AtomicBoolean();
        Credentials vault = endpoint -> {
            if (sealed.get()) {
                throw new SecurityException("the vault is sealed");
            }
            return new Credentials.Login(name, "any", Instant.now().plusSeconds(3));
        };
        allow(redis, name, "any");
        try (var client = open(redis.url(), vault)) {
            client.lock(name).acquire().release();
            sealed.set(true);
            // Which ends its connections.
            redis.command("ACL", "DELUSER", name);
            Eventually.holds(LIMIT, () -> {
                var error = assertThrows(LeaseholdException.class, () -> client.lock(name).acquire());
                assertEquals(Status.AUTH, error.status());
                return error.getMessage().contains("java.lang.SecurityException: the vault is sealed");
            });
            allow(redis, name, "any");
            sealed.set(false);
            Eventually.holds(LIMIT, () -> {
                try {
                    client.lock(name).acquire().release();
                    return true;
                } catch (LeaseholdException e) {
                    return false;
                }
            });
        } finally {
            redis.command("ACL", "DELUSER", name);
        }
    }

    @Test
    void oneThatDoesNotReturnKeepsACallForItsOwnTimeOnlyAndClosingToo() throws Exception {
        var called = new CountDownLatch(1);
        var letGo = new CountDownLatch(1);
        Credentials stuck = endpoint -> {
            called.countDown();
            letGo.await();
            return new Credentials.Login("default", "any", null);
        };
        try {
            var client = LeaseholdClient.configure(RedisServer.shared().url()).credentials(stuck)
                    .ioTimeout(ofMillis(200)).closeTimeout(ofMillis(200)).connect();
            var error = assertThrows(LeaseholdException.class, () -> client.lock(name).tryAcquire());
            assertEquals(Status.NO_ANSWER, error.status());
            assertTrue(error.getMessage().contains("the credentials callback has not returned"), error.getMessage());
            called.await();
            client.close();
        } finally {
            letGo.countDown();
        }
    }

    @Test
    void itIsForAServerAndAUrlWithoutAPassword() {
        Credentials any = returning("default", "any", null);
        for (String url : List.of("redis://:hunter2@h", "memory:")) {
            var error = assertThrows(LeaseholdException.class, () -> LeaseholdClient.connect(url, any));
            assertEquals(Status.BAD_ARGUMENT, error.status());
            assertTrue(error.getMessage().contains("credentials"), error.getMessage());
            assertTrue(!error.getMessage().contains("hunter2"), error.getMessage());
        }
        assertThrows(NullPointerException.class, () -> LeaseholdClient.connect("redis://h", (Credentials) null));
    }

    // ---- how it is called ----------------------------------------------------------------------

    @Test
    void aSecretIsKeptUntilItsEnd() throws Exception {
        for (Instant end : List.of(Instant.now().plusSeconds(3600), Instant.MAX)) {
            var calls = new AtomicInteger();
            Credentials counted = endpoint -> {
                calls.incrementAndGet();
                return new Credentials.Login("default", "any", end);
            };
            try (var client = open(RedisServer.shared().url(), counted)) {
                client.lock(name).acquire().release();
                client.ping();
                assertEquals(1, calls.get());
            }
        }
    }

    @Test
    void theThreadIsADaemonThatFindsTheServicesOfTheProgram() throws Exception {
        Thread me = Thread.currentThread();
        ClassLoader before = me.getContextClassLoader();
        var seen = new AtomicReference<Thread>();
        var loader = new AtomicReference<ClassLoader>();
        try (var own = new URLClassLoader(new URL[0], before)) {
            me.setContextClassLoader(own);
            Credentials curious = endpoint -> {
                seen.set(Thread.currentThread());
                loader.set(Thread.currentThread().getContextClassLoader());
                assertTrue(Thread.currentThread().isDaemon());
                return new Credentials.Login("default", "any", null);
            };
            try (var client = open(RedisServer.shared().url(), curious)) {
                client.ping();
            }
            assertSame(own, loader.get());
            assertEquals("leasehold-login", seen.get().getName());
        } finally {
            me.setContextClassLoader(before);
        }
    }

    @Test
    void aLoginThatIsLoggedKeepsItsSecret() {
        var login = new Credentials.Login("app", "hunter2", Instant.EPOCH);
        assertEquals("Login(app, valid until 1970-01-01T00:00:00Z)", login.toString());
    }

    // ---- when it is needed no more -------------------------------------------------------------

    /** The callback leads to the client, and so does what a closed one or a builder had. */
    @Test
    void noReferenceIsLeft() throws Exception {
        List<WeakReference<Object>> callbacks = List.of(closed(), forgotten(), neverConnected(), refused());
        Eventually.holds(LIMIT, () -> {
            System.gc();
            return callbacks.stream().allMatch(callback -> callback.get() == null);
        });
    }

    /** What a program may do with the client that it belongs to. */
    private static final class Circle implements Credentials {
        @SuppressWarnings("unused")
        private LeaseholdClient client;

        @Override
        public Login lookUp(Endpoint endpoint) {
            return new Login("default", "any", Instant.now().plusSeconds(1));
        }
    }

    private WeakReference<Object> closed() throws Exception {
        var circle = new Circle();
        try (var client = open(RedisServer.shared().url(), circle)) {
            circle.client = client;
            client.lock(name).acquire().release();
        }
        return new WeakReference<>(circle);
    }

    private WeakReference<Object> forgotten() throws Exception {
        var circle = new Circle();
        circle.client = open(RedisServer.shared().url(), circle);
        circle.client.lock(name).acquire().release();
        return new WeakReference<>(circle);
    }

    private WeakReference<Object> neverConnected() {
        var circle = new Circle();
        LeaseholdClient.configure("redis://h").credentials(new Circle()).credentials(circle);
        return new WeakReference<>(circle);
    }

    private WeakReference<Object> refused() {
        var circle = new Circle();
        assertThrows(LeaseholdException.class, () -> LeaseholdClient.connect("memory:", circle));
        return new WeakReference<>(circle);
    }

    /** Ends in the midst of calls: of one that comes back soon, and of one that does not. */
    static final class Program {
        public static void main(String[] arguments) throws Exception {
            var called = new CountDownLatch(2);
            Credentials slow = endpoint -> {
                called.countDown();
                Thread.sleep(arguments[0].equals("stuck") ? 1_000_000 : 20);
                return new Credentials.Login("default", "any", Instant.now().plusMillis(40));
            };
            var client = LeaseholdClient.configure(arguments[1]).credentials(slow).connect();
            var other = LeaseholdClient.configure(arguments[1]).credentials(slow).connect();
            for (var each : List.of(client, other)) {
                var thread = new Thread(() -> {
                    try {
                        each.ping();
                    } catch (LeaseholdException e) {
                        return; // it is stuck
                    }
                });
                thread.setDaemon(true);
                thread.start();
            }
            called.await();
            if (arguments[0].equals("exit")) {
                System.exit(0);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"return", "exit", "stuck"})
    void aProgramThatEndsInTheMidstOfACallEndsWell(String how) throws Exception {
        ChildJvm.of(Program.class, how, RedisServer.shared().url()).run().succeeded();
    }
}
