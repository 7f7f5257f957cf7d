/* Runs tables of messages and says how long each takes: random pairs, or any other traffic.
 *
 *   exchange JOB RESULTS [times]
 *
 * JOB: little-endian int64: MAGIC, ranks, warm-ups, repeats, phases; of each phase its number, its
 * rows, and source, dest, messages, nbytes of each row. Rank 0 alone reads it, and writes RESULTS:
 * a line "number seconds" for each phase, flushed, so that what was measured before the end of an
 * interrupted run is there. A phase is repeated: barrier, all receives and sends posted in the
 * order of the rows, all of them waited for. Of its sorted times a rank takes the one at 3/4, the
 * phase the largest of all ranks (Papadopoulou 2017, algorithm 3.1). With "times" a line
 * "number seconds : times of rank 0 : times of rank 1 ..." is written, for tests.
 *
 * With P3S_SIMULATED (SimGrid) all ranks share one buffer, as nothing looks at the bytes.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x3153454741524654LL
#define COLUMNS 4
#define HEAD 5

enum { SOURCE, DEST, MESSAGES, NBYTES };

/* What one rank does in a phase. */
struct exchange {
	int64_t rows, *row;
	MPI_Request *request;
	char *buffer;
	int me;
};

static void stop(const char *why)
{
	fprintf(stderr, "p3s exchange: %s\n", why);
	MPI_Abort(MPI_COMM_WORLD, 3);
	exit(3);
}

static void *room(size_t bytes)
{
	void *found = malloc(bytes ? bytes : 1);
	if (!found)
		stop("no memory left; take smaller messages");
	return found;
}

static char *buffer_of(int64_t whole, int64_t largest)
{
#ifdef P3S_SIMULATED
	return SMPI_SHARED_MALLOC(largest ? largest : 1);
#else
	char *found = room(whole);
	memset(found, 1, whole);
	return found;
#endif
}

static void free_buffer(char *buffer)
{
#ifdef P3S_SIMULATED
	SMPI_SHARED_FREE(buffer);
#else
	free(buffer);
#endif
}

static int64_t read_words(FILE *job, int64_t *words, int64_t number)
{
	return job && fread(words, sizeof *words, number, job) == (size_t)number;
}

/* Gives all ranks what rank 0 reads. */
static void shared(FILE *job, int64_t *words, int64_t number, int me)
{
	if (!me && !read_words(job, words, number))
		stop("the job is damaged");
	if (number)
		MPI_Bcast(words, (int)number, MPI_INT64_T, 0, MPI_COMM_WORLD);
}

/* Posts a rank's receives and sends; returns how many. */
static int post(struct exchange *x)
{
	char *at = x->buffer;
	int posted = 0;
	for (int64_t k = 0; k < x->rows; k++) {
		const int64_t *row = x->row + COLUMNS * k;
		for (int64_t m = 0; m < row[MESSAGES]; m++) {
			if (row[DEST] == x->me) {
				MPI_Irecv(at, (int)row[NBYTES], MPI_BYTE, (int)row[SOURCE], 0, MPI_COMM_WORLD,
				          x->request + posted++);
#ifndef P3S_SIMULATED
				at += row[NBYTES];
#endif
			}
			if (row[SOURCE] == x->me) {
				MPI_Isend(at, (int)row[NBYTES], MPI_BYTE, (int)row[DEST], 0, MPI_COMM_WORLD,
				          x->request + posted++);
#ifndef P3S_SIMULATED
				at += row[NBYTES];
#endif
			}
		}
	}
	return posted;
}

static int later(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Keeps the rows of one rank, and makes room for what they move. */
static struct exchange prepared(int64_t rows, const int64_t *all, int me)
{
	struct exchange x = {0, room(sizeof(int64_t) * COLUMNS * rows), 0, 0, me};
	int64_t whole = 0, largest = 0, number = 0;
	for (int64_t k = 0; k < rows; k++) {
		const int64_t *row = all + COLUMNS * k;
		int64_t ends = (row[SOURCE] == me) + (row[DEST] == me);
		if (row[NBYTES] > largest)
			largest = row[NBYTES];
		if (!ends)
			continue;
		memcpy(x.row + COLUMNS * x.rows++, row, sizeof(int64_t) * COLUMNS);
		whole += ends * row[MESSAGES] * row[NBYTES];
		number += ends * row[MESSAGES];
	}
	x.request = room(sizeof(MPI_Request) * number);
	x.buffer = buffer_of(whole, largest);
	return x;
}

static void measure(struct exchange *x, int64_t warm, int64_t repeats, double *times)
{
	for (int64_t k = -warm; k < repeats; k++) {
		MPI_Barrier(MPI_COMM_WORLD);
		double begin = MPI_Wtime();
		int posted = post(x);
		MPI_Waitall(posted, x->request, MPI_STATUSES_IGNORE);
		if (k >= 0)
			times[k] = MPI_Wtime() - begin;
	}
}

/* Says what a phase took. */
static void tell(FILE *results, int64_t number, double *times, int64_t repeats, int all)
{
	int me, ranks;
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	double *each = room(sizeof(double) * repeats * ranks);
	if (all)
		MPI_Gather(times, (int)repeats, MPI_DOUBLE, each, (int)repeats, MPI_DOUBLE, 0,
		           MPI_COMM_WORLD);
	qsort(times, repeats, sizeof *times, later);
	double own = times[3 * repeats / 4], whole = 0.0;
	MPI_Reduce(&own, &whole, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (!me) {
		fprintf(results, "%lld %.9e", (long long)number, whole);
		for (int64_t k = 0; all && k < repeats * ranks; k++)
			fprintf(results, "%s%.9e", k % repeats ? " " : " : ", each[k]);
		fputc('\n', results);
		fflush(results);
	}
	free(each);
}

int main(int argc, char **argv)
{
	int me, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 3)
		stop("exchange JOB RESULTS [times]");
	FILE *job = me ? NULL : fopen(argv[1], "rb"), *results = me ? NULL : fopen(argv[2], "a");
	if (!me && (!job || !results))
		stop("the job cannot be read, or its results not written");
	int64_t head[HEAD], of[2];
	shared(job, head, HEAD, me);
	if (head[0] != MAGIC)
		stop("no job of this version");
	if (head[1] != ranks)
		stop("started with another number of ranks than the job has; check the launcher");
	double *times = room(sizeof(double) * head[3]);
	for (int64_t phase = 0; phase < head[4]; phase++) {
		shared(job, of, 2, me);
		int64_t *rows = room(sizeof(int64_t) * COLUMNS * of[1]);
		shared(job, rows, COLUMNS * of[1], me);
		struct exchange x = prepared(of[1], rows, me);
		measure(&x, head[2], head[3], times);
		tell(results, of[0], times, head[3], argc > 3);
		free_buffer(x.buffer);
		free(x.request);
		free(x.row);
		free(rows);
	}
	MPI_Finalize();
	return 0;
}
