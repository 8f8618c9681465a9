package dev.leasehold.spring.boot;

import dev.leasehold.LeaseholdClient;
import dev.leasehold.micrometer.LeaseholdMetrics;
import io.micrometer.core.instrument.binder.MeterBinder;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.context.annotation.Bean;

/**
 * The figures of the client in the registries of the program, if Micrometer is there. Spring Boot binds
 * them. {@code management.metrics.enable.leasehold=false} leaves them out.
 */
@AutoConfiguration(after = LeaseholdAutoConfiguration.class)
@ConditionalOnClass(MeterBinder.class)
@ConditionalOnBean(LeaseholdClient.class)
@ConditionalOnProperty(name = "management.metrics.enable.leasehold", matchIfMissing = true)
public class LeaseholdMetricsConfiguration {
    /**
     * What is bound to each registry.
     *
     * @param client whose figures they are
     * @return a binder
     */
    @Bean
    @ConditionalOnMissingBean
    public LeaseholdMetrics leaseholdMetrics(LeaseholdClient client) {
        return new LeaseholdMetrics(client);
    }
}
