package dev.leasehold;

/** A native subscription. Freeing it ends a wait for its events. */
final class EventsHandle extends Handle {
    private static final long serialVersionUID = 1;

    EventsHandle(long handle) {
        super(handle);
    }

    /**
     * The next event; null when there was none in time.
     *
     * @throws LeaseholdException {@link Status#CLOSED}
     */
    LeaseEvent next(long waitMs) {
        long events = get();
        if (events == 0) {
            throw new LeaseholdException(Status.CLOSED, "the subscription is closed");
        }
        long[] figures = new long[4];
        byte[][] detail = new byte[1][];
        byte[] name = Native.nextEvent(events, waitMs, figures, detail);
        return name == null
                ? null
                : new LeaseEvent(
                        figures[0], figures[1], name, figures[2], figures[3], Name.decode(detail[0]));
    }

    @Override
    void abandon(long handle) {
        Native.freeEvents(handle);
    }
}
