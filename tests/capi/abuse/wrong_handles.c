/*
 * A wrong handle of every kind into every function: each says so, changes nothing, and the objects
 * whose handles were misused go on working.
 *
 * usage: wrong_handles SYMBOLS URL COPY URL_FOR_COPY
 *
 * SYMBOLS lists the functions that there have to be; COPY is a file with another copy of the
 * library, whose handles are foreign here.
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN 0xa5
#define NAME_HERE "wrong-handles"

static int failures;

static void fail(const char *function, const char *handle, const char *what)
{
    fprintf(stderr, "leasehold_%s with %s: %s\n", function, handle, what);
    failures++;
}

/* ---- wrong handles ---------------------------------------------------------------------------- */

struct wrong {
    const char *what;
    void *handle;
};

static struct wrong wrongs[512];
static size_t wrong_count;

/* Handles that are right: none of these may come up among the wrong ones by chance. */
static void *rights[32];
static size_t right_count;

static void right(void *handle)
{
    rights[right_count++] = handle;
}

static void wrong(const char *what, void *handle)
{
    for (size_t i = 0; i < right_count; i++)
        if (rights[i] == handle)
            return;
    wrongs[wrong_count++] = (struct wrong){what, handle};
}

static uint64_t chance(void)
{
    static uint64_t state = 0x2545f4914f6cdd1d;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* A new object of a type, from those that are there. */
static void *make(const struct world *world, enum type type)
{
    static char output[sizeof(void *)];
    static const char *makers[TYPES] = {
        [ERROR] = NULL,
        [CONFIG] = "config_from_env",
        [CLIENT] = "client_open_config",
        [LOCK] = "client_lock",
        [LOCK_STATE] = "lock_inspect",
        [LEASE] = "lock_attach",
        [EVENTS] = "client_events",
        [WAITS] = "waits_open",
        [METRICS] = "client_metrics",
        [MEMORY] = "testing_memory_open",
        [EFFECT] = "testing_memory_failing",
        [NAMES] = "testing_memory_held",
        [ELECTION] = "client_election",
    };
    void *made = NULL;
    leasehold_error *error = NULL;
    struct call call = {
        .bytes = "made", .length = 4, .output = output, .error = &error, .fence = 7, .number = 8};

    if (type == ERROR) {
        leasehold_client_ping(NULL, &error);
        return error;
    }
    if (type == EVENT)
        return make_event(world);
    if (type == TERM)
        return make_term(world);
    const struct function *maker = function_named(makers[type]);
    if (maker->handle != NONE)
        call.handle = world->handles[maker->handle];
    if (maker->bytes == TOKEN) {
        call.bytes = "0123456789abcdef0123456789abcdef";
        call.length = 32;
    }
    maker->run(&call);
    if (call.status != LEASEHOLD_OK) {
        fprintf(stderr, "leasehold_%s: %s\n", maker->name, leasehold_error_message(error));
        exit(2);
    }
    memcpy(&made, output, sizeof made);
    return made;
}

/* Freed handles of each type, and what has come into their slots. */
struct freed {
    void *freed, *freed_and_reused, *in_its_place;
};

/* The slot that was freed last is the first one to be used again. */
static struct freed make_freed(const struct world *world, enum type type)
{
    struct freed made;

    made.freed_and_reused = make(world, type);
    free_handle(type, made.freed_and_reused);
    made.in_its_place = make(world, type);
    if (made.in_its_place == made.freed_and_reused)
        fail(free_names[type], "a handle of its type", "the next object has the same handle");
    right(made.in_its_place);
    made.freed = make(world, type);
    free_handle(type, made.freed);
    return made;
}

/* A library that nobody uses lets go of its table: what came from there is wrong all the same. */
static void forget_everything(const struct library *library)
{
    leasehold_error *first = NULL, *second = NULL;

    library->client_ping(NULL, &first);
    library->error_free(first);
    if (library->handle_count() != 0)
        fail("handle_count", "everything freed", "handles are left");
    library->client_ping(NULL, &second);
    if (first == second || library->error_status(first) != LEASEHOLD_ERR_HANDLE)
        fail("error_status", "a freed handle", "it is valid again when all were freed meanwhile");
    library->error_free(second);
}

static void collect_wrongs(enum type type, const struct world *here, const struct world *foreign,
                           const struct freed *freed)
{
    static int place[4];
    static int *memory;

    if (memory == NULL)
        memory = calloc(4, sizeof *memory);
    wrong_count = 0;
    wrong("NULL", NULL);
    for (enum type other = 0; other < TYPES; other++)
        if (other != type)
            wrong("the handle of another type", here->handles[other]);
    wrong("a foreign handle of its type", foreign->handles[type]);
    for (enum type of = 0; of < TYPES; of++) {
        wrong(of == type ? "a freed handle" : "a freed handle of another type", freed[of].freed);
        wrong("a freed handle whose slot was used again", freed[of].freed_and_reused);
    }
    /* Each differs in one bit: of its type, its slot or its generation, or in being odd. */
    for (int bit = 0; bit < 64; bit++)
        wrong("its handle with a bit changed",
              (char *)((uintptr_t)here->handles[type] ^ 1ull << bit));
    for (uint64_t of = 0; of < 16; of++)
        wrong("its handle with another type in it",
              (void *)(((uintptr_t)here->handles[type] & ~(uintptr_t)0x1e) | of << 1));
    wrong("all bits", (void *)UINTPTR_MAX);
    wrong("one bit", (void *)1);
    wrong("a pointer to the stack", &type);
    wrong("a pointer to static memory", place);
    wrong("a pointer to the heap", memory);
    wrong("an odd pointer to the heap", (char *)memory + 1);
    wrong("an odd pointer to the stack", (char *)&type + 1);
    wrong("a pointer to text", (void *)NAME_HERE);
    wrong("a pointer to code", (void *)(uintptr_t)leasehold_version);
    for (int i = 0; i < 50; i++) {
        wrong("an odd number", (void *)(chance() | 1));
        wrong("an even number", (void *)(chance() & ~1ull));
        /* Low slots and generations, such as a table has them that begins at 0. */
        wrong("a small odd number", (void *)(chance() >> (20 + chance() % 40) | 1));
    }
}

/* ---- calls ------------------------------------------------------------------------------------ */

static int no_interrupt(void *user_data)
{
    (void)user_data;
    return 0;
}

static struct call good_arguments(const struct function *function)
{
    static const char *texts[SORTS] = {
        [URL] = "redis://127.0.0.1",
        [NAME] = NAME_HERE,
        [TOKEN] = "0123456789abcdef0123456789abcdef",
        [DURATION] = "10s",
    };
    const char *text = texts[function->bytes];

    return (struct call){
        .bytes = text,
        .length = text == NULL ? 0 : strlen(text),
        .ms = 10,
        .more_ms = 100,
        .count = 1,
        .number = 1,
        .fence = 1,
        .interrupt = no_interrupt,
    };
}

/* What else than 0 or an empty text is said of what is no handle. */
static bool is_neutral(const struct function *function, const struct call *call)
{
    if (strcmp(function->name, "error_status") == 0)
        return call->returned == (call->handle == NULL ? LEASEHOLD_OK : LEASEHOLD_ERR_HANDLE);
    if (strcmp(function->name, "error_message") == 0)
        return strcmp(call->text,
                      call->handle == NULL ? "no error" : "not the handle of an error") == 0;
    if (strstr(function->name, "_descriptor") != NULL)
        return call->returned == -1;
    /* Whoever asks a term that is gone does not lead. */
    if (strcmp(function->name, "term_end_reason") == 0)
        return call->returned == LEASEHOLD_TERM_LOST;
    if (strcmp(function->name, "term_loss") == 0)
        return call->returned == LEASEHOLD_LOSS_NOT_RENEWED;
    if (function->result == NUMBER)
        return call->returned == 0;
    return function->result != TEXT || (call->text != NULL && *call->text == '\0');
}

static void misuse(const struct function *function, const struct wrong *wrong, bool with_error)
{
    unsigned char output[16], before[sizeof output];
    leasehold_error *error = (leasehold_error *)&error;
    struct call call = good_arguments(function);

    memset(output, PATTERN, sizeof output);
    memset(before, PATTERN, sizeof before);
    /* An empty name has no bytes. */
    if (function->output == LENGTH)
        memset(before, 0, sizeof(size_t));
    call.handle = wrong->handle;
    call.output = output;
    if (with_error)
        call.error = &error;
    call.status = LEASEHOLD_ERR_HANDLE;
    call.text = "";
    function->run(&call);

    if (call.status != LEASEHOLD_ERR_HANDLE)
        fail(function->name, wrong->what, leasehold_status_name(call.status));
    if (!is_neutral(function, &call))
        fail(function->name, wrong->what, "it gives a value");
    if (memcmp(output, before, sizeof output) != 0)
        fail(function->name, wrong->what, "the output is not what it should be");
    if (!with_error || !takes(function, "ERROR_OUT"))
        return;
    if (leasehold_error_status(error) != LEASEHOLD_ERR_HANDLE)
        fail(function->name, wrong->what, "the error says something else than the status");
    leasehold_error_free(error);
}

static void misuse_in_every_way(const struct function *function, const struct world *here,
                                const struct world *foreign)
{
    const size_t open = leasehold_handle_count();

    for (size_t i = 0; i < wrong_count; i++) {
        const char *harm;

        misuse(function, &wrongs[i], true);
        misuse(function, &wrongs[i], false);
        if ((harm = harm_to(here)) != NULL || (harm = harm_to(foreign)) != NULL) {
            /* What comes after it would only say so again. */
            fprintf(stderr, "leasehold_%s with %s: it harms %s\n", function->name, wrongs[i].what,
                    harm);
            exit(1);
        }
        if (leasehold_handle_count() != open)
            fail(function->name, wrongs[i].what, "a handle more or less is open");
    }
}

/* ---- all of them ------------------------------------------------------------------------------ */

static void compare_with_list(const char *path)
{
    char line[128];
    size_t lines = 0;
    FILE *list = fopen(path, "r");

    if (list == NULL) {
        perror(path);
        exit(2);
    }
    while (fgets(line, sizeof line, list) != NULL) {
        bool known = false;

        line[strcspn(line, "\n")] = '\0';
        lines++;
        for (size_t i = 0; i < FUNCTION_COUNT && !known; i++)
            known =
                strncmp(line, "leasehold_", 10) == 0 && strcmp(line + 10, functions[i].name) == 0;
        if (!known) {
            fprintf(stderr, "%s is missing from functions.h\n", line);
            failures++;
        }
    }
    fclose(list);
    if (lines != FUNCTION_COUNT) {
        fprintf(stderr, "%zu functions are listed in %s, and %d in functions.h\n", lines, path,
                FUNCTION_COUNT);
        failures++;
    }
}

int main(int count, char **arguments)
{
    struct library linked, loaded;
    struct world here, foreign;
    struct freed freed[TYPES];
    size_t misused = 0;
    const char *wrong_in_the_end;

    if (count != 5) {
        fprintf(stderr, "usage: wrong_handles SYMBOLS URL COPY URL_FOR_COPY\n");
        return 2;
    }
    compare_with_list(arguments[1]);
    /* Both copies go the same way up to here, so that equal handles would be equal in each bit. */
    linked = linked_library();
    loaded = load_library(arguments[3]);
    forget_everything(&linked);
    forget_everything(&loaded);
    make_world(&here, linked, arguments[2], NAME_HERE);
    make_world(&foreign, loaded, arguments[4], NAME_HERE);
    for (enum type type = 0; type < TYPES; type++) {
        if (here.handles[type] == foreign.handles[type])
            fail(free_names[type], "a foreign handle", "it is the same as one of ours");
        right(here.handles[type]);
        freed[type] = make_freed(&here, type);
    }
    for (enum type type = 0; type < TYPES; type++) {
        collect_wrongs(type, &here, &foreign, freed);
        for (size_t i = 0; i < FUNCTION_COUNT; i++) {
            if (functions[i].handle != type)
                continue;
            misuse_in_every_way(&functions[i], &here, &foreign);
            misused += 2 * wrong_count;
        }
    }
    for (enum type type = 0; type < TYPES; type++) free_handle(type, freed[type].in_its_place);
    if ((wrong_in_the_end = end_world(&here)) != NULL ||
        (wrong_in_the_end = end_world(&foreign)) != NULL) {
        fprintf(stderr, "after all that, %s\n", wrong_in_the_end);
        failures++;
    }
    printf("%zu wrong calls, %d failures\n", misused, failures);
    return failures == 0 ? 0 : 1;
}
