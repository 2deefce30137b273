/* What a node's libc tells it, bent by the chaos lab: slow, failing and full disks, clocks that run wrong.
 *
 * Loaded with LD_PRELOAD. The lab writes what is to happen into the file LAB_SHIM_CONTROL, which both have
 * mapped (control.py has the same layout). A sequence number that is odd while the lab writes guards it, and
 * the monotonic clock never goes back, whatever threads ask at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct settings {
    int64_t sync_delay_us; /* every sync takes so much longer */
    int64_t sync_errno;    /* every sync fails so, if not 0 */
    int64_t grow_errno;    /* every write that makes a file longer fails so, if not 0 */
    int64_t real_base_ns;  /* at this time of the kernel's monotonic clock ... */
    int64_t own_base_ns;   /* ... ours shows this ... */
    int64_t rate_ppb;      /* ... and runs so many billionths faster from then on */
    int64_t wall_step_ns;  /* the wall clock is so far ahead */
};

struct control {
    _Atomic uint64_t sequence;
    struct settings settings;
};

static int has_begun;
static struct control *control;
static _Atomic int64_t latest_ns;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);

/* Comes before all else. Libraries may ask for the time while they are loaded, before our constructor runs: so
 * does the memory allocator of Python 3.13. */
static void begin(void) {
    if (has_begun)
        return;
    has_begun = 1;
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_sem_clockwait = dlsym(RTLD_NEXT, "sem_clockwait");
    const char *path = getenv("LAB_SHIM_CONTROL");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED)
        control = map;
    close(fd);
}

__attribute__((constructor)) static void at_load(void) { begin(); }

static struct settings present(void) {
    struct settings copy = {0};
    if (!control)
        return copy;
    for (;;) {
        uint64_t before = atomic_load(&control->sequence);
        copy = control->settings;
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && atomic_load(&control->sequence) == before)
            return copy;
    }
}

static int64_t in_ns(const struct timespec *t) { return t->tv_sec * 1000000000LL + t->tv_nsec; }

static void to_timespec(int64_t ns, struct timespec *t) {
    t->tv_sec = ns / 1000000000LL;
    t->tv_nsec = ns % 1000000000LL;
}

static int64_t own_ns(int64_t real) {
    struct settings s = present();
    if (s.real_base_ns) {
        int64_t passed = real - s.real_base_ns;
        real = s.own_base_ns + passed + (int64_t)((__int128)passed * s.rate_ppb / 1000000000LL);
    }
    int64_t before = atomic_load(&latest_ns);
    while (real > before && !atomic_compare_exchange_weak(&latest_ns, &before, real))
        ;
    return real > before ? real : before;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    begin();
    int result = real_clock_gettime(id, t);
    if (result == 0 && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW || id == CLOCK_MONOTONIC_COARSE ||
                        id == CLOCK_BOOTTIME)) {
        real_clock_gettime(CLOCK_MONOTONIC, t);
        to_timespec(own_ns(in_ns(t)), t);
    } else if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        to_timespec(in_ns(t) + present().wall_step_ns, t);
    }
    return result;
}

/* Python waits for locks until a time of the monotonic clock: of ours, but the kernel counts by its own. */
int sem_clockwait(sem_t *sem, clockid_t id, const struct timespec *until) {
    begin();
    if (id != CLOCK_MONOTONIC)
        return real_sem_clockwait(sem, id, until);
    struct timespec real, own;
    real_clock_gettime(CLOCK_MONOTONIC, &real);
    clock_gettime(CLOCK_MONOTONIC, &own);
    int64_t left = in_ns(until) - in_ns(&own);
    to_timespec(in_ns(&real) + (left > 0 ? left : 0), &real);
    return real_sem_clockwait(sem, id, &real);
}

static int before_sync(void) {
    begin();
    struct settings s = present();
    if (s.sync_delay_us > 0) {
        struct timespec pause;
        to_timespec(s.sync_delay_us * 1000, &pause);
        while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
            ;
    }
    errno = (int)s.sync_errno;
    return s.sync_errno ? -1 : 0;
}

int fdatasync(int fd) { return before_sync() ? -1 : real_fdatasync(fd); }

int fsync(int fd) { return before_sync() ? -1 : real_fsync(fd); }

static int may_not_grow(int fd, off_t end) {
    begin();
    int error = (int)present().grow_errno;
    struct stat about;
    if (!error || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || end <= about.st_size)
        return 0;
    errno = error;
    return 1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    return may_not_grow(fd, offset + (off_t)size) ? -1 : real_pwrite(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

/* What the process says stays whole: its output may be a file, too. */
ssize_t write(int fd, const void *data, size_t size) {
    begin();
    if (fd > STDERR_FILENO && control && present().grow_errno &&
        may_not_grow(fd, lseek(fd, 0, SEEK_CUR) + (off_t)size))
        return -1;
    return real_write(fd, data, size);
}
