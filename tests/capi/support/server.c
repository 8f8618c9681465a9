#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "process.h"
#include "runner.h"

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* The kit's program, with its standard input and output at the other end of `channel`. */
static _Noreturn void become_kit(char *options, int channel)
{
    const char *kit = getenv("KIT_PROGRAM");
    if (!kit)
        FAIL("KIT_PROGRAM does not name the kit's program");
    char *words[48] = {(char *)kit, "redis"};
    int count = 2;
    for (char *word = strtok(options, " "); word; word = strtok(NULL, " ")) words[count++] = word;
    end_with_parent();
    alarm(0);
    dup2(channel, STDIN_FILENO);
    dup2(channel, STDOUT_FILENO);
    execv(kit, words);
    fprintf(stderr, "%s: %s\n", kit, strerror(errno));
    _exit(127);
}

/* A read that takes longer fails. */
static void be_patient(int descriptor)
{
    struct timeval patience = {LIMIT_MS / 1000, 0};
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

static void send_all(int descriptor, const char *bytes, size_t length)
{
    for (ssize_t sent; length > 0; bytes += sent, length -= (size_t)sent)
        if ((sent = send(descriptor, bytes, length, MSG_NOSIGNAL)) <= 0)
            FAIL("asking a server: %s", strerror(errno));
}

/* One line, or `length` bytes and a line end. */
static char *receive(int descriptor, char *answer, size_t room, long length)
{
    size_t have = 0;
    while (have < room - 1 && recv(descriptor, answer + have, 1, 0) == 1) {
        have++;
        bool whole = length < 0 || have == (size_t)length + 2;
        if (whole && have >= 2 && memcmp(answer + have - 2, "\r\n", 2) == 0) {
            answer[have - 2] = 0;
            return answer;
        }
    }
    FAIL("a server gave no answer");
}

/* One line of the kit's program. */
static void hear(struct server *server, char *line, size_t room)
{
    size_t have = 0;
    while (have < room && recv(server->channel, line + have, 1, 0) == 1)
        if (line[have++] == '\n') {
            line[have - 1] = 0;
            return;
        }
    FAIL("the kit's program ended, or says nothing");
}

static void tell(struct server *server, const char *word)
{
    char answer[256];
    send_all(server->channel, word, strlen(word));
    send_all(server->channel, "\n", 1);
    hear(server, answer, sizeof answer);
    CHECK_TEXT("ok", answer);
}

struct server *server_start(const char *options)
{
    struct server *server = calloc(1, sizeof *server);
    char copy[1024], line[256];
    int ends[2];
    CHECK(server);
    snprintf(copy, sizeof copy, "%s", options ? options : "");
    const char *password = strstr(copy, "--requirepass ");
    if (password)
        sscanf(password, "--requirepass %31s", server->password);
    CHECK_INT(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    server->pid = fork();
    if (server->pid == 0)
        become_kit(copy, ends[1]);
    close(ends[1]);
    server->channel = ends[0];
    be_patient(server->channel);
    hear(server, line, sizeof line);
    if (sscanf(line, "url=%63s ports=%d", server->url, &server->port) != 2)
        FAIL("the kit's program says '%s'", line);
    return server;
}

void server_end(struct server *server)
{
    /* Not only by the end of the channel, which a forked child may still have open. */
    send_all(server->channel, "stop\n", 5);
    CHECK_INT(0, exit_code_of(server->pid));
    close(server->channel);
    free(server);
}

void server_pause(struct server *server)
{
    tell(server, "pause");
}

void server_resume(struct server *server)
{
    tell(server, "resume");
}

void server_kill(struct server *server)
{
    tell(server, "kill");
}

void server_restart(struct server *server)
{
    tell(server, "restart");
}

const char *server_ask(struct server *server, const char *format, ...)
{
    static _Thread_local char answer[4096];
    char command[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);

    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    be_patient(descriptor);
    struct sockaddr_in address = loopback(server->port);
    if (connect(descriptor, (struct sockaddr *)&address, sizeof address) != 0)
        FAIL("connecting to a server: %s", strerror(errno));
    if (server->password[0]) {
        dprintf(descriptor, "AUTH %s\r\n", server->password);
        CHECK_TEXT("+OK", receive(descriptor, answer, sizeof answer, -1));
    }
    send_all(descriptor, command, (size_t)length);
    send_all(descriptor, "\r\n", 2);
    char *text = receive(descriptor, answer, sizeof answer, -1);
    if (text[0] == '$') {
        long bytes = strtol(text + 1, NULL, 10);
        text =
            bytes < 0 ? strcpy(answer, "(nil)") : receive(descriptor, answer, sizeof answer, bytes);
    } else if (text[0] != '-') {
        text++;
    }
    close(descriptor);
    return text;
}

static _Noreturn void speak(int listener, const char *answer)
{
    char heard[4096];
    end_with_parent();
    alarm(0);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        while (recv(connection, heard, sizeof heard, 0) > 0)
            if (send(connection, answer, strlen(answer), MSG_NOSIGNAL) < 0)
                break;
        close(connection);
    }
}

struct stranger stranger_start(const char *answer)
{
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(0, bind(listener, (struct sockaddr *)&address, size));
    CHECK_INT(0, listen(listener, 16));
    CHECK_INT(0, getsockname(listener, (struct sockaddr *)&address, &size));
    struct stranger stranger = {fork(), ntohs(address.sin_port)};
    if (stranger.pid == 0)
        speak(listener, answer);
    close(listener);
    return stranger;
}

void stranger_end(struct stranger stranger)
{
    kill(stranger.pid, SIGKILL);
    waitpid(stranger.pid, NULL, 0);
}
