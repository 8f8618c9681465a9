package dev.leasehold;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * The methods of a type are called for what they return. Error Prone, SpotBugs and IntelliJ know an
 * annotation of this name in any package, and warn if a result is dropped.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
public @interface CheckReturnValue {}
