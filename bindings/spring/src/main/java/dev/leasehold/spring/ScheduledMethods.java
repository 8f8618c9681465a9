package dev.leasehold.spring;

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.core.MethodIntrospector;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.util.ClassUtils;
import org.springframework.util.ReflectionUtils;
import org.springframework.util.StringValueResolver;

/** All methods that are {@link LockedScheduled}, read when their bean is made: what is wrong is told then. */
final class ScheduledMethods implements BeanPostProcessor {
    private final StringValueResolver properties;
    private final Map<Method, Terms> read = new ConcurrentHashMap<>();

    /** What an annotation says. */
    record Terms(String name, Duration atMost, Duration atLeast) {}

    ScheduledMethods(StringValueResolver properties) {
        this.properties = properties;
    }

    Terms get(Method method, Class<?> type) {
        return read.computeIfAbsent(AopUtils.getMostSpecificMethod(method, type), this::read);
    }

    @Override
    public Object postProcessBeforeInitialization(Object bean, String beanName) {
        Class<?> type = ClassUtils.getUserClass(bean);
        ReflectionUtils.doWithMethods(type, method -> new Checks(method, "LockedScheduled").checkInterceptable(),
                method -> method.isAnnotationPresent(LockedScheduled.class));
        MethodIntrospector.selectMethods(type, ScheduledMethods::find).keySet().forEach(method -> get(method, type));
        return bean;
    }

    private static LockedScheduled find(Method method) {
        return AnnotatedElementUtils.findMergedAnnotation(method, LockedScheduled.class);
    }

    private Terms read(Method method) {
        var checks = new Checks(method, "LockedScheduled");
        LockedScheduled said = find(method);
        checks.checkEndsWithItsWork();
        if (method.getReturnType().isPrimitive() && method.getReturnType() != void.class) {
            throw checks.refuse("returns " + method.getReturnType() + ", which a run that is skipped does not have;"
                    + " make it void");
        }
        String name = checks.name(properties.resolveStringValue(said.name()));
        Duration atMost = checks.duration("lockAtMostFor", properties.resolveStringValue(said.lockAtMostFor()));
        Duration atLeast = checks.duration("lockAtLeastFor", properties.resolveStringValue(said.lockAtLeastFor()));
        if (atMost == null || atMost.isZero()) {
            throw checks.refuse("has no lockAtMostFor; write how long the lock stays held if the node dies");
        }
        if (atLeast != null && atLeast.compareTo(atMost) > 0) {
            throw checks.refuse("has a lockAtLeastFor of " + said.lockAtLeastFor() + ", which is longer than its"
                    + " lockAtMostFor of " + said.lockAtMostFor());
        }
        return new Terms(name, atMost, atLeast == null ? Duration.ZERO : atLeast);
    }
}
