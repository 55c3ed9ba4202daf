/* Preloaded by faults.py: counts every call that changes a file below a folder, and fails one of them.

   A call is a point if it writes, creates, renames, syncs, cuts or removes something below the armed folder. Point number
   `at` is disturbed:
     KILL     half of the bytes are written, then the process gets SIGKILL (any other call: SIGKILL before it)
     NOSPACE  half of the bytes are written; from then on whatever takes space fails with ENOSPC
     FAILURE  the call fails with EIO, once
   The counter is shared with forked children. Files are told by their descriptor, so it does not matter who opened
   them: Python, SQLite, torch, safetensors or pyarrow. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, KILL, NOSPACE, FAILURE };
enum { PASS, STOP, HALF };

static struct shared {
    long count, at;
    int action, full;
} *state;
static char root[PATH_MAX];
static size_t root_length;
static int record = -1;

#define REAL(name, ...) ((__typeof__(&name))next(#name))(__VA_ARGS__)

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

/* Count points below `folder` from now on and disturb number `at` (0: none); `log` gets a line for every point. */
void faults_arm(const char *folder, long at, int action, int log) {
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    state->at = at;
    state->action = action;
    root_length = strlen(strncpy(root, folder, sizeof root - 1));
    record = log;
}

void faults_disarm(void) { state = NULL; }

long faults_count(void) { return state ? state->count : 0; }

static int below(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

static int path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* The absolute form of `name` as seen from `folder`. */
static void absolute(int folder, const char *name, char *path) {
    char base[PATH_MAX] = "";
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    if (folder != AT_FDCWD) path_of(folder, base);
    else if (!getcwd(base, sizeof base)) base[0] = 0;
    if (snprintf(path, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) path[0] = 0;
}

/* Whether this call goes through, fails (errno is set) or writes half of `size` bytes. */
static int point(const char *call, const char *path, long size, int takes_space) {
    if (!state || !below(path)) return PASS;
    int before = errno;
    long number = __atomic_add_fetch(&state->count, 1, __ATOMIC_SEQ_CST);
    if (record >= 0) {
        char line[PATH_MAX + 64];
        int length = snprintf(line, sizeof line, "%ld\t%s\t%ld\t%s\n", number, call, size, path + root_length);
        syscall(SYS_write, record, line, length);
    }
    errno = before;
    if (number == state->at) {
        if (state->action == KILL) {
            if (size > 1) return HALF;
            syscall(SYS_kill, getpid(), SIGKILL);
        }
        if (state->action == NOSPACE) {
            state->full = 1;
            if (size > 1) return HALF;
            errno = ENOSPC;
            return STOP;
        }
        errno = EIO;
        return STOP;
    }
    if (state->full && takes_space) {
        errno = ENOSPC;
        return STOP;
    }
    return PASS;
}

static void after_half(void) {
    if (state->action == KILL) syscall(SYS_kill, getpid(), SIGKILL);
}

static int point_at(const char *call, int descriptor, long size, int takes_space) {
    char path[PATH_MAX];
    return state && path_of(descriptor, path) ? point(call, path, size, takes_space) : PASS;
}

static int point_named(const char *call, int folder, const char *name, int takes_space) {
    char path[PATH_MAX];
    if (!state) return PASS;
    absolute(folder, name, path);
    return point(call, path, 0, takes_space);
}

#define WRITES(name, declared, short_call, whole_call)                        \
    ssize_t name declared {                                                    \
        switch (point_at(#name, fd, (long)size, 1)) {                          \
            case STOP: return -1;                                              \
            case HALF: { ssize_t done = short_call; after_half(); return done; } \
            default: return whole_call;                                        \
        }                                                                      \
    }

WRITES(write, (int fd, const void *data, size_t size), REAL(write, fd, data, size / 2), REAL(write, fd, data, size))
WRITES(pwrite, (int fd, const void *data, size_t size, off_t at), REAL(pwrite, fd, data, size / 2, at),
       REAL(pwrite, fd, data, size, at))
WRITES(pwrite64, (int fd, const void *data, size_t size, off64_t at), REAL(pwrite64, fd, data, size / 2, at),
       REAL(pwrite64, fd, data, size, at))
WRITES(sendfile, (int fd, int from, off_t *at, size_t size), REAL(sendfile, fd, from, at, size / 2),
       REAL(sendfile, fd, from, at, size))
WRITES(sendfile64, (int fd, int from, off64_t *at, size_t size), REAL(sendfile64, fd, from, at, size / 2),
       REAL(sendfile64, fd, from, at, size))

ssize_t copy_file_range(int from, off64_t *in, int fd, off64_t *out, size_t size, unsigned int flags) {
    switch (point_at("copy_file_range", fd, (long)size, 1)) {
        case STOP: return -1;
        case HALF: { ssize_t done = REAL(copy_file_range, from, in, fd, out, size / 2, flags); after_half(); return done; }
        default: return REAL(copy_file_range, from, in, fd, out, size, flags);
    }
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    long size = 0;
    for (int n = 0; n < count; n++) size += (long)parts[n].iov_len;
    switch (point_at("writev", fd, size, 1)) {
        case STOP: return -1;
        /* The first piece that has anything, or half of it. */
        case HALF: {
            ssize_t done = 0;
            for (int n = 0; n < count && !done; n++)
                if (parts[n].iov_len) done = REAL(write, fd, parts[n].iov_base, (parts[n].iov_len + 1) / 2);
            after_half();
            return done;
        }
        default: return REAL(writev, fd, parts, count);
    }
}

#define CHANGES_FILE(name, declared, given, takes_space) \
    int name declared { return point_at(#name, fd, 0, takes_space) == STOP ? -1 : REAL(name, given); }
#define COMMA ,

CHANGES_FILE(fsync, (int fd), fd, 0)
CHANGES_FILE(fdatasync, (int fd), fd, 0)
CHANGES_FILE(ftruncate, (int fd, off_t size), fd COMMA size, 0)
CHANGES_FILE(ftruncate64, (int fd, off64_t size), fd COMMA size, 0)
CHANGES_FILE(fallocate, (int fd, int mode, off_t at, off_t size), fd COMMA mode COMMA at COMMA size, 1)
CHANGES_FILE(fallocate64, (int fd, int mode, off64_t at, off64_t size), fd COMMA mode COMMA at COMMA size, 1)

/* These two return the error instead of setting it. */
int posix_fallocate(int fd, off_t at, off_t size) {
    return point_at("posix_fallocate", fd, 0, 1) == STOP ? errno : REAL(posix_fallocate, fd, at, size);
}
int posix_fallocate64(int fd, off64_t at, off64_t size) {
    return point_at("posix_fallocate64", fd, 0, 1) == STOP ? errno : REAL(posix_fallocate64, fd, at, size);
}

int rename(const char *from, const char *to) {
    return point_named("rename", AT_FDCWD, to, 0) == STOP ? -1 : REAL(rename, from, to);
}
int renameat(int from_folder, const char *from, int folder, const char *to) {
    return point_named("rename", folder, to, 0) == STOP ? -1 : REAL(renameat, from_folder, from, folder, to);
}
int renameat2(int from_folder, const char *from, int folder, const char *to, unsigned int flags) {
    return point_named("rename", folder, to, 0) == STOP ? -1 : REAL(renameat2, from_folder, from, folder, to, flags);
}
int unlink(const char *name) {
    return point_named("unlink", AT_FDCWD, name, 0) == STOP ? -1 : REAL(unlink, name);
}
int unlinkat(int folder, const char *name, int flags) {
    return point_named("unlink", folder, name, 0) == STOP ? -1 : REAL(unlinkat, folder, name, flags);
}
int rmdir(const char *name) { return point_named("rmdir", AT_FDCWD, name, 0) == STOP ? -1 : REAL(rmdir, name); }
int mkdir(const char *name, mode_t mode) {
    return point_named("mkdir", AT_FDCWD, name, 1) == STOP ? -1 : REAL(mkdir, name, mode);
}
int mkdirat(int folder, const char *name, mode_t mode) {
    return point_named("mkdir", folder, name, 1) == STOP ? -1 : REAL(mkdirat, folder, name, mode);
}
int truncate(const char *name, off_t size) {
    return point_named("truncate", AT_FDCWD, name, 0) == STOP ? -1 : REAL(truncate, name, size);
}

/* Opening is a point where it creates a file or empties one. */
static int opening(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    struct stat found;
    if (!state || !(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE) return PASS;
    absolute(folder, name, path);
    int before = errno;
    int missing = stat(path, &found) != 0;
    errno = before;
    if (!missing && !((flags & O_TRUNC) && found.st_size > 0)) return PASS;
    return point(missing ? "create" : "empty", path, 0, missing);
}

#define OPENS(name, declared, folder, given)                         \
    int name declared {                                              \
        va_list more;                                                \
        va_start(more, flags);                                       \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;    \
        va_end(more);                                                \
        return opening(folder, path, flags) == STOP ? -1 : REAL(name, given COMMA mode); \
    }

OPENS(open, (const char *path, int flags, ...), AT_FDCWD, path COMMA flags)
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD, path COMMA flags)
OPENS(openat, (int folder, const char *path, int flags, ...), folder, folder COMMA path COMMA flags)
OPENS(openat64, (int folder, const char *path, int flags, ...), folder, folder COMMA path COMMA flags)

#define FOPENS(name)                                                                       \
    FILE *name(const char *path, const char *mode) {                                       \
        int flags = mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT : 0;     \
        return opening(AT_FDCWD, path, flags) == STOP ? NULL : REAL(name, path, mode);     \
    }

FOPENS(fopen)
FOPENS(fopen64)
