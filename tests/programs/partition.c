/* Halo exchange on an unstructured graph: random points, neighbours within a radius, cut into parts
 * by recursive coordinate bisection. Every process works out the same partition for itself.
 * Arguments: points (20000), exchanges (10), dimensions of space (2). */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 3 };

static double *at; /* MAX_DIM coordinates of each point */
static int *part, *order, axis, dim = 2;
static unsigned long long state = 88172645463325252ULL;

static double uniform(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 11) * (1.0 / 9007199254740992.0);
}

static int by_coordinate(const void *a, const void *b)
{
    double x = at[MAX_DIM * *(const int *)a + axis], y = at[MAX_DIM * *(const int *)b + axis];
    return (x > y) - (x < y);
}

static void bisect(int *points, int number, int first, int parts)
{
    if (parts == 1) {
        for (int i = 0; i < number; i++)
            part[points[i]] = first;
        return;
    }
    double low[MAX_DIM], high[MAX_DIM];
    for (int d = 0; d < dim; d++) {
        low[d] = 1e9, high[d] = -1e9;
        for (int i = 0; i < number; i++) {
            low[d] = fmin(low[d], at[MAX_DIM * points[i] + d]);
            high[d] = fmax(high[d], at[MAX_DIM * points[i] + d]);
        }
    }
    axis = 0;
    for (int d = 1; d < dim; d++)
        if (high[d] - low[d] > 1.0001 * (high[axis] - low[axis]))
            axis = d;
    qsort(points, number, sizeof *points, by_coordinate);
    int left = parts / 2, cut = (int)((long)number * left / parts);
    bisect(points, cut, first, left);
    bisect(points + cut, number - cut, first + left, parts - left);
}

int main(int argc, char **argv)
{
    int rank, np, points = argc > 1 ? atoi(argv[1]) : 20000;
    int exchanges = argc > 2 ? atoi(argv[2]) : 10;
    dim = argc > 3 ? atoi(argv[3]) : 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &np);
    at = calloc((size_t)points * MAX_DIM, sizeof *at);
    part = malloc(points * sizeof *part);
    order = malloc(points * sizeof *order);
    for (int i = 0; i < points; i++) {
        order[i] = i;
        for (int d = 0; d < dim; d++)
            at[MAX_DIM * i + d] = uniform();
    }
    bisect(order, points, 0, np);

    /* buckets as wide as the radius; a point's neighbours lie in its own and those around it */
    int wide = (int)floor(pow(points / 2.5, 1.0 / dim));
    double radius = 1.0 / wide;
    int deep = dim == 3 ? wide : 1, buckets = wide * wide * deep;
    int *head = malloc(buckets * sizeof *head), *next = malloc(points * sizeof *next);
    memset(head, -1, buckets * sizeof *head);
    for (int i = 0; i < points; i++) {
        double *x = at + MAX_DIM * i;
        int b = (int)(x[0] * wide) * wide + (int)(x[1] * wide);
        b = b * deep + (dim == 3 ? (int)(x[2] * wide) : 0);
        next[i] = head[b], head[b] = i;
    }
    int *send = calloc(np, sizeof *send), *receive = calloc(np, sizeof *receive);
    int *sent = malloc(np * sizeof *sent);
    for (int i = 0; i < points; i++) {
        double *x = at + MAX_DIM * i;
        int c[MAX_DIM] = {0, 0, 0};
        for (int d = 0; d < dim; d++)
            c[d] = (int)(x[d] * wide);
        memset(sent, 0, np * sizeof *sent);
        for (int a = -1; a <= 1; a++)
            for (int b = -1; b <= 1; b++)
                for (int e = dim == 3 ? -1 : 0; e <= (dim == 3 ? 1 : 0); e++) {
                    int u = c[0] + a, v = c[1] + b, w = c[2] + e;
                    if (u < 0 || v < 0 || w < 0 || u >= wide || v >= wide || w >= deep)
                        continue;
                    for (int j = head[(u * wide + v) * deep + w]; j >= 0; j = next[j]) {
                        double far = 0;
                        for (int d = 0; d < dim; d++)
                            far += (x[d] - at[MAX_DIM * j + d]) * (x[d] - at[MAX_DIM * j + d]);
                        if (far > radius * radius || part[j] == part[i] || sent[part[j]]++)
                            continue;
                        if (part[i] == rank) /* my point is a ghost there */
                            send[part[j]]++;
                        if (part[j] == rank)
                            receive[part[i]]++;
                    }
                }
    }
    double *values = calloc(4 * (size_t)points, sizeof *values), norm = 0;
    double *ghosts = calloc(4 * (size_t)points, sizeof *ghosts);
    MPI_Request *requests = malloc(2 * np * sizeof *requests);
    for (int turn = 0; turn < exchanges; turn++) {
        int posted = 0;
        size_t place = 0;
        for (int q = 0; q < np; q++)
            if (receive[q]) {
                MPI_Irecv(ghosts + place, receive[q], MPI_DOUBLE, q, 7, MPI_COMM_WORLD,
                          &requests[posted++]);
                place += receive[q];
            }
        place = 0;
        for (int q = 0; q < np; q++)
            if (send[q]) {
                MPI_Isend(values + place, send[q], MPI_DOUBLE, q, 7, MPI_COMM_WORLD,
                          &requests[posted++]);
                place += send[q];
            }
        MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE);
        MPI_Allreduce(MPI_IN_PLACE, &norm, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%d parts, %d exchanges\n", np, exchanges);
    MPI_Finalize();
    return 0;
}
