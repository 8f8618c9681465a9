/*
 * One object of each type in a copy of the library, and whether they are still what they were:
 * what a wrong call must not change.
 */
#ifndef WORLD_H
#define WORLD_H

#include "functions.h"

struct world {
    struct library library;
    void *handles[TYPES];
    char name[80];
    char store[256];
    uint64_t fence, term_fence;
    int descriptor, waits_descriptor;
};

/* Makes them in an empty library. Takes a lock that is called `name`. Ends the program on failure. */
void make_world(struct world *world, struct library library, const char *url, const char *name);

/* Reads one more event of a lease that was lost. */
leasehold_event *make_event(const struct world *world);

/* A term whose election was freed: it has ended, and still has its lock. */
leasehold_term *make_term(const struct world *world);

/* Asks every object something that needs no store. NULL, or what is not as it was. */
const char *harm_to(const struct world *world);

/* Lets every object do what it is for, and frees it. NULL, or what did not work. */
const char *end_world(struct world *world);

#endif
