package dev.leasehold.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * A job that runs on one node at a time, although every node schedules it.
 *
 * <pre>{@code
 * @Scheduled(cron = "0 0 2 * * *")
 * @LockedScheduled(name = "nightly", lockAtMostFor = "6h", lockAtLeastFor = "10m")
 * public void nightly() {
 *     reports.write(CurrentLease.fence());
 * }
 * }</pre>
 *
 * <p>A node that finds the lock held skips the run. It does not wait, and throws nothing.
 *
 * <p>{@code lockAtMostFor} is how long the lock stays held if the node dies during the run. A run that
 * takes longer loses its lock, so another node may run the job at the same time. It then throws {@link
 * dev.leasehold.LeaseLostException}, unless the job itself throws. {@code lockAtLeastFor} keeps the
 * lock after a short run, so that a node whose clock is late does not run the job again. The store's
 * clock counts for both. A job that throws keeps the lock for as long.
 *
 * <p>If the store cannot be reached, the job does not run, and {@link
 * dev.leasehold.LeaseholdException} is thrown to Spring's scheduler, which logs it.
 *
 * <p>Only calls through the bean are locked, as with {@link Locked}. A mistake in the annotation is an
 * error when the bean is made.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface LockedScheduled {
    /**
     * The name of the lock. What stands in <code>${..}</code> is a property.
     *
     * @return a name
     */
    String name();

    /**
     * How long the lock stays held if the node dies, such as {@code "6h"}. It is longer than the job
     * ever takes.
     *
     * @return a duration as Spring Boot writes it, or a property
     */
    String lockAtMostFor();

    /**
     * How long the lock stays held since the start of a run, however short it is.
     *
     * @return a duration, no longer than {@code lockAtMostFor}
     */
    String lockAtLeastFor() default "";
}
