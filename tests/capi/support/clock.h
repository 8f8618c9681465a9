/*
 * Time, on a machine that may be busy. Waiting for something is polling with a generous limit.
 * Something that must not take long is measured by a stopwatch, in a test that is declared IN_TIME
 * (see runner.h).
 */

#ifndef CLOCK_H
#define CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Long enough for anything on a busy machine; only a test that fails takes so long. */
#define LIMIT_MS 20000

/* Polls until `condition` holds; fails when it does not within the limit, nor right after it. */
#define EVENTUALLY(condition)                                                                      \
    do {                                                                                           \
        int64_t eventually_end = now_us() + LIMIT_MS * INT64_C(1000);                              \
        for (bool eventually_late = false; !(condition); pause_ms(2)) {                            \
            if (eventually_late) FAIL("not within %d ms: %s", LIMIT_MS, #condition);               \
            eventually_late = now_us() > eventually_end;                                           \
        }                                                                                          \
    } while (0)

/* On a clock that never goes back. */
int64_t now_us(void);
void pause_ms(int64_t ms);

/*
 * Measures on one thread. Time in which that thread could have run but was given no processor is
 * the machine's fault, and is taken off before a limit is checked.
 */
struct stopwatch {
    int64_t start_us;
    int64_t starved_before_us;
};

struct stopwatch stopwatch_start(void);
int64_t stopwatch_ms(struct stopwatch watch);

#define CHECK_AT_MOST(ms, watch) check_at_most(__FILE__, __LINE__, (ms), (watch))
#define CHECK_AT_LEAST(ms, watch) check_at_least(__FILE__, __LINE__, (ms), (watch))

void check_at_most(const char *file, int line, int64_t ms, struct stopwatch watch);
void check_at_least(const char *file, int line, int64_t ms, struct stopwatch watch);

#endif
