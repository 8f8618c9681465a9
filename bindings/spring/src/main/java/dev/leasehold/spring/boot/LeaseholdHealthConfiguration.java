package dev.leasehold.spring.boot;

import dev.leasehold.Counters;
import dev.leasehold.Election;
import dev.leasehold.LeaseholdClient;
import java.util.LinkedHashMap;
import java.util.Map;
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
 * answers. And the part {@code leaseholdElections}, if there are candidates for a leadership.
 * {@code management.health.leasehold.enabled=false} leaves both out, and so does
 * {@code management.health.defaults.enabled=false}, which is of all parts that say nothing themselves.
 */
@AutoConfiguration(after = LeaseholdAutoConfiguration.class)
@ConditionalOnClass(HealthIndicator.class)
@ConditionalOnBean(LeaseholdClient.class)
@ConditionalOnExpression("${management.health.leasehold.enabled:${management.health.defaults.enabled:true}}")
public class LeaseholdHealthConfiguration {
    /**
     * The part {@code leaseholdElections}, if there are beans of the type {@link Election}: down while the
     * work of one of them outlives its lease, and nothing but the end of the process stops it. A standby is
     * up. So it may be a part of {@code liveness}.
     *
     * @param elections by the names of their beans
     * @return an indicator, whose details are what each one does and in which term
     */
    @Bean
    @ConditionalOnBean(Election.class)
    @ConditionalOnMissingBean(name = "leaseholdElectionsHealthIndicator")
    public HealthIndicator leaseholdElectionsHealthIndicator(Map<String, Election> elections) {
        return () -> {
            boolean healthy = elections.values().stream().allMatch(Election::isHealthy);
            Health.Builder health = healthy ? Health.up() : Health.down();
            elections.forEach((bean, election) -> {
                var details = new LinkedHashMap<String, Object>();
                details.put("name", election.name());
                details.put("state", election.state());
                election.fence().ifPresent(fence -> details.put("fence", fence));
                health.withDetail(bean, details);
            });
            return health.build();
        };
    }

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
