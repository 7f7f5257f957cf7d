/* A hash map from 64-bit keys to pointers, which needs p3s_lock; and hashes of texts. */
#include "p3s_inside.h"

#include <stdlib.h>
#include <string.h>

struct p3s_node { uint64_t key; void *value; struct p3s_node *next; };

uint64_t p3s_mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

uint64_t p3s_hash_more(uint64_t hash, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

uint64_t p3s_hash_text(uint64_t key, const char *text, uint64_t extra)
{
    return p3s_mix(p3s_mix(key ^ p3s_hash_more(P3S_HASH_BEGIN, text, strlen(text))) ^ extra);
}

void *p3s_map_get(const struct p3s_map *m, uint64_t key)
{
    struct p3s_node *n = m->buckets ? m->buckets[p3s_mix(key) & m->mask] : NULL;
    while (n && n->key != key)
        n = n->next;
    return n ? n->value : NULL;
}

static void map_grow(struct p3s_map *m)
{
    size_t bigger = m->buckets ? 4 * (m->mask + 1) : 64;
    struct p3s_node **fresh = calloc(bigger, sizeof *fresh);
    if (!fresh)
        return;
    for (size_t i = 0; m->buckets && i <= m->mask; i++)
        for (struct p3s_node *n = m->buckets[i], *next; n; n = next) {
            next = n->next;
            n->next = fresh[p3s_mix(n->key) & (bigger - 1)];
            fresh[p3s_mix(n->key) & (bigger - 1)] = n;
        }
    free(m->buckets);
    m->buckets = fresh;
    m->mask = bigger - 1;
}

void *p3s_map_put(struct p3s_map *m, uint64_t key, void *value)
{
    if (!m->buckets || m->used > 2 * m->mask)
        map_grow(m);
    if (!m->buckets)
        return value;
    for (struct p3s_node *n = m->buckets[p3s_mix(key) & m->mask]; n; n = n->next)
        if (n->key == key) {
            void *old = n->value;
            n->value = value;
            return old;
        }
    struct p3s_node *n = malloc(sizeof *n);
    if (!n)
        return value;
    n->key = key;
    n->value = value;
    n->next = m->buckets[p3s_mix(key) & m->mask];
    m->buckets[p3s_mix(key) & m->mask] = n;
    m->used++;
    return NULL;
}

void *p3s_map_take(struct p3s_map *m, uint64_t key)
{
    if (!m->buckets)
        return NULL;
    for (struct p3s_node **n = &m->buckets[p3s_mix(key) & m->mask]; *n; n = &(*n)->next)
        if ((*n)->key == key) {
            struct p3s_node *found = *n;
            void *value = found->value;
            *n = found->next;
            free(found);
            m->used--;
            return value;
        }
    return NULL;
}
