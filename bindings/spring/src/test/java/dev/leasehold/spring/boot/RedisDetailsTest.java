package dev.leasehold.spring.boot;

import static org.assertj.core.api.Assertions.assertThat;

import dev.leasehold.LeaseholdClient;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.autoconfigure.data.redis.RedisConnectionDetails;
import org.springframework.boot.autoconfigure.data.redis.RedisProperties;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.util.ClassUtils;

/** A server that Spring Boot 3 knows from a bean, such as that of a container. */
class RedisDetailsTest {
    private final ApplicationContextRunner program = new ApplicationContextRunner()
            .withInitializer(context -> context.getEnvironment().getPropertySources().remove("systemEnvironment"))
            .withPropertyValues("leasehold.check-on-start=false", "spring.data.redis.host=cache")
            .withConfiguration(AutoConfigurations.of(LeaseholdAutoConfiguration.class));

    @Test
    void detailsThatAreNoPropertiesAreRefused() {
        var withDetails = program.withBean(RedisConnectionDetails.class, () -> new RedisConnectionDetails() {});
        withDetails.run(context -> assertThat(context).hasFailed().getFailure().rootCause()
                .hasMessageContaining("a bean of the type RedisConnectionDetails says where Redis is")
                .hasMessageContaining("set leasehold.url"));
        withDetails.withPropertyValues("leasehold.url=redis://other")
                .run(context -> assertThat(context).hasSingleBean(LeaseholdClient.class));
    }

    @Configuration(proxyBeanMethods = false)
    static class OfBoot {
        /** The class is not public. */
        @Bean
        RedisConnectionDetails details() throws ReflectiveOperationException {
            String name = RedisConnectionDetails.class.getPackageName() + ".PropertiesRedisConnectionDetails";
            var made = ClassUtils.forName(name, null).getDeclaredConstructors()[0];
            made.setAccessible(true);
            return (RedisConnectionDetails) made.newInstance(new RedisProperties(), null);
        }
    }

    @Test
    void thoseOfThePropertiesAreNot() {
        program.withUserConfiguration(OfBoot.class).run(context ->
                assertThat(context.getBean(LeaseholdClient.class).store()).isEqualTo("redis://cache:6379/0"));
    }
}
