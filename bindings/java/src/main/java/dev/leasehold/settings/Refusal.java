package dev.leasehold.settings;

/** Settings that no client can be made of. The message is one sentence, and shows no password. */
public final class Refusal extends RuntimeException {
    private static final long serialVersionUID = 1;

    Refusal(String message) {
        super(message);
    }
}
