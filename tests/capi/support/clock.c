#include "clock.h"

#include <stdio.h>
#include <time.h>

#include "check.h"

int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

void pause_ms(int64_t ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0) continue;
}

/* How long this thread has stood in the run queue so far; 0 where the kernel does not tell. */
static int64_t starved_us(void)
{
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (!file)
        return 0;
    long long ran, waited = 0;
    if (fscanf(file, "%lld %lld", &ran, &waited) != 2)
        waited = 0;
    fclose(file);
    return waited / 1000;
}

struct stopwatch stopwatch_start(void)
{
    int64_t starved = starved_us();
    return (struct stopwatch){now_us(), starved};
}

int64_t stopwatch_ms(struct stopwatch watch)
{
    return (now_us() - watch.start_us) / 1000;
}

void check_at_most(const char *file, int line, int64_t ms, struct stopwatch watch)
{
    int64_t took = now_us() - watch.start_us;
    int64_t starved = starved_us() - watch.starved_before_us;
    if (took - starved > ms * 1000)
        fail_at(file, line, "took %lld us (%lld of it without a processor); %lld ms were allowed",
                (long long)took, (long long)starved, (long long)ms);
}

void check_at_least(const char *file, int line, int64_t ms, struct stopwatch watch)
{
    int64_t took = now_us() - watch.start_us;
    if (took < ms * 1000)
        fail_at(file, line, "took only %lld us; expected were at least %lld ms", (long long)took,
                (long long)ms);
}
