package dev.leasehold;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;

/** The name of a lock: any bytes. */
final class Name {
    private final byte[] bytes;

    Name(byte[] bytes) {
        this.bytes = bytes.clone();
    }

    Name(String text) {
        this.bytes = encode("the name", text);
    }

    /**
     * The UTF-8 of a text. One that has none, because half of a surrogate pair stands alone, is
     * refused: replaced by question marks, two names would become one.
     */
    static byte[] encode(String what, String text) {
        Objects.requireNonNull(text, what);
        try {
            ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] bytes = new byte[encoded.remaining()];
            encoded.get(bytes);
            return bytes;
        } catch (CharacterCodingException e) {
            throw LeaseholdException.badArgument(what + " has half of a surrogate pair in it");
        }
    }

    /** The array itself: not to be changed, and not to be given away. */
    byte[] bytes() {
        return bytes;
    }

    static String decode(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** For a sentence: without anything that a terminal obeys. */
    String quoted() {
        var text = new StringBuilder("'");
        for (char c : toString().toCharArray()) {
            text.append(Character.isISOControl(c) ? String.format("\\u{%x}", (int) c) : c);
        }
        return text.append('\'').toString();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Name name && Arrays.equals(bytes, name.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    @Override
    public String toString() {
        return decode(bytes);
    }
}
