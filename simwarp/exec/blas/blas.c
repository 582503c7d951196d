/* Level-3 BLAS by the names of CBLAS and Fortran: large calls go to gpu.blas3, in a Python within this process;
   all others go to the next BLAS of the program. Python starts with the first large call, in its thread. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 101, COLUMNS = 102 };
enum { COMPUTED, REFUSED, FAILED, OFF };

/* As in calls.py. */
struct call {
    const char *routine;
    int order;
    char side, uplo, trans_a, trans_b, diag;
    int m, n, k, lda, ldb, ldc;
    const void *alpha, *beta, *a, *b, *c;
};

static int (*computed)(const struct call *call, int must);
static _Atomic int is_off;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int is_started;
static double least = -1;
static int is_counting;
static _Atomic long taken, passed;
/* Above 0 while this thread is in Python or in the next BLAS: what these call of BLAS is not ours. */
static __thread int is_inside;

static void say(const char *what, const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&said))
        fprintf(stderr, "simwarp: %s%s; calls go to the next BLAS\n", what, why);
}

static void count(void)
{
    fprintf(stderr, "simwarp: %ld calls computed, %ld passed on\n", taken, passed);
}

/* A child has neither Python's threads nor the GPUs of its parent. */
static void in_child(void)
{
    is_off = 1;
    computed = NULL;
    is_counting = 0;
}

/* Start Python, or use that of this process, and get the function that computes a call. */
static int start_python(void)
{
    const char *library = getenv("SIMWARP_BLAS_LIBPYTHON");
    void *python = RTLD_DEFAULT;
    int (*is_initialized)(void) = dlsym(python, "Py_IsInitialized"), ours;

    ours = !is_initialized || !is_initialized();
    if (ours) {
        python = dlopen(library ? library : LIBPYTHON, RTLD_NOW | RTLD_GLOBAL);
        if (!python) {
            say("Python does not start: ", dlerror());
            return 0;
        }
        void (*set_name)(const wchar_t *) = dlsym(python, "Py_SetProgramName");
        void (*initialize)(int) = dlsym(python, "Py_InitializeEx");
        if (set_name)
            set_name(PYTHON);
        if (!initialize) {
            say("Python does not start: ", "the library has no Py_InitializeEx");
            return 0;
        }
        initialize(0);
    }
    int (*ensure)(void) = dlsym(python, "PyGILState_Ensure");
    void (*release)(int) = dlsym(python, "PyGILState_Release");
    void *(*save)(void) = dlsym(python, "PyEval_SaveThread");
    int (*execute)(const char *) = dlsym(python, "PyRun_SimpleString");
    char text[8192];
    int state = ours ? 0 : ensure();

    snprintf(text, sizeof text, BOOTSTRAP, (void *) &computed);
    if (execute(text) || !computed)
        say("the package simwarp does not start in ", PYTHON_TEXT);
    if (ours)
        save();
    else
        release(state);
    return computed != NULL;
}

/* Another thread does not wait while one starts Python: it may hold the lock that Python needs. */
static void start(int must)
{
    if (must)
        pthread_mutex_lock(&starting);
    else if (pthread_mutex_trylock(&starting))
        return;
    if (!is_started) {
        is_inside++;
        pthread_atfork(NULL, NULL, in_child);
        if (!start_python())
            is_off = 1;
        is_inside--;
        is_started = 1;
    }
    pthread_mutex_unlock(&starting);
}

/* Read the environment; a race of two threads sets the same values. */
static double least_of(void)
{
    if (least < 0) {
        const char *above = getenv("SIMWARP_BLAS_ABOVE"), *counts = getenv("SIMWARP_BLAS_COUNTS");
        double side = above ? atof(above) : ABOVE;

        if (counts && *counts && *counts != '0' && !is_counting) {
            is_counting = 1;
            atexit(count);
        }
        least = side < 0 ? 0 : side * side * side;
    }
    return least;
}

static int enter(const struct call *call, int must)
{
    int status;

    if (!is_started)
        start(must);
    if (!is_started || !computed || (is_off && !must))
        return OFF;
    is_inside++;
    status = computed(call, must);
    is_inside--;
    if (status == OFF)
        is_off = 1;
    return status;
}

/* Compute a call if it is large enough and gpu.blas3 has it; 0 if the next BLAS is to compute it. */
static int takes(const struct call *call)
{
    double above = least_of();

    if (is_inside)
        return 0;
    if (!is_off && call->m > 0 && call->n > 0 && (double) call->m * call->n * call->k > above
        && enter(call, 0) == COMPUTED) {
        taken++;
        return 1;
    }
    passed++;
    return 0;
}

/* The function of that name behind ours, in the file that SIMWARP_BLAS_NEXT names or in the program's libraries. */
static void *next_of(_Atomic(void *) *found, const char *name)
{
    static _Atomic(void *) library;
    const char *file = getenv("SIMWARP_BLAS_NEXT");

    if (!*found) {
        if (file && *file && !library) {
            library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
            if (!library)
                fprintf(stderr, "simwarp: SIMWARP_BLAS_NEXT: %s\n", dlerror());
        }
        *found = dlsym(library ? library : RTLD_NEXT, name);
    }
    return *found;
}

/* Without a BLAS behind ours, Python computes small calls, too. */
static void must_take(const struct call *call, const char *name)
{
    if (call->m <= 0 || call->n <= 0)
        return;
    if (is_inside || enter(call, 1) != COMPUTED) {
        fprintf(stderr, "simwarp: %s: no BLAS is behind libsimwarpblas.so, and Python did not compute it\n"
                        "name one in SIMWARP_BLAS_NEXT\n", name);
        abort();
    }
}

static char upper(char letter)
{
    return (char) toupper((unsigned char) letter);
}

/* The letter of a number of CBLAS; 0 for others. */
static char letter(int number)
{
    static const struct { int number; char letter; } known[] = {
        {111, 'N'}, {112, 'T'}, {113, 'C'}, {121, 'U'}, {122, 'L'}, {131, 'N'}, {132, 'U'}, {141, 'L'}, {142, 'R'},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].number == number)
            return known[i].letter;
    return 0;
}

#include "functions.inc"
