package dev.leasehold.spring;

import dev.leasehold.LeaseholdClient;
import dev.leasehold.NamedLock;
import java.lang.reflect.Method;
import java.time.Duration;
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

    private final Method method;
    private final Checks checks;
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
        this.checks = new Checks(method, "Locked");
        checks.checkEndsWithItsWork();
        String template = checks.name(properties.apply(locked.name()));
        try {
            this.name = PARSER.parseExpression(template, new TemplateParserContext());
        } catch (ParseException e) {
            throw checks.refuse("has a name that is no template: " + e.getMessage());
        }
        this.ttl = checks.duration("ttl", properties.apply(locked.ttl()));
        this.waitAtMost = checks.duration("waitAtMost", properties.apply(locked.waitAtMost()));
        this.maxHold = checks.duration("maxHold", properties.apply(locked.maxHold()));
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
            throw new IllegalArgumentException(checks.describe() + " cannot evaluate " + expression + ": "
                    + e.getMessage(), e);
        }
        if (value == null) {
            throw new IllegalArgumentException(checks.describe() + " has a name in which " + expression
                    + " is null (a parameter has its name if the class is compiled with -parameters, and is"
                    + " #p0, #p1, .. in any case)");
        }
        String text = value.toString();
        if (text.isEmpty()) {
            throw new IllegalArgumentException(checks.describe() + " has a name in which " + expression + " is empty");
        }
        if (text.equals(value.getClass().getName() + "@" + Integer.toHexString(value.hashCode()))) {
            throw new IllegalArgumentException(checks.describe() + " has a name in which " + expression + " is a "
                    + value.getClass().getName() + " without a toString() of its own, so each object would be"
                    + " another lock; take its id");
        }
        return text;
    }
}
