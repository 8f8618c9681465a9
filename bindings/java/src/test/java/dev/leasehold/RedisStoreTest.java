package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** The contract on Redis, and what only a server can do. */
class RedisStoreTest extends StoreContract {
    private final RedisServer redis = RedisServer.shared();

    @Override
    String url() {
        return redis.url();
    }

    @Test
    void aLockThatSomebodyDeletedIsLost() throws Exception {
        String name = Names.fresh();
        try (var client = LeaseholdClient.connect(url());
                var events = client.events()) {
            Lease lease = client.lock(name).ttl(ofSeconds(3)).acquire();
            assertEquals(":1", redis.command("DEL", name));
            LeaseEvent event = events.nextWithin(ofSeconds(20));
            assertEquals(LeaseEvent.Kind.LOST, event.kind());
            assertEquals(LeaseEvent.Reason.NOT_HELD, event.reason());
            assertEquals(name, event.name());
            assertEquals(lease.fence(), event.fence());
            assertFalse(lease.isValid());
            assertThrows(LeaseLostException.class, lease::close);
            assertEquals(1, client.counters().lost());
        }
    }

    @Test
    void aLossThatOnlyItsEndFindsIsToldThen() throws Exception {
        String name = Names.fresh();
        try (var client = LeaseholdClient.connect(url());
                var other = LeaseholdClient.connect(url())) {
            Lease lease = client.lock(name).acquire();
            assertEquals(":1", redis.command("DEL", name));
            assertTrue(other.lock(name).tryAcquire().isValid());
            assertTrue(lease.isValid());
            assertThrows(LeaseLostException.class, lease::close);

            String another = Names.fresh();
            LeaseholdLock lock = client.lock(another).asLock();
            lock.lock();
            assertEquals(":1", redis.command("DEL", another));
            assertThrows(LeaseLostException.class, lock::unlock);
        }
    }

    @Test
    void theSetUpInCodeCounts() throws Exception {
        String name = Names.fresh();
        try (var client = LeaseholdClient.configure(url())
                        .prefix("ü:")
                        .ioTimeout(ofMillis(700))
                        .pool(2)
                        .closeTimeout(ofMillis(300))
                        .connect();
                var lease = client.lock(name).acquire()) {
            assertTrue(lease.isValid());
            assertTrue(redis.exists("ü:" + name));
        }
        try (var client = LeaseholdClient.configure(url()).prefix(new byte[] {'b', ':'}).connect();
                var lease = client.lock(name).acquire()) {
            assertTrue(lease.isValid());
            assertTrue(redis.exists("b:" + name));
        }
        var builder = LeaseholdClient.configure(url());
        String tooMany = assertThrows(LeaseholdException.class, () -> builder.pool(5000)).getMessage();
        assertTrue(tooMany.contains("pool is 5000; it goes from 1 to 1024"), tooMany);
        var brief = LeaseholdClient.configure(url()).maxTtl(ofSeconds(5));
        try (var client = brief.connect()) {
            assertThrows(LeaseholdException.class, () -> client.initialize(false));
            client.lock(Names.fresh()).ttl(ofSeconds(5)).tryAcquire().close();
            String tooLong = assertThrows(LeaseholdException.class, () -> client.lock("n").ttl(ofSeconds(6)))
                    .getMessage();
            assertTrue(tooLong.contains("the ttl is 6 s; it goes from 3 ms to 5 s, this store's max_ttl"), tooLong);
            assertEquals(
                    Status.SEALED, assertThrows(LeaseholdException.class, () -> brief.pool(2)).status());
        }
        var file = LeaseholdClient.configure("sqlite:x");
        assertThrows(LeaseholdException.class, () -> file.guardDataLoss(true));
        var members = List.of("redis://a", "redis://b", "redis://c");
        try (var quorum = LeaseholdClient.connect(members)) {
            assertEquals("redis://a:6379/0,redis://b:6379/0,redis://c:6379/0", quorum.store());
        }
        assertThrows(LeaseholdException.class, () -> LeaseholdClient.connect(members.subList(0, 2)));
        assertThrows(LeaseholdException.class, () -> LeaseholdClient.configure(url()).pool(-1));
    }

    @Test
    void nobodyThereIsAnErrorThatSaysSo() throws Exception {
        try (var server = RedisServer.start();
                var client = LeaseholdClient.connect(server.url())) {
            server.kill();
            var refused = assertThrows(LeaseholdException.class, client::ping);
            assertEquals(Status.REFUSED, refused.status());
            assertTrue(refused.isRetriable());
            assertTrue(refused.getMessage().contains("check that it runs"), refused.getMessage());
        }
    }

    @Test
    void anErrorSaysOnceWhatToDo() {
        try (var client = LeaseholdClient.connect("unix:///nowhere/at/all")) {
            String said = assertThrows(LeaseholdException.class, client::ping).getMessage();
            assertTrue(said.endsWith("unix_socket_directories)"), said);
        }
    }

    @Test
    void badUrlsAreRefusedWithoutTheirPassword() {
        var bad = assertThrows(
                LeaseholdException.class, () -> LeaseholdClient.connect("redis://u:hunter2@localhost?colour=red"));
        assertEquals(Status.BAD_ARGUMENT, bad.status());
        assertFalse(bad.isRetriable());
        assertTrue(bad.getMessage().contains("colour"));
        assertFalse(bad.getMessage().contains("hunter2"));
        assertThrows(NullPointerException.class, () -> LeaseholdClient.connect((String) null));
    }

    @Test
    void aPasswordIsNeededAndNeverShown() {
        try (var server = RedisServer.start("--requirepass", "hunter2")) {
            String right = server.url().replace("//", "//:hunter2@");
            try (var client = LeaseholdClient.connect(right)) {
                client.ping();
                assertFalse(client.store().contains("hunter2"));
                assertFalse(client.toString().contains("hunter2"));
            }
            try (var client = LeaseholdClient.connect(right.replace("hunter2", "hunter3"))) {
                var refused = assertThrows(LeaseholdException.class, client::ping);
                assertEquals(Status.AUTH, refused.status());
                assertFalse(refused.getMessage().contains("hunter3"));
            }
        }
    }

    @Test
    void aKeyOfSomethingElseIsLeftAlone() {
        String name = Names.fresh();
        redis.command("LPUSH", name, "x");
        try (var client = LeaseholdClient.connect(url())) {
            var refused = assertThrows(LeaseholdException.class, () -> client.lock(name).tryAcquire());
            assertEquals(Status.WRONG_TYPE, refused.status());
        }
        redis.command("DEL", name);
    }

    @Test
    void aReleaseThatIsNotConfirmedIsUnknown() throws Exception {
        try (var server = RedisServer.start();
                var client = LeaseholdClient.configure(server.url())
                        .closeTimeout(ofMillis(100))
                        .connect()) {
            Lease asked = client.lock(Names.fresh()).acquire();
            Lease closed = client.lock(Names.fresh()).acquire();
            server.stop(true);
            var unknown = assertThrows(LeaseholdException.class, asked::release);
            assertEquals(Status.UNKNOWN, unknown.status());
            // It was relied on until now, and rightly.
            closed.close();
            assertFalse(closed.isValid());
            server.stop(false);
        }
    }

    @Test
    void theEnvironmentNamesTheStore() throws Exception {
        String output = ChildJvm.of(Environment.class).env("LEASEHOLD_URL", url()).run().succeeded();
        assertTrue(output.contains(url()), output);
    }

    /** Prints where it keeps locks. */
    static final class Environment {
        public static void main(String[] arguments) {
            try (var client = LeaseholdClient.fromEnvironment()) {
                client.ping();
                assertNotNull(client.lock("x"));
                System.out.println(client.store());
            }
        }
    }
}
