package dev.leasehold.spring.boot;

import dev.leasehold.ClientBuilder;
import dev.leasehold.Credentials;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.LeaseholdException;
import dev.leasehold.spring.LockedConfiguration;
import java.util.function.Consumer;
import javax.sql.DataSource;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.core.env.Environment;

/**
 * A {@link LeaseholdClient} for Spring Boot: of the store that {@code leasehold.url} names, else of
 * what {@code spring.data.redis.*} is set to, else of the {@code DataSource}. If there is a bean of the
 * type {@link Credentials}, the client logs in with what it returns. A {@link LeaseholdClient} of your own
 * takes the place of all this. {@link dev.leasehold.spring.Locked} works with either.
 */
@AutoConfiguration(
        afterName = {
            "org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration",
            "org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration"
        })
@ConditionalOnProperty(name = "leasehold.enabled", matchIfMissing = true)
@EnableConfigurationProperties(LeaseholdProperties.class)
@Import(LockedConfiguration.class)
public class LeaseholdAutoConfiguration {
    /**
     * Opens the client, which is closed with the context.
     *
     * @param properties {@code leasehold.*}
     * @param environment has {@code spring.data.redis.*}
     * @param sources the data sources
     * @param credentials what to log in with, if the program looks that up itself
     * @param beans may have details of a connection that are no properties
     * @return an open client
     */
    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean
    public LeaseholdClient leaseholdClient(
            LeaseholdProperties properties,
            Environment environment,
            ObjectProvider<DataSource> sources,
            ObjectProvider<Credentials> credentials,
            ListableBeanFactory beans) {
        ClientBuilder builder = configure(properties, environment, sources, beans);
        credentials.ifAvailable(builder::credentials);
        LeaseholdClient client = set(builder, properties, environment).connect();
        try {
            if (Boolean.TRUE.equals(properties.initialize())) {
                client.initialize(false);
            }
            if (!Boolean.FALSE.equals(properties.checkOnStart())) {
                client.ping();
            }
            return client;
        } catch (LeaseholdException e) {
            client.close();
            throw e;
        }
    }

    private static ClientBuilder configure(
            LeaseholdProperties properties,
            Environment environment,
            ObjectProvider<DataSource> sources,
            ListableBeanFactory beans) {
        if (properties.url() != null) {
            return LeaseholdClient.configure(properties.url());
        }
        LeaseholdProperties.Source wanted = properties.settingsFrom();
        if (wanted != LeaseholdProperties.Source.DATASOURCE) {
            RedisDetails.check(beans);
            RedisSettings redis = Binder.get(environment).bind("spring.data.redis", RedisSettings.class).orElse(null);
            if (redis != null && redis.isSet()) {
                return LeaseholdClient.configure(redis.toUrl(environment));
            }
        }
        if (wanted != LeaseholdProperties.Source.REDIS) {
            DataSource source = sources.getIfUnique();
            if (source != null) {
                return LeaseholdClient.configureFrom(source);
            }
        }
        throw new IllegalStateException("nothing says where the locks are kept: set leasehold.url, such as"
                + " redis://127.0.0.1" + switch (wanted == null ? "" : wanted.name()) {
                    case "REDIS" -> ", or spring.data.redis.host, which leasehold.settings-from means";
                    case "DATASOURCE" -> ", or spring.datasource.url, which leasehold.settings-from means"
                            + " (there must be one DataSource, or a primary one)";
                    default -> ", or spring.data.redis.host, or spring.datasource.url"
                            + " (there must be one DataSource, or a primary one)";
                });
    }

    private static ClientBuilder set(ClientBuilder builder, LeaseholdProperties properties, Environment environment) {
        apply(properties.prefix(), builder::prefix);
        apply(properties.ioTimeout(), builder::ioTimeout);
        apply(properties.pool(), builder::pool);
        apply(properties.closeTimeout(), builder::closeTimeout);
        apply(properties.claimWindow(), builder::claimWindow);
        apply(properties.maxTtl(), builder::maxTtl);
        apply(properties.guardDataLoss(), builder::guardDataLoss);
        apply(properties.register(), builder::register);
        apply(properties.advise(), builder::advise);
        String program = environment.getProperty("spring.application.name");
        apply(properties.label() != null ? properties.label() : program, builder::label);
        if (properties.metricsGroups() != null) {
            properties.metricsGroups().forEach(builder::metricsGroup);
        }
        return builder;
    }

    private static <T> void apply(T value, Consumer<T> setter) {
        if (value != null) {
            setter.accept(value);
        }
    }
}
