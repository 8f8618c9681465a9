#include "handles.h"

#define FORMER 64

_Atomic(void *) open_handles[TYPES][PLACES];

/* The last ones that were freed. */
static _Atomic(void *) former_handles[TYPES][FORMER];
static atomic_uint former_count[TYPES];

static void remember_former(enum type type, void *handle)
{
    if (handle != NULL)
        former_handles[type][atomic_fetch_add(&former_count[type], 1) % FORMER] = handle;
}

void share(enum type type, void *handle, struct chance *chance)
{
    void *before = atomic_exchange(&open_handles[type][below(chance, PLACES)], handle);

    if (before == NULL)
        return;
    free_handle(type, before);
    remember_former(type, before);
}

void *shared(enum type type, struct chance *chance)
{
    const uint64_t start = below(chance, PLACES);

    for (uint64_t i = 0; i < PLACES; i++) {
        void *handle = open_handles[type][(start + i) % PLACES];

        if (handle != NULL)
            return handle;
    }
    return NULL;
}

void forget(enum type type, void *handle)
{
    for (size_t i = 0; i < PLACES; i++) {
        void *expected = handle;

        atomic_compare_exchange_strong(&open_handles[type][i], &expected, NULL);
    }
    remember_former(type, handle);
}

static void *made_up(struct chance *chance)
{
    static const char text[] = "neither";

    switch (below(chance, 6)) {
    case 0:
        return (void *)(number(chance) | 1);
    case 1:
        return (void *)(number(chance) & ~1ull);
    case 2:
        return (void *)(number(chance) >> (20 + below(chance, 40)));
    case 3:
        return chance;
    case 4:
        return (void *)&text[below(chance, sizeof text)];
    default:
        return (void *)UINTPTR_MAX;
    }
}

void *wrong_handle(enum type type, void *const *foreign, struct chance *chance)
{
    const enum type other = (type + 1 + below(chance, TYPES - 1)) % TYPES;

    switch (below(chance, 6)) {
    case 0:
        return NULL;
    case 1:
        return foreign[percent(chance, 70) ? type : other];
    case 2:
        return former_handles[other][below(chance, FORMER)];
    case 3:
        return shared(other, chance);
    case 4:
        return made_up(chance);
    default:
        return former_handles[type][below(chance, FORMER)];
    }
}

void free_all_handles(void)
{
    for (enum type type = 0; type < TYPES; type++)
        for (size_t i = 0; i < PLACES; i++) free_handle(type, open_handles[type][i]);
}
