package dev.leasehold.spring.boot;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.actuate.health.Status;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;

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
