/*
** amp_file.c: bytes of regular files, read at a place (pread), straight into
** tensors. A file is never mapped: one that another program shortens is an
** error of the read, where a map would end the process. What a path names is
** looked at before it is opened, so a FIFO does not block and a device is left
** alone. Formats are Lua's; this file knows bytes.
*/
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "amp_core.h"

static const char *kind_of(mode_t mode)
{
  if (S_ISREG(mode)) return NULL;
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a link to nothing";
  return "a device";
}

int amp_file_open(amp_state *S, const char *path, int64_t *size)
{
  AMP_ENTER(S);
  struct stat st;
  if (stat(path, &st) != 0) return amp__fail(AMP_E_ARGUMENT, "%s", strerror(errno));
  const char *kind = kind_of(st.st_mode);
  if (kind) return amp__fail(AMP_E_ARGUMENT, "it is %s, not a regular file", kind);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* something else may stand there by now */
  if (fd < 0) return amp__fail(AMP_E_ARGUMENT, "%s", strerror(errno));
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
    *size = (int64_t)st.st_size;
    return fd;
  }
  close(fd);
  return amp__fail(AMP_E_ARGUMENT, "it is not a regular file");
}

/* n bytes from `at` on, no fewer. */
static int read_all(int fd, char *to, int64_t n, int64_t at)
{
  while (n > 0) {
    ssize_t got = pread(fd, to, n < (1 << 30) ? (size_t)n : 1 << 30, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return amp__fail(AMP_E_VALUE, "byte %lld can't be read: %s", (long long)at, strerror(errno));
    if (got == 0) return amp__fail(AMP_E_VALUE, "it ends at byte %lld, %lld bytes early: it was cut off", (long long)at, (long long)n);
    to += got;
    at += got;
    n -= got;
  }
  return 0;
}

int amp_file_read(amp_state *S, int fd, void *to, int64_t n, int64_t at)
{
  AMP_ENTER(S);
  if (n < 0 || at < 0) return amp__fail(AMP_E_ARGUMENT, "%lld bytes from byte %lld on can't be read", (long long)n, (long long)at);
  return read_all(fd, to, n, at);
}

static void swap_bytes(char *p, int64_t n, int width)
{
  for (int64_t i = 0; i < n; i++, p += width)
    for (int k = 0; k < width / 2; k++) {
      char c = p[k];
      p[k] = p[width - 1 - k];
      p[width - 1 - k] = c;
    }
}

int amp_from_file(amp_state *S, amp_ref *out, int fd, int64_t at, int ndim, const int64_t *size, int dtype, int swap, uint32_t *crc)
{
  enum { PIECE = 1 << 18 }; /* what stays in the cache between reading and the check sum */
  AMP_ENTER(S);
  int64_t n;
  if (dtype < 0 || dtype >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_DTYPE, "there is no dtype number %d", dtype);
  int rc = amp__check_size(ndim, size, dtype, &n);
  if (rc < 0) return rc;
  if (at < 0) return amp__fail(AMP_E_ARGUMENT, "there is no byte %lld", (long long)at);
  int width = amp__dtype_size[dtype];
  amp_tensor *t = amp__tensor_make(dtype, AMP_CPU, 0, ndim, size);
  if (t == NULL) return S->err.code;
  char *p = amp__data(t);
  int64_t bytes = n * width, piece = crc ? PIECE : bytes;
  for (int64_t done = 0; done < bytes; done += piece) {
    if (piece > bytes - done) piece = bytes - done;
    rc = read_all(fd, p + done, piece, at + done);
    if (rc < 0) {
      amp__free(t);
      return rc;
    }
    if (crc) *crc = amp_crc32(*crc, p + done, (size_t)piece);
  }
  if (swap && width > 1) swap_bytes(p, n, width);
  if (dtype == AMP_BOOL) /* kernels count on 0 and 1 */
    for (int64_t i = 0; i < n; i++) p[i] = p[i] != 0;
  out->t = t;
  return 0;
}

int amp_file_kind(const char *path, int follow, uint32_t *mode)
{
  struct stat st;
  if ((follow ? stat(path, &st) : lstat(path, &st)) != 0) return errno == ENOENT ? AMP_FILE_NONE : -errno;
  if (mode) *mode = (uint32_t)(st.st_mode & 07777);
  if (S_ISREG(st.st_mode)) return AMP_FILE_REGULAR;
  if (S_ISDIR(st.st_mode)) return AMP_FILE_FOLDER;
  if (S_ISLNK(st.st_mode)) return AMP_FILE_LINK;
  return S_ISFIFO(st.st_mode) ? AMP_FILE_PIPE : S_ISSOCK(st.st_mode) ? AMP_FILE_SOCKET : AMP_FILE_DEVICE;
}

int amp_file_alive(int process) { return process > 0 && (kill(process, 0) == 0 || errno != ESRCH); }
