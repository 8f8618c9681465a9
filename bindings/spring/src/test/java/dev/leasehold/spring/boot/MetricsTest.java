package dev.leasehold.spring.boot;

import static org.assertj.core.api.Assertions.assertThat;

import dev.leasehold.LeaseholdClient;
import dev.leasehold.MemoryStore;
import dev.leasehold.micrometer.LeaseholdMetrics;
import io.micrometer.core.instrument.MeterRegistry;
import org.junit.jupiter.api.Test;
import org.springframework.boot.actuate.autoconfigure.metrics.MetricsAutoConfiguration;
import org.springframework.boot.actuate.autoconfigure.metrics.export.simple.SimpleMetricsExportAutoConfiguration;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;

/** What the registry of a program shows, without a word of the program. */
class MetricsTest {
    private static final MemoryStore STORE = MemoryStore.create();
    private final ApplicationContextRunner program = new ApplicationContextRunner()
            .withPropertyValues("leasehold.url=" + STORE.url(), "leasehold.metrics-groups=order:*")
            .withConfiguration(AutoConfigurations.of(LeaseholdAutoConfiguration.class,
                    LeaseholdMetricsConfiguration.class, MetricsAutoConfiguration.class,
                    SimpleMetricsExportAutoConfiguration.class));

    @Test
    void theRegistryOfAProgramHasTheFiguresOfItsLocks() {
        program.run(context -> {
            context.getBean(LeaseholdClient.class).lock("order:42").acquire().release();
            MeterRegistry registry = context.getBean(MeterRegistry.class);
            assertThat(registry.get("leasehold.acquisitions").tags("lock", "order:*", "outcome", "granted")
                    .functionCounter().count()).isEqualTo(1);
            assertThat(registry.get("leasehold.held").tag("lock", "order:*").gauge().value()).isZero();
            assertThat(registry.find("leasehold.held").tag("lock", "order:42").gauge()).isNull();
        });
    }

    @Test
    void aProgramMayLeaveThemOut() {
        program.withPropertyValues("management.metrics.enable.leasehold=false").run(context -> {
            assertThat(context).doesNotHaveBean(LeaseholdMetrics.class);
            assertThat(context.getBean(MeterRegistry.class).find("leasehold.held").gauge()).isNull();
        });
        program.withClassLoader(new FilteredClassLoader("io.micrometer"))
                .run(context -> assertThat(context).doesNotHaveBean("leaseholdMetrics")
                        .hasSingleBean(LeaseholdClient.class));
        program.withPropertyValues("leasehold.enabled=false")
                .run(context -> assertThat(context).hasNotFailed().doesNotHaveBean(LeaseholdMetrics.class));
    }
}
