package dev.leasehold;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * What the methods of a type return is the point of calling them. Error Prone, SpotBugs and IntelliJ
 * know an annotation of this name, whatever its package, and say so where a result is dropped.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
public @interface CheckReturnValue {}
