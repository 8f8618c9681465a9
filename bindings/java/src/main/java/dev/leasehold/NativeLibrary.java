package dev.leasehold;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;

/**
 * Finds and loads the native half, {@code libleasehold_jni.so}: where the property
 * {@code leasehold.library} says, else in {@code java.library.path}, else from the jar.
 */
final class NativeLibrary {
    /** The absolute path of the library. */
    static final String LIBRARY_PROPERTY = "leasehold.library";
    /** The folder for the copy from the jar, {@code java.io.tmpdir} by default. */
    static final String FOLDER_PROPERTY = "leasehold.tmpdir";

    private static final String NAME = "leasehold_jni";

    private NativeLibrary() {}

    static void load() {
        String path = System.getProperty(LIBRARY_PROPERTY);
        if (path != null) {
            loadFrom(Path.of(path).toAbsolutePath(), "the property " + LIBRARY_PROPERTY + " names");
            return;
        }
        try {
            System.loadLibrary(NAME);
        } catch (UnsatisfiedLinkError notThere) {
            // Or not usable, or loaded by another class loader, which keeps it for itself.
            loadFromJar(notThere);
        }
    }

    private static void loadFrom(Path file, String reason) {
        try {
            System.load(file.toString());
        } catch (LinkageError e) {
            throw failure(reason + " " + file + ", which cannot be loaded: " + e.getMessage(), e);
        }
    }

    private static void loadFromJar(UnsatisfiedLinkError before) {
        String resource = "/natives/" + os() + "/" + arch() + "/lib" + NAME + ".so";
        try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw failure(
                        "this jar has no " + resource + ": it was built for another system. Build it here, or set "
                                + LIBRARY_PROPERTY + " to the path of a library",
                        before);
            }
            loadCopy(library);
        } catch (IOException e) {
            throw failure(
                    "it cannot be copied out of the jar: " + e + ". Set " + FOLDER_PROPERTY
                            + " to a folder that can be written to",
                    e);
        }
    }

    /**
     * Loads from a folder that nobody else can write to. It is deleted at once: what was loaded
     * stays. Each class loader needs a copy of its own, because a JVM does not load a path twice.
     */
    private static void loadCopy(InputStream library) throws IOException {
        Path parent = Path.of(System.getProperty(FOLDER_PROPERTY, System.getProperty("java.io.tmpdir")));
        Path folder = Files.createTempDirectory(parent, "leasehold-");
        Path file = folder.resolve("lib" + NAME + ".so");
        try {
            Files.copy(library, file);
            System.load(file.toString());
        } catch (LinkageError e) {
            throw failure(
                    "its copy in " + folder + " cannot be loaded: " + e.getMessage() + ". If that folder is mounted"
                            + " noexec, set " + FOLDER_PROPERTY + " to one that is not, or " + LIBRARY_PROPERTY
                            + " to the path of the library",
                    e);
        } finally {
            Files.deleteIfExists(file);
            Files.deleteIfExists(folder);
        }
    }

    private static UnsatisfiedLinkError failure(String reason, Throwable cause) {
        var error = new UnsatisfiedLinkError("Leasehold's native library: " + reason);
        error.initCause(cause);
        return error;
    }

    /** The system and its C library: {@code linux-musl} on Alpine. */
    private static String os() {
        String name = System.getProperty("os.name").toLowerCase(Locale.ROOT).replace(' ', '_');
        try (var mapped = Files.lines(Path.of("/proc/self/maps"), ISO_8859_1)) {
            return mapped.anyMatch(NativeLibrary::isMusl) ? name + "-musl" : name;
        } catch (IOException | UncheckedIOException e) {
            // Without /proc: the usual one.
            return name;
        }
    }

    /** Whether a line of {@code /proc/self/maps} names musl, which is the loader too. */
    static boolean isMusl(String line) {
        return line.contains("/ld-musl-") || line.contains("/libc.musl-");
    }

    /** As {@code uname -m} says it. */
    private static String arch() {
        String arch = System.getProperty("os.arch");
        return arch.equals("amd64") ? "x86_64" : arch;
    }
}
