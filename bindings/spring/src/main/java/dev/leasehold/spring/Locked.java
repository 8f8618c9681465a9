package dev.leasehold.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * A method of a bean that runs under a lock.
 *
 * <pre>{@code
 * @Locked(name = "order:#{#id}", ttl = "10s", waitAtMost = "5s")
 * @Transactional
 * public void charge(long id) {
 *     orders.charge(id, CurrentLease.fence());
 * }
 * }</pre>
 *
 * <p><strong>The lock is released after the transaction has ended.</strong> Released before the
 * commit, it would let the next holder read what the first one has not committed yet, and overwrite
 * it. So the lock is acquired outside of {@code @Transactional}: its advice has a higher precedence.
 * If the caller has begun a transaction already, the lock is held until that one has ended. A lease
 * that was lost by then makes it roll back.
 *
 * <p>After the wait, {@link dev.leasehold.LeaseTimeoutException} is thrown and the method does not
 * run. If the lease was lost meanwhile, {@link dev.leasehold.LeaseLostException} is thrown, unless
 * the method itself throws. <strong>Its transaction has committed; do not repeat it.</strong>
 *
 * <p>If the thread is interrupted while it waits, {@link InterruptedException} is thrown if the method
 * declares it, else {@link LockInterruptedException}.
 *
 * <p>As with {@code @Transactional}, only calls through the bean are locked: not those of
 * {@code this.charge(id)} within its class. A method that Spring cannot intercept because it is
 * private, static or final is an error when the bean is made. So is one that returns before its work is
 * done: a future, a {@code Mono}, a {@code Flux}, or a suspend function of Kotlin.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface Locked {
    /**
     * The name of the lock. What stands in {@code #{..}} is an expression of Spring: {@code #id} is
     * the parameter of that name (compile with {@code -parameters}), {@code #p0} the first one,
     * {@code @bean} a bean. What stands in <code>${..}</code> is a property. An expression that is
     * null or an empty {@code Optional} is an error, since all calls would share one lock.
     *
     * @return a template
     */
    String name();

    /**
     * How soon the lock is free after its holder died, such as {@code "10s"}: 30 s by default.
     *
     * @return a duration as Spring Boot writes it, or a property
     */
    String ttl() default "";

    /**
     * How long to wait for the lock: 60 s by default.
     *
     * @return a duration; {@code "0s"} tries once
     */
    String waitAtMost() default "";

    /**
     * How long a call may hold the lock: 1 h by default.
     *
     * @return a duration
     */
    String maxHold() default "";
}
