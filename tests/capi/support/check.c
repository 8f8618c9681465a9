#include "check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int listener = STDERR_FILENO;

void tell_failures_to(int descriptor)
{
    listener = descriptor;
}

_Noreturn void fail_at(const char *file, int line, const char *format, ...)
{
    char reason[2048];
    const char *name = strrchr(file, '/');
    int length = snprintf(reason, sizeof reason, "%s:%d: ", name ? name + 1 : file, line);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(reason + length, sizeof reason - (size_t)length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof reason - 2)
        length = (int)sizeof reason - 2;
    reason[length] = '\n';
    if (write(listener, reason, (size_t)length + 1) < 0)
        _exit(3);
    _exit(1);
}

void check_int(const char *file, int line, const char *what, long long expected, long long actual)
{
    if (actual != expected)
        fail_at(file, line, "%s is %lld, not %lld", what, actual, expected);
}

void check_text(const char *file, int line, const char *what, const char *expected,
                const char *actual)
{
    if (!actual)
        fail_at(file, line, "%s is NULL", what);
    if (strcmp(actual, expected) != 0)
        fail_at(file, line, "%s is '%s', not '%s'", what, actual, expected);
}

void check_contains(const char *file, int line, const char *piece, const char *text)
{
    if (!strstr(text, piece))
        fail_at(file, line, "'%s' is not in '%s'", piece, text);
}
