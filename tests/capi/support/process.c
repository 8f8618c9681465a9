#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"

pthread_t begin(void *(*work)(void *), void *with)
{
    pthread_t thread;
    CHECK_INT(0, pthread_create(&thread, NULL, work, with));
    return thread;
}

void *finish(pthread_t thread)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LIMIT_MS / 1000;
    void *result = NULL;
    if (pthread_timedjoin_np(thread, &result, &end) != 0)
        FAIL("a thread does not end");
    return result;
}

bool is_asleep(int task)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", task);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    /* The name may hold anything but ends with the last bracket; none of ours has one. */
    bool read = fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    fclose(file);
    return read && state == 'S';
}

/* Calls `each` with the names in a folder of /proc, and counts what it says yes to. */
static int count_in(const char *folder, bool (*each)(const char *name, const void *with),
                    const void *with)
{
    DIR *directory = opendir(folder);
    if (!directory)
        FAIL("%s: %s", folder, strerror(errno));
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.')
            count += each(entry->d_name, with);
    closedir(directory);
    return count;
}

static bool any(const char *name, const void *with)
{
    (void)name, (void)with;
    return true;
}

int thread_count(void)
{
    return count_in("/proc/self/task", any, NULL);
}

int descriptor_count(void)
{
    /* One is the folder that is being read. */
    return count_in("/proc/self/fd", any, NULL) - 1;
}

static bool starts_with(const char *task, const void *start)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", task);
    FILE *file = fopen(path, "re");
    if (!file)
        return false; /* it ended meanwhile */
    if (!fgets(name, sizeof name, file))
        name[0] = 0;
    fclose(file);
    return strncmp(name, start, strlen(start)) == 0;
}

int threads_named(const char *start)
{
    return count_in("/proc/self/task", starts_with, start);
}

void end_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(2 * LIMIT_MS / 1000);
}

int exit_code_of(int pid)
{
    int64_t end = now_us() + LIMIT_MS * INT64_C(1000);
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_us() > end) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return HUNG;
        }
        pause_ms(1);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : KILLED(WTERMSIG(status));
}

int in_fork(void (*work)(void *), void *with)
{
    pid_t pid = fork();
    if (pid < 0)
        FAIL("fork: %s", strerror(errno));
    if (pid == 0) {
        end_with_parent();
        work(with);
        _exit(0);
    }
    return exit_code_of(pid);
}
