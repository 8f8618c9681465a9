#include "arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME 65536

const char *const *urls;
size_t url_count;

struct chance chance_of(uint64_t seed)
{
    /* Seeds that are neighbours begin far apart, and none with the state 0, which stays. */
    return (struct chance){(seed + 1) * 0x9e3779b97f4a7c15 | 1};
}

uint64_t number(struct chance *chance)
{
    chance->state ^= chance->state << 13;
    chance->state ^= chance->state >> 7;
    chance->state ^= chance->state << 17;
    return chance->state * 0x2545f4914f6cdd1d;
}

uint64_t below(struct chance *chance, uint64_t bound)
{
    return (number(chance) >> 32) % bound;
}

bool percent(struct chance *chance, unsigned share)
{
    return below(chance, 100) < share;
}

/* ---- bytes ------------------------------------------------------------------------------------ */

/* A buffer that ends where the bytes end, so that a tool sees who reads beyond. */
static void put(struct call *call, const void *bytes, size_t length)
{
    char *exactly = malloc(length == 0 ? 1 : length);

    memcpy(exactly, bytes, length);
    call->bytes = exactly;
    call->length = length;
}

static void put_text(struct call *call, const char *text, struct chance *chance)
{
    put(call, text, strlen(text) + 1);
    if (percent(chance, 50))
        call->length = LEASEHOLD_NUL;
    else
        call->length--;
}

/* Lengths that cannot be meant, or no bytes where there should be some: must be refused unread. */
static void put_nonsense(struct call *call, struct chance *chance)
{
    static const size_t lengths[] = {MAX_NAME + 1, (size_t)1 << 40, SIZE_MAX - 1, SIZE_MAX / 2};

    if (percent(chance, 70)) {
        put(call, "", 1);
        call->length = lengths[below(chance, sizeof lengths / sizeof *lengths)];
    } else {
        call->length = percent(chance, 50) ? 1 + below(chance, 100) : LEASEHOLD_NUL;
    }
}

static void put_random(struct call *call, struct chance *chance)
{
    unsigned char bytes[64];

    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)number(chance);
    put(call, bytes, below(chance, sizeof bytes));
}

static void put_good(struct call *call, enum sort sort, struct chance *chance)
{
    static const char *const durations[] = {"0", "1ms", "1.5s", "250ms", "1d",
                                            "3", "-1s", "",     "5q"};
    static const char longest[MAX_NAME] = {1};
    char text[64];

    switch (sort) {
    case URL:
        put_text(call, urls[below(chance, url_count)], chance);
        break;
    case NAME:
        if (below(chance, 1000) == 0)
            put(call, longest, sizeof longest);
        else if (percent(chance, 10))
            put(call, "a\0b", 3);
        else
            put_text(call,
                     (snprintf(text, sizeof text, "name-%u", (unsigned)below(chance, 16)), text),
                     chance);
        break;
    case TOKEN:
        snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)number(chance),
                 (unsigned long long)number(chance));
        put_text(call, text, chance);
        break;
    case DURATION:
        put_text(call, durations[below(chance, sizeof durations / sizeof *durations)], chance);
        break;
    case NO:
        break;
    }
}

/* True for bytes that must be refused. */
static bool fill_in_bytes(struct call *call, enum sort sort, struct chance *chance)
{
    const uint64_t way = below(chance, 100);

    if (sort == NO)
        return false;
    if (way < 8) {
        put_nonsense(call, chance);
        return true;
    }
    if (way < 12)
        put_random(call, chance);
    else if (way < 14)
        call->length = 0; /* No bytes, for which NULL is as good as any pointer. */
    else
        put_good(call, sort, chance);
    return false;
}

/* ---- numbers ---------------------------------------------------------------------------------- */

/* Where a long time would be waited for, or spent on a store that is not there. */
static bool waits(const struct function *function, const struct call *call)
{
    if (strcmp(function->name, "lock_acquire_within") == 0 ||
        strcmp(function->name, "election_stand_within") == 0)
        return call->interrupt == NULL;
    return strcmp(function->name, "lock_set_wait_ms") == 0 ||
           strcmp(function->name, "events_next_within") == 0 ||
           strcmp(function->name, "waits_next_within") == 0 ||
           strcmp(function->name, "term_leads_after_ms") == 0 ||
           strcmp(function->name, "client_close_within") == 0;
}

/* Where less than some milliseconds would fail each time. */
static bool takes_a_while(const struct function *function)
{
    return strcmp(function->name, "config_set_io_timeout_ms") == 0 ||
           strcmp(function->name, "lock_set_ttl_ms") == 0 ||
           strcmp(function->name, "lease_extend_for_ms") == 0 ||
           strcmp(function->name, "lease_let_expire_in_ms") == 0;
}

/* Less than that is refused where it is set. */
static bool takes_seconds(const struct function *function)
{
    return strcmp(function->name, "config_set_claim_window_ms") == 0 ||
           strcmp(function->name, "election_set_ttl_ms") == 0 ||
           strcmp(function->name, "config_set_max_ttl_ms") == 0;
}

static int64_t some_ms(bool waits, bool a_while, struct chance *chance)
{
    const uint64_t way = below(chance, 100);

    if (way < 4)
        return percent(chance, 50) ? -1 : INT64_MIN;
    if (way < 14 && !waits)
        return percent(chance, 50) ? (int64_t)1 << 50 : LEASEHOLD_FOREVER;
    return (int64_t)(a_while ? 3 + below(chance, 60) : below(chance, 3));
}

bool fill_in(struct call *call, const struct function *function, struct chance *chance)
{
    bool refused = fill_in_bytes(call, function->bytes, chance);

    call->ms = some_ms(waits(function, call), takes_a_while(function), chance);
    if (takes_seconds(function) && call->ms >= 0 && call->ms < 100)
        call->ms = 1000 + (int64_t)below(chance, 59000);
    call->more_ms = some_ms(false, false, chance);
    call->count = percent(chance, 90) ? 1 + (uint32_t)below(chance, 5) : (uint32_t)number(chance);
    call->number = percent(chance, 95) ? (int32_t)below(chance, 10) - 1 : (int32_t)number(chance);
    call->fence = percent(chance, 30)   ? 0
                  : percent(chance, 90) ? 1 + below(chance, 1000)
                                        : number(chance);
    return refused || (takes(function, "MS") && call->ms < 0) ||
           (takes(function, "MORE_MS") && call->more_ms < 0);
}

void clear(struct call *call)
{
    free((void *)call->bytes);
}
