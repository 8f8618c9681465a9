/**
 * Leasehold: one lock for programs on many machines, or for the processes of one.
 *
 * <p>Begin with {@link dev.leasehold.LeaseholdClient}.
 */
@SuppressWarnings({"requires-automatic", "requires-transitive-automatic"})
module dev.leasehold {
    exports dev.leasehold;
    exports dev.leasehold.junit;
    exports dev.leasehold.micrometer;
    // For Fences alone: who has no database needs none of it.
    requires static transitive java.sql;
    // For dev.leasehold.junit alone.
    requires static transitive org.junit.jupiter.api;
    // For its binder alone.
    requires static transitive micrometer.core;
    // For LeaseholdTelemetry alone.
    requires static transitive io.opentelemetry.api;
    requires static io.opentelemetry.context;
}
