/*
** rnn_all.cu: all steps of a recurrent layer in one launch, on cards with tensor cores,
** where the layer's weights fit the registers of the whole card.
**
** A block keeps its part of the weights in registers from the first step to the last, so
** that a step reads states alone: from the L2 cache, where the other blocks leave them.
** All blocks are on the card at once (a cooperative launch). No block says that it has
** got to somewhere: a value says so itself. States and gradients are filled with ABSENT
** before, a bit pattern that no conversion and no sum makes, and read until they are
** something else; an exchanged sum's last bit says of which step it is. So nothing need
** be ordered, and a step takes one way to the L2 cache and back.
**
** Forward a block has 8 hidden values, all their gates and the whole sum, which its warps
** share out. Backward the sum is gates times longer: a block has 64 columns of the
** result and a part of the sum; the blocks of the same columns exchange what they have
** and each finishes some of the rows.
**
** A float32 value is the sum of two whose mantissas have 11 bits; of the four products of
** two such values the smallest is left out, some 2^-23 of the whole. Eight products are
** added up by the tensor core, which cuts off what is behind the last bit, and such sums
** by additions that round: as exact as additions of all (Ootomo and Yokota, 2022).
**
** The kernels are in rnn_all_ahead.cuh and rnn_all_behind.cuh; here is what decides and launches.
**
** On the emulator, where blocks run one after the other, each step is a launch of its own.
*/
#include "rnn/rnn_all_ahead.cuh"
#include "rnn/rnn_all_behind.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

/* -- Launches ------------------------------------------------------------------------------------ */

/* Blocks of these kernels that a card has room for at once: one for each multiprocessor */
static int64_t room_of(void)
{
#ifdef AMP_EMULATED
  return 132;
#else
  return amp__cuda_here()->sms;
#endif
}

static bool shared_fits(size_t bytes) { return amp__cuda_here()->shared >= bytes; }
static int gates_of(const amp_rnn *layer) { return (int)(layer->g / layer->h); }
static int64_t tiles_of(const amp_rnn *layer, int rows) { return (layer->n + rows * 16 - 1) / (rows * 16); }
static int32_t pieces_of(int64_t sum) { return (int32_t)((sum + PIECE * WARPS - 1) / (PIECE * WARPS)); }
static int most_of(const amp_rnn *layer, int narrow, int wide) { return layer->dtype == AMP_FLOAT32 ? wide : narrow; }
#define MOST(k, what) most_of(k, amp_rnn_limits<AMP_FLOAT16>::what, amp_rnn_limits<AMP_FLOAT32>::what)
static int sets_of(const amp_rnn *layer, int rows) { return rows == 4 ? MOST(layer, SETS) : rows; }
/* Sums of every set, of a single one twice */
static size_t rows_kept(const amp_rnn *layer, int rows)
{
  return (size_t)(rows / sets_of(layer, rows) * 16 * (sets_of(layer, rows) > 1 ? sets_of(layer, rows) : 2));
}
static size_t ahead_shared(const amp_rnn *layer, int rows)
{
  return sizeof(float) * WARPS * (size_t)gates_of(layer) * rows_kept(layer, rows) * COLS;
}
static size_t behind_shared(const amp_rnn *layer, int rows)
{
  return sizeof(float) * WARPS * rows_kept(layer, rows) * PITCH;
}

/* The fewest rows a block with which all are on the card at once: false: there are none */
static bool share_ahead(const amp_rnn *layer, amp_rnn_share *share)
{
  memset((void *)share, 0, sizeof *share);
  if (layer->h % PIECE || (share->pieces = pieces_of(layer->h)) > MOST(layer, PIECES)) return false;
  for (share->rows = 1; share->rows <= 4; share->rows *= 2)
    if (layer->h / COLS * tiles_of(layer, share->rows) <= room_of())
      return shared_fits(ahead_shared(layer, share->rows));
  return false;
}

/* The same, and the fewest blocks that share a sum: of a set's values a thread of its warps finishes two */
static bool share_behind(const amp_rnn *layer, amp_rnn_share *share)
{
  memset((void *)share, 0, sizeof *share);
  if (layer->h % BACK_COLS) return false;
  for (share->rows = 1; share->rows <= 4; share->rows *= 2) {
    for (share->parts = share->rows == 1 ? 2 : 2 * share->rows; share->parts <= 8; share->parts *= 2)
      if (layer->h % (PIECE * share->parts) == 0 && pieces_of(layer->g / share->parts) <= MOST(layer, BACK_PIECES))
        break;
    if (share->parts > 8) return false;
    share->pieces = pieces_of(layer->g / share->parts);
    if (layer->h / BACK_COLS * share->parts * tiles_of(layer, share->rows) <= room_of())
      return shared_fits(behind_shared(layer, share->rows));
  }
  return false;
}

static int fill(void *p, int value, int64_t n)
{
  return amp__cuda_check(cudaMemsetAsync(p, value, (size_t)n, amp__cuda_stream()), "filling memory");
}

template <int D, int G, int MT, int SETS> static int ahead_of(const amp_rnn *layer, const amp_rnn_share *share)
{
  const dim3 grid((unsigned)(layer->h / COLS), (unsigned)tiles_of(layer, MT * SETS));
#ifdef AMP_EMULATED
  for (int64_t n = 0; n < layer->t; n++)
    AMP_LAUNCH((ahead_all<D, G, MT, SETS>), grid, THREADS, ahead_shared(layer, MT * SETS), *layer, *share, n, n + 1);
  return 0;
#else
  return amp_launch_together(ahead_all<D, G, MT, SETS>, grid, THREADS, ahead_shared(layer, MT * SETS), *layer, *share,
                             (int64_t)0, layer->t);
#endif
}

template <int D, int G, int MT, int SETS>
static int behind_of(const amp_rnn *layer, const amp_rnn_share *share, char *dh0)
{
  const dim3 grid((unsigned)(layer->h / BACK_COLS), (unsigned)share->parts, (unsigned)tiles_of(layer, MT * SETS));
#ifdef AMP_EMULATED
  for (int64_t n = 0; n <= layer->t; n++) {
    const bool apart = n > 0;
    if (apart)
      AMP_LAUNCH((behind_all<D, G, MT, SETS>), grid, THREADS, behind_shared(layer, MT * SETS), *layer, *share, dh0, n,
                 n + 1, (int)PHASE_SUMS);
    AMP_LAUNCH((behind_all<D, G, MT, SETS>), grid, THREADS, behind_shared(layer, MT * SETS), *layer, *share, dh0, n,
               n + 1, (int)(apart ? PHASE_FINISH : PHASE_BOTH));
  }
  return 0;
#else
  return amp_launch_together(behind_all<D, G, MT, SETS>, grid, THREADS, behind_shared(layer, MT * SETS), *layer, *share,
                             dh0, (int64_t)0, layer->t + 1, (int)PHASE_BOTH);
#endif
}

template <int D, int G> static int ahead_rows(const amp_rnn *layer, const amp_rnn_share *share)
{
  constexpr int SETS = amp_rnn_limits<D>::SETS;
  return share->rows == 1   ? ahead_of<D, G, 1, 1>(layer, share)
         : share->rows == 2 ? ahead_of<D, G, 1, 2>(layer, share)
                            : ahead_of<D, G, 4 / SETS, SETS>(layer, share);
}

template <int D> static int ahead_gates(const amp_rnn *layer, const amp_rnn_share *share)
{
  return gates_of(layer) == 4   ? ahead_rows<D, 4>(layer, share)
         : gates_of(layer) == 3 ? ahead_rows<D, 3>(layer, share)
                                : ahead_rows<D, 1>(layer, share);
}

template <int D, int G> static int behind_rows(const amp_rnn *layer, const amp_rnn_share *share, char *dh0)
{
  constexpr int SETS = amp_rnn_limits<D>::SETS;
  return share->rows == 1   ? behind_of<D, G, 1, 1>(layer, share, dh0)
         : share->rows == 2 ? behind_of<D, G, 1, 2>(layer, share, dh0)
                            : behind_of<D, G, 4 / SETS, SETS>(layer, share, dh0);
}

template <int D> static int behind_gates(const amp_rnn *layer, const amp_rnn_share *share, char *dh0)
{
  return gates_of(layer) == 4   ? behind_rows<D, 4>(layer, share, dh0)
         : gates_of(layer) == 3 ? behind_rows<D, 3>(layer, share, dh0)
                                : behind_rows<D, 1>(layer, share, dh0);
}

} // namespace

/* Where a launch for each step is faster (measured on an H200): forward a simple net, whose product is small;
** backward where a step's blocks (rnn_step.cu) are on the card at once and have little to sum */
bool amp_rnn_takes_all(const amp_rnn *layer, bool backward)
{
  amp_rnn_share share;
  if ((amp__cuda_rnn != 1 && amp__cuda_rnn != 3) || layer->t < 2 || layer->r != layer->h || layer->dtype == AMP_FLOAT64
      || !amp_rnn_fits(layer, backward, false))
    return false;
  if (backward && layer->gy && layer->gydt != AMP_FLOAT32 && layer->gydt != AMP_FLOAT16 && layer->gydt != AMP_BFLOAT16)
    return false;
  if (backward && (uintptr_t)layer->gy % (layer->gydt == AMP_FLOAT32 ? 8 : 4))
    return false; /* read in pairs: the caller's, or a part of something */
  if (!(backward ? share_behind(layer, &share) : share_ahead(layer, &share))) return false;
  if (amp__cuda_rnn == 3) return true;
  if (layer->dtype == AMP_FLOAT32) return true; /* instead of a product and a launch for the rest */
  const int64_t blocks = layer->h / 16 * tiles_of(layer, 1);
  return backward ? blocks > room_of() || blocks * layer->g >= 160000 : gates_of(layer) > 1;
}

int amp_rnn_ahead_all(const amp_rnn *layer)
{
  amp_rnn_share share;
  share_ahead(layer, &share);
  int rc = fill(layer->y, ABSENT & 0xff, layer->rows * layer->h * amp__dtype_size[layer->dtype]);
  if (rc == 0)
    rc = layer->dtype == AMP_FLOAT32    ? ahead_gates<AMP_FLOAT32>(layer, &share)
         : layer->dtype == AMP_BFLOAT16 ? ahead_gates<AMP_BFLOAT16>(layer, &share)
                                        : ahead_gates<AMP_FLOAT16>(layer, &share);
  return rc;
}

int amp_rnn_behind_all(const amp_rnn *layer, char *dh0)
{
  amp_rnn_share share;
  amp_tensor *scratch = NULL;
  share_behind(layer, &share);
  int rc = fill(layer->mode == AMP_RNN_GRU ? layer->dgh : layer->dg, ABSENT & 0xff,
                layer->rows * layer->g * amp__dtype_size[layer->dtype]);
  if (rc == 0) { /* two steps' sums */
    const int64_t bytes
        = 2 * layer->h / BACK_COLS * tiles_of(layer, share.rows) * share.parts * share.rows * 16 * BACK_COLS * 4;
    if (!(scratch = amp__cuda_scratch((size_t)bytes))) return AMP_E_MEMORY;
    share.sums = (float *)amp__data(scratch);
    rc = fill(share.sums, 0, bytes);
  }
  if (rc == 0)
    rc = layer->dtype == AMP_FLOAT32    ? behind_gates<AMP_FLOAT32>(layer, &share, dh0)
         : layer->dtype == AMP_BFLOAT16 ? behind_gates<AMP_BFLOAT16>(layer, &share, dh0)
                                        : behind_gates<AMP_FLOAT16>(layer, &share, dh0);
  amp__free(scratch);
  return rc;
}
