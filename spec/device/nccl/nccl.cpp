/*
** nccl.cpp: a libnccl.so.2 for the emulator's streams: moves data between processes of one machine through memory they
** share, and is as strict as the library is silent.
**
**   a rank's piece -> its box in shared memory, posted -> all look -> all have looked -> the next piece
**
** A call is a function in a stream's queue, which is done when the other ranks have come to theirs. Ranks whose calls
** differ wait for ever, as NCCL's would, and the mock says so on standard error. Calls of one communicator must be
** queued in one order on all ranks; those of several may wait beside each other, each in its own stream. It asks for
** connections (ncclInProgress until all ranks have called) unless NCCL_RUNTIME_CONNECT=0, as NCCL does at the first
*use.
** With AMP_NCCL_TRACE=1 each call is a line on standard error, between those of the emulator's launches.
*/
#include "nccl.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

enum { RANKS = 8, SPLITS = 64 };
static const size_t BOX = 1 << 16;

struct header { /* of a piece */
  int kind, type, op, root;
  uint64_t count;
};
struct box {                                            /* a rank's, of a communicator */
  std::atomic<uint64_t> joined, called, posted, looked; /* pieces */
  header what;
  char data[BOX];
  struct {
    std::atomic<uint64_t> posted, taken;
    uint64_t count;
    char data[BOX];
  } to[RANKS]; /* sends to each rank */
  struct {
    std::atomic<int> there;
    int color, key;
  } split[SPLITS];
};
struct shared {
  std::atomic<int> users;
  box of[RANKS];
};
struct ncclComm {
  std::string name;
  shared *all;
  int n, me, splits;
  std::shared_ptr<std::atomic<bool>> aborted;
  bool complained;
  uint64_t pieces, sent[RANKS], received[RANKS];
  ncclComm_t parent; /* until all ranks of the split are known */
  int color, key, at;
};

static const size_t sizes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2 };
static const char *const kinds[] = { "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter" };
enum { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER };

static bool tracing()
{
  static const bool on = getenv("AMP_NCCL_TRACE") != nullptr;
  return on;
}

/* -- Communicators ------------------------------------------------------------------- */

static shared *map(const std::string &name)
{
  int fd = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(shared))) return nullptr;
  void *p = mmap(nullptr, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return p == MAP_FAILED ? nullptr : (shared *)p;
}

static bool joined(ncclComm_t c)
{
  for (int i = 0; i < c->n; i++)
    if (c->all->of[i].joined == 0) return false;
  shm_unlink(c->name.c_str());
  return true;
}

/* What waits for other processes goes on when they come, whatever this one does meanwhile. */
static std::atomic<bool> ending;
static void motor()
{
  while (!ending) {
    usleep(200);
    emu_go_on();
  }
}

static ncclComm_t make(const std::string &name, int n, int rank)
{
  ncclComm_t c = new ncclComm{};
  c->name = name;
  c->n = n;
  c->me = rank;
  c->aborted.reset(new std::atomic<bool>(false));
  c->all = map(name);
  if (c->all) c->all->of[rank].joined = 1;
  return c;
}

/* A part of a split: its ranks are known when all of the parent have said theirs. */
static bool settled(ncclComm_t c)
{
  if (c->parent == nullptr) return true;
  ncclComm_t p = c->parent;
  std::vector<std::pair<int, int>> list;
  for (int i = 0; i < p->n; i++) {
    auto &s = p->all->of[i].split[c->at];
    if (s.there == 0) return false;
    if (s.color == c->color) list.push_back({ s.key, i });
  }
  for (size_t i = 0; i < list.size(); i++)
    for (size_t j = i + 1; j < list.size(); j++)
      if (list[j] < list[i]) std::swap(list[i], list[j]);
  for (size_t i = 0; i < list.size(); i++)
    if (list[i].second == p->me) c->me = (int)i;
  c->n = (int)list.size();
  c->name = p->name + "-" + std::to_string(c->at) + "-" + std::to_string(c->color);
  c->parent = nullptr;
  c->all = map(c->name);
  if (c->all) c->all->of[c->me].joined = 1;
  return true;
}

static ncclResult_t connected(ncclComm_t c)
{
  const char *eager = getenv("NCCL_RUNTIME_CONNECT");
  if (c->aborted->load()) return ncclRemoteError;
  if (!settled(c)) return ncclInProgress;
  if (c->all == nullptr) return ncclSystemError;
  if (!joined(c)) return ncclInProgress;
  if (eager && strcmp(eager, "0") == 0) return ncclSuccess;
  bool any = c->all->of[c->me].called != 0, all = true;
  for (int i = 0; i < c->n; i++) all = all && c->all->of[i].called != 0;
  return any && !all ? ncclInProgress : ncclSuccess;
}

/* Waits for the other ranks, on the host */
static ncclResult_t ready(ncclComm_t c)
{
  ncclResult_t status;
  while ((status = connected(c)) == ncclInProgress) usleep(100);
  return status;
}

/* -- Sums ----------------------------------------------------------------------------- */

static float half_to_float(uint16_t h)
{
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
  if (e == 31) return emu_bits<float>(sign | 0x7f800000u | m << 13);
  float v = e ? ldexpf((float)(m | 1024), (int)e - 25) : ldexpf((float)m, -24);
  return sign ? -v : v;
}

static uint16_t float_to_half(float f)
{
  uint32_t bits = emu_bits<uint32_t>(f), sign = bits >> 16 & 0x8000;
  float a = fabsf(f);
  if (f != f) return 0x7e00;
  if (a >= 65520) return (uint16_t)(sign | 0x7c00);
  if (a < 6.103515625e-5f) return (uint16_t)(sign | (uint32_t)lrintf(a * 16777216.f));
  int e;
  float m = frexpf(a, &e); /* a = m 2^e, m in [1/2, 1) */
  uint32_t r = (uint32_t)lrintf(m * 2048);
  return (uint16_t)(sign | (((uint32_t)(e + 14) << 10) + r - 1024));
}

static double load(const char *p, ncclDataType_t type)
{
  switch (type) {
  case ncclInt8: return *(const int8_t *)p;
  case ncclUint8: return *(const uint8_t *)p;
  case ncclInt32: return *(const int32_t *)p;
  case ncclUint32: return *(const uint32_t *)p;
  case ncclInt64: return (double)*(const int64_t *)p;
  case ncclUint64: return (double)*(const uint64_t *)p;
  case ncclFloat16: return half_to_float(*(const uint16_t *)p);
  case ncclFloat32: return *(const float *)p;
  case ncclFloat64: return *(const double *)p;
  default: return emu_bits<float>((uint32_t) * (const uint16_t *)p << 16);
  }
}

static void store(char *p, ncclDataType_t type, double v)
{
  uint32_t bits;
  switch (type) {
  case ncclInt8: *(int8_t *)p = (int8_t)(int64_t)v; break;
  case ncclUint8: *(uint8_t *)p = (uint8_t)(int64_t)v; break;
  case ncclInt32: *(int32_t *)p = (int32_t)(int64_t)v; break;
  case ncclUint32: *(uint32_t *)p = (uint32_t)(int64_t)v; break;
  case ncclInt64: *(int64_t *)p = (int64_t)v; break;
  case ncclUint64: *(uint64_t *)p = (uint64_t)v; break;
  case ncclFloat16: *(uint16_t *)p = float_to_half((float)v); break;
  case ncclFloat32: *(float *)p = (float)v; break;
  case ncclFloat64: *(double *)p = v; break;
  default:
    bits = emu_bits<uint32_t>((float)v);
    *(uint16_t *)p = (uint16_t)(v != v ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

/* Each element of `to`, of all ranks' pieces from `skip` elements on */
static void reduce(const ncclComm *c, char *to, const header &h, size_t skip, size_t n)
{
  ncclDataType_t type = (ncclDataType_t)h.type;
  size_t size = sizes[type];
  for (size_t i = 0; i < n; i++) {
    double acc = load(c->all->of[0].data + (skip + i) * size, type);
    for (int r = 1; r < c->n; r++) {
      double x = load(c->all->of[r].data + (skip + i) * size, type);
      if (h.op == ncclMax) acc = x > acc || x != x ? x : acc;
      else if (h.op == ncclMin) acc = x < acc || x != x ? x : acc;
      else acc = h.op == ncclProd ? acc * x : acc + x;
    }
    store(to + i * size, type, h.op == ncclAvg ? acc / c->n : acc);
  }
}

/* -- Calls of all ranks --------------------------------------------------------------- */

struct pass { /* one call under way */
  ncclComm_t c;
  header what;
  const char *in;
  char *out;
  size_t at, count; /* elements done, of `count` that each rank gives (reduce_scatter: gives to each) */
  int phase;
};

static bool complain(const pass &p)
{
  for (int i = 0; i < p.c->n; i++) {
    const header &h = p.c->all->of[i].what;
    if (memcmp(&h, &p.what, sizeof h) == 0) continue;
    if (!p.c->complained)
      fprintf(stderr,
              "NCCL's mock: rank %d calls %s of %llu (type %d, op %d, root %d), rank %d %s of %llu (%d, %d, %d)\n",
              p.c->me, kinds[p.what.kind], (unsigned long long)p.what.count, p.what.type, p.what.op, p.what.root, i,
              kinds[h.kind], (unsigned long long)h.count, h.type, h.op, h.root);
    p.c->complained = true;
    return true;
  }
  return false;
}

static void take(pass &p, size_t n)
{
  ncclComm_t c = p.c;
  size_t size = sizes[p.what.type];
  char *out = p.out + p.at * size;
  switch (p.what.kind) {
  case ALL_REDUCE: reduce(c, out, p.what, 0, n); break;
  case REDUCE:
    if (c->me == p.what.root) reduce(c, out, p.what, 0, n);
    break;
  case BROADCAST: memcpy(out, c->all->of[p.what.root].data, n * size); break;
  case ALL_GATHER:
    for (int r = 0; r < c->n; r++) memcpy(p.out + (r * p.count + p.at) * size, c->all->of[r].data, n * size);
    break;
  default: reduce(c, out, p.what, (size_t)c->me * n, n);
  }
}

/* One step of a call: true when it is done. Phases: 0, post a piece; 1, take all ranks'; 2, until all have taken it */
static bool go(pass &p)
{
  ncclComm_t c = p.c;
  box *mine = &c->all->of[c->me];
  bool each = p.what.kind == REDUCE_SCATTER;
  size_t size = sizes[p.what.type], most = BOX / size / (each ? (size_t)c->n : 1);
  for (;;) {
    if (c->aborted->load()) return true;
    size_t n = p.count - p.at < most ? p.count - p.at : most;
    if (p.phase == 0) {
      mine->what = p.what;
      for (int r = 0; r < (each ? c->n : 1); r++)
        memcpy(mine->data + r * n * size, p.in + (r * p.count + p.at) * size, n * size);
      mine->posted = ++c->pieces;
      p.phase = 1;
    }
    for (int i = 0; i < c->n && p.phase == 1; i++)
      if (c->all->of[i].posted < c->pieces) return false;
    if (p.phase == 1) {
      if (complain(p)) return false;
      take(p, n);
      mine->looked = c->pieces;
      p.phase = 2;
    }
    for (int i = 0; i < c->n; i++)
      if (c->all->of[i].looked < c->pieces) return false;
    p.at += n;
    p.phase = 0;
    if (p.at == p.count) return true;
  }
}

static ncclResult_t call(int kind, const void *in, void *out, size_t count, int type, int op, int root, ncclComm_t c,
                         cudaStream_t stream)
{
  if (c->aborted->load()) return ncclInvalidUsage;
  ncclResult_t state = connected(c);
  if (state != ncclSuccess) return state == ncclInProgress ? ncclInvalidUsage : state; /* it was not settled */
  if (root < 0 || root >= c->n || count == 0) return ncclInvalidArgument;
  if (tracing()) fprintf(stderr, "nccl %s of %zu\n", kinds[kind], count);
  c->all->of[c->me].called = 1;
  pass first{ c, {}, (const char *)in, (char *)out, 0, count, 0 };
  memset(&first.what, 0, sizeof first.what);
  first.what = header{ kind, type, op, root, count };
  std::shared_ptr<std::atomic<bool>> aborted = c->aborted;
  std::shared_ptr<pass> now(new pass(first));
  emu_queue(stream, [now, first, aborted] {
    if (aborted->load()) return true;
    if (!go(*now)) return false;
    *now = first; /* a captured call runs again */
    return true;
  });
  return ready(c);
}

/* -- Sends and receives, launched together ----------------------------------------------- */

struct move {
  ncclComm_t c;
  bool send;
  const char *in;
  char *out;
  size_t bytes, at;
  int peer;
};
static thread_local int depth;
static thread_local std::vector<move> waiting;
static thread_local cudaStream_t where;

static bool go(move &m)
{
  box *all = m.c->all->of;
  int from = m.send ? m.c->me : m.peer, to = m.send ? m.peer : m.c->me;
  auto &way = all[from].to[to];
  uint64_t &count = m.send ? m.c->sent[to] : m.c->received[from];
  while (m.at < m.bytes) {
    size_t n = m.bytes - m.at < BOX ? m.bytes - m.at : BOX;
    if (m.send) {
      if (way.taken < count) return false;
      way.count = m.bytes;
      memcpy(way.data, m.in + m.at, n);
      way.posted = ++count;
    } else {
      if (way.posted <= count) return false;
      if (way.count != m.bytes) {
        if (!m.c->complained)
          fprintf(stderr, "NCCL's mock: rank %d receives %zu bytes from rank %d, which sends %llu\n", m.c->me, m.bytes,
                  from, (unsigned long long)way.count);
        m.c->complained = true;
        return false;
      }
      memcpy(m.out + m.at, way.data, n);
      way.taken = ++count;
    }
    m.at += n;
  }
  return !m.send || way.taken >= count; /* a send ends when it was taken */
}

static ncclResult_t finish_group()
{
  if (waiting.empty()) return ncclSuccess;
  std::vector<move> first = waiting;
  waiting.clear();
  ncclComm_t c = first[0].c;
  if (tracing()) fprintf(stderr, "nccl %zu sends and receives\n", first.size());
  std::shared_ptr<std::vector<move>> now(new std::vector<move>(first));
  std::shared_ptr<std::atomic<bool>> aborted = c->aborted;
  emu_queue(where, [now, first, aborted] {
    if (aborted->load()) return true;
    bool all = true;
    for (move &m : *now) all = go(m) && all;
    if (all) *now = first;
    return all;
  });
  return ncclSuccess;
}

static ncclResult_t pair(bool send, const void *in, void *out, size_t count, int type, int peer, ncclComm_t c,
                         cudaStream_t stream)
{
  ncclResult_t state = connected(c);
  if (state != ncclSuccess && state != ncclInProgress) return state;
  if (peer < 0 || peer >= c->n) return ncclInvalidArgument;
  waiting.push_back({ c, send, (const char *)in, (char *)out, count * sizes[type], 0, peer });
  where = stream;
  return depth ? ncclSuccess : finish_group();
}

extern "C" {
#pragma GCC visibility push(default)

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
  const char *given = getenv("NCCL_COMM_ID");
  static int made;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "%s-%d-%d", given ? given : "mock", given ? 0 : (int)getpid(),
           given ? 0 : made++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, ncclConfig_t *)
{
  static std::once_flag begun;
  if (n < 1 || n > RANKS || rank < 0 || rank >= n) return ncclInvalidArgument;
  std::call_once(begun, [] {
    static std::thread thread(motor);
    atexit([] {
      ending = true;
      thread.join();
    });
  });
  std::string name = std::string("/nccl-mock-") + std::to_string(getuid()) + "-" + id.internal;
  *comm = make(name, n, rank);
  return (*comm)->all ? ready(*comm) : ncclSystemError;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *made, ncclConfig_t *)
{
  if (connected(c) != ncclSuccess || c->splits == SPLITS) return ncclInvalidUsage;
  auto &s = c->all->of[c->me].split[c->splits];
  s.color = color;
  s.key = key;
  s.there = 1;
  *made = nullptr;
  if (color != NCCL_SPLIT_NOCOLOR) {
    *made = new ncclComm{};
    (*made)->aborted.reset(new std::atomic<bool>(false));
    (*made)->parent = c;
    (*made)->color = color;
    (*made)->at = c->splits;
  }
  c->splits++;
  return *made ? ready(*made) : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) /* its memory stays: streams may hold calls */
{
  *c->aborted = true;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c)
{
  *c->aborted = true;
  if (c->all) shm_unlink(c->name.c_str());
  return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t status)
{
  static const char *const text[]
      = { "no error",         "unhandled cuda error", "unhandled system error", "internal error",
          "invalid argument", "invalid usage",        "remote process exited",  "in progress" };
  return text[status];
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t s)
{
  return call(ALL_REDUCE, in, out, count, type, op, 0, c, s);
}
ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t s)
{
  return call(BROADCAST, in, out, count, type, 0, root, c, s);
}
ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t s)
{
  return call(REDUCE, in, out, count, type, op, root, c, s);
}
ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t c, cudaStream_t s)
{
  return call(ALL_GATHER, in, out, count, type, 0, 0, c, s);
}
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t s)
{
  return call(REDUCE_SCATTER, in, out, count, type, op, 0, c, s);
}
ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s)
{
  return pair(true, in, nullptr, count, type, peer, c, s);
}
ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t s)
{
  return pair(false, nullptr, out, count, type, peer, c, s);
}
ncclResult_t ncclGroupStart(void)
{
  depth++;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) { return --depth ? ncclSuccess : finish_group(); }

#pragma GCC visibility pop
}
