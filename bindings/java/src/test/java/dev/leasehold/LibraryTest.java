package dev.leasehold;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the native library comes from, and what is said when it does not come. */
class LibraryTest {
    @TempDir
    Path folder;

    /** Takes a lock and prints where the library was loaded from. */
    static final class Program {
        public static void main(String[] arguments) throws Exception {
            try (var client = LeaseholdClient.connect("sqlite:" + arguments[0]);
                    var lease = client.lock("x").acquire()) {
                assertTrue(lease.isValid());
            }
            try (var lines = Files.lines(Path.of("/proc/self/maps"))) {
                lines.filter(line -> line.contains("leasehold_jni") && line.contains("r-x"))
                        .forEach(line -> System.out.println(line.substring(line.indexOf('/'))));
            }
        }
    }

    private ChildJvm program() {
        return ChildJvm.of(Program.class, folder.resolve("locks.db").toString());
    }

    private static Path library() throws Exception {
        try (var files = Files.walk(ChildJvm.CLASSES.resolve("natives"))) {
            return files.filter(file -> file.endsWith("libleasehold_jni.so")).findFirst().orElseThrow();
        }
    }

    @Test
    void itComesFromTheJarAndLeavesNoFile() throws Exception {
        Path scratch = Files.createDirectory(folder.resolve("scratch"));
        String output = program().option("-Djava.io.tmpdir=" + scratch).run().succeeded();
        assertTrue(output.matches(scratch + "/leasehold-[0-9]+/libleasehold_jni.so \\(deleted\\)\\s*"), output);
        assertEquals(List.of(), leftovers(scratch));

        Path other = Files.createDirectory(folder.resolve("other"));
        output = program()
                .option("-Djava.io.tmpdir=" + scratch)
                .option("-Dleasehold.tmpdir=" + other)
                .run()
                .succeeded();
        assertTrue(output.startsWith(other + "/leasehold-"), output);
        assertEquals(List.of(), leftovers(other));
    }

    /** All but what the JVM itself keeps there. */
    private static List<String> leftovers(Path scratch) throws Exception {
        try (var files = Files.list(scratch)) {
            return files.map(file -> file.getFileName().toString())
                    .filter(name -> !name.startsWith("hsperfdata"))
                    .toList();
        }
    }

    @Test
    void aPropertyOrThePathComesFirst() throws Exception {
        Path mine = Files.copy(library(), folder.resolve("my_leasehold_jni.so"));
        String output = program().option("-Dleasehold.library=" + mine).run().succeeded();
        assertEquals(mine + "\n", output);

        Path path = Files.copy(library(), folder.resolve("libleasehold_jni.so"));
        output = program().option("-Djava.library.path=" + folder).run().succeeded();
        assertEquals(path + "\n", output);
    }

    @Test
    void itSaysWhatIsWrong() throws Exception {
        Path text = Files.writeString(folder.resolve("text.so"), "not a library");
        says(program().option("-Dleasehold.library=" + text), "the property leasehold.library names " + text);
        says(program().option("-Dleasehold.tmpdir=/nowhere"), "Set leasehold.tmpdir to a folder");
        says(program().option("-Dos.arch=pdp11"), "it was built for another system");
    }

    @Test
    void itTellsMuslFromGlibc() {
        assertTrue(NativeLibrary.isMusl("7f00-7f99 r-xp 00000000 08:01 42   /lib/ld-musl-x86_64.so.1"));
        assertFalse(NativeLibrary.isMusl("7f00-7f99 r-xp 00000000 08:01 42   /usr/lib/ld-linux-x86-64.so.2"));
    }

    /** A library that is none of ours: the one of the JDK's zip classes. */
    @Test
    void anotherLibraryIsToldApart() throws Exception {
        Path zip = Path.of(System.getProperty("java.home"), "lib", "libzip.so");
        says(program().option("-Dleasehold.library=" + zip), "UnsatisfiedLinkError");
    }

    @Test
    void aFolderWithoutPrograms() throws Exception {
        Path noexec = Files.createDirectory(folder.resolve("noexec"));
        String mount = "mount -t tmpfs -o noexec tmpfs " + noexec;
        assumeTrue(
                new ProcessBuilder("unshare", "-rm", "sh", "-c", mount).start().waitFor() == 0,
                "nobody may mount here");
        Path java = Path.of(System.getProperty("java.home"), "bin", "java");
        Path output = folder.resolve("output");
        int code = new ProcessBuilder(
                        "unshare", "-rm", "sh", "-c",
                        mount + " && exec " + java + " -Dleasehold.tmpdir=" + noexec + " -cp "
                                + System.getProperty("surefire.test.class.path") + " '" + Program.class.getName() + "' "
                                + folder.resolve("locks.db"))
                .redirectErrorStream(true)
                .redirectOutput(output.toFile())
                .start()
                .waitFor();
        String said = Files.readString(output);
        assertNotEquals(0, code);
        assertTrue(said.contains("If that folder is mounted noexec, set leasehold.tmpdir"), said);
    }

    private static void says(ChildJvm program, String expected) throws Exception {
        ChildJvm.Result result = program.run();
        assertNotEquals(0, result.code());
        assertTrue(result.output().contains("UnsatisfiedLinkError"), result.output());
        assertTrue(result.output().contains(expected), result.output());
    }

    /** Its two functions for the JVM, and nothing of what is linked into it. */
    @Test
    void itExportsWhatTheJvmNeeds() throws Exception {
        var nm = new ProcessBuilder("nm", "-D", "--defined-only", library().toString()).start();
        String[] symbols = new String(nm.getInputStream().readAllBytes()).lines()
                .map(line -> line.split(" ")[2])
                .toArray(String[]::new);
        assertArrayEquals(new String[] {"JNI_OnLoad", "JNI_OnUnload"}, symbols);
    }
}
