/*
 * The locks that people write by hand, on a bare socket: what `cargo bench` compares with.
 *
 * usage: byhand raw2|raw2f NAME, with LEASEHOLD_URL in the environment: redis://127.0.0.1:PORT, or
 *        several of these with commas between
 *
 *   raw2   SET NX PX, and a script that deletes the key if the token is still there. On several
 *          servers all are written to, and a majority is waited for.
 *   raw2f  the same with a fence: a script takes the lock and counts with INCR. On one server only.
 *
 * Reads lines. For each number it takes the lock and gives it back so many times, and writes one
 * line with what each of them took, in nanoseconds. Ends at the end of its input.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TTL "30000"
#define SERVERS 5
#define TAKE                                                                                       \
    "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then "                            \
    "return redis.call('INCR', KEYS[2]) end return false"
#define GIVE                                                                                       \
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

struct server {
    int socket;
    int unread; /* replies that have not been read */
    size_t filled;
    char buffer[512];
};

static struct server servers[SERVERS];
static int count;
static bool fenced;
static char key[128], fence_key[140], take_digest[41], give_digest[41];

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "byhand: %s: %s\n", what, why);
    exit(1);
}

/* ---- a connection ----------------------------------------------------------------------------- */

static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int made = socket(AF_INET, SOCK_STREAM, 0), on = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (made < 0 || connect(made, (struct sockaddr *)&address, sizeof address) != 0)
        die("connect", "nobody answers");
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return made;
}

static void send_command(struct server *server, const char *command, size_t length)
{
    while (length > 0) {
        const ssize_t sent = write(server->socket, command, length);

        if (sent < 0)
            die("send", "the connection is gone");
        command += sent;
        length -= (size_t)sent;
    }
    server->unread++;
}

/* Where the first reply in the buffer ends, or 0. Replies have one line, and texts two. */
static size_t end_of_reply(const struct server *server)
{
    const char *end = memchr(server->buffer, '\n', server->filled);

    if (end != NULL && server->buffer[0] == '$' && server->buffer[1] != '-')
        end = memchr(end + 1, '\n', server->filled - (size_t)(end + 1 - server->buffer));
    return end == NULL ? 0 : (size_t)(end + 1 - server->buffer);
}

static void receive(struct server *server)
{
    const ssize_t got = read(server->socket, server->buffer + server->filled,
                             sizeof server->buffer - server->filled);

    if (got <= 0)
        die("receive", "the connection is gone");
    server->filled += (size_t)got;
}

/* Copies the first reply without its end, if all of it is there. */
static bool next_reply(struct server *server, char *reply, size_t room)
{
    const size_t end = end_of_reply(server);

    if (end == 0)
        return false;
    if (end < 2 || end > room)
        die("read a reply", "it is too long");
    memcpy(reply, server->buffer, end);
    reply[end - 2] = '\0';
    server->filled -= end;
    memmove(server->buffer, server->buffer + end, server->filled);
    server->unread--;
    if (reply[0] == '-')
        die("ask", reply);
    return true;
}

static void read_reply(struct server *server, char *reply, size_t room)
{
    while (!next_reply(server, reply, room)) receive(server);
}

static void load_script(struct server *server, const char *script, char *digest)
{
    char command[512], reply[128];
    const int length =
        snprintf(command, sizeof command, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n",
                 strlen(script), script);

    send_command(server, command, (size_t)length);
    read_reply(server, reply, sizeof reply);
    if (strncmp(reply, "$40\r\n", 5) != 0)
        die("load a script", reply);
    memcpy(digest, reply + 5, 41);
}

/* ---- a cycle ---------------------------------------------------------------------------------- */

static void new_token(char token[33])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char random[16];

    if (getrandom(random, sizeof random, 0) != sizeof random)
        die("draw a token", "there is no randomness");
    for (int at = 0; at < 16; at++) {
        token[2 * at] = digits[random[at] >> 4];
        token[2 * at + 1] = digits[random[at] & 15];
    }
    token[32] = '\0';
}

/* Sends a command to one server or to all, and says whether it, or most of them, agree. */
static bool agreed(const char *command, size_t length, char yes)
{
    char reply[128];
    int agreeing = 0, answered = 0;

    for (int at = 0; at < count; at++) send_command(&servers[at], command, length);
    if (count == 1) {
        read_reply(&servers[0], reply, sizeof reply);
        return reply[0] == yes && strcmp(reply, ":0") != 0;
    }
    while (agreeing <= count / 2 && answered < count) {
        struct pollfd polled[SERVERS];

        for (int at = 0; at < count; at++) {
            polled[at].fd = servers[at].unread > 0 ? servers[at].socket : -1;
            polled[at].events = POLLIN;
        }
        if (poll(polled, (nfds_t)count, -1) < 0)
            die("wait", "poll fails");
        for (int at = 0; at < count; at++) {
            if (polled[at].fd < 0 || polled[at].revents == 0)
                continue;
            receive(&servers[at]);
            while (next_reply(&servers[at], reply, sizeof reply)) {
                /* What was not waited for earlier may come first. */
                if (servers[at].unread > 0)
                    continue;
                answered++;
                agreeing += reply[0] == yes && strcmp(reply, ":0") != 0;
            }
        }
    }
    return agreeing > count / 2;
}

static void take(const char *token)
{
    char command[512];
    int length;

    if (fenced)
        length = snprintf(
            command, sizeof command,
            "*7\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n"
            "$32\r\n%s\r\n$%zu\r\n%s\r\n",
            take_digest, strlen(key), key, strlen(fence_key), fence_key, token, strlen(TTL), TTL);
    else
        length = snprintf(
            command, sizeof command,
            "*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$32\r\n%s\r\n$2\r\nNX\r\n$2\r\nPX\r\n$%zu\r\n%s\r\n",
            strlen(key), key, token, strlen(TTL), TTL);
    if (!agreed(command, (size_t)length, fenced ? ':' : '+'))
        die("take the lock", "somebody else has it");
}

static void give(const char *token)
{
    char command[512];
    const int length =
        snprintf(command, sizeof command,
                 "*5\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$%zu\r\n%s\r\n$32\r\n%s\r\n",
                 give_digest, strlen(key), key, token);

    if (!agreed(command, (size_t)length, ':'))
        die("give the lock back", "it was lost");
}

static void cycle(void)
{
    char token[33];

    new_token(token);
    take(token);
    give(token);
}

/* ---- what is asked ---------------------------------------------------------------------------- */

static long long now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* The port is what follows the last colon of each URL. */
static void connect_all(char *urls)
{
    for (char *url = strtok(urls, ","); url != NULL; url = strtok(NULL, ",")) {
        const char *port = strrchr(url, ':');

        if (port == NULL || atoi(port + 1) == 0 || count == SERVERS)
            die("read LEASEHOLD_URL", "it is redis://127.0.0.1:PORT, or up to five of these");
        servers[count].socket = connect_to(atoi(port + 1));
        load_script(&servers[count], TAKE, take_digest);
        load_script(&servers[count], GIVE, give_digest);
        count++;
    }
}

int main(int words, char **arguments)
{
    char *urls = getenv("LEASEHOLD_URL");
    char line[32];

    fenced = words == 3 && strcmp(arguments[1], "raw2f") == 0;
    if (words != 3 || (!fenced && strcmp(arguments[1], "raw2") != 0) || urls == NULL) {
        fprintf(stderr, "usage: LEASEHOLD_URL=... byhand raw2|raw2f NAME\n");
        return 64;
    }
    connect_all(urls);
    if (count == 0 || (fenced && count > 1))
        die("count with INCR", "that is for one server");
    /* A Cluster keeps both where the name is. */
    snprintf(key, sizeof key, "byhand:{%.100s}", arguments[2]);
    snprintf(fence_key, sizeof fence_key, "%s:fence", key);
    while (fgets(line, sizeof line, stdin) != NULL) {
        for (long left = atol(line); left > 0; left--) {
            const long long before = now();

            cycle();
            printf("%lld ", now() - before);
        }
        putchar('\n');
        fflush(stdout);
    }
    return 0;
}
