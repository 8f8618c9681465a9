package dev.leasehold;

import java.time.Instant;

/**
 * Looks up the user and the secret that a client logs in with, such as tokens of a cloud, or passwords
 * that a vault changes: for {@link ClientBuilder#credentials}.
 *
 * <pre>{@code
 * var client = LeaseholdClient.connect("rediss://cache.example.com", endpoint ->
 *         new Credentials.Login("app", makeToken(endpoint.host()), Instant.now().plusSeconds(900)));
 * }</pre>
 */
@FunctionalInterface
public interface Credentials {
    /**
     * Looks up what to log in with now. A daemon thread of the client calls this, one call at a time. It
     * must not use the client: that would wait for this call.
     *
     * @param endpoint the server that the login goes to
     * @return user and secret, which are used until shortly before they end
     * @throws Exception if there are none. The client uses the last ones until they end, and asks again
     *     and again. Then calls fail with {@link Status#AUTH} and the text of the exception
     */
    Login lookUp(Endpoint endpoint) throws Exception;

    /**
     * The server that a login goes to.
     *
     * @param host the host as the URL or the cluster names it, or the path of a unix socket
     * @param port 0 for a unix socket
     * @param user the user in the URL, or null
     */
    record Endpoint(String host, int port, String user) {}

    /**
     * A user, a secret, and how long it is good for.
     *
     * @param user whose secret it is, which may differ from call to call; null for the user in the URL
     * @param secret a password or a token
     * @param validUntil when the secret ends; null if that is not known. Then the client asks for it at
     *     each login
     * @param retireConnections whether connections to PostgreSQL and MySQL that logged in with earlier
     *     credentials make way for new ones. They do so anyway if the user changes
     */
    record Login(String user, String secret, Instant validUntil, boolean retireConnections) {
        /**
         * A login after which open connections stay.
         *
         * @param user whose secret it is; null for the user in the URL
         * @param secret a password or a token
         * @param validUntil when the secret ends; null if that is not known
         */
        public Login(String user, String secret, Instant validUntil) {
            this(user, secret, validUntil, false);
        }

        /** Without the secret: records tend to be logged. */
        @Override
        public String toString() {
            return "Login(" + user + ", valid until " + validUntil + ")";
        }
    }
}
