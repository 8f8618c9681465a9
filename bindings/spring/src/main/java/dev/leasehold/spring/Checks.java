package dev.leasehold.spring;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.Arrays;
import java.util.Set;

/** What a method must be to be locked, and its annotation's texts. What is wrong is an IllegalStateException. */
record Checks(Method method, String annotation) {
    /** What is returned before the work is done; known by name, since a program may have none of them. */
    private static final Set<String> LATER = Set.of(
            "java.util.concurrent.Future",
            "java.util.concurrent.CompletionStage",
            "java.util.concurrent.Flow$Publisher",
            "org.reactivestreams.Publisher",
            "kotlinx.coroutines.flow.Flow");

    /** The last parameter of what Kotlin calls a suspend function. */
    private static final String CONTINUATION = "kotlin.coroutines.Continuation";

    /** Spring's interceptors see calls through the bean's proxy, which overrides methods. */
    void checkInterceptable() {
        for (int obstacle : new int[] {Modifier.PRIVATE, Modifier.STATIC, Modifier.FINAL}) {
            if ((method.getModifiers() & obstacle) != 0) {
                throw new IllegalStateException(describe() + " is " + Modifier.toString(obstacle)
                        + ", so Spring cannot lock its calls; make it public, and neither static nor final");
            }
        }
    }

    /** The name that is written, with the properties in it. */
    String name(String text) {
        if (text.isBlank()) {
            throw refuse("has no name");
        }
        if (text.contains("${")) {
            // Without Spring Boot, Spring leaves it as it stands, and all calls would share one lock.
            throw refuse("has the name \"" + text + "\", of which no property sets what stands in ${..}");
        }
        return text;
    }

    /** The lock is released when the method returns. */
    void checkEndsWithItsWork() {
        String why = ", so its lock would be released before the work is done; lock a method that returns after it";
        if (isLater(method.getReturnType())) {
            throw refuse("returns a " + method.getReturnType().getName() + why);
        }
        for (Class<?> parameter : method.getParameterTypes()) {
            if (parameter.getName().equals(CONTINUATION)) {
                throw refuse("is a suspend function" + why);
            }
        }
    }

    private static boolean isLater(Class<?> type) {
        if (type == null) {
            return false;
        }
        return LATER.contains(type.getName())
                || isLater(type.getSuperclass())
                || Arrays.stream(type.getInterfaces()).anyMatch(Checks::isLater);
    }

    String describe() {
        return "the @" + annotation + " method " + method.getDeclaringClass().getSimpleName() + "." + method.getName()
                + "()";
    }

    IllegalStateException refuse(String why) {
        return new IllegalStateException(describe() + " " + why);
    }

    Duration duration(String what, String text) {
        if (text.isBlank()) {
            return null;
        }
        try {
            Duration duration = Durations.parse(text.strip());
            if (!duration.isNegative()) {
                return duration;
            }
        } catch (IllegalArgumentException e) {
            // Told below, in one way.
        }
        throw refuse("has " + what + " = \"" + text + "\", which is no duration; write it as \"10s\" or \"500ms\"");
    }
}
