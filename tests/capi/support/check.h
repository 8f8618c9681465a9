/* Checks. One that fails ends the test, on whatever thread or in whatever child it stands. */

#ifndef CHECK_H
#define CHECK_H

#include <leasehold.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Prints why, and ends the process. */
_Noreturn void fail_at(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) FAIL("not so: %s", #condition);                                          \
    } while (0)

/* Whole numbers of any type, told when they differ. */
#define CHECK_INT(expected, actual)                                                                \
    check_int(__FILE__, __LINE__, #actual, (long long)(expected), (long long)(actual))

#define CHECK_TEXT(expected, actual) check_text(__FILE__, __LINE__, #actual, (expected), (actual))

#define CHECK_CONTAINS(piece, text) check_contains(__FILE__, __LINE__, (piece), (text))

/* The status of a call that has no room for an error, or gets none. */
#define CHECK_STATUS(expected, call) check_status(__FILE__, __LINE__, #call, (expected), (call))

/*
 * The status of a call whose last argument is `&problem`, and what every such call promises of its
 * error: what was in the variable is overwritten; there is one exactly where the status does not say
 * everything; and it has the same status and a whole sentence. It is freed here; what it said
 * stays in `said` until the next EXPECT of this thread.
 */
#define EXPECT(expected, call)                                                                     \
    expect(__FILE__, __LINE__, #call, false, (expected), (problem = UNTOUCHED, (call)))

/* The same of an error whose detail says what to do: the advice of its status is left out. */
#define EXPECT_MENDED(expected, call)                                                              \
    expect(__FILE__, __LINE__, #call, true, (expected), (problem = UNTOUCHED, (call)))

extern _Thread_local leasehold_error *problem;
extern _Thread_local char said[512];

/* What no call may read, and a failing one leaves in its outputs. It is no handle: bit 0 is 0. */
#define UNTOUCHED ((void *)0x5a5a5a5a5a5a5a5a)

void check_int(const char *file, int line, const char *what, long long expected, long long actual);
void check_text(const char *file, int line, const char *what, const char *expected,
                const char *actual);
void check_contains(const char *file, int line, const char *piece, const char *text);
void check_status(const char *file, int line, const char *what, leasehold_status expected,
                  leasehold_status actual);
void expect(const char *file, int line, const char *what, bool is_mended, leasehold_status expected,
            leasehold_status actual);

/* Where fail_at() writes its reason; the standard error otherwise. */
void tell_failures_to(int descriptor);

#endif
