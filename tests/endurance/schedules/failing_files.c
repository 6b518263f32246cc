/* System calls on a ledger's files that fail when a test says so. Loaded into a role by LD_PRELOAD, shipped nowhere.
 *
 * A process says which role it is, and maps a file that the test writes into: which calls fail, after how many that do
 * not, how often, and with which error. Only files whose name begins like a ledger's, and the folder that holds them, are meant; the error is returned
 * instead of making the call, as a kernel would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OPEN = 1, WRITE = 2, SYNC = 4, UNLINK = 8 };
enum { DESCRIPTORS = 65536 };

struct plan {
    _Atomic int calls, skip, times, error, failed;
};

static struct plan *plan;
static const char *folder;
static char watched[DESCRIPTORS];

/* Called by a process once it knows which role it is. */
int begin_failing(const char *file, const char *of)
{
    int descriptor = open(file, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    void *mapped = mmap(NULL, sizeof(struct plan), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    folder = strdup(of);
    plan = mapped == MAP_FAILED ? NULL : mapped;
    return plan ? 0 : -1;
}

static int is_watched(const char *path)
{
    size_t length = folder ? strlen(folder) : 0;
    if (plan == NULL || strncmp(path, folder, length) != 0)
        return 0;
    return path[length] == 0 || strncmp(path + length, "/ledger.sqlite", 14) == 0;
}

static int fails(int call)
{
    if (!(atomic_load(&plan->calls) & call))
        return 0;
    if (atomic_fetch_sub(&plan->skip, 1) > 0)
        return 0;
    if (atomic_fetch_sub(&plan->times, 1) <= 0) {
        atomic_store(&plan->calls, 0);
        return 0;
    }
    atomic_fetch_add(&plan->failed, 1);
    errno = atomic_load(&plan->error);
    return 1;
}

static int known(int descriptor)
{
    return plan && descriptor >= 0 && descriptor < DESCRIPTORS && watched[descriptor];
}

static int opened(int descriptor)
{
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        watched[descriptor] = 1;
    return descriptor;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define MODE va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest)

#define OPENING(name)                                            \
    int name(const char *path, int flags, ...)                   \
    {                                                            \
        REAL(name);                                              \
        MODE;                                                    \
        if (!is_watched(path))                                   \
            return real(path, flags, mode);                      \
        return fails(OPEN) ? -1 : opened(real(path, flags, mode)); \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name)                                              \
    int name(int at, const char *path, int flags, ...)                \
    {                                                                 \
        REAL(name);                                                   \
        MODE;                                                         \
        if (!is_watched(path))                                        \
            return real(at, path, flags, mode);                       \
        return fails(OPEN) ? -1 : opened(real(at, path, flags, mode)); \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

ssize_t write(int descriptor, const void *content, size_t size)
{
    REAL(write);
    return known(descriptor) && fails(WRITE) ? -1 : real(descriptor, content, size);
}

#define WRITING(name, place)                                                     \
    ssize_t name(int descriptor, const void *content, size_t size, place at)     \
    {                                                                            \
        REAL(name);                                                              \
        return known(descriptor) && fails(WRITE) ? -1 : real(descriptor, content, size, at); \
    }
WRITING(pwrite, off_t)
WRITING(pwrite64, off64_t)

#define SYNCING(name)                                                       \
    int name(int descriptor)                                                \
    {                                                                       \
        REAL(name);                                                         \
        return known(descriptor) && fails(SYNC) ? -1 : real(descriptor);    \
    }
SYNCING(fsync)
SYNCING(fdatasync)

int unlink(const char *path)
{
    REAL(unlink);
    return is_watched(path) && fails(UNLINK) ? -1 : real(path);
}

int close(int descriptor)
{
    REAL(close);
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        watched[descriptor] = 0;
    return real(descriptor);
}
