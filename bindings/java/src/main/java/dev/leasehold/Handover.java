package dev.leasehold;

/**
 * What another process needs to continue a lease: from {@link Lease#detach()}, for
 * {@link NamedLock#attach(String, long)}. A program that has the token can release the lock.
 *
 * @param token 32 hexadecimal digits
 * @param fence the fence of the lease
 */
public record Handover(String token, long fence) {
    /** Without the token, which is a secret: records tend to be logged. */
    @Override
    public String toString() {
        return "Handover(fence " + fence + ")";
    }
}
