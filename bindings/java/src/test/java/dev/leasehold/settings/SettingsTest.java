package dev.leasehold.settings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mysql.cj.jdbc.MysqlDataSource;
import com.zaxxer.hikari.HikariConfig;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCredentials;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocketFactory;
import org.h2.jdbcx.JdbcDataSource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.mariadb.jdbc.Configuration;
import org.mariadb.jdbc.MariaDbDataSource;
import org.postgresql.ds.PGSimpleDataSource;
import org.redisson.config.Config;
import org.redisson.config.SslVerificationMode;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.jdbc.datasource.UserCredentialsDataSourceAdapter;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.DefaultRedisCredentials;
import redis.clients.jedis.SslVerifyMode;
import reactor.core.publisher.Mono;

/** Which URL becomes of which settings, and what is said of those that no client can have. */
class SettingsTest {
    private static final HostAndPort REDIS = new HostAndPort("cache", 6380);

    private static void assertRefused(String expected, Runnable reading) {
        String said = assertThrows(Refusal.class, reading::run).getMessage();
        assertTrue(said.contains(expected), said);
        assertTrue(said.contains(": "), "it says what to write instead: " + said);
        assertFalse(said.contains("secret"), said);
        assertFalse(said.contains(". "), "one sentence: " + said);
    }

    private static void assertRefused(String expected, Object settings) {
        assertRefused(expected, () -> Settings.url(settings));
    }

    // ---- JDBC --------------------------------------------------------------------------------------

    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            jdbc:postgresql://db/shop?user=app                          | postgres://app@db:5432/shop
            jdbc:postgresql://db:6432/shop?user=app&password=a%40b      | postgres://app:a%40b@db:6432/shop
            jdbc:postgresql://a:1,b/shop?user=app                       | postgres://app@a:1,b:5432/shop
            jdbc:postgresql://[::1]:5433/shop?user=app                  | postgres://app@[::1]:5433/shop
            jdbc:postgresql:shop?user=app                               | postgres://app@localhost:5432/shop
            jdbc:postgresql:/?user=app                                  | postgres://app@localhost:5432/app
            jdbc:postgresql://db/?user=app                              | postgres://app@db:5432/app
            jdbc:postgresql://db/a%20b?user=app                         | postgres://app@db:5432/a%20b
            jdbc:postgresql://db/s?user=a&sslmode=require               | postgres://a@db:5432/s?sslmode=require
            jdbc:postgresql://db/s?user=a&sslmode=disable&sslrootcert=x | postgres://a@db:5432/s
            jdbc:postgresql://db/s?user=a&ssl=false&sslrootcert=x&gssEncMode=prefer | postgres://a@db:5432/s
            jdbc:postgresql://d/s?user=a&ssl=true&sslrootcert=c|postgres://a@d:5432/s?sslmode=verify-full&sslrootcert=c
            jdbc:postgresql://d/s?user=a&ssl&sslrootcert=c     | postgres://a@d:5432/s?sslmode=verify-full&sslrootcert=c
            jdbc:postgresql://d/s?user=a&currentSchema=x,y     | postgres://a@d:5432/s?options=-csearch_path%3Dx%2Cy
            jdbc:postgresql://db/s?user=a&prepareThreshold=0&targetServerType=primary | postgres://a@db:5432/s
            jdbc:mysql://db/shop?user=app&password=x+y                  | mysql://app:x%20y@db:3306/shop
            jdbc:mysql://app:a%40b@db:3307/shop                         | mysql://app:a%40b@db:3307/shop
            jdbc:mysql://a,b:3307/shop?user=app                         | mysql://app@a:3306,b:3307/shop
            jdbc:mysql:///shop?user=app                                 | mysql://app@localhost:3306/shop
            jdbc:mysql://db/s?user=a&sslMode=VERIFY_CA                  | mysql://a@db:3306/s?ssl-mode=verify_ca
            jdbc:mysql://db/s?user=a&useSSL=false                       | mysql://a@db:3306/s
            jdbc:mysql://d/s?user=a&sslMode=DISABLED&trustCertificateKeyStoreUrl=t | mysql://a@d:3306/s
            jdbc:mariadb://db/s?user=a&sslMode=disable&serverSslCert=c  | mysql://a@db:3306/s
            jdbc:mysql://db/s?user=a&useSSL=true&requireSSL=true        | mysql://a@db:3306/s?ssl-mode=required
            jdbc:mariadb://db/shop?user=app                             | mysql://app@db:3306/shop
            jdbc:mariadb:sequential://a,b/shop?user=app                 | mysql://app@a:3306,b:3306/shop
            jdbc:mariadb://db/s?user=a&sslMode=trust                    | mysql://a@db:3306/s?ssl-mode=required
            jdbc:mariadb://d/s?user=a&sslMode=verify-ca&serverSslCert=c|mysql://a@d:3306/s?ssl-mode=verify_ca&ssl-ca=c
            jdbc:mariadb:///s?user=a&localSocket=/run/m.sock            | mysql://a@/s?socket=%2Frun%2Fm.sock
            jdbc:sqlite:/var/lib/a b.db                                 | sqlite:/var/lib/a%20b.db
            jdbc:sqlite:locks.db?journal_mode=WAL                       | sqlite:locks.db
            JDBC:SQLite:locks.db                                        | sqlite:locks.db
            """)
    void aUrlOfJdbcIsReadAsItsDriverReadsIt(String jdbc, String expected) {
        assertTrue(Settings.isJdbc(jdbc));
        assertEquals(expected, Settings.ofJdbc(jdbc));
    }

    /** The drivers' own readers take the same out of a URL. */
    @Test
    void theDriversAgree() throws Exception {
        String query = "?user=a%40b&password=%26%3D%2B%25x";
        var postgres = org.postgresql.Driver.parseURL("jdbc:postgresql://h:1,i/d%20e" + query, new Properties());
        assertEquals(List.of("h,i", "1,5432", "d e", "a@b", "&=+%x"), List.of(postgres.getProperty("PGHOST"),
                postgres.getProperty("PGPORT"), postgres.getProperty("PGDBNAME"), postgres.getProperty("user"),
                postgres.getProperty("password")));
        assertEquals("postgres://a%40b:%26%3D%2B%25x@h:1,i:5432/d%20e",
                Settings.ofJdbc("jdbc:postgresql://h:1,i/d%20e" + query));
        var mysql = new MysqlDataSource();
        mysql.setUrl("jdbc:mysql://h:1/d" + query);
        assertEquals("mysql://a%40b:%26%3D%2B%25x@h:1/d", Settings.url(mysql));
        // This one takes everything as it stands there.
        String plain = "jdbc:mariadb://h:1/d%20e?user=a%40b&password=+=%x";
        var mariadb = Configuration.parse(plain);
        assertEquals(List.of("a%40b", "+=%x", "d%20e"),
                List.of(mariadb.user(), mariadb.password(), mariadb.database()));
        assertEquals("mysql://a%2540b:%2B%3D%25x@h:1/d%2520e", Settings.ofJdbc(plain));
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            jdbc:h2:mem:shop                                        | keeps no locks in the database of jdbc:h2: give
            jdbc:oracle:thin:@//db:1521/shop|keeps no locks in the database of jdbc:oracle: give
            jdbc:tc:postgresql:16:///shop                           | keeps no locks in the database of jdbc:tc: give
            jdbc:                                                   | keeps no locks in what this URL of JDBC names
            jdbc:postgresql://db/shop                               | names no user
            jdbc:postgresql://db:x/shop?user=a                      | has a port that is not a number
            jdbc:postgresql://db/shop?user=%zz                      | has a '%' without two hex digits
            jdbc:postgresql://db/s?user=a&targetServerType=secondary | locks are written
            jdbc:postgresql://db/s?user=a&socketFactory=com.google.cloud.sql.postgres.X | has socketfactory
            jdbc:postgresql://db/s?user=a&authenticationPluginClassName=x.Iam | has authenticationpluginclassname
            jdbc:postgresql://db/s?user=a&sslmode=require&sslfactory=x.Trusting | has sslfactory
            jdbc:postgresql://db/s?user=a&sslmode=require&sslkey=/k.pk8 | Leasehold reads PEM files
            jdbc:postgresql://db/s?user=a&service=x                 | has service
            jdbc:postgresql://db/s?user=a&gssEncMode=require        | has gssencmode=require
            jdbc:postgresql://db/s?user=a&requireAuth=scram-sha-256 | has requireauth
            jdbc:postgresql://db/s?user=a&sslrootcert=ca.pem|has sslrootcert and does not say whether to use TLS: say
            jdbc:postgresql://db/s?user=a&sslcert=c.pem             | say sslmode=verify-full
            jdbc:postgresql://db/s?user=a&sslkey=k.pem              | say sslmode=verify-full
            jdbc:postgresql://db/s?user=a&sslfactory=x.Trusting     | say sslmode=verify-full
            jdbc:mysql://d/s?user=a&trustCertificateKeyStoreUrl=t   | has trustcertificatekeystoreurl
            jdbc:mysql://d/s?user=a&clientCertificateKeyStoreUrl=t  | has clientcertificatekeystoreurl
            jdbc:mariadb://db/s?user=a&serverSslCert=ca.pem         | say sslMode=verify-full
            jdbc:mariadb://db/s?user=a&keyStore=k                   | say sslMode=verify-full
            jdbc:mysql:loadbalance://a,b/shop?user=a                | chooses among its hosts
            jdbc:mysql://address=(host=a)(port=1)/shop?user=a       | has hosts in brackets
            jdbc:mysql://a:b@h1,c:d@h2/shop                         | has a user for each host
            jdbc:mysql://db?user=a                                  | names no database
            jdbc:mysql://d/s?user=a&sslMode=VERIFY_CA&trustCertificateKeyStoreUrl=t | has trustcertificatekeystoreurl
            jdbc:mysql://db/s?user=a&authenticationPlugins=x.Iam    | has authenticationplugins
            jdbc:mariadb:replication://a,b/shop?user=a              | chooses among its hosts
            jdbc:mariadb://db/s?user=a&credentialType=AWS-IAM       | has credentialtype
            jdbc:mariadb://db/s?user=a&sslMode=verify-ca&serverSslCert=classpath:ca.pem | has no file in serverSslCert
            jdbc:postgresql://a/s?user=a,jdbc:postgresql://b/s?user=a | a quorum has no databases
            jdbc:sqlite::memory:                                    | names no file
            jdbc:sqlite:                                            | names no file
            jdbc:sqlite:file:shop.db?mode=memory                    | names no file
            """)
    void whatOnlyADriverCanDoIsRefused(String jdbc, String expected) {
        assertRefused(expected, () -> Settings.ofJdbc(jdbc));
    }

    // ---- data sources ------------------------------------------------------------------------------

    @Test
    void aDataSourceSaysWhereItConnects() throws Exception {
        var hikari = new HikariConfig();
        hikari.setJdbcUrl("jdbc:postgresql://db/shop");
        hikari.setUsername("app");
        hikari.setPassword("a/b");
        hikari.addDataSourceProperty("sslmode", "require");
        assertEquals("postgres://app:a%2Fb@db:5432/shop?sslmode=require", Settings.url(hikari));
        var simple = new PGSimpleDataSource();
        simple.setServerNames(new String[] {"a", "b"});
        simple.setPortNumbers(new int[] {1, 2});
        simple.setDatabaseName("shop");
        simple.setUser("app");
        simple.setPassword("a/b");
        simple.setCurrentSchema("locks");
        assertEquals("postgres://app:a%2Fb@a:1,b:2/shop?options=-csearch_path%3Dlocks", Settings.url(simple));
        var mysql = new MysqlDataSource();
        mysql.setServerName("db");
        mysql.setDatabaseName("shop");
        mysql.setUser("app");
        mysql.setPassword("a/b");
        mysql.setSslMode("VERIFY_IDENTITY");
        assertEquals("mysql://app:a%2Fb@db:3306/shop?ssl-mode=verify_identity", Settings.url(mysql));
        var mariadb = new MariaDbDataSource("jdbc:mariadb://db/shop");
        mariadb.setUser("app");
        mariadb.setPassword("a/b");
        assertEquals("mysql://app:a%2Fb@db:3306/shop", Settings.url(mariadb));
        // From now on, the driver shows the password of its URL as "***".
        mariadb.setUrl("jdbc:mariadb://db/shop?user=app&password=a/b");
        assertTrue(mariadb.getUrl().contains("password=***"), mariadb.getUrl());
        assertEquals("mysql://app:a%2Fb@db:3306/shop", Settings.url(mariadb));
        var alone = new MariaDbDataSource();
        alone.setUrl("jdbc:mariadb://db/shop?user=app&password=a/b");
        assertEquals("mysql://app:a%2Fb@db:3306/shop", Settings.url(alone));
    }

    @Test
    void aDataSourceThatCannotBeBorrowedIsRefused() throws Exception {
        var hikari = new HikariConfig();
        assertRefused("has no jdbcUrl", hikari);
        hikari.setDataSourceClassName("org.postgresql.ds.PGSimpleDataSource");
        assertRefused("has a dataSourceClassName in place of a jdbcUrl", hikari);
        var twice = new HikariConfig();
        twice.setJdbcUrl("jdbc:postgresql://db/shop?user=one");
        twice.setUsername("two");
        assertRefused("has user in its URL, and another one beside it", twice);
        var inner = new PGSimpleDataSource();
        inner.setUser("one");
        var around = new HikariConfig();
        around.setDataSource(inner);
        around.setUsername("two");
        assertRefused("has two answers to what its user is", around);
        assertRefused("of class org.h2.jdbcx.JdbcDataSource does not tell Leasehold", new JdbcDataSource());
        assertRefused("has no URL", new MariaDbDataSource());
        for (String driver : List.of("mysql", "mariadb", "postgresql")) {
            var pool = new HikariConfig();
            pool.setJdbcUrl("jdbc:" + driver + "://db/shop?user=app");
            pool.setCatalog("another");
            var spring = new DriverManagerDataSource("jdbc:" + driver + "://db/shop?user=app");
            spring.setCatalog("another");
            for (Object source : List.of(pool, spring)) {
                if (driver.equals("postgresql")) {
                    assertEquals("postgres://app@db:5432/shop", Settings.url(source), "which ignores it");
                } else {
                    assertRefused("has a catalog, by which it changes the database", source);
                }
            }
        }
    }

    @Test
    void theSchemaOfAPoolIsThatOfItsUrl() {
        String url = "jdbc:postgresql://db/shop?user=app";
        var pool = new HikariConfig();
        pool.setJdbcUrl(url);
        pool.setSchema("shop_1");
        var inner = new PGSimpleDataSource();
        inner.setServerNames(new String[] {"db"});
        inner.setDatabaseName("shop");
        inner.setUser("app");
        var around = new HikariConfig();
        around.setDataSource(inner);
        around.setSchema("shop_1");
        var spring = new DriverManagerDataSource(url);
        spring.setSchema("shop_1");
        inner.setCurrentSchema("shop_1");
        for (Object source : List.of(pool, around, spring, inner)) {
            assertEquals("postgres://app@db:5432/shop?options=-csearch_path%3Dshop_1", Settings.url(source));
        }
        // Its driver writes down what it would do anyway.
        inner.setUrl(url + "&currentSchema=shop_1");
        assertEquals("postgres://app@db:5432/shop?options=-csearch_path%3Dshop_1&channel_binding=prefer",
                Settings.url(inner));
        // One name, and not two.
        pool.setSchema("a,\"b");
        assertEquals("postgres://app@db:5432/shop?options=-csearch_path%3D%22a%2C%22%22b%22", Settings.url(pool));
        spring.setUrl(url + "&currentSchema=another");
        assertRefused("has currentschema in its URL, and another one beside it", spring);
    }

    @Test
    void aSchemaMayBeAnotherDatabaseOfAMySql() {
        for (String driver : List.of("mysql", "mariadb")) {
            var pool = new HikariConfig();
            pool.setJdbcUrl("jdbc:" + driver + "://db/shop?user=app");
            pool.setSchema("another");
            assertRefused("has a schema, by which its driver may change the database", pool);
        }
        var file = new HikariConfig();
        file.setJdbcUrl("jdbc:sqlite:locks.db");
        file.setSchema("ignored");
        assertEquals("sqlite:locks.db", Settings.url(file));
    }

    @Test
    void aUserOfSpringsAdapterIsNotPassedOver() {
        var adapter = new UserCredentialsDataSourceAdapter();
        adapter.setTargetDataSource(new DriverManagerDataSource("jdbc:postgresql://db/shop?user=app"));
        adapter.setUsername("another");
        assertRefused("logs in as a user that Leasehold cannot ask for", adapter);
    }

    // ---- Jedis -------------------------------------------------------------------------------------

    private static DefaultJedisClientConfig.Builder jedis() {
        return DefaultJedisClientConfig.builder().password("secret");
    }

    private static void assertJedisRefused(String expected, JedisClientConfig config) {
        assertRefused(expected, () -> Settings.url(REDIS, config));
    }

    @Test
    void jedisSaysWhereItConnects() {
        assertEquals("redis://cache:6380", Settings.url(REDIS));
        assertEquals("redis://:secret@cache:6380/2", Settings.url(REDIS, jedis().database(2).build()));
        assertEquals("rediss://app:secret@cache:6380/0", Settings.url(REDIS, jedis().user("app").ssl(true).build()));
        var names = new SSLParameters();
        names.setEndpointIdentificationAlgorithm("HTTPS");
        assertEquals("rediss://:secret@cache:6380/0",
                Settings.url(REDIS, jedis().ssl(true).sslParameters(names).build()));
        var options = redis.clients.jedis.SslOptions.builder().sslVerifyMode(SslVerifyMode.FULL).build();
        assertEquals("rediss://:secret@cache:6380/0", Settings.url(REDIS, jedis().sslOptions(options).build()));
        assertEquals("redis+cluster://:secret@cache:6380,other:1",
                Settings.url(List.of(REDIS, new HostAndPort("other", 1)), jedis().build()));
        assertEquals("redis://[2001:db8::7]:6379", Settings.url(new HostAndPort("2001:db8::7", 6379)));
        try (var pooled = new JedisPooled("redis://app:secret@cache:6380/4")) {
            assertEquals("redis://app:secret@cache:6380/4", Settings.url(pooled));
        }
    }

    @Test
    void whatOnlyJedisCanDoIsRefused() {
        assertJedisRefused("has a SslSocketFactory of its own",
                jedis().ssl(true).sslSocketFactory((SSLSocketFactory) SSLSocketFactory.getDefault()).build());
        assertJedisRefused("has a HostnameVerifier of its own",
                jedis().ssl(true).hostnameVerifier((host, session) -> true).build());
        var old = new SSLParameters(new String[] {"x"}, new String[] {"TLSv1.2"});
        assertJedisRefused("has SSLParameters with protocols", jedis().ssl(true).sslParameters(old).build());
        var insecure = redis.clients.jedis.SslOptions.builder().sslVerifyMode(SslVerifyMode.INSECURE).build();
        assertJedisRefused("does not verify the server's certificate", jedis().sslOptions(insecure).build());
        var store = redis.clients.jedis.SslOptions.builder().truststore(Path.of("pom.xml").toFile()).build();
        assertJedisRefused("has a keystore of Java", jedis().sslOptions(store).build());
        assertJedisRefused("for its credentials, which Leasehold cannot borrow: call it in ClientBuilder.credentials",
                DefaultJedisClientConfig.builder()
                        .credentialsProvider(() -> new DefaultRedisCredentials(null, "secret")).build());
        assertJedisRefused("maps addresses by a HostAndPortMapper", jedis().hostAndPortMapper(place -> place).build());
        assertRefused("has no address", jedis().build());
        assertRefused("is one connection", new Jedis("cache", 6380));
        assertRefused("is no JedisClientConfig", () -> Settings.url(REDIS, "secret"));
        assertRefused("is neither a HostAndPort nor several", () -> Settings.url("cache:6380", jedis().build()));
        assertRefused("is neither a HostAndPort nor several", () -> Settings.url(List.of(), jedis().build()));
    }

    // ---- Lettuce -----------------------------------------------------------------------------------

    private static RedisURI.Builder lettuce() {
        return RedisURI.builder().withHost("cache").withPort(6380);
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', textBlock = """
            redis://cache                                | redis://cache:6379/0
            redis://:secret@cache:6380/2                 | redis://:secret@cache:6380/2
            rediss://app:se%40cret@cache                 | rediss://app:se%40cret@cache:6379/0
            redis-sentinel://:secret@a,b:1/3#main        | redis+sentinel://:secret@a:26379,b:1/main/3?sentinel_tls=no
            redis-socket:///run/redis.sock?database=2    | unix:///run/redis.sock?db=2
            """)
    void aRedisUriOfLettuceSaysWhereItConnects(String uri, String expected) {
        assertEquals(expected, Settings.url(RedisURI.create(uri)));
    }

    @Test
    void sentinelsHaveCredentialsOfTheirOwn() {
        RedisURI uri = RedisURI.builder().withSentinelMasterId("main").withSentinel("a", 1, "secret").build();
        assertEquals("redis+sentinel://a:1/main/0?sentinel_password=secret&sentinel_tls=no", Settings.url(uri));
        RedisURI differ = RedisURI.builder().withSentinelMasterId("main").withSentinel("a", 1, "secret")
                .withSentinel("b", 1, "another").build();
        assertRefused("has Sentinels that differ in their credentials", differ);
    }

    @Test
    void whatOnlyLettuceCanDoIsRefused() {
        assertRefused("does not verify the server's certificate",
                lettuce().withSsl(true).withVerifyPeer(false).build());
        assertRefused("begins TLS by STARTTLS", lettuce().withSsl(true).withStartTls(true).build());
        assertRefused("for its credentials, which Leasehold cannot borrow: call it in ClientBuilder.credentials",
                lettuce().withAuthentication(() -> Mono.just(RedisCredentials.just("app", "secret"))).build());
        try (var empty = RedisClient.create();
                var client = RedisClient.create(lettuce().withSsl(true).build())) {
            assertRefused("has no host", empty);
            assertEquals("rediss://cache:6380/0", Settings.url(client));
            client.setOptions(ClientOptions.builder()
                    .sslOptions(SslOptions.builder().trustManager(Path.of("pom.xml").toFile()).build()).build());
            assertRefused("has SslOptions of its own", client);
        }
    }

    // ---- Redisson ----------------------------------------------------------------------------------

    /** Which had the password at each kind of servers before. */
    @SuppressWarnings("deprecation")
    @Test
    void redissonSaysWhereItConnects() {
        var single = new Config();
        single.setPassword("secret").useSingleServer().setAddress("rediss://cache:6380").setDatabase(2);
        assertEquals("rediss://:secret@cache:6380/2", Settings.url(single));
        var sentinels = new Config();
        sentinels.useSentinelServers().setMasterName("main").addSentinelAddress("redis://a:1", "redis://b:2")
                .setPassword("secret").setSentinelPassword("theirs");
        assertEquals("redis+sentinel://:secret@a:1,b:2/main/0?sentinel_password=theirs", Settings.url(sentinels));
        var cluster = new Config();
        cluster.useClusterServers().addNodeAddress("redis://a:1", "redis://b:2");
        assertEquals("redis+cluster://a:1,b:2", Settings.url(cluster));
    }

    @Test
    void whatOnlyRedissonCanDoIsRefused() {
        assertRefused("names neither one server nor Sentinels nor a Cluster", new Config());
        var replicas = new Config();
        replicas.useReplicatedServers().addNodeAddress("redis://a:1");
        assertRefused("names neither one server nor Sentinels nor a Cluster", replicas);
        var nowhere = new Config();
        nowhere.useSingleServer();
        assertRefused("has no address", nowhere);
        var odd = new Config();
        odd.useSingleServer().setAddress("redis://app:secret@cache:6379");
        assertRefused("has an address that is not written as redis://host:6379", odd);
        var mixed = new Config();
        mixed.useClusterServers().addNodeAddress("redis://a:1", "rediss://b:2");
        assertRefused("has some addresses with TLS and some without", mixed);
        var insecure = new Config();
        insecure.useSingleServer().setAddress("rediss://cache:6380");
        insecure.setSslVerificationMode(SslVerificationMode.NONE);
        assertRefused("does not verify the server's certificate", insecure);
        var mapped = new Config();
        mapped.useClusterServers().addNodeAddress("redis://a:1").setNatMapper(address -> address);
        assertRefused("maps addresses by a NatMapper", mapped);
        var asking = new Config();
        asking.useSingleServer().setAddress("redis://a:1");
        asking.setCredentialsResolver(address -> null);
        assertRefused("asks a CredentialsResolver", asking);
    }

    // ------------------------------------------------------------------------------------------------

    @Test
    void whatIsOfNoKnownLibraryIsRefused() {
        assertRefused("an object of class java.lang.Object has no settings", new Object());
        assertThrows(NullPointerException.class, () -> Settings.url(null));
        assertEquals("redis://cache", Settings.url("redis://cache"));
    }
}
