/*
 * Runs tests, each in a process of its own, and says `ok NAME` or `not ok NAME: reason` of each.
 *
 * A test fails when a check does, when it crashes or hangs, and when it leaves something behind:
 * a handle, a thread or a descriptor. A test that needs the processor in time is declared IN_TIME:
 * if it fails while the machine stood still, that proves nothing, and it is run again.
 */

#ifndef RUNNER_H
#define RUNNER_H

#include <stdbool.h>
#include <stddef.h>

struct server;

/* A store that nobody else uses. */
struct store {
    char url[256];
    struct server *server; /* NULL where the store is a file */
};

/* First in main(). A word on the command line picks the tests whose names contain it. */
void runner_start(int argc, char **argv);

/* Last in main(): says `N passed, M failed`, and gives main's value. */
int runner_report(void);

enum judged { ANY_TIME, IN_TIME };

void run_test(const char *name, void (*test)(void), enum judged judged);
void run_on_redis(const char *name, void (*test)(struct store *), enum judged judged);
void run_on_file(const char *name, void (*test)(struct store *), enum judged judged);

#define TEST(test) run_test(#test, test, ANY_TIME)
#define TEST_IN_TIME(test) run_test(#test, test, IN_TIME)
#define ON_REDIS(test) run_on_redis(#test, test, ANY_TIME)
#define ON_REDIS_IN_TIME(test) run_on_redis(#test, test, IN_TIME)
#define ON_FILE(test) run_on_file(#test, test, ANY_TIME)
#define ON_EACH_STORE(test) (ON_REDIS(test), ON_FILE(test))
#define ON_EACH_STORE_IN_TIME(test) (ON_REDIS_IN_TIME(test), run_on_file(#test, test, IN_TIME))

/* A new, empty folder, removed when the program ends. */
void new_folder(char *path, size_t room);

#endif
