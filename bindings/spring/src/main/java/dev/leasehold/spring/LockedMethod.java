package dev.leasehold.spring;

import dev.leasehold.LeaseholdClient;
import dev.leasehold.NamedLock;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.Arrays;
import java.util.Set;
import java.util.function.UnaryOperator;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.expression.EvaluationContext;
import org.springframework.expression.EvaluationException;
import org.springframework.expression.Expression;
import org.springframework.expression.ParseException;
import org.springframework.expression.common.CompositeStringExpression;
import org.springframework.expression.common.LiteralExpression;
import org.springframework.expression.common.TemplateParserContext;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.util.ObjectUtils;

/** A method and what its {@link Locked} says, read once. */
final class LockedMethod {
    private static final SpelExpressionParser PARSER = new SpelExpressionParser();
    private static final ParameterNameDiscoverer NAMES = new DefaultParameterNameDiscoverer();

    /** What is returned before the work is done; known by name, since a program may have none of them. */
    private static final Set<String> LATER = Set.of(
            "java.util.concurrent.Future",
            "java.util.concurrent.CompletionStage",
            "java.util.concurrent.Flow$Publisher",
            "org.reactivestreams.Publisher",
            "kotlinx.coroutines.flow.Flow");

    /** The last parameter of what Kotlin calls a suspend function. */
    private static final String CONTINUATION = "kotlin.coroutines.Continuation";

    private final Method method;
    private final Expression name;
    private final Duration ttl;
    private final Duration waitAtMost;
    private final Duration maxHold;

    /**
     * Reads it.
     *
     * @param properties resolves what stands in <code>${..}</code>
     * @throws IllegalStateException nothing can be made of it
     */
    LockedMethod(Method method, Locked locked, UnaryOperator<String> properties) {
        this.method = method;
        checkEndsWithItsWork();
        String template = properties.apply(locked.name());
        if (template.isBlank()) {
            throw refuse("has no name");
        }
        if (template.contains("${")) {
            // Without Spring Boot, Spring leaves it as it stands, and all calls would share one lock.
            throw refuse("has the name \"" + template + "\", of which no property sets what stands in ${..}");
        }
        try {
            this.name = PARSER.parseExpression(template, new TemplateParserContext());
        } catch (ParseException e) {
            throw refuse("has a name that is no template: " + e.getMessage());
        }
        this.ttl = duration("ttl", properties.apply(locked.ttl()));
        this.waitAtMost = duration("waitAtMost", properties.apply(locked.waitAtMost()));
        this.maxHold = duration("maxHold", properties.apply(locked.maxHold()));
    }

    /** Spring's interceptors see calls through the bean's proxy, which overrides methods. */
    static void checkInterceptable(Method method) {
        for (int obstacle : new int[] {Modifier.PRIVATE, Modifier.STATIC, Modifier.FINAL}) {
            if ((method.getModifiers() & obstacle) != 0) {
                throw new IllegalStateException(describe(method) + " is " + Modifier.toString(obstacle)
                        + ", so Spring cannot lock its calls; make it public, and neither static nor final");
            }
        }
    }

    /** The lock is released when the method returns. */
    private void checkEndsWithItsWork() {
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
                || Arrays.stream(type.getInterfaces()).anyMatch(LockedMethod::isLater);
    }

    private static String describe(Method method) {
        return "the @Locked method " + method.getDeclaringClass().getSimpleName() + "." + method.getName() + "()";
    }

    private IllegalStateException refuse(String why) {
        return new IllegalStateException(describe(method) + " " + why);
    }

    private Duration duration(String what, String text) {
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

    /** The lock of one call. */
    NamedLock lock(LeaseholdClient client, Object target, Object[] arguments, BeanFactory beans) {
        NamedLock lock = client.lock(name(target, arguments, beans));
        lock = ttl == null ? lock : lock.ttl(ttl);
        lock = waitAtMost == null ? lock : lock.waitAtMost(waitAtMost);
        return maxHold == null ? lock : lock.maxHold(maxHold);
    }

    private String name(Object target, Object[] arguments, BeanFactory beans) {
        var context = new MethodBasedEvaluationContext(target, method, arguments, NAMES);
        context.setBeanResolver(new BeanFactoryResolver(beans));
        if (!(name instanceof CompositeStringExpression parts)) {
            return part(name, context);
        }
        // As a whole it would leave out what is null.
        var text = new StringBuilder();
        for (Expression part : parts.getExpressions()) {
            text.append(part(part, context));
        }
        return text.toString();
    }

    private String part(Expression part, EvaluationContext context) {
        if (part instanceof LiteralExpression) {
            return part.getExpressionString();
        }
        String expression = "#{" + part.getExpressionString() + "}";
        Object value;
        try {
            // As Spring does with parameters: an empty one is null.
            value = ObjectUtils.unwrapOptional(part.getValue(context));
        } catch (EvaluationException e) {
            throw new IllegalArgumentException(describe(method) + " cannot evaluate " + expression + ": "
                    + e.getMessage(), e);
        }
        if (value == null) {
            throw new IllegalArgumentException(describe(method) + " has a name in which " + expression
                    + " is null (a parameter has its name if the class is compiled with -parameters, and is"
                    + " #p0, #p1, .. in any case)");
        }
        String text = value.toString();
        if (text.isEmpty()) {
            throw new IllegalArgumentException(describe(method) + " has a name in which " + expression + " is empty");
        }
        if (text.equals(value.getClass().getName() + "@" + Integer.toHexString(value.hashCode()))) {
            throw new IllegalArgumentException(describe(method) + " has a name in which " + expression + " is a "
                    + value.getClass().getName() + " without a toString() of its own, so each object would be"
                    + " another lock; take its id");
        }
        return text;
    }
}
