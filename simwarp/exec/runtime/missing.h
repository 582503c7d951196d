/* For the functions of the header that this runtime lacks, which the build appends: each reports its name. */
#include <stdint.h>
#include <string.h>

int simwarp_missing(const char *name);
#define MISSING(name)                                                                                        \
    int name(void)                                                                                           \
    {                                                                                                        \
        return simwarp_missing(#name);                                                                       \
    }
