/** What a client counts and measures, for Micrometer. It needs {@code micrometer-core}, which your program brings. */
package dev.leasehold.micrometer;
