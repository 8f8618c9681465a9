/**
 * Leasehold: one lock for programs on many machines, or for the processes of one.
 *
 * <p>Begin with {@link dev.leasehold.LeaseholdClient}.
 */
module dev.leasehold {
    exports dev.leasehold;
    // For Fences alone: who has no database needs none of it.
    requires static transitive java.sql;
}
