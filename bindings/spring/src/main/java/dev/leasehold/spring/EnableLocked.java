package dev.leasehold.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.springframework.context.annotation.Import;

/**
 * Makes {@link Locked} and {@link LockedScheduled} work in a program that has a bean of the type
 * {@link dev.leasehold.LeaseholdClient}. Spring Boot needs it not: there it is configured already.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
@Import(LockedConfiguration.class)
public @interface EnableLocked {}
