package dev.leasehold.spring.boot;

import java.util.List;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.util.ClassUtils;

/** What tells Spring where Redis is in the place of {@code spring.data.redis.*}: a container of a test, say. */
final class RedisDetails {
    /** Of Spring Boot 3 and of 4. They are known by name, since a program may have neither. */
    private static final List<String> TYPES = List.of(
            "org.springframework.boot.autoconfigure.data.redis.RedisConnectionDetails",
            "org.springframework.boot.data.redis.autoconfigure.DataRedisConnectionDetails");

    private RedisDetails() {}

    /**
     * Refuses them: the properties that Leasehold reads would name another server than Spring uses.
     *
     * @throws IllegalStateException there are some
     */
    static void check(ListableBeanFactory beans) {
        ClassLoader loader = RedisDetails.class.getClassLoader();
        for (String name : TYPES) {
            if (!ClassUtils.isPresent(name, loader)) {
                continue;
            }
            for (Object details : beans.getBeansOfType(ClassUtils.resolveClassName(name, loader)).values()) {
                if (!isOfProperties(details.getClass())) {
                    throw new IllegalStateException("a bean of the type " + ClassUtils.getShortName(name)
                            + " says where Redis is (of @ServiceConnection or Docker Compose, say), and Leasehold does"
                            + " not read it: set leasehold.url, or leasehold.settings-from=datasource");
                }
            }
        }
    }

    /** Spring Boot's own bean, which says what the properties say. */
    private static boolean isOfProperties(Class<?> type) {
        return type.getName().startsWith("org.springframework.boot.") && type.getSimpleName().startsWith("Properties");
    }
}
