/* Prints which server of a pool libmemcached asks for each of the keys key-0, key-1, ...: one number a line.
 * Arguments: plain or weighted, how many keys, then host, port and weight of each server. */
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    memcached_st *pool = memcached_create(NULL);
    int weighted = argc > 1 && strcmp(argv[1], "weighted") == 0;
    memcached_behavior_set(pool, weighted ? MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED : MEMCACHED_BEHAVIOR_KETAMA, 1);
    for (int at = 3; at + 2 < argc; at += 3) {
        memcached_server_add_with_weight(pool, argv[at], atoi(argv[at + 1]), atoi(argv[at + 2]));
    }
    for (int number = 0; argc > 2 && number < atoi(argv[2]); number++) {
        char key[32];
        int bytes = snprintf(key, sizeof key, "key-%d", number);
        printf("%u\n", memcached_generate_hash(pool, key, bytes));
    }
    memcached_free(pool);
    return 0;
}
