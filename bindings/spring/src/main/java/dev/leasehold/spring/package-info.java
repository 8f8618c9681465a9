/**
 * Leasehold in the places that Spring has for locks: {@link dev.leasehold.spring.Locked} for methods, a
 * registry for Spring Integration, and a provider for ShedLock.
 */
package dev.leasehold.spring;
