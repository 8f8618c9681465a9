/* Threads, descriptors and children of this process. */

#ifndef PROCESS_H
#define PROCESS_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread. */
pthread_t begin(void *(*work)(void *), void *with);

/* Waits for its end, and fails if it does not come. */
void *finish(pthread_t thread);

/* How many threads and descriptors this process has. */
int thread_count(void);
int descriptor_count(void);

/* Whether a thread of this process, by its number in the system, waits for something. */
bool is_asleep(int task);

/* How many threads there are whose name starts so; the library's start with "leasehold". */
int threads_named(const char *start);

/* What became of a child. */
#define HUNG (-1)
#define KILLED(signal) (-100 - (signal))

/*
 * Forks, and ends the child with 0 when `work` returns. Gives the child's exit code, KILLED(signal),
 * or, when it had to be ended after the limit, HUNG. A check that fails in the child fails the
 * test.
 */
int in_fork(void (*work)(void *), void *with);

/* The same for a child that exists already. */
int exit_code_of(int pid);

/* In a child: it shall not outlive its parent, nor hang for long. */
void end_with_parent(void);

#endif
