package dev.leasehold;

import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mysql.cj.jdbc.MysqlDataSource;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import javax.sql.DataSource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.mariadb.jdbc.MariaDbDataSource;
import org.postgresql.ds.PGSimpleDataSource;
import org.redisson.config.Config;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.jdbc.datasource.LazyConnectionDataSourceProxy;
import org.sqlite.SQLiteDataSource;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisSentinelPool;
import redis.clients.jedis.JedisSentineled;

/** Clients of other libraries, and what each is configured with, on the servers that they connect to. */
class BorrowedSettingsTest {
    private static final String HOST = "127.0.0.1";
    /** Every character that means something in a URL. */
    private static final String PASSWORD = "p@s:s/w?r#d%41&= +é";

    /** All of them lead to one store: who holds a lock by one is seen by the next. */
    private static void leadTo(LeaseholdClient store, Object... settings) throws Exception {
        String name = Names.fresh();
        for (Object each : settings) {
            try (LeaseholdClient client = LeaseholdClient.from(each)) {
                try (Lease lease = client.lock(name).acquire()) {
                    assertTrue(lease.isValid());
                    assertNull(store.lock(name).tryAcquire(), "another store than that of " + client);
                }
                try (Lease lease = store.lock(name).acquire()) {
                    assertNotNull(lease);
                }
            }
        }
    }

    @Test
    void oneRedisWithAUserAndADatabase() throws Exception {
        try (RedisServer redis = RedisServer.start()) {
            int port = Integer.parseInt(redis.url().substring(redis.url().lastIndexOf(':') + 1));
            redis.command("ACL", "SETUSER", "app", "on", ">" + PASSWORD, "~*", "&*", "+@all");
            redis.command("ACL", "SETUSER", "default", "off");
            var address = new HostAndPort(HOST, port);
            var jedis = DefaultJedisClientConfig.builder().user("app").password(PASSWORD).database(3).build();
            RedisURI uri = RedisURI.builder()
                    .withHost(HOST).withPort(port).withDatabase(3)
                    .withAuthentication("app", PASSWORD.toCharArray())
                    .build();
            var redisson = new Config();
            redisson.setUsername("app").setPassword(PASSWORD);
            redisson.useSingleServer().setAddress("redis://" + HOST + ":" + port).setDatabase(3);
            try (var store = LeaseholdClient.from(address, jedis);
                    var pooled = new JedisPooled(address, jedis);
                    var pool = new JedisPool(address, jedis);
                    var lettuce = RedisClient.create(uri)) {
                assertTrue(store.store().endsWith(":" + port + "/3"), store.store());
                leadTo(store, pooled, pool, uri, lettuce, redisson);
                assertEquals("OK", pooled.set("untouched", "by us"));
                pool.close();
                assertRefused("this JedisPool is closed: give a URL", pool);
                pooled.close();
                assertRefused("this JedisPooled is closed: give a URL", pooled);
                lettuce.shutdown();
                assertRefused("this RedisClient is shut down: give a URL", lettuce);
            }
            // The wrong password is known as such, and not shown.
            var wrong = DefaultJedisClientConfig.builder().user("app").password("secret").build();
            try (var client = LeaseholdClient.from(address, wrong)) {
                var refused = assertThrows(LeaseholdException.class, client::ping);
                assertEquals(Status.AUTH, refused.status());
                assertTrue(!refused.getMessage().contains("secret"), refused.getMessage());
            }
        }
    }

    @Test
    void theMasterOfSentinels() throws Exception {
        try (var kit = new Kit("sentinel");
                var store = LeaseholdClient.connect(kit.url())) {
            String master = kit.url().split("/")[3];
            List<Integer> ports = kit.ports().subList(2, 5);
            var names = new java.util.LinkedHashSet<String>();
            var nodes = new java.util.LinkedHashSet<HostAndPort>();
            var redisson = new Config();
            var servers = redisson.useSentinelServers().setMasterName(master);
            var uri = RedisURI.builder().withSentinelMasterId(master);
            for (int port : ports) {
                names.add(HOST + ":" + port);
                nodes.add(new HostAndPort(HOST, port));
                servers.addSentinelAddress("redis://" + HOST + ":" + port);
                uri.withSentinel(HOST, port);
            }
            var plain = DefaultJedisClientConfig.builder().build();
            try (var pool = new JedisSentinelPool(master, names);
                    var client = new JedisSentineled(master, plain, nodes, plain)) {
                leadTo(store, pool, client, uri.build(), redisson);
            }
        }
    }

    @Test
    void theServersOfACluster() throws Exception {
        try (var kit = new Kit("cluster");
                var store = LeaseholdClient.connect(kit.url())) {
            var nodes = Set.of(new HostAndPort(HOST, kit.ports().get(0)), new HostAndPort(HOST, kit.ports().get(1)));
            var plain = DefaultJedisClientConfig.builder().build();
            List<RedisURI> uris = nodes.stream().map(node -> RedisURI.create(HOST, node.getPort())).toList();
            var redisson = new Config();
            nodes.forEach(node -> redisson.useClusterServers().addNodeAddress("redis://" + node));
            var jedis = new JedisCluster(nodes, plain, 3, new ConnectionPoolConfig());
            try (jedis;
                    var lettuce = RedisClusterClient.create(uris);
                    var client = LeaseholdClient.from(nodes, plain)) {
                client.ping();
                leadTo(store, jedis, lettuce, redisson);
            }
            assertRefused("this JedisCluster is closed: give a URL", jedis);
        }
    }

    private static HikariDataSource hikari(String url, String user) {
        var config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setUsername(user);
        config.setInitializationFailTimeout(-1);
        config.setMinimumIdle(0);
        return new HikariDataSource(config);
    }

    @Test
    void aPostgres() throws Exception {
        try (var kit = new Kit("postgres");
                var store = LeaseholdClient.connect(kit.url())) {
            store.initialize(false);
            String[] parts = kit.url().split("://|@|:|/");
            String url = "jdbc:postgresql://" + HOST + ":" + kit.ports().get(0) + "/" + parts[parts.length - 1];
            String user = parts[1];
            var simple = new PGSimpleDataSource();
            simple.setServerNames(new String[] {HOST});
            simple.setPortNumbers(new int[] {kit.ports().get(0)});
            simple.setDatabaseName(parts[parts.length - 1]);
            simple.setUser(user);
            var around = new HikariConfig();
            around.setDataSource(simple);
            around.setMinimumIdle(0);
            // The server reads it: with a mistake in its form, nobody could connect.
            around.setSchema("A \"shop\", and 1\\2");
            DataSource spring = new LazyConnectionDataSourceProxy(new DriverManagerDataSource(url, user, null));
            try (var pool = hikari(url, user);
                    var another = new HikariDataSource(around)) {
                leadTo(store, pool, another, simple, spring, url + "?user=" + user);
                pool.close();
                assertRefused("this HikariDataSource is closed: give its URL", pool);
            }
        }
    }

    @Test
    void aMariaDb() throws Exception {
        try (var kit = new Kit("mysql");
                var store = LeaseholdClient.connect(kit.url())) {
            store.initialize(false);
            String[] parts = kit.url().split("://|@|:|/");
            String place = "//" + HOST + ":" + kit.ports().get(0) + "/" + parts[parts.length - 1];
            var mysql = new MysqlDataSource();
            mysql.setUrl("jdbc:mysql:" + place);
            mysql.setUser(parts[1]);
            var mariadb = new MariaDbDataSource("jdbc:mariadb:" + place);
            mariadb.setUser(parts[1]);
            try (var pool = hikari("jdbc:mariadb:" + place, parts[1])) {
                leadTo(store, pool, mysql, mariadb, "jdbc:mysql:" + place + "?user=" + parts[1]);
            }
        }
    }

    @Test
    void anSqliteFile(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("a shop's locks.db");
        var sqlite = new SQLiteDataSource();
        sqlite.setUrl("jdbc:sqlite:" + file);
        try (var store = LeaseholdClient.connect("sqlite://" + file)) {
            leadTo(store, sqlite, "jdbc:sqlite:" + file + "?journal_mode=WAL");
        }
    }

    @Test
    void optionsAreSetBesideThem(@TempDir Path folder) throws Exception {
        String url = "jdbc:sqlite:" + folder.resolve("locks.db");
        try (var one = LeaseholdClient.configure(url).prefix("shop:").ioTimeout(ofSeconds(3)).connect();
                var other = LeaseholdClient.configureFrom(url).connect();
                var lease = one.lock("n").acquire()) {
            assertNull(other.lock("shop:n").tryAcquire());
            assertTrue(lease.isValid());
        }
    }

    private static void assertRefused(String begin, Object settings) {
        var refused = assertThrows(LeaseholdException.class, () -> LeaseholdClient.from(settings));
        assertEquals(Status.BAD_ARGUMENT, refused.status());
        assertTrue(refused.getMessage().startsWith("bad argument: " + begin), refused.getMessage());
    }

    /** On a class path without any of those libraries. */
    @Test
    void theJarNeedsNoneOfThem(@TempDir Path folder) throws Exception {
        String output = ChildJvm.of(Alone.class, folder.resolve("locks.db").toString())
                .classPath(ChildJvm.CLASSES, ChildJvm.TEST_CLASSES)
                .run()
                .succeeded();
        assertEquals("held\nrefused\n", output);
    }

    /** Has nothing but the library and itself. */
    static final class Alone {
        public static void main(String[] arguments) throws Exception {
            for (String absent : List.of("redis.clients.jedis.Jedis", "io.lettuce.core.RedisURI",
                    "org.redisson.Redisson", "com.zaxxer.hikari.HikariDataSource")) {
                try {
                    Class.forName(absent);
                    throw new IllegalStateException(absent + " is on the class path");
                } catch (ClassNotFoundException expected) {
                    continue;
                }
            }
            try (var client = LeaseholdClient.from("jdbc:sqlite:" + arguments[0]);
                    var lease = client.lock("n").acquire()) {
                System.out.println(lease.isValid() ? "held" : "not held");
            }
            try {
                LeaseholdClient.from(new Object());
            } catch (LeaseholdException e) {
                System.out.println("refused");
            }
        }
    }
}
