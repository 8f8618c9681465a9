package dev.leasehold.settings;

import java.util.List;

/** What of Java's own TLS no other library can do. */
final class Tls {
    private Tls() {}

    /** Leasehold always verifies the certificate, and the name in it. */
    static void checkMode(Mirror owner, Object mode) {
        if (mode != null && List.of("NONE", "INSECURE").contains(mode.toString())) {
            throw owner.refuse("does not verify the server's certificate, which Leasehold always does");
        }
    }

    /** Of an {@code SSLParameters}, only the verification of names, which Leasehold does anyway. */
    static void check(Mirror owner, Object parameters) {
        if (parameters == null) {
            return;
        }
        var given = (javax.net.ssl.SSLParameters) parameters;
        if (given.getProtocols() != null || given.getCipherSuites() != null || given.getServerNames() != null) {
            throw owner.refuse("has SSLParameters with protocols, ciphers or server names of its own,"
                    + " which Leasehold does not set");
        }
    }
}
