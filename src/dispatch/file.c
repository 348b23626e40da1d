/*
** dispatch/file.c: bytes of regular files, read at a place (pread), straight into
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
#include "dispatch/dispatch.h"

static const char *kind_of(mode_t mode)
{
  if (S_ISREG(mode)) return NULL;
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a link to nothing";
  return "a device";
}

int amp_file_open(amp_state *state, const char *path, int64_t *size)
{
  AMP_ENTER(state);
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

/* count bytes from `at` on, no fewer. */
static int read_all(int fd, char *to, int64_t count, int64_t offset)
{
  while (count > 0) {
    ssize_t got = pread(fd, to, count < (1 << 30) ? (size_t)count : 1 << 30, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return amp__fail(AMP_E_VALUE, "byte %lld can't be read: %s", (long long)offset, strerror(errno));
    if (got == 0)
      return amp__fail(AMP_E_VALUE, "it ends at byte %lld, %lld bytes early: it was cut off", (long long)offset,
                       (long long)count);
    to += got;
    offset += got;
    count -= got;
  }
  return 0;
}

int amp_file_read(amp_state *state, int fd, void *to, int64_t n, int64_t offset)
{
  AMP_ENTER(state);
  if (n < 0 || offset < 0)
    return amp__fail(AMP_E_ARGUMENT, "%lld bytes from byte %lld on can't be read", (long long)n, (long long)offset);
  return read_all(fd, to, n, offset);
}

static void swap_bytes(char *p, int64_t count, int width)
{
  for (int64_t i = 0; i < count; i++, p += width)
    for (int k = 0; k < width / 2; k++) {
      char c = p[k];
      p[k] = p[width - 1 - k];
      p[width - 1 - k] = c;
    }
}

int amp_from_file(amp_state *state, amp_ref *out, int fd, int64_t offset, int ndim, const int64_t *size, int dtype,
                  int swap, uint32_t *crc)
{
  enum { PIECE = 1 << 18 }; /* what stays in the cache between reading and the check sum */
  AMP_ENTER(state);
  int64_t count;
  if (dtype < 0 || dtype >= AMP_DTYPE_COUNT) return amp__fail(AMP_E_DTYPE, "there is no dtype number %d", dtype);
  int status = amp__check_size(ndim, size, dtype, &count);
  if (status < 0) return status;
  if (offset < 0) return amp__fail(AMP_E_ARGUMENT, "there is no byte %lld", (long long)offset);
  int width = amp__dtype_size[dtype];
  amp_tensor *tensor = amp__tensor_make(dtype, AMP_CPU, 0, ndim, size);
  if (tensor == NULL) return state->err.code;
  char *p = amp__data(tensor);
  int64_t bytes = count * width, piece = crc ? PIECE : bytes;
  for (int64_t done = 0; done < bytes; done += piece) {
    if (piece > bytes - done) piece = bytes - done;
    status = read_all(fd, p + done, piece, offset + done);
    if (status < 0) {
      amp__free(tensor);
      return status;
    }
    if (crc) *crc = amp_crc32(*crc, p + done, (size_t)piece);
  }
  if (swap && width > 1) swap_bytes(p, count, width);
  if (dtype == AMP_BOOL) /* kernels count on 0 and 1 */
    for (int64_t i = 0; i < count; i++) p[i] = p[i] != 0;
  out->t = tensor;
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
