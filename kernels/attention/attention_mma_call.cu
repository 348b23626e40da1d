/*
** attention_mma_call.cu: whether attention runs on tensor cores, what of it must be
** copied first, and the two numbers a row that its backward needs.
**
** Taken are float16 and bfloat16 on cards from 8.0 on, values as wide as keys, a
** multiple of 8 up to 128. An operand whose rows do not start at multiples of 16
** bytes, or whose columns are apart, is copied (memory is little of what attention
** costs); results that lie so are made in C order and copied. Without a mask and dropout
** cuDNN may do it instead, where it was faster.
*/
#include "attention/attention.cuh"
#include "../src/cuda/cudnn_attention.h"

namespace {

/* lse / ln 2, +inf in rows that weigh nothing, and scale * (sum of g out): `lanes` (8 or 16) threads a row */
__global__ void __launch_bounds__(256) numbers(const __grid_constant__ amp_flash job, const float *lse, int lanes)
{
#if AMP_MMA
  const unsigned rows = (unsigned)job.batch * (unsigned)job.padded, per = 256 / (unsigned)lanes,
                 c = threadIdx.x & (unsigned)(lanes - 1);
  for (unsigned r0 = blockIdx.x * per; r0 < rows; r0 += gridDim.x * per) {
    const unsigned r = r0 + threadIdx.x / (unsigned)lanes, b = r / (unsigned)job.padded;
    const int i = (int)(r - b * (unsigned)job.padded);
    const bool there = r < rows && i < job.length;
    float s = 0;
    if (there && (int)c * 8 < job.size) {
      int64_t at[AMP_F_SIDES];
      amp_flash_starts(job, b, at);
      float g[8], y[8];
      const int dtype = job.bf16 ? AMP_BFLOAT16 : AMP_FLOAT16;
      amp_load_n<8>(g, job.side[AMP_F_G].p, dtype, at[AMP_F_G] + i * job.side[AMP_F_G].row + c * 8);
      amp_load_n<8>(y, job.side[AMP_F_OUT].p, dtype, at[AMP_F_OUT] + i * job.side[AMP_F_OUT].row + c * 8);
#pragma unroll
      for (int e = 0; e < 8; e++) s += g[e] * y[e];
    }
    for (int d = lanes / 2; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (r < rows && c == 0) {
      float l = there ? lse[(int64_t)b * job.length + i] : -INFINITY;
      job.lse2[r] = l == -INFINITY ? INFINITY : amp_mask_word(l);
      job.delta[r] = s * job.scale;
    }
  }
#endif
}

bool fits(const amp_tensor *t)
{
  int n = t->ndim;
  if (t->numel == 0) return true;
  if (((uintptr_t)amp__data(t) & 15) != 0 || (t->size[n - 1] > 1 && t->stride[n - 1] != 1)) return false;
  for (int d = 0; d < n - 1; d++)
    if (t->size[d] > 1 && t->stride[d] % 8 != 0) return false;
  return true;
}

void put(amp_flash *job, int i, const amp_tensor *t)
{
  amp_flash_side *s = &job->side[i];
  if (t == NULL) return;
  int n = t->ndim;
  s->p = (char *)amp__data(t);
  s->row = t->size[n - 2] > 1 ? t->stride[n - 2] : 0;
  s->step = s->row * 2 * amp_flash_step(amp_flash_width(*job));
  for (int d = 0; d < n - 2; d++) s->lead[d] = t->size[d] > 1 ? t->stride[d] : 0;
}

/* The cards and shapes that are taken */
bool taken(const amp_tensor *q, const amp_tensor *k, const amp_tensor *v, const amp_tensor *mask)
{
  int n = q->ndim;
  int64_t batch = 1, size = q->size[n - 1], length = q->size[n - 2], keys = k->size[n - 2],
          tiles = (length > keys ? length : keys) / 64 + 2;
  for (int i = 0; i < n - 2; i++) batch *= q->size[i];
  if ((q->dtype != AMP_FLOAT16 && q->dtype != AMP_BFLOAT16) || size != v->size[n - 1] || size % 8 != 0 || size == 0
      || size > 128)
    return false;
  if (mask && mask->dtype != AMP_BOOL && mask->dtype != AMP_FLOAT32 && mask->dtype != q->dtype) return false;
  if (batch == 0 || length == 0 || tiles * 128 > INT32_MAX / 2 || batch > INT32_MAX / (tiles * 128)) return false;
  return amp__cuda_here()->shared >= 74 << 10 && amp_mma_here();
}

amp_flash job_of(amp_tensor *const *in, const amp_tensor *mask, bool causal, double scale, const amp_drop *drop)
{
  amp_flash job;
  memset((void *)&job, 0, sizeof job);
  job.drop = *drop;
  const amp_tensor *q = in[0];
  int n = q->ndim;
  job.nlead = n - 2;
  job.batch = 1;
  for (int d = 0; d < n - 2; d++) {
    job.lead[d] = (unsigned)q->size[d];
    job.batch *= (int)q->size[d];
  }
  job.length = (int)q->size[n - 2];
  job.size = (int)q->size[n - 1];
  job.keys = (int)in[1]->size[n - 2];
  job.padded = (job.length + AMP_FLASH_PAD - 1) / AMP_FLASH_PAD * AMP_FLASH_PAD;
  job.causal = causal;
  job.bf16 = q->dtype == AMP_BFLOAT16;
  job.scale = (float)scale;
  job.c = (float)(scale * 1.4426950408889634);
  if (mask) {
    put(&job, AMP_F_MASK, mask);
    job.mask_dtype = mask->dtype;
    job.mask_keys = job.side[AMP_F_MASK].row == 0;
    job.mask_column = mask->size[n - 1] > 1 ? mask->stride[n - 1] : 0;
  }
  for (int i = 0; i < 3; i++) put(&job, AMP_F_Q + i, in[i]);
  return job;
}

/* A result to fill: itself, or one in C order */
amp_tensor *result(amp_tensor *t) { return fits(t) ? amp_own(t) : amp__cuda_make(t->dtype, t->ndim, t->size); }
/* An operand: itself, or a copy, which begins where the kernels can read */
amp_tensor *operand(amp_tensor *t, int dtype)
{
  if (t->dtype == dtype && fits(t)) return amp_own(t);
  amp_tensor *d = amp__cuda_make(dtype, t->ndim, t->size);
  if (d && amp__cuda_copy_to(d, t) < 0) {
    amp__free(d);
    return NULL;
  }
  return d;
}

typedef struct backward_job {
  amp_flash k;
  const float *lse;
} backward_job;

int forward(void *p) { return amp_flash_launch((const amp_flash *)p); }

int backward(void *p)
{
  const backward_job *j = (const backward_job *)p;
  const amp_flash &job = j->k;
  const int lanes = job.size > 64 ? 16 : 8;
  AMP_LAUNCH((numbers), amp_grid((int64_t)job.batch * job.padded, 256 / lanes), 256, 0, job, j->lse, lanes);
  int rc = job.keys > 0 ? amp_flash_launch_keys(&job) : 0;
  return rc ? rc : amp_flash_launch_queries(&job);
}

} // namespace

int amp_flash_forward(amp_call *c, const amp_drop *drop)
{
  amp_tensor *in[3] = { NULL }, *out = NULL, *lse = NULL;
  amp_tensor *mask = c->nin > 3 ? c->in[3] : NULL;
  int rc = AMP_E_MEMORY, dtype = c->in[0]->dtype;
  if (!taken(c->in[0], c->in[1], c->in[2], mask)) return 1;
  for (int i = 0; i < 3; i++)
    if (!(in[i] = operand(c->in[i], dtype))) goto end;
  if (!(out = result(c->out[0])) || !(lse = amp_take(c->out[1], AMP_FLOAT32))) goto end;
  {
    const args_attention *args = AMP_ARGS(c, attention);
    amp_flash job = job_of(in, mask, args->is_causal != 0, args->scale, drop);
    put(&job, AMP_F_OUT, out);
    job.lse = (float *)amp__data(lse);
    job.tiles = job.padded / 128;
    amp_attend a = { in[0], in[1], in[2], out, lse, NULL, NULL, NULL, NULL, job.causal, job.scale, forward, &job };
    if (!drop->on && amp_flash_is_few(&job)) rc = amp_flash_launch_few(&job);
    else {
      rc = mask || drop->on ? 1 : amp__cuda_dnn_attention(&a);
      if (rc == 1) rc = forward(&job);
    }
  }
end:
  rc = amp_give(c->out[0], out, rc);
  rc = amp_give(c->out[1], lse, rc);
  for (int i = 0; i < 3; i++) amp__free(in[i]);
  return rc;
}

/* grad query key value out lse attn_mask? draw? */
int amp_flash_backward(amp_call *c, const amp_drop *drop)
{
  amp_tensor *in[5] = { NULL }, *y[3] = { NULL }, *lse = NULL, *scratch = NULL;
  amp_tensor *mask = c->nin > 6 ? c->in[6] : NULL;
  int rc = AMP_E_MEMORY, dtype = c->in[1]->dtype;
  if (!taken(c->in[1], c->in[2], c->in[3], mask)) return 1;
  for (int i = 0; i < 5; i++)
    if (!(in[i] = operand(c->in[i], dtype))) goto end;
  for (int i = 0; i < 3; i++)
    if (!(y[i] = result(c->out[i]))) goto end;
  if (!(lse = amp__cuda_dense(c->in[5], AMP_FLOAT32))) goto end;
  {
    const args_attention_backward *args = AMP_ARGS(c, attention_backward);
    backward_job j = { job_of(in + 1, mask, args->is_causal != 0, args->scale, drop), (const float *)amp__data(lse) };
    amp_flash &job = j.k;
    size_t rows = (size_t)job.batch * (size_t)job.padded;
    if (!(scratch = amp__cuda_scratch(rows * 2 * sizeof(float)))) goto end;
    put(&job, AMP_F_G, in[0]);
    put(&job, AMP_F_OUT, in[4]);
    for (int i = 0; i < 3; i++) put(&job, AMP_F_DQ + i, y[i]);
    job.lse2 = (float *)amp__data(scratch);
    job.delta = job.lse2 + rows;
    amp_attend a = { in[1], in[2], in[3], in[4], lse, in[0], y[0], y[1], y[2], job.causal, job.scale, backward, &j };
    rc = mask || drop->on ? 1 : amp__cuda_dnn_attention(&a);
    if (rc == 1) rc = backward(&j);
  }
end:
  for (int i = 0; i < 3; i++) rc = amp_give(c->out[i], y[i], rc);
  for (int i = 0; i < 5; i++) amp__free(in[i]);
  amp__free(lse);
  amp__free(scratch);
  return rc;
}
