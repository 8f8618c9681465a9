package dev.leasehold;

/**
 * What each thread holds by {@link LeaseholdLock}s of one client. A thread that has ended holds
 * nothing any more: what it held is forgotten with it, and runs out by its ttl.
 */
final class Holds {
    private final ThreadLocal<Hold> first = new ThreadLocal<>();

    /** One name, held by one thread, as often as it has taken it. */
    static final class Hold {
        private final Name name;
        final Lease lease;
        int count = 1;
        private Hold next;

        private Hold(Name name, Lease lease, Hold next) {
            this.name = name;
            this.lease = lease;
            this.next = next;
        }
    }

    /** What the calling thread has of a name, or null. */
    Hold find(Name name) {
        Hold hold = first.get();
        while (hold != null && !hold.name.equals(name)) {
            hold = hold.next;
        }
        return hold;
    }

    void add(Name name, Lease lease) {
        first.set(new Hold(name, lease, first.get()));
    }

    void remove(Hold hold) {
        Hold head = first.get();
        if (head != hold) {
            Hold before = head;
            while (before.next != hold) {
                before = before.next;
            }
            before.next = hold.next;
        } else if (hold.next != null) {
            first.set(hold.next);
        } else {
            first.remove();
        }
    }
}
