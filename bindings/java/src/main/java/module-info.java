/**
 * Leasehold: one lock for programs on many machines, or for the processes of one.
 *
 * <p>Begin with {@link dev.leasehold.LeaseholdClient}.
 */
@SuppressWarnings({"requires-automatic", "requires-transitive-automatic"})
module dev.leasehold {
    exports dev.leasehold;
    exports dev.leasehold.micrometer;
    // For Fences alone: who has no database needs none of it.
    requires static transitive java.sql;
    // For its binder alone.
    requires static transitive micrometer.core;
}
