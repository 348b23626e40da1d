/*
** onednn_product.c: matmul and linear by oneDNN. float32 products under 2 MFLOP are left to
** the plain kernel, which has less to do around them; under 0.2 where a graph keeps the weight.
*/
#include "core.h"
#include "onednn_entry.h"

typedef struct matrix {
  void *data;
  int64_t batch, rows, cols, batch_stride, row_stride, col_stride;
} matrix;

/* A stride of a dimension of one element is free; oneDNN wants it to look dense. */
static void tidy(matrix *matrix)
{
  if (matrix->cols == 1 && matrix->rows > 1 && matrix->row_stride != 1) matrix->col_stride = 1;
  if (matrix->cols == 1 && matrix->rows == 1) matrix->row_stride = matrix->col_stride = 1;
  if (matrix->rows == 1) matrix->row_stride = matrix->cols > 0 ? matrix->cols * matrix->col_stride : 1;
  if (matrix->batch == 1)
    matrix->batch_stride = matrix->rows * matrix->row_stride > matrix->cols * matrix->col_stride
                               ? matrix->rows * matrix->row_stride
                               : matrix->cols * matrix->col_stride;
}

static bool usable(const matrix *matrix)
{
  return (matrix->col_stride == 1 && matrix->row_stride >= matrix->cols)
         || (matrix->row_stride == 1 && matrix->col_stride >= matrix->rows);
}

/* Large plain row-major operands: 3 to 8 % faster than the primitive */
static bool plain_product(const matrix *left, const matrix *right, const matrix *result, int threads)
{
  static _Atomic bool ran;
  bool first = !ran;
  if (first) pthread_mutex_lock(&dnn_shared);
  sigset_t signals;
  int before = dnn_use_threads(threads);
  dnn_hold_signals(threads, &signals);
  bool ok = dnnl_sgemm('N', 'N', result->rows, result->cols, left->cols, 1, left->data, left->row_stride, right->data,
                       right->row_stride, 0, result->data, result->row_stride)
            == dnnl_success;
  dnn_release_signals(&signals);
  dnn_use_threads(before);
  if (first) pthread_mutex_unlock(&dnn_shared);
  ran = true;
  return ok;
}

/* Of a product of `rows` rows by a weight (NULL: by anything): with fewer operations the plain kernel is quicker. */
static double least_work(int type, int64_t rows, const amp_tensor *weight)
{
  const amp_offer *offer = dnn_core->state()->priv->offer;
  bool kept = weight && offer && offer->weight == weight && rows >= 8;
  return type != (int)dnnl_f32 ? 6e4 : kept ? 2e5 : 2e6;
}

/* keeps: the weight in a form of the primitive's choice */
static void build_product(dnn_entry *entry, const matrix *left, const matrix *right, const matrix *result, bool bias,
                          int type, int bias_type, bool keeps)
{
  const matrix *m[3] = { left, right, result };
  bool batched = result->batch > 1;
  dnn_md md[3];
  for (int i = 0; i < 3; i++) {
    int64_t size[3] = { m[i]->batch, m[i]->rows, m[i]->cols },
            stride[3] = { m[i]->batch_stride, m[i]->row_stride, m[i]->col_stride };
    md[i] = dnn_md_strided(batched ? 3 : 2, size + !batched, type, stride + !batched);
  }
  int64_t bias_size[3] = { 1, 1, result->cols }, bias_stride[3] = { result->cols, result->cols, 1 };
  dnn_problem problem = { .kind = DNN_MATMUL, .src = md[0], .weight = md[1], .dst = md[2] }, user = problem;
  if (keeps) problem.weight = dnn_md_any(2, (int64_t[2]){ right->rows, right->cols }, type);
  if (bias) problem.bias = dnn_md_strided(batched ? 3 : 2, bias_size + !batched, bias_type, bias_stride + !batched);
  user.bias = problem.bias;
  if (problem.src && problem.weight && user.weight && problem.dst && (!bias || problem.bias))
    dnn_build(entry, &problem, &user, NULL, NULL, NULL);
  if (keeps) dnn_md_free(user.weight);
  dnn_problem_free(&problem);
}

/* A form of its own pays where the primitive has blocks for it. oneDNN's general product (all there is without AVX-512)
** only wants the weight transposed, and is up to 1.5 times as slow so once the product is no small one (AMD EPYC). */
static void make_product(dnn_entry *entry, const matrix *left, const matrix *right, const matrix *result, bool bias,
                         int type, int bias_type, bool keeps)
{
  double flop = 2.0 * (double)result->rows * (double)result->cols * (double)left->cols;
  build_product(entry, left, right, result, bias, type, bias_type, keeps);
  if (!keeps || !entry->lends_stack || flop < 2.5e6) return;
  dnn_entry_empty(entry);
  build_product(entry, left, right, result, bias, type, bias_type, false);
}

/* a (batch, m x k) times b (batch, k x n) into c, with a bias of n */
static bool product(matrix *left, matrix *right, matrix *result, void *bias, int type, int bias_type,
                    const amp_tensor *weight)
{
  double flop = 2.0 * (double)result->batch * (double)result->rows * (double)result->cols * (double)left->cols;
  if (flop < least_work(type, result->rows, weight)) return false;
  tidy(left);
  tidy(right);
  tidy(result);
  if (!usable(left) || !usable(right) || !usable(result)) return false;
  dnn_cache *cache = dnn_table();
  if (cache == NULL) return false;
  bool batched = result->batch > 1;
  int threads = dnn_threads_for(flop);
  if (type == (int)dnnl_f32 && !batched && !bias && flop > 2e8 && left->col_stride == 1 && right->col_stride == 1
      && result->col_stride == 1)
    return plain_product(left, right, result, threads);
  amp_offer *offer = weight && !batched ? dnn_offer(weight) : NULL;
  int64_t k[DNN_KEY] = { 21,
                         DNN_MATMUL,
                         offer != NULL,
                         threads,
                         type,
                         bias ? bias_type : -1,
                         result->batch,
                         result->rows,
                         left->cols,
                         result->cols,
                         left->batch_stride,
                         left->row_stride,
                         left->col_stride,
                         right->batch_stride,
                         right->row_stride,
                         right->col_stride,
                         result->batch_stride,
                         result->row_stride,
                         result->col_stride,
                         left->batch,
                         right->batch };
  size_t h = dnn_hash(k);
  dnn_entry *entry = dnn_find(cache, k, h);
  if (entry == NULL) {
    if ((entry = dnn_add(cache, k, h)) == NULL) return false;
    entry->threads = threads;
    make_product(entry, left, right, result, bias != NULL, type, bias_type, offer != NULL);
  }
  void *data[DNN_OPERANDS] = { left->data, right->data, result->data, bias };
  return dnn_run(cache, entry, data, offer);
}

int dnn_linear(amp_call *call)
{
  amp_tensor *input = call->in[0], *weight = call->in[1], *b = call->nin > 2 ? call->in[2] : NULL,
             *output = call->out[0];
  int type = dnn_type(output);
  if (type < 0 || input->dtype != output->dtype || weight->dtype != output->dtype || weight->ndim != 2
      || input->ndim < 1 || output->numel == 0 || input->numel == 0 || !(input->flags & AMP_T_CONTIGUOUS)
      || !(output->flags & AMP_T_CONTIGUOUS) || (b && (dnn_type(b) < 0 || !(b->flags & AMP_T_CONTIGUOUS))))
    return dnn_plain[AMP_OP_linear](call);
  int64_t k = input->size[input->ndim - 1], m = input->numel / k, n = weight->size[0];
  matrix A = { dnn_data(input), 1, m, k, 0, k, 1 },
         B = { dnn_data(weight), 1, k, n, 0, weight->stride[1], weight->stride[0] },
         C = { dnn_data(output), 1, m, n, 0, n, 1 };
  return product(&A, &B, &C, b ? dnn_data(b) : NULL, type, b ? dnn_type(b) : 0, weight)
             ? 0
             : dnn_plain[AMP_OP_linear](call);
}

int dnn_matmul(amp_call *call)
{
  amp_tensor *a = call->in[0], *b = call->in[1], *output = call->out[0];
  int type = dnn_type(output), na = a->ndim, nb = b->ndim, no = output->ndim;
  if (type < 0 || a->dtype != output->dtype || b->dtype != output->dtype || na < 2 || nb < 2 || output->numel == 0
      || a->numel == 0)
    return dnn_plain[AMP_OP_matmul](call);
  matrix A = { dnn_data(a), 1, a->size[na - 2], a->size[na - 1], 0, a->stride[na - 2], a->stride[na - 1] };
  matrix B = { dnn_data(b), 1, b->size[nb - 2], b->size[nb - 1], 0, b->stride[nb - 2], b->stride[nb - 1] };
  matrix C = { dnn_data(output),      1, output->size[no - 2], output->size[no - 1], 0, output->stride[no - 2],
               output->stride[no - 1] };
  if (no == 3 && na == 3 && nb == 3) {
    A.batch = a->size[0];
    A.batch_stride = a->stride[0];
    B.batch = b->size[0];
    B.batch_stride = b->stride[0];
    C.batch = output->size[0];
    C.batch_stride = output->stride[0];
  } else if (no > 2 && nb == 2 && (a->flags & AMP_T_CONTIGUOUS) && (output->flags & AMP_T_CONTIGUOUS)) {
    A.rows = C.rows = a->numel / A.cols; /* leading dimensions join the rows */
  } else if (no > 2) return dnn_plain[AMP_OP_matmul](call);
  return product(&A, &B, &C, NULL, type, 0, NULL) ? 0 : dnn_plain[AMP_OP_matmul](call);
}
