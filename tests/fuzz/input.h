/* An input of a fuzzer as numbers: what it lacks is 0. */
#ifndef P3S_FUZZ_INPUT_H
#define P3S_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input { const uint8_t *at, *end; };

static inline uint32_t byte(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static inline uint64_t raw(struct input *in)
{
    uint64_t value = 0;
    size_t left = (size_t)(in->end - in->at), n = left < 8 ? left : 8;
    memcpy(&value, in->at, n);
    in->at += n;
    return value;
}

/* A number: mostly a small one, else one at a limit, or any. */
static inline int64_t number(struct input *in)
{
    static const int64_t limits[] = {
        -1, -2, -3, -4, 255, 256, 4095, 4096, 65535, 65536, 1 << 20, INT32_MAX - 1, INT32_MAX,
        INT32_MIN, (int64_t)INT32_MAX + 1, UINT32_MAX, (int64_t)UINT32_MAX + 1, (int64_t)1 << 40,
        (int64_t)1 << 59, INT64_MAX - 1, INT64_MAX, INT64_MIN, INT64_MIN + 1, INT64_MAX / 2};
    uint32_t how = byte(in);
    if (how < 160)
        return how % 32;
    if (how < 240)
        return limits[how % (sizeof limits / sizeof *limits)];
    return (int64_t)raw(in);
}

/* One of n things. */
static inline uint32_t one_of(struct input *in, uint32_t n)
{
    return n ? byte(in) % n : 0;
}

/* A number from 0 to 2^bits - 1, of any length. */
static inline int64_t some(struct input *in, int bits)
{
    int length = (int)(byte(in) % (unsigned)(bits + 1));
    return length ? (int64_t)(raw(in) >> (64 - length)) : 0;
}

#ifdef P3S_FUZZ_MAIN
/* Without libFuzzer: the inputs are files. */
int main(int argc, char **argv)
{
    static uint8_t data[1 << 20];
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file)
            return 2;
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        uint8_t *exact = __builtin_malloc(size ? size : 1);
        memcpy(exact, data, size);
        LLVMFuzzerTestOneInput(exact, size);
        __builtin_free(exact);
    }
    return 0;
}
#endif

#endif
