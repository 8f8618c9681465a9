package dev.leasehold.spring;

import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.core.MethodIntrospector;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.util.ClassUtils;
import org.springframework.util.ReflectionUtils;
import org.springframework.util.StringValueResolver;

/** All methods that are locked, read when their bean is made: what is wrong with one is told then. */
final class LockedMethods implements BeanPostProcessor {
    private final StringValueResolver properties;
    private final Map<Key, LockedMethod> read = new ConcurrentHashMap<>();

    private record Key(Method method, Class<?> type) {}

    LockedMethods(StringValueResolver properties) {
        this.properties = properties;
    }

    LockedMethod get(Method method, Class<?> type) {
        return read.computeIfAbsent(new Key(method, type), key -> {
            Method own = AopUtils.getMostSpecificMethod(method, type);
            return new LockedMethod(own, find(own), properties::resolveStringValue);
        });
    }

    @Override
    public Object postProcessBeforeInitialization(Object bean, String beanName) {
        Class<?> type = ClassUtils.getUserClass(bean);
        ReflectionUtils.doWithMethods(type, method -> new Checks(method, "Locked").checkInterceptable(),
                method -> method.isAnnotationPresent(Locked.class));
        MethodIntrospector.selectMethods(type, LockedMethods::findIfAny).keySet().forEach(method -> get(method, type));
        return bean;
    }

    static Locked findIfAny(Method method) {
        return AnnotatedElementUtils.findMergedAnnotation(method, Locked.class);
    }

    private static Locked find(Method method) {
        Locked locked = findIfAny(method);
        if (locked == null) {
            throw new IllegalStateException(method + " is not @Locked");
        }
        return locked;
    }
}
