/* The socket to the server, and the handler that names a host access to device memory. */
#include "simwarp.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

struct head {
    uint32_t request, unused;
    uint64_t size, arguments[MOST_ARGUMENTS];
};
struct reply {
    int32_t error;
    uint32_t text_size;
    uint64_t size, values[MOST_VALUES];
};

static int channel = -1;
static pid_t owner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct facts chip;

/* The server has ended: so does the program, whose device is gone. */
static void lost(void)
{
    static const char text[] = "simwarp exec has ended; the program ends, too\n";
    if (write(2, text, sizeof text - 1) < 0)
        _exit(125);
    _exit(125);
}

/* Ends as the program would by itself: it gave memory that this process cannot access. */
static void crash_at(void *data)
{
    *(volatile char *)data = 0;
    abort();
}

static void put(const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        ssize_t done = send(channel, at, size, MSG_NOSIGNAL);
        if (done < 0 && errno == EFAULT)
            crash_at((void *)at);
        if (done < 0 && errno != EINTR)
            lost();
        if (done > 0)
            at += done, size -= (size_t)done;
    }
}

static void get(void *data, size_t size)
{
    for (char *at = data; size > 0;) {
        ssize_t done = recv(channel, at, size, 0);
        if (done < 0 && errno == EFAULT)
            crash_at(at);
        if (done == 0 || (done < 0 && errno != EINTR))
            lost();
        if (done > 0)
            at += done, size -= (size_t)done;
    }
}

/* Sends the head of a request with a file descriptor. */
static void put_with(struct head *head, int descriptor)
{
    char room[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec bytes = {head, sizeof *head};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(control), &descriptor, sizeof descriptor);
    ssize_t done;
    while ((done = sendmsg(channel, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    if (done < (ssize_t)sizeof *head)
        lost();
}

static size_t bytes_of(const struct rows *rows)
{
    return rows->width * rows->height;
}

static void put_rows(const struct rows *rows)
{
    if (rows->pitch == rows->width || rows->height == 1)
        put(rows->data, bytes_of(rows));
    else
        for (size_t y = 0; y < rows->height; y++)
            put((char *)rows->data + y * rows->pitch, rows->width);
}

static void get_rows(const struct rows *rows)
{
    if (rows->pitch == rows->width || rows->height == 1)
        get(rows->data, bytes_of(rows));
    else
        for (size_t y = 0; y < rows->height; y++)
            get((char *)rows->data + y * rows->pitch, rows->width);
}

/* Prints what kernels printed, in the order of the program's own output. */
static void print(size_t size)
{
    char *text = malloc(size);
    if (text == NULL)
        lost();
    get(text, size);
    fwrite(text, 1, size, stdout);
    free(text);
}

static cudaError_t exchange(struct call *call)
{
    struct head head = {.request = call->request, .size = bytes_of(&call->sent)};
    memcpy(head.arguments, call->arguments, sizeof head.arguments);
    if (call->descriptor > 0)
        put_with(&head, call->descriptor);
    else
        put(&head, sizeof head);
    if (head.size > 0)
        put_rows(&call->sent);
    struct reply reply;
    get(&reply, sizeof reply);
    if (reply.text_size > 0)
        print(reply.text_size);
    if (reply.size > 0 && reply.size == bytes_of(&call->received)) {
        get_rows(&call->received);
    } else if (reply.size > 0) { /* of a length that only the server knows */
        call->received = block_of(malloc(reply.size), reply.size);
        if (call->received.data == NULL)
            lost();
        get(call->received.data, reply.size);
    }
    memcpy(call->values, reply.values, sizeof reply.values);
    return reply.error;
}

/* A program that was started by itself is told how to run it; one that such a program started is not. */
static void say_how_to_run(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (getenv(FD_VARIABLE) == NULL && !atomic_flag_test_and_set(&said))
        fprintf(stderr, "no device: simwarp's libcuda and libcudart need simwarp exec around the program\n"
                        "run: simwarp exec PROGRAM, or for a Python script: python -m simwarp.numba SCRIPT\n");
}

/* Makes a request. If the reply's data does not fit call->received, it is in a new block, to be freed. */
cudaError_t ask(struct call *call)
{
    if (channel < 0)
        say_how_to_run();
    if (channel < 0 || getpid() != owner)
        return cudaErrorInitializationError; /* as in CUDA: a forked process has no device */
    pthread_mutex_lock(&lock);
    cudaError_t error = exchange(call);
    pthread_mutex_unlock(&lock);
    return error;
}

const struct facts *facts(void)
{
    return &chip;
}

/* A host access to the device's addresses is reported; then the program dies of it, as it does on a GPU. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    if (on_device(info->si_addr) && getpid() == owner && pthread_mutex_trylock(&lock) == 0) {
        uint64_t writes = 0;
#if defined(__x86_64__)
        writes = (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
        (void)context;
#endif
        struct call call = {.request = ASK_HOST_ACCESS, .arguments = {(uint64_t)info->si_addr, writes}};
        exchange(&call);
        pthread_mutex_unlock(&lock);
    }
    signal(number, SIG_DFL);
    if (info->si_code <= 0)
        raise(number); /* sent by a process: nothing would fault again */
}

/* Fresh pages are not given out in the window, so a pointer tells by its value whose memory it points to. */
static bool reserve_window(void)
{
    void *wanted = (void *)DEVICE_WINDOW;
    return mmap(wanted, DEVICE_WINDOW_SIZE, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == wanted;
}

/* A process that the program starts inherits the variable and not the socket: it has no device. */
static bool is_socket_of_parent(int number)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(number, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == getppid();
}

__attribute__((constructor)) static void connect_to_server(void)
{
    const char *number = getenv(FD_VARIABLE);
    if (number == NULL || !is_socket_of_parent(atoi(number)) || fcntl(atoi(number), F_SETFD, FD_CLOEXEC) != 0)
        return;
    channel = atoi(number);
    owner = getpid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!reserve_window()) {
        fprintf(stderr, "simwarp exec: the addresses from %#llx on are in use in this process\n",
                DEVICE_WINDOW);
        _exit(125);
    }
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    struct call call = {.request = ASK_HELLO, .received = block_of(&chip, sizeof chip)};
    ask(&call);
}
