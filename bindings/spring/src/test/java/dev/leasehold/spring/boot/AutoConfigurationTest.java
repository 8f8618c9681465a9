package dev.leasehold.spring.boot;

import static org.assertj.core.api.Assertions.assertThat;

import com.zaxxer.hikari.HikariDataSource;
import dev.leasehold.Credentials;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.LeaseholdException;
import dev.leasehold.MemoryStore;
import dev.leasehold.Status;
import java.net.URI;
import java.nio.file.Path;
import java.time.Instant;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Supplier;
import javax.sql.DataSource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;

/** Which store a program with Spring Boot has, and what it says when there is none. */
class AutoConfigurationTest {
    private static final URI REDIS = URI.create(System.getenv("LEASEHOLD_URL"));

    /** Without the variable, which is leasehold.url as well. */
    private final ApplicationContextRunner program = new ApplicationContextRunner()
            .withInitializer(context -> context.getEnvironment().getPropertySources().remove("systemEnvironment"))
            .withConfiguration(AutoConfigurations.of(LeaseholdAutoConfiguration.class));
    private final ApplicationContextRunner offline = program.withPropertyValues("leasehold.check-on-start=false");

    private static void assertStore(ApplicationContextRunner program, String expected) {
        program.run(context -> assertThat(context.getBean(LeaseholdClient.class).store()).isEqualTo(expected));
    }

    private static void assertFails(ApplicationContextRunner program, String expected) {
        program.run(context -> assertThat(context).hasFailed().getFailure().rootCause().hasMessageContaining(expected));
    }

    private static Supplier<DataSource> source(String url) {
        return () -> {
            var source = new HikariDataSource();
            source.setJdbcUrl(url);
            return source;
        };
    }

    @Test
    void theStoreIsWhatLeaseholdUrlNames() {
        program.withPropertyValues("leasehold.url=" + REDIS, "leasehold.prefix=shop:", "leasehold.io-timeout=2s",
                        "leasehold.pool=4", "leasehold.close-timeout=500ms", "leasehold.label=shop-1",
                        "leasehold.metrics-groups=stock:*,order:*", "leasehold.claim-window=2s",
                        "leasehold.max-ttl=10m", "leasehold.register=false", "leasehold.advise=false",
                        "leasehold.guard-data-loss=false", "spring.data.redis.host=elsewhere")
                .run(context -> {
                    LeaseholdClient client = context.getBean(LeaseholdClient.class);
                    try (var lease = client.lock("n").acquire();
                            var plain = LeaseholdClient.connect(REDIS.toString())) {
                        assertThat(lease.isValid()).isTrue();
                        assertThat(plain.lock("shop:n").tryAcquire()).isNull();
                    }
                    assertThat(client.metricsText()).contains("stock:*", "order:*");
                });
    }

    @Test
    void theVariableIsThatPropertyToo() {
        assertStore(new ApplicationContextRunner()
                .withConfiguration(AutoConfigurations.of(LeaseholdAutoConfiguration.class)), REDIS + "/0");
    }

    @Test
    void elseItIsTheRedisOfSpringData() {
        program.withPropertyValues("spring.data.redis.host=" + REDIS.getHost(),
                        "spring.data.redis.port=" + REDIS.getPort())
                .run(context -> context.getBean(LeaseholdClient.class).lock("spring").acquire().release());
        assertStore(offline.withPropertyValues("spring.data.redis.host=cache", "spring.data.redis.database=3",
                "spring.data.redis.username=app", "spring.data.redis.password=p@s:s/w?d"), "redis://cache:6379/3");
        assertStore(offline.withPropertyValues("spring.data.redis.url=redis://app:secret@cache:6380/2"),
                "redis://cache:6380/2");
        assertStore(offline.withPropertyValues("spring.data.redis.host=cache", "spring.data.redis.ssl.enabled=true"),
                "rediss://cache:6379/0");
        assertStore(offline.withPropertyValues("spring.data.redis.sentinel.master=main",
                "spring.data.redis.sentinel.nodes=a:26379,b:26379", "spring.data.redis.password=secret",
                "spring.data.redis.sentinel.password=theirs"), "redis+sentinel://a:26379,b:26379/main/0");
        assertStore(offline.withPropertyValues("spring.data.redis.cluster.nodes=a:6379,b:6379"),
                "redis+cluster://a:6379,b:6379");
    }

    @Test
    void aUrlBesideSentinelsOrAClusterIsRefused() {
        var url = offline.withPropertyValues("spring.data.redis.url=redis://localhost");
        String[] sentinel = {"spring.data.redis.sentinel.master=main", "spring.data.redis.sentinel.nodes=a:26379"};
        String cluster = "spring.data.redis.cluster.nodes=a:6379";
        assertFails(url.withPropertyValues(sentinel), "spring.data.redis.url is set together with"
                + " spring.data.redis.sentinel.*: remove the url, or say where the locks are kept with leasehold.url");
        assertFails(url.withPropertyValues(cluster), "such as redis+cluster://host:6379");
        assertStore(url.withPropertyValues(cluster, "leasehold.url=redis+cluster://a:6379"), "redis+cluster://a:6379");
        assertStore(url.withPropertyValues(cluster, "spring.data.redis.url="), "redis+cluster://a:6379");
    }

    @Test
    void elseItIsTheDataSource(@TempDir Path folder) {
        var sqlite = program.withBean(DataSource.class, source("jdbc:sqlite:" + folder.resolve("locks.db")));
        assertStore(sqlite, "sqlite:" + folder.resolve("locks.db"));
        assertStore(sqlite.withPropertyValues("spring.data.redis.host=elsewhere", "leasehold.settings-from=datasource"),
                "sqlite:" + folder.resolve("locks.db"));
        assertFails(program.withBean(DataSource.class, source("jdbc:h2:mem:shop")), "Leasehold keeps no locks in the");
    }

    @Test
    void filesOfABundleAreUsedForTls() {
        var bundle = offline.withPropertyValues("spring.data.redis.host=cache", "spring.data.redis.ssl.bundle=redis");
        String pem = "spring.ssl.bundle.pem.redis.truststore.certificate=";
        assertFails(bundle, "spring.data.redis.ssl.bundle is 'redis'");
        assertFails(bundle.withPropertyValues(pem + "classpath:ca.pem"), "is no file, and Leasehold reads PEM files");
        // It is read when the client is opened.
        assertFails(bundle.withPropertyValues(pem + "file:/no/such/ca.pem"), "/no/such/ca.pem");
    }

    @Test
    void aProgramWithoutAStoreDoesNotStart() {
        assertFails(program, "nothing says where the locks are kept: set leasehold.url");
        assertFails(program.withPropertyValues("leasehold.settings-from=redis"), "spring.data.redis.host, which");
        assertFails(program.withPropertyValues("leasehold.settings-from=datasource"), "spring.datasource.url, which");
        assertFails(offline.withPropertyValues("leasehold.url=rediss+x://a"), "the URL");
        assertFails(offline.withPropertyValues("spring.data.redis.sentinel.nodes=a:1"), "sentinel.master is not set");
        assertFails(offline.withPropertyValues("spring.data.redis.sentinel.master=a"), "sentinel.nodes is not set");
        assertFails(offline.withPropertyValues("leasehold.url=" + REDIS, "leasehold.pool=0"), "pool");
    }

    @Test
    void aWrongPasswordFailsTheStartUnlessToldOtherwise() {
        String url = "leasehold.url=redis://:wrong@" + REDIS.getHost() + ":" + REDIS.getPort();
        program.withPropertyValues(url).run(context -> assertThat(context).hasFailed().getFailure().rootCause()
                .isInstanceOfSatisfying(LeaseholdException.class, e -> assertThat(e.status()).isEqualTo(Status.AUTH)));
        offline.withPropertyValues(url).run(context -> assertThat(context).hasSingleBean(LeaseholdClient.class));
    }

    @Test
    void aBeanLooksUpTheCredentials() {
        var asked = new CopyOnWriteArrayList<Credentials.Endpoint>();
        Credentials vault = endpoint -> {
            asked.add(endpoint);
            return new Credentials.Login("default", "any", Instant.now().plusSeconds(900));
        };
        var looksUp = program.withBean("vault", Credentials.class, () -> vault);
        looksUp.withPropertyValues("leasehold.url=" + REDIS).run(context -> {
            context.getBean(LeaseholdClient.class).lock("looked-up").acquire().release();
            assertThat(asked).containsExactly(new Credentials.Endpoint(REDIS.getHost(), REDIS.getPort(), null));
        });
        Credentials sealed = endpoint -> {
            throw new SecurityException("the vault is sealed");
        };
        assertFails(program.withPropertyValues("leasehold.url=" + REDIS)
                .withBean(Credentials.class, () -> sealed), "the vault is sealed");
        assertFails(looksUp.withPropertyValues("leasehold.url=redis://:secret@" + REDIS.getHost()), "credentials");
        assertFails(looksUp.withPropertyValues("leasehold.url=" + REDIS)
                .withBean("other", Credentials.class, () -> sealed), "found 2: vault,other");
    }

    @Test
    void aBeanOfYourOwnTakesItsPlace() {
        program.withBean(LeaseholdClient.class, () -> LeaseholdClient.connect(MemoryStore.named("own").url()))
                .run(context -> assertThat(context.getBean(LeaseholdClient.class).store()).isEqualTo("memory:own"));
        program.withPropertyValues("leasehold.enabled=false")
                .run(context -> assertThat(context).hasNotFailed().doesNotHaveBean(LeaseholdClient.class));
    }

    @Test
    void theClientIsClosedWithTheContext() {
        LeaseholdClient[] kept = new LeaseholdClient[1];
        program.withPropertyValues("leasehold.url=" + MemoryStore.named("context").url()).run(context ->
                kept[0] = context.getBean(LeaseholdClient.class));
        org.junit.jupiter.api.Assertions.assertThrows(LeaseholdException.class, () -> kept[0].ping());
    }
}
