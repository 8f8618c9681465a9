#include "functions.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words in the arguments of FUNCTIONS. */
#define HANDLE call->handle
#define A_LOCK call->lock
#define BYTES call->bytes, call->length
#define URLS &one_url, 1
#define MS call->ms
#define MORE_MS call->more_ms
#define COUNT call->count
#define NUMBER_IN call->number
#define KIND ~call->number
#define FENCE call->fence
/* So few that one that is asked for is often there. */
#define ID (uint64_t)call->number
#define INTERRUPT call->interrupt
#define LOG call->log
#define USER_DATA call->user_data
#define LOST call->lost
#define ASK call->ask
#define WORK call->work
#define CHANGE call->change
#define DROP call->drop
#define EVENTS_IN call->events
#define OUTPUT call->output
#define ERROR_OUT call->error

/* A server that nobody connects to. */
static const char *const one_url = "redis://127.0.0.1:1?io_timeout=1ms";

/* Where the words for results put what was returned. */
#define KEEP_STATUS(returns) call->status = returns
#define KEEP_NUMBER(returns) call->returned = (int64_t)returns
#define KEEP_TEXT(returns) call->text = returns
#define KEEP_NOTHING(returns) returns

#define FUNCTION(result, name, handle, output, bytes, arguments)                                   \
    static void run_##name(struct call *call)                                                      \
    {                                                                                              \
        (void)call;                                                                                \
        KEEP_##result(leasehold_##name arguments);                                                 \
    }
FUNCTIONS(FUNCTION)
#undef FUNCTION

const struct function functions[] = {
#define FUNCTION(result, name, handle, output, bytes, arguments)                                   \
    {#name, result, handle, output, bytes, #arguments, run_##name},
    FUNCTIONS(FUNCTION)
#undef FUNCTION
};

bool takes(const struct function *function, const char *word)
{
    return strstr(function->arguments, word) != NULL;
}

const struct function *function_named(const char *name)
{
    for (size_t i = 0; i < FUNCTION_COUNT; i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    fprintf(stderr, "there is no function %s\n", name);
    exit(2);
}

const char *const free_names[TYPES] = {
    "error_free",         "config_free",   "client_free",         "lock_free",
    "lock_state_free",    "lease_free",    "events_free",         "event_free",
    "waits_free",         "metrics_free",  "testing_memory_free", "testing_effect_free",
    "testing_names_free", "election_free", "term_free",
};

void free_handle(enum type type, void *handle)
{
    struct call call = {.handle = handle};

    function_named(free_names[type])->run(&call);
}

struct library linked_library(void)
{
    return (struct library){
#define FUNCTION(result, name, handle, output, bytes, arguments) leasehold_##name,
        FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
}

static void *symbol(void *file, const char *name)
{
    void *found = dlsym(file, name);

    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return found;
}

struct library load_library(const char *path)
{
    struct library library;
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (file == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#define FUNCTION(result, name, handle, output, bytes, arguments)                                   \
    *(void **)&library.name = symbol(file, "leasehold_" #name);
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    if (library.handle_count == leasehold_handle_count) {
        fprintf(stderr, "%s is the copy that this program is linked with\n", path);
        exit(2);
    }
    return library;
}
