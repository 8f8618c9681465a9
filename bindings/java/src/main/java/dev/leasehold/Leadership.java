package dev.leasehold;

/**
 * What has become of a candidate, as {@link Election#onChange} is told.
 *
 * @param fence the fence of its term
 * @param end why the term has ended; null if the candidate was elected
 * @param loss why the lease was lost, if {@code end} is {@link Term.End#LOST}; else
 *     {@link LeaseEvent.Reason#NONE}
 */
public record Leadership(long fence, Term.End end, LeaseEvent.Reason loss) {
    /**
     * Whether the candidate leads from now on.
     *
     * @return false if its term has ended
     */
    public boolean isElected() {
        return end == null;
    }
}
