package dev.leasehold;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/**
 * Lends a virtual thread a platform thread to wait on.
 *
 * <p>A virtual thread that waits in native code keeps the thread that carries it, and there are as
 * few of those as the machine has cores. If all of them waited for a lock whose holder is a virtual
 * thread too, that one could not go on to release it.
 */
final class LentThread<T> implements Runnable {
    /** {@code Thread.isVirtual()}, or null where the JDK has none. */
    private static final MethodHandle IS_VIRTUAL = isVirtual();

    private final Callable<T> call;
    private final CompletableFuture<T> result = new CompletableFuture<>();
    /** The thread while it works on this call. */
    private Thread lent;

    private boolean interrupted;

    private LentThread(Callable<T> call) {
        this.call = call;
    }

    /** Whether the calling thread is a virtual one. */
    static boolean isNeeded() {
        try {
            return IS_VIRTUAL != null && (boolean) IS_VIRTUAL.invokeExact(Thread.currentThread());
        } catch (Throwable e) {
            throw new AssertionError(e);
        }
    }

    /** Makes a call there. Interrupting the virtual thread interrupts the lent one. */
    static <T> T lend(Callable<T> call) throws InterruptedException {
        return new LentThread<>(call).await(true);
    }

    /** Makes a call there. Interrupting the virtual thread only sets its flag. */
    static <T> T lendUninterruptibly(Callable<T> call) throws InterruptedException {
        return new LentThread<>(call).await(false);
    }

    private T await(boolean interruptible) throws InterruptedException {
        // One that is not lent again: the library would take it for the thread that holds what it took for
        // another virtual one, and say that it waits for itself.
        daemon(this).start();
        boolean flag = false;
        while (true) {
            try {
                T value = result.get();
                if (flag) {
                    Thread.currentThread().interrupt();
                }
                return value;
            } catch (InterruptedException e) {
                // The call itself says how it ends: it may have got the lock just now.
                flag = true;
                if (interruptible) {
                    interrupt();
                }
            } catch (ExecutionException e) {
                throw rethrown(e.getCause(), flag);
            }
        }
    }

    private static InterruptedException rethrown(Throwable cause, boolean flag)
            throws InterruptedException {
        if (cause instanceof InterruptedException ended) {
            throw ended; // which clears the flag
        }
        if (flag) {
            Thread.currentThread().interrupt();
        }
        if (cause instanceof Error error) {
            throw error;
        }
        throw (RuntimeException) cause;
    }

    private synchronized void interrupt() {
        interrupted = true;
        if (lent != null) {
            lent.interrupt();
        }
    }

    private synchronized void begin() {
        lent = Thread.currentThread();
        if (interrupted) {
            lent.interrupt();
        }
    }

    /** An interrupt that came too late must not meet the next call on this thread. */
    private synchronized void end() {
        lent = null;
        Thread.interrupted();
    }

    @Override
    public void run() {
        begin();
        T value = null;
        Throwable failure = null;
        try {
            value = call.call();
        } catch (Throwable e) {
            failure = e;
        }
        end();
        if (failure == null) {
            result.complete(value);
        } else {
            result.completeExceptionally(failure);
        }
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(null, work, "leasehold-wait", 0, false);
        thread.setDaemon(true);
        thread.setContextClassLoader(null);
        return thread;
    }

    private static MethodHandle isVirtual() {
        try {
            return MethodHandles.publicLookup()
                    .findVirtual(Thread.class, "isVirtual", MethodType.methodType(boolean.class));
        } catch (NoSuchMethodException | IllegalAccessException e) {
            return null;
        }
    }
}
