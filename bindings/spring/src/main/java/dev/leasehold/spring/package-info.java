/** Leasehold in the places that Spring Integration and ShedLock have for locks. */
package dev.leasehold.spring;
