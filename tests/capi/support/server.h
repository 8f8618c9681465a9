/*
 * Private redis-servers on free ports of 127.0.0.1, started by the kit's program, which KIT_PROGRAM
 * names. They end with the test that started them.
 */

#ifndef SERVER_H
#define SERVER_H

struct server {
    int pid; /* of the kit's program, which is told by `channel` what to do with its server */
    int channel;
    int port;
    char url[64];
    char password[32];
};

/* Starts one. `options` are words of its command line, separated by single spaces, or NULL. */
struct server *server_start(const char *options);

/* Stops it for good, and forgets it. */
void server_end(struct server *server);

/* SIGSTOP: connections are still accepted, by the kernel, and nothing is answered. */
void server_pause(struct server *server);
void server_resume(struct server *server);

/* SIGKILL: connecting is refused until it is restarted, empty. */
void server_kill(struct server *server);
void server_restart(struct server *server);

/*
 * One command as typed into redis-cli, with its rules for quoting, and its answer in one line:
 * "OK", "1", the bytes of a string, "(nil)", or "-ERR ...". The answer is valid until the next
 * call on the same thread.
 */
const char *server_ask(struct server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Something that is no Redis: it says the same to whatever it is sent. */
struct stranger {
    int pid;
    int port;
};

struct stranger stranger_start(const char *answer);
void stranger_end(struct stranger stranger);

#endif
