/** The auto-configuration for Spring Boot, from {@code leasehold.*} and what Spring Boot knows already. */
package dev.leasehold.spring.boot;
