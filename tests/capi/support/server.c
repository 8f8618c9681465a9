#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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

int free_port(void)
{
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(0, bind(descriptor, (struct sockaddr *)&address, size));
    CHECK_INT(0, getsockname(descriptor, (struct sockaddr *)&address, &size));
    close(descriptor);
    return ntohs(address.sin_port);
}

static _Noreturn void become_server(struct server *server, char *options)
{
    static char port[16];
    snprintf(port, sizeof port, "%d", server->port);
    const char *program = getenv("REDIS_SERVER");
    if (!program) program = "redis-server";
    char *words[48] = {(char *)program, "--port",       port, "--bind", "127.0.0.1", "--dir",
                       server->folder,  "--save",       "",   "--appendonly", "no"};
    int count = 11;
    for (char *word = strtok(options, " "); word; word = strtok(NULL, " ")) words[count++] = word;
    end_with_parent();
    alarm(0);
    char log[256];
    snprintf(log, sizeof log, "%s/log", server->folder);
    int descriptor = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(descriptor, STDOUT_FILENO);
    dup2(descriptor, STDERR_FILENO);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    execvp(program, words);
    fprintf(stderr, "%s: %s\n", program, strerror(errno));
    _exit(127);
}

static bool log_says(const struct server *server, const char *piece)
{
    static char text[65536];
    char path[256];
    snprintf(path, sizeof path, "%s/log", server->folder);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    ssize_t length = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    text[length > 0 ? length : 0] = 0;
    return strstr(text, piece) != NULL;
}

/* False if the port had been taken by somebody else. */
static bool launch(struct server *server, const char *options)
{
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", options ? options : "");
    server->pid = fork();
    if (server->pid == 0) become_server(server, copy);
    int64_t end = now_us() + LIMIT_MS * INT64_C(1000);
    for (;;) {
        bool ended = waitpid(server->pid, NULL, WNOHANG) == server->pid;
        if (ended && log_says(server, "Address already in use")) return false;
        if (ended || now_us() > end) FAIL("no redis-server: see %s/log", server->folder);
        /* Only our own server's log says that it is our own server which answers there. */
        if (log_says(server, "Ready to accept connections")) return true;
        pause_ms(2);
    }
}

struct server *server_start(const char *options)
{
    struct server *server = calloc(1, sizeof *server);
    CHECK(server);
    new_folder(server->folder, sizeof server->folder);
    const char *password = options ? strstr(options, "--requirepass ") : NULL;
    if (password) sscanf(password, "--requirepass %31s", server->password);
    do {
        server->port = free_port();
    } while (!launch(server, options));
    snprintf(server->url, sizeof server->url, "redis://127.0.0.1:%d", server->port);
    return server;
}

void server_kill(struct server *server)
{
    if (server->pid <= 0) return;
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

void server_end(struct server *server)
{
    server_kill(server);
    free(server);
}

void server_pause(struct server *server)
{
    int status;
    kill(server->pid, SIGSTOP);
    CHECK(waitpid(server->pid, &status, WUNTRACED) == server->pid && WIFSTOPPED(status));
}

void server_resume(struct server *server)
{
    kill(server->pid, SIGCONT);
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

const char *server_ask(struct server *server, const char *format, ...)
{
    static _Thread_local char answer[4096];
    char command[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);

    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {LIMIT_MS / 1000, 0};
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
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
        text = bytes < 0 ? strcpy(answer, "(nil)")
                         : receive(descriptor, answer, sizeof answer, bytes);
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
            if (send(connection, answer, strlen(answer), MSG_NOSIGNAL) < 0) break;
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
    if (stranger.pid == 0) speak(listener, answer);
    close(listener);
    return stranger;
}

void stranger_end(struct stranger stranger)
{
    kill(stranger.pid, SIGKILL);
    waitpid(stranger.pid, NULL, 0);
}
