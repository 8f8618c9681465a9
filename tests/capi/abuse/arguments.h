/*
 * Arguments by chance: good ones mostly, and every sort of bad ones.
 */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "functions.h"

/* Chance that a seed determines. */
struct chance {
    uint64_t state;
};

struct chance chance_of(uint64_t seed);
uint64_t number(struct chance *chance);
uint64_t below(struct chance *chance, uint64_t bound);
bool percent(struct chance *chance, unsigned share);

/* The stores that calls may open. Set before there are threads. */
extern const char *const *urls;
extern size_t url_count;

/*
 * Fills in what goes into a call of the function, but for its handle. True when an argument is one
 * that the function must refuse.
 */
bool fill_in(struct call *call, const struct function *function, struct chance *chance);

/* Frees what fill_in() has made. */
void clear(struct call *call);

#endif
