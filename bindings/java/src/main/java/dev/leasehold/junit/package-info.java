/**
 * Tests with JUnit 5. {@link dev.leasehold.junit.MemoryStoreExtension} needs
 * {@code org.junit.jupiter:junit-jupiter-api}, which your project has.
 */
package dev.leasehold.junit;
