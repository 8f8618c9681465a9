package dev.leasehold.spring.boot;

import static org.assertj.core.api.Assertions.assertThat;

import dev.leasehold.Election;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.MemoryStore;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.actuate.health.Status;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** What the Actuator shows of the store. */
class HealthTest {
    private final ApplicationContextRunner program = new ApplicationContextRunner()
            .withConfiguration(
                    AutoConfigurations.of(LeaseholdAutoConfiguration.class, LeaseholdHealthConfiguration.class));

    @Test
    void itIsUpWhileTheStoreAnswers() {
        program.run(context -> {
            Health health = context.getBean("leaseholdHealthIndicator", HealthIndicator.class).health();
            assertThat(health.getStatus()).isEqualTo(Status.UP);
            assertThat(health.getDetails()).containsEntry("granted", 0L).containsEntry("lost", 0L);
            assertThat(health.getDetails().get("store").toString()).startsWith("redis://127.0.0.1");
        });
    }

    @Test
    void itIsDownOnceTheStoreIsGone() {
        program.withPropertyValues("leasehold.url=redis://127.0.0.1:1", "leasehold.check-on-start=false")
                .run(context -> {
                    Health health = context.getBean(HealthIndicator.class).health();
                    assertThat(health.getStatus()).isEqualTo(Status.DOWN);
                    assertThat(health.getDetails().get("error").toString()).contains("127.0.0.1:1");
                });
    }

    /** Of a program. */
    @Configuration(proxyBeanMethods = false)
    static class Collector {
        @Bean
        Election collector(LeaseholdClient client) {
            return client.election("collector").ttl(Duration.ofSeconds(3));
        }
    }

    @Test
    void candidatesAreShownAndDownOnceTheirWorkOutlivesItsLease() {
        String bean = "leaseholdElectionsHealthIndicator";
        program.run(context -> assertThat(context).doesNotHaveBean(bean));
        try (var memory = MemoryStore.create()) {
            program.withUserConfiguration(Collector.class)
                    .withPropertyValues("leasehold.url=" + memory.url(), "leasehold.io-timeout=100ms")
                    .run(context -> {
                        HealthIndicator indicator = context.getBean(bean, HealthIndicator.class);
                        assertThat(indicator.health().getStatus()).isEqualTo(Status.UP);
                        assertThat(shown(indicator)).isEqualTo("{name=collector, state=IDLE}");
                        Election election = context.getBean(Election.class);
                        election.runAsLeader(term -> {
                            assertThat(shown(indicator))
                                    .isEqualTo("{name=collector, state=LEADING, fence=" + term.fence() + "}");
                            memory.pause();
                            while (indicator.health().getStatus() == Status.UP) {
                                try {
                                    Thread.sleep(5);
                                } catch (InterruptedException e) {
                                    continue; // it does not stop
                                }
                            }
                            assertThat(indicator.health().getStatus()).isEqualTo(Status.DOWN);
                            assertThat(shown(indicator)).isEqualTo("{name=collector, state=OVERDUE}");
                            memory.resume();
                            election.stop();
                        });
                        assertThat(indicator.health().getStatus()).isEqualTo(Status.UP);
                    });
        }
    }

    private static String shown(HealthIndicator indicator) {
        return indicator.health().getDetails().get("collector").toString();
    }

    @Test
    void aProgramMayLeaveItOut() {
        program.withPropertyValues("management.health.leasehold.enabled=false")
                .run(context -> assertThat(context).doesNotHaveBean(HealthIndicator.class));
        var none = program.withPropertyValues("management.health.defaults.enabled=false");
        none.run(context -> assertThat(context).doesNotHaveBean(HealthIndicator.class));
        none.withPropertyValues("management.health.leasehold.enabled=true")
                .run(context -> assertThat(context).hasSingleBean(HealthIndicator.class));
        program.withClassLoader(new FilteredClassLoader("org.springframework.boot.actuate"))
                .run(context -> assertThat(context).hasNotFailed().doesNotHaveBean("leaseholdHealthIndicator"));
    }
}
