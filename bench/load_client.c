/* Asks a server on loopback on several connections at a time, each of which waits for its answer before it asks again.

   cc -O2 -o load_client bench/load_client.c
   ./load_client PORT REQUESTS CONNECTIONS < requests

   Its standard input has requests of HTTP/1.1, each after a line with its number of bytes; they are sent in turns. It
   prints the answers a second, and the median and the 99th percentile of their times in milliseconds. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define LARGEST (1 << 20) /* bytes of an answer */
#define MOST 4096         /* different requests */

struct connection {
    int socket, asked;
    size_t received;
    double began;
    char answer[LARGEST];
};

static char *requests[MOST];
static size_t lengths[MOST];
static int number;

static void fail(const char *why) {
    fprintf(stderr, "load_client: %s\n", why);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void ask(struct connection *c) {
    int at = c->asked++ % number;
    size_t sent = 0;
    c->received = 0;
    c->began = now();
    while (sent < lengths[at]) {
        ssize_t n = write(c->socket, requests[at] + sent, lengths[at] - sent);
        if (n <= 0) fail("cannot send");
        sent += n;
    }
}

/* Whether all of an answer is there: its head, and as many bytes as the head states. */
static int complete(struct connection *c) {
    c->answer[c->received] = 0;
    char *end = strstr(c->answer, "\r\n\r\n");
    if (!end) return 0;
    char *length = strcasestr(c->answer, "\r\ncontent-length:");
    if (!length || length > end) fail("an answer without a length");
    return c->received >= (size_t)(end + 4 - c->answer) + strtoul(length + 17, NULL, 10);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **words) {
    if (count != 4) fail("expected PORT REQUESTS CONNECTIONS");
    int total = atoi(words[2]), many = atoi(words[3]);
    size_t length;
    while (number < MOST && scanf("%zu\n", &length) == 1) {
        requests[number] = malloc(length + 1);
        if (fread(requests[number], 1, length, stdin) != length) fail("a request is cut");
        lengths[number++] = length;
    }
    if (!number || total < many || many < 1) fail("expected requests, and at least one for each connection");
    struct connection *connections = calloc(many, sizeof *connections);
    struct pollfd *ready = calloc(many, sizeof *ready);
    double *taken = calloc(total, sizeof *taken);
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int done = 0, asked = 0, one = 1;
    double began = now();
    for (int i = 0; i < many; i++, asked++) {
        connections[i].socket = socket(AF_INET, SOCK_STREAM, 0);
        connections[i].asked = i * number / many;
        if (connect(connections[i].socket, (struct sockaddr *)&place, sizeof place)) fail("cannot connect");
        setsockopt(connections[i].socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        ready[i] = (struct pollfd){.fd = connections[i].socket, .events = POLLIN};
        ask(&connections[i]);
    }
    while (done < total) {
        if (poll(ready, many, 30000) <= 0) fail("no answer within 30 seconds");
        for (int i = 0; i < many; i++) {
            struct connection *c = &connections[i];
            if (!(ready[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
            ssize_t n = read(c->socket, c->answer + c->received, LARGEST - 1 - c->received);
            if (n <= 0) fail("the connection was closed, or an answer is too long");
            c->received += n;
            if (!complete(c)) continue;
            if (strncmp(c->answer, "HTTP/1.1 200", 12)) fail(strtok(c->answer, "\r"));
            taken[done++] = now() - c->began;
            if (asked < total) {
                asked++;
                ask(c);
            }
        }
    }
    double seconds = now() - began;
    qsort(taken, total, sizeof *taken, by_size);
    printf("%.2f %.3f %.3f\n", total / seconds, 1e3 * taken[total / 2], 1e3 * taken[(int)(total * 0.99)]);
    return 0;
}
