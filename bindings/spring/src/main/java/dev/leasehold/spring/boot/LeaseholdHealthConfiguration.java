package dev.leasehold.spring.boot;

import dev.leasehold.Counters;
import dev.leasehold.LeaseholdClient;
import org.springframework.boot.actuate.health.AbstractHealthIndicator;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnExpression;
import org.springframework.context.annotation.Bean;

/**
 * The part {@code leasehold} of the health that Spring Boot 3's Actuator shows: up while the store
 * answers. {@code management.health.leasehold.enabled=false} leaves it out, and so does
 * {@code management.health.defaults.enabled=false}, which is of all parts that say nothing themselves.
 */
@AutoConfiguration(after = LeaseholdAutoConfiguration.class)
@ConditionalOnClass(HealthIndicator.class)
@ConditionalOnBean(LeaseholdClient.class)
@ConditionalOnExpression("${management.health.leasehold.enabled:${management.health.defaults.enabled:true}}")
public class LeaseholdHealthConfiguration {
    /**
     * Asks the store at each look, for {@code leasehold.io-timeout} at most.
     *
     * @param client whose store it is
     * @return an indicator, whose details are the store and what was counted
     */
    @Bean
    @ConditionalOnMissingBean(name = "leaseholdHealthIndicator")
    public HealthIndicator leaseholdHealthIndicator(LeaseholdClient client) {
        return new AbstractHealthIndicator("the store of the locks does not answer") {
            @Override
            protected void doHealthCheck(Health.Builder health) {
                health.withDetail("store", client.store());
                client.ping();
                Counters counters = client.counters();
                health.up().withDetail("granted", counters.granted()).withDetail("lost", counters.lost());
            }
        };
    }
}
