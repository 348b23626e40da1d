/*
** test_alloc.c: memory: objects, blocks, storages, counters, pacing, injected
** failures, caches of threads, and tensors made on top of them.
*/
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "core.h"
#include "check.h"

#if defined(__SANITIZE_ADDRESS__)
enum { CACHED = 0 };
#else
enum { CACHED = 1 };
#endif
enum { MIB = 1 << 20 };

static amp_state *S;

static int64_t live(void) { return amp_memory(AMP_CPU, 0)->live; }
static int64_t held(void) { return amp_memory(AMP_CPU, 0)->cached; }

static void objects(void)
{
  int64_t before = live();
  void *p[1000];
  for (int i = 0; i < 1000; i++) {
    p[i] = amp__obj_alloc((size_t)i + 1);
    CHECK(p[i] != NULL && (uintptr_t)p[i] % 16 == 0);
    memset(p[i], i, (size_t)i + 1);
  }
  CHECK(live() - before >= 1000 * 1001 / 2);
  int ok = 1;
  for (int i = 0; i < 1000; i++) ok &= ((unsigned char *)p[i])[i] == (i & 255);
  CHECK(ok);
  for (int i = 0; i < 1000; i++) amp__obj_free(p[i], (size_t)i + 1);
  CHECK(live() == before);
  void *big = amp__obj_alloc(5000);
  CHECK(big != NULL);
  amp__obj_free(big, 5000);
  amp__obj_free(NULL, 8);
  CHECK(live() == before);
}

static void blocks(void)
{
  static const size_t sizes[]
      = { 0, 1, 63, 64, 65, 100, 4096, 32768, 32769, 100000, MIB - 1, MIB, MIB + 1, 3 * MIB + 5, 40u * MIB };
  int64_t before = live();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    amp_block *b = amp__block_new(AMP_CPU, 0, sizes[i]);
    CHECK(b != NULL && b->bytes == sizes[i] && (uintptr_t)b->data % 64 == 0);
    CHECK(live() - before >= (int64_t)sizes[i]);
    if (CACHED && sizes[i] > 8 * MIB) CHECK((uintptr_t)b->data % (2 * MIB) < 4096); /* huge pages of its own */
    memset(b->data, 7, sizes[i]);
    void *data = b->data;
    amp__block_free(b);
    CHECK(live() == before);
    amp_block *again = amp__block_new(AMP_CPU, 0, sizes[i]);
    if (CACHED) CHECK(again->data == data);
    amp__block_free(again);
  }
  if (CACHED) CHECK(held() >= 40 * (int64_t)MIB);
  amp_empty_cache(AMP_CPU);
  CHECK(held() < 4 * MIB); /* objects stay */
  CHECK(amp_memory(AMP_CPU, 0)->peak >= before + 40 * (int64_t)MIB);
  /* a large block serves a somewhat smaller request */
  amp_block *b = amp__block_new(AMP_CPU, 0, 64u * MIB);
  void *data = b->data;
  amp__block_free(b);
  b = amp__block_new(AMP_CPU, 0, 50u * MIB);
  if (CACHED) CHECK(b->data == data);
  amp__block_free(b);
  amp_empty_cache(-1);
  CHECK(live() == before);
}

static void storages(void)
{
  int64_t before = live();
  amp_storage *s = amp__storage_new(AMP_CPU, 0, 64), *big = amp__storage_new(AMP_CPU, 0, 65);
  CHECK(s->block == NULL && s->data == s->small && big->block != NULL);
  memset(s->data, 1, 64);
  memset(big->data, 2, 65);
  amp_block *arena = amp__block_new(AMP_CPU, 0, 256);
  OK(amp__storage_move(s, arena, 0));
  OK(amp__storage_move(big, arena, 64));
  CHECK(arena->refs == 3 && (s->flags & AMP_S_ARENA) && s->data == arena->data && ((char *)s->data)[63] == 1);
  CHECK(big->data == (char *)arena->data + 64 && ((char *)big->data)[64] == 2);
  CHECK(amp__storage_move(big, arena, 200) == AMP_E_INTERNAL); /* does not fit */
  OK(amp__storage_move(big, NULL, 0));
  OK(amp__storage_move(s, NULL, 0));
  CHECK(s->data == s->small && s->small[5] == 1 && ((char *)big->data)[64] == 2 && !(big->flags & AMP_S_ARENA));
  CHECK(arena->refs == 1);
  amp_storage *in = amp__storage_in(arena, 8, 8);
  amp__block_free(arena);
  CHECK(in->block->refs == 1);
  amp__storage_free(in);
  amp__storage_retain(s);
  amp__storage_free(s);
  amp__storage_free(s);
  amp__storage_free(big);
  amp__storage_free(NULL);
  CHECK(live() == before);
}

static void tensors(void)
{
  int64_t before = live(), size[3] = { 2, 3, 4 };
  amp_tensor *t = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 3, size), *u = amp__tensor_alias(t);
  CHECK(t->numel == 24 && (t->flags & AMP_T_CONTIGUOUS) && t->stride[0] == 12 && t->id != u->id
        && u->storage == t->storage);
  amp__free(t);
  CHECK(u->storage->refs == 1);
  amp__free(u);
  amp_ref r = { amp__number(2.5) }, r2;
  CHECK(r.t->flags & AMP_T_NUMBER);
  amp_retain(&r2, &r);
  amp_release(&r);
  amp_release(&r);
  CHECK(r.t == NULL && r2.t->refs == 1);
  amp_release(&r2);
  int64_t huge[2] = { (int64_t)1 << 40, (int64_t)1 << 40 };
  CHECK(amp__tensor_make(AMP_INT8, AMP_CPU, 0, 2, huge) == NULL && S->err.code == AMP_E_SHAPE);
  huge[1] = 1 << 10;
  CHECK(amp__tensor_make(AMP_FLOAT64, AMP_CPU, 0, 2, huge) == NULL && S->err.code == AMP_E_MEMORY);
  CHECK(strstr(S->err.message, "live") && strstr(S->err.message, "cached") && strstr(S->err.message, "8 PiB"));
  CHECK(live() == before);
}

/* Every allocation of making a tensor may fail; nothing leaks and the next try works. */
static void failures(void)
{
  int64_t before = live(), size = 1000;
  int failed = 0;
  for (int n = 1; n < 10; n++) {
    amp_fail_allocation(n);
    amp_tensor *t = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 1, &size);
    amp_fail_allocation(-1);
    if (t == NULL) {
      failed++;
      CHECK(S->err.code == AMP_E_MEMORY);
    }
    amp__free(t);
    CHECK(live() == before);
  }
  CHECK(failed == 3); /* tensor, storage, block */
  amp_fail_allocation(1);
  CHECK(amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 1, &size) == NULL);
  amp_tensor *t = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 1, &size); /* once only */
  CHECK(t != NULL);
  amp__free(t);
}

static void pacing(void)
{
  amp_memory_stats *m = amp_memory(AMP_CPU, 0);
  m->pace = INT64_MAX;
  m->pace_large = m->large + 8 * MIB;
  S->attention = 0;
  amp__block_free(amp__block_new(AMP_CPU, 0, 5 * MIB));
  amp__block_free(amp__block_new(AMP_CPU, 0, 5 * MIB)); /* what is freed is no debt */
  CHECK(S->attention == 0);
  amp_block *b = amp__block_new(AMP_CPU, 0, 8 * MIB);
  CHECK(S->attention == AMP_A_PACE);
  amp__block_free(b);
  S->attention = 0;
  m->pace_large = INT64_MAX;
  m->pace = m->live - m->large + MIB;
  amp_tensor *many[10000];
  for (int i = 0; i < 10000; i++) many[i] = amp__number(1); /* small ones add up */
  CHECK(S->attention == AMP_A_PACE);
  CHECK(m->allocations >= 20000);
  for (int i = 0; i < 10000; i++) amp__free(many[i]);
  /* what goes up and down with each backward is told apart */
  amp__memory_backward_ended();
  m->swing = 0;
  amp__block_free(amp__block_new(AMP_CPU, 0, 4 * MIB));
  amp__memory_backward_ended();
  CHECK(m->swing >= 4 * MIB && m->swing < 7 * MIB);
  amp__memory_backward_ended();
  CHECK(m->swing >= 4 * MIB && m->swing < 7 * MIB);
  AMP_ENTER(NULL); /* without a state: legal */
  amp__block_free(amp__block_new(AMP_CPU, 0, 20 * MIB));
  AMP_ENTER(S);
}

enum { HANDED = 5000 };
static amp_tensor *handed[HANDED];

static void *maker(void *arg)
{
  amp_state *mine = amp_state_new();
  int64_t size = 40;
  AMP_ENTER(mine);
  for (int i = 0; i < HANDED; i++) handed[i] = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 1, &size);
  amp_state_free(mine);
  return arg;
}

static void *churner(void *arg)
{
  for (int i = 0; i < 3000; i++) {
    int64_t size = 1 + i % 3000;
    amp_tensor *t = amp__tensor_make(AMP_FLOAT64, AMP_CPU, 0, 1, &size);
    ((double *)amp__data(t))[size - 1] = i;
    amp__free(t);
  }
  return arg;
}

static void threads(void)
{
  int64_t before = live();
  pthread_t t, many[4];
  pthread_create(&t, NULL, maker, NULL);
  pthread_join(t, NULL);
  int unique = 1;
  for (int i = 1; i < HANDED; i++) unique &= handed[i]->id != handed[i - 1]->id;
  CHECK(unique);
  for (int i = 0; i < HANDED; i++) amp__free(handed[i]); /* on another thread than made them */
  CHECK(live() == before);
  for (int i = 0; i < 4; i++) pthread_create(&many[i], NULL, churner, NULL);
  for (int i = 0; i < 4; i++) pthread_join(many[i], NULL);
  CHECK(live() == before);
  int64_t kept = held();
  amp_empty_cache(AMP_CPU);
  CHECK(held() <= kept);
}

static void values(void)
{
  double v[4] = { 1, -2.5, 300, NAN }, out[4];
  int64_t size[2] = { 2, 2 }, index[2] = { 1, 0 };
  amp_ref r = { NULL }, view = { NULL };
  CHECK(amp_from_double(S, &r, v, 2, size, AMP_INT32) == AMP_E_VALUE && strstr(S->err.message, "nan at [2, 2]"));
  CHECK(amp_from_double(S, &r, v, 2, size, AMP_UINT8) == AMP_E_VALUE && strstr(S->err.message, "-2.5 at [1, 2]"));
  v[3] = 70000;
  OK(amp_from_double(S, &r, v, 2, size, AMP_FLOAT16));
  OK(amp_read(S, &r, out, 4));
  CHECK(out[1] == -2.5 && out[2] == 300 && isinf(out[3]));
  CHECK(amp_read(S, &r, out, 3) == AMP_E_ARGUMENT && amp_item(S, &r, out) == AMP_E_SHAPE);
  OK(amp_get1(S, &r, index, out));
  CHECK(out[0] == 300);
  index[1] = 2;
  CHECK(amp_get1(S, &r, index, out) == AMP_E_INDEX);
  int64_t stride[2] = { 1, 2 };
  view.t = amp__tensor_view(r.t, 2, size, stride, 0);
  CHECK(!(view.t->flags & AMP_T_CONTIGUOUS) && (view.t->flags & AMP_T_DENSE));
  OK(amp_read(S, &view, out, 4));
  CHECK(out[1] == 300 && out[2] == -2.5 && amp_same_storage(&r, &view));
  amp_release(&view);
  amp_release(&r);
  uint8_t flags[3] = { 0, 7, 255 };
  size[0] = 3;
  CHECK(amp_from_bytes(S, &r, flags, 2, 1, size, AMP_BOOL) == AMP_E_SHAPE);
  OK(amp_from_bytes(S, &r, flags, 3, 1, size, AMP_BOOL));
  CHECK(((uint8_t *)amp_data_ptr(S, &r))[2] == 1 && (r.t->storage->flags & AMP_S_EXPOSED));
  amp_release(&r);
  float mine[3] = { 1, 2, 3 };
  OK(amp_from_ptr(S, &r, mine, 1, size, AMP_FLOAT32));
  CHECK(amp_data_ptr(S, &r) == mine && (r.t->storage->flags & AMP_S_FOREIGN));
  OK(amp_detach(S, &view, &r));
  amp_release(&r);
  CHECK(amp_data_ptr(S, &view) == mine);
  amp_release(&view);
  CHECK(amp_from_ptr(S, &r, NULL, 1, size, AMP_FLOAT32) == AMP_E_ARGUMENT);
  CHECK(amp_from_ptr(S, &r, (char *)mine + 1, 1, size, AMP_FLOAT32) == AMP_E_ARGUMENT);
  CHECK(amp_item(S, &r, out) == AMP_E_ARGUMENT); /* a freed handle */
}

/* All 65536 halves go to float and back; floats round to nearest even. */
static void halves(void)
{
  int same = 1, low = 1;
  for (uint32_t i = 0; i < 65536; i++) {
    float f = amp__half_to_float((uint16_t)i), g = amp__bf16_to_float((uint16_t)i);
    if (isnan(f)) same &= isnan(amp__half_to_float(amp__float_to_half(f)));
    else same &= amp__float_to_half(f) == i;
    if (isnan(g)) low &= isnan(amp__bf16_to_float(amp__float_to_bf16(g)));
    else low &= amp__float_to_bf16(g) == i;
  }
  CHECK(same && low);
  CHECK(amp__half_to_float(0x3c00) == 1 && amp__half_to_float(0x7bff) == 65504 && amp__half_to_float(1) == 0x1p-24f);
  CHECK(amp__float_to_half(65519.996f) == 0x7bff && amp__float_to_half(65520) == 0x7c00);
  CHECK(amp__float_to_half(0x1p-25f) == 0 && amp__float_to_half(0x1.8p-25f) == 1
        && amp__float_to_half(0x1.8p-24f) == 2);
  CHECK(amp__float_to_half(1 + 0x1p-11f) == 0x3c00 && amp__float_to_half(1 + 0x1.8p-10f) == 0x3c02);
  CHECK(amp__float_to_bf16(1 + 0x1p-8f) == 0x3f80 && amp__float_to_bf16(1 + 0x1.8p-7f) == 0x3f82);
}

static void set_data(void)
{
  double v[6] = { 1, 2, 3, 4, 5, 6 }, out[6];
  int64_t size[2] = { 2, 3 };
  amp_ref a = { NULL }, b = { NULL }, c = { NULL };
  OK(amp_from_double(S, &a, v, 1, size, AMP_FLOAT32));
  OK(amp_from_double(S, &b, v, 2, size, AMP_FLOAT16));
  int64_t id = a.t->id;
  uint32_t version = amp_tensor_version(&a);
  amp_retain(&c, &a);
  OK(amp_set_data(S, &a, &b));
  CHECK(c.t->id == id && c.t->ndim == 2 && c.t->dtype == AMP_FLOAT16 && amp_same_storage(&b, &c)
        && amp_tensor_version(&c) > version);
  OK(amp_read(S, &c, out, 6));
  CHECK(out[5] == 6);
  amp_release(&a);
  amp_release(&b);
  amp_release(&c);
}

static void facts(void)
{
  CHECK(amp_crc32(0, "123456789", 9) == 0xcbf43926);
  CHECK(amp_crc32(amp_crc32(0, "12345", 5), "6789", 4) == 0xcbf43926 && amp_crc32(5, NULL, 0) == 5);
  CHECK(strstr(amp_cdef(), "amp_state_new") && !strstr(amp_cdef(), "#define"));
  CHECK(amp_table_hash() == amp_table_hash() && amp_table_hash() != 0);
  CHECK(amp__promote(AMP_FLOAT16, AMP_BFLOAT16) == AMP_FLOAT32 && amp__promote(AMP_UINT8, AMP_INT8) == AMP_INT16);
  CHECK(amp__promote(AMP_INT64, AMP_FLOAT16) == AMP_FLOAT16 && amp__promote(AMP_BOOL, AMP_UINT8) == AMP_UINT8);
  int64_t size[2] = { 2, 3 };
  CHECK(strcmp(amp__shape_str(2, size), "2x3") == 0 && strcmp(amp__shape_str(0, NULL), "scalar") == 0);
  amp__log("%d lines", 2);
  amp__log("second");
  CHECK(S->attention & AMP_A_LOG);
  CHECK(strcmp(amp_log_next(S), "2 lines") == 0 && strcmp(amp_log_next(S), "second") == 0 && amp_log_next(S) == NULL);
  CHECK(!(S->attention & AMP_A_LOG));
  CHECK(amp_device_available(AMP_CPU) == 1 && amp_device_available(7) == 0 && amp_device_reason(AMP_CUDA)[0]);
  CHECK(amp_memory(9, 0) == NULL && amp_memory(AMP_CPU, -1) == NULL);
  CHECK(amp_set_threads(0) >= 1 && amp__threads(10) == 1);
}

int main(void)
{
  S = amp_state_new();
  AMP_ENTER(S);
  int64_t before = live();
  objects();
  blocks();
  storages();
  tensors();
  failures();
  pacing();
  threads();
  values();
  halves();
  set_data();
  facts();
  CHECK(live() == before);
  amp_state_free(S);
  return DONE();
}
