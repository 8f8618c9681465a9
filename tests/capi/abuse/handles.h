/*
 * Handles that several threads use and free at once, and others that no call may take for one.
 */
#ifndef HANDLES_H
#define HANDLES_H

#include "arguments.h"

#include <stdatomic.h>

#define PLACES 8

/* Those that are open, as far as nobody is about to free them. */
extern _Atomic(void *) open_handles[TYPES][PLACES];

/* From here on all threads have it. One that was in its place is freed. */
void share(enum type type, void *handle, struct chance *chance);

/* Some handle that is open, or NULL when there is none. */
void *shared(enum type type, struct chance *chance);

/* After a call that frees: nobody finds it any more. */
void forget(enum type type, void *handle);

/* A handle that a function for this type must find wrong. `foreign` has one of each type. */
void *wrong_handle(enum type type, void *const *foreign, struct chance *chance);

void free_all_handles(void);

#endif
