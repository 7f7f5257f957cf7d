/* A learning switch between network interfaces that holds every frame for some time.
 *
 *     switch MICROSECONDS INTERFACE...
 *
 * Frames leave in the order in which they came, that long after they came: to the interface where
 * their destination was last seen, else to all others. Offloads must be off on the interfaces.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#define MOST_PORTS 16
#define MOST_HOSTS 64
#define FRAME 2048
#define RING 65536 /* frames on the way; more are dropped, as a switch does */

struct frame {
    int64_t at;
    int from, length;
    unsigned char data[FRAME];
};

static struct frame *ring;
static unsigned head, tail;
static int ports[MOST_PORTS], nports;
static struct { unsigned char mac[6]; int port; } hosts[MOST_HOSTS];
static int nhosts;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int open_port(const char *name)
{
    int size = 16 << 20, on = 1, number = if_nametoindex(name);
    struct sockaddr_ll where = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
                                .sll_ifindex = number};
    struct packet_mreq all = {.mr_ifindex = number, .mr_type = PACKET_MR_PROMISC};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    if (!number || fd < 0 || bind(fd, (struct sockaddr *)&where, sizeof where)
        || setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all)
        || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on)) {
        fprintf(stderr, "switch: %s: %s\n", name, strerror(errno));
        exit(1);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    return fd;
}

/* Return where an address was last seen, -1 where it was not; with a port, note it. */
static int place_of(const unsigned char *mac, int port)
{
    for (int i = 0; i < nhosts; i++)
        if (!memcmp(hosts[i].mac, mac, 6)) {
            if (port >= 0)
                hosts[i].port = port;
            return hosts[i].port;
        }
    if (port >= 0 && nhosts < MOST_HOSTS) {
        memcpy(hosts[nhosts].mac, mac, 6);
        hosts[nhosts++].port = port;
    }
    return -1;
}

static void put(int port, const struct frame *f)
{
    struct pollfd room = {ports[port], POLLOUT, 0};
    while (send(ports[port], f->data, f->length, 0) < 0 && (errno == EAGAIN || errno == ENOBUFS))
        poll(&room, 1, 1);
}

int main(int argc, char **argv)
{
    int64_t delay = argc > 2 ? atoll(argv[1]) * 1000 : -1;
    struct pollfd polled[MOST_PORTS];
    if (delay < 0 || argc - 2 > MOST_PORTS) {
        fprintf(stderr, "usage: switch MICROSECONDS INTERFACE...\n");
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    ring = malloc(sizeof *ring * RING);
    for (; nports < argc - 2; nports++) {
        ports[nports] = open_port(argv[nports + 2]);
        polled[nports] = (struct pollfd){ports[nports], POLLIN, 0};
    }
    for (;;) {
        int64_t left = head == tail ? INT64_C(1000000000) : ring[tail % RING].at - now();
        struct timespec wait = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
        ppoll(polled, nports, &wait, NULL);
        for (int port = 0; port < nports; port++)
            for (;;) {
                struct frame *f = &ring[head % RING];
                if (head - tail == RING)
                    break;
                f->length = recv(ports[port], f->data, FRAME, 0);
                if (f->length < 14)
                    break;
                f->at = now() + delay;
                f->from = port;
                place_of(f->data + 6, port);
                head++;
            }
        while (head != tail && ring[tail % RING].at <= now()) {
            const struct frame *f = &ring[tail % RING];
            int to = f->data[0] & 1 ? -1 : place_of(f->data, -1);
            for (int port = 0; port < nports; port++)
                if (port != f->from && (to < 0 || to == port))
                    put(port, f);
            tail++;
        }
    }
}
