package dev.leasehold;

import java.nio.charset.StandardCharsets;
import java.time.Instant;

/**
 * What a client asks for credentials. The client keeps it: the native half has a weak reference, so that
 * a callback which leads to the client does not keep that from being forgotten.
 */
final class CredentialsSource {
    private final Credentials credentials;
    /** Where the program finds its services; a native thread has that of the system. */
    private final ClassLoader loader = Thread.currentThread().getContextClassLoader();

    CredentialsSource(Credentials credentials) {
        this.credentials = credentials;
    }

    /**
     * Called from C, on a thread of the client, which is Java's for this call only.
     *
     * @param figures is filled with the end of the secret, in milliseconds since 1970, or 0; and 1 if older
     *     connections make way
     * @return user, secret, and why there are none; each may be null
     */
    private byte[][] ask(byte[] host, int port, byte[] user, long[] figures) {
        try {
            Thread.currentThread().setContextClassLoader(loader);
            String as = user == null ? null : Name.decode(user);
            return answer(credentials.lookUp(new Credentials.Endpoint(Name.decode(host), port, as)), figures);
        } catch (Throwable e) { // whatever it is, nobody else on this thread can be told
            return failure(e);
        }
    }

    private static byte[][] answer(Credentials.Login login, long[] figures) {
        if (login == null) {
            throw new NullPointerException("it returned null, and not a Credentials.Login");
        }
        if (login.secret() == null) {
            throw new NullPointerException("the secret that it returned is null");
        }
        Instant until = login.validUntil();
        // Zero would be a secret without an end.
        figures[0] = until == null ? 0 : Math.max(1, millis(until));
        figures[1] = login.retireConnections() ? 1 : 0;
        return new byte[][] {
            login.user() == null ? null : encode("user", login.user()), encode("secret", login.secret()), null
        };
    }

    private static long millis(Instant until) {
        try {
            return until.toEpochMilli();
        } catch (ArithmeticException e) { // Instant.MAX, say
            return until.isAfter(Instant.EPOCH) ? Long.MAX_VALUE : 1;
        }
    }

    /** C would see a text that ends at the zero. */
    private static byte[] encode(String what, String text) {
        if (text.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("the " + what + " that it returned has a zero character in it");
        }
        return Name.encode("the " + what + " that it returned", text);
    }

    private static byte[][] failure(Throwable e) {
        String text;
        try {
            text = e.toString().replace('\0', ' ');
        } catch (RuntimeException worse) {
            text = e.getClass().getName();
        }
        return new byte[][] {null, null, text.getBytes(StandardCharsets.UTF_8)};
    }
}
