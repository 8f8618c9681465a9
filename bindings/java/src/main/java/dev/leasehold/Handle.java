package dev.leasehold;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A native handle, which is freed once: by the call that ends it first, or by the {@link Cleaner}
 * when the object that it belongs to was forgotten. It must not refer to that object.
 *
 * <p>It is an {@link AtomicLong} itself, and not one with a field of that type, to have one object
 * less for each lease.
 */
abstract class Handle extends AtomicLong implements Runnable {
    private static final long serialVersionUID = 1;
    private static final Cleaner CLEANER = Cleaner.create();

    Handle(long handle) {
        super(handle);
    }

    /**
     * Has the handle abandoned when {@code owner} was forgotten.
     *
     * @return what makes the cleaner forget the handle in turn
     */
    final Cleaner.Cleanable follow(Object owner) {
        return CLEANER.register(owner, this);
    }

    /** Takes the handle, to free it; 0 when somebody has done so before. */
    final long take() {
        return getAndSet(0);
    }

    /** Nobody can use the handle any more. Must not wait for a store. */
    @Override
    public final void run() {
        long handle = take();
        if (handle != 0) {
            abandon(handle);
        }
    }

    abstract void abandon(long handle);
}
