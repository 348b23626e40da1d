/*
** ops/conv/conv_image.c: padded copies of parts of images (ops/conv/conv_image.h): which
** phases of the stride taps read, how large a part is, and the copying.
*/
#include "ops/conv/conv_image.h"

/* -- Plan ----------------------------------------------------------------------------- */

enum { IMAGE = 384 << 10 }; /* bytes of a part's copy that are aimed at: a third of a usual L2 cache */

static int64_t floor_div(int64_t value, int64_t divisor)
{
  int64_t q = value / divisor;
  return q * divisor > value ? q - 1 : q;
}

/* A tap's place over the stride, and its phase */
static int64_t split(const conv_direct *direct, int64_t t, int64_t *place)
{
  const int64_t at[3] = { direct->tap[t].d, direct->tap[t].h, direct->tap[t].w };
  int64_t phase = 0;
  for (int i = 0; i < 3; i++) {
    place[i] = floor_div(at[i], direct->step[i]);
    phase = phase * direct->step[i] + at[i] - place[i] * direct->step[i];
  }
  return phase;
}

/* Phases, least places, reaches. false: too many phases */
static bool survey(conv_image_plan *plan)
{
  const conv_direct *direct = plan->direct;
  bool used[CONV_PHASES] = { false };
  int64_t place[3], phases = direct->step[0] * direct->step[1] * direct->step[2];
  if (direct->step[0] > CONV_PHASES || direct->step[1] > CONV_PHASES || direct->step[2] > CONV_PHASES
      || phases > CONV_PHASES)
    return false;
  for (int64_t t = 0; t < direct->taps; t++) {
    used[split(direct, t, place)] = true;
    for (int i = 0; i < 3; i++) {
      if (t == 0) {
        plan->low[i] = place[i];
        plan->reach[i] = 0;
      } else if (place[i] < plan->low[i]) {
        plan->reach[i] += plan->low[i] - place[i];
        plan->low[i] = place[i];
      } else if (place[i] - plan->low[i] > plan->reach[i]) plan->reach[i] = place[i] - plan->low[i];
    }
  }
  for (int64_t f = 0; f < phases; f++)
    if (used[f]) plan->phase[plan->phases++] = (int8_t)f;
  AMP_ASSERT(plan->phases <= CONV_PHASES);
  return true;
}

static void size_parts(conv_image_plan *plan)
{
  const conv_direct *direct = plan->direct;
  for (int i = 0; i < 3; i++) plan->part[i] = direct->out[i];
  for (;;) {
    int64_t n = plan->lines * plan->phases * plan->bytes;
    for (int i = 0; i < 3; i++) n *= plan->part[i] + plan->reach[i];
    if (n <= IMAGE) break;
    if (plan->part[0] > 1 && plan->part[0] > plan->reach[0]) plan->part[0] = (plan->part[0] + 1) / 2;
    else if (plan->part[1] > 4 && plan->part[1] > plan->reach[1]) plan->part[1] = (plan->part[1] + 1) / 2;
    else if (plan->part[2] > 256 && plan->part[2] > 4 * plan->reach[2]) plan->part[2] = (plan->part[2] + 1) / 2;
    else break;
  }
  plan->plane = 1;
  for (int i = 0; i < 3; i++) {
    plan->parts[i] = (direct->out[i] + plan->part[i] - 1) / plan->part[i];
    plan->len[i] = plan->part[i] + plan->reach[i];
    plan->plane *= plan->len[i];
  }
}

bool conv_plan(conv_image_plan *plan, const conv_direct *direct, int kind)
{
  *plan = (conv_image_plan){ .direct = direct, .kind = kind, .bytes = kind == CONV_HALVES ? 2 : 4 };
  plan->lines = kind == CONV_PAIRS ? (direct->channels + 1) / 2 : direct->channels;
  plan->inner = plan->lines * direct->taps;
  if (!survey(plan)) return false;
  size_parts(plan);
  plan->pixels = (plan->part[1] - 1) * plan->len[2] + plan->part[2];
  plan->units = direct->images * direct->groups * plan->parts[0] * plan->parts[1] * plan->parts[2];
  int64_t all = plan->lines * plan->phases * plan->plane;
  plan->image_bytes = ((size_t)(all + CONV_SLACK) * plan->bytes + 63) / 64 * 64;
  return all <= INT32_MAX / 4;
}

void conv_offsets(const conv_image_plan *plan, int32_t *off)
{
  for (int64_t c = 0, i = 0; c < plan->lines; c++)
    for (int64_t t = 0; t < plan->direct->taps; t++, i++) {
      int64_t place[3], phase = split(plan->direct, t, place), f = 0;
      while (plan->phase[f] != phase) f++;
      AMP_ASSERT(f < plan->phases);
      for (int k = 0; k < 3; k++) place[k] -= plan->low[k];
      off[i] = (int32_t)((c * plan->phases + f) * plan->plane + (place[0] * plan->len[1] + place[1]) * plan->len[2]
                         + place[2]);
    }
}

conv_unit conv_unit_of(const conv_image_plan *plan, int64_t i)
{
  int64_t per = plan->parts[0] * plan->parts[1] * plan->parts[2], q = i % per, groups = plan->direct->groups;
  conv_unit unit = { i / (groups * per), i / per % groups, { 0 }, { 0 } };
  unit.first[0] = q / (plan->parts[1] * plan->parts[2]) * plan->part[0];
  unit.first[1] = q / plan->parts[2] % plan->parts[1] * plan->part[1];
  unit.first[2] = q % plan->parts[2] * plan->part[2];
  for (int k = 0; k < 3; k++)
    unit.size[k]
        = plan->direct->out[k] - unit.first[k] < plan->part[k] ? plan->direct->out[k] - unit.first[k] : plan->part[k];
  return unit;
}

/* -- A part ------------------------------------------------------------------------- */

/* Places [low, high) of n that i * step + first puts inside a dimension of `size` */
static void inside(int64_t n, int64_t first, int64_t step, int64_t size, int64_t *low, int64_t *high)
{
  *low = first < 0 ? (-first + step - 1) / step : 0;
  *high = first >= size ? 0 : (size - first + step - 1) / step;
  if (*high > n) *high = n;
  if (*low > *high) *low = *high;
}

AMP_CLONES static void interleave(uint16_t *dst, const uint16_t *first, const uint16_t *second, int64_t step, int64_t n)
{
  if (step == 1)
    for (int64_t i = 0; i < n; i++) {
      dst[2 * i] = first[i];
      dst[2 * i + 1] = second[i];
    }
  else
    for (int64_t i = 0; i < n; i++) {
      dst[2 * i] = first[i * step];
      dst[2 * i + 1] = second[i * step];
    }
}

static void copy_line(const conv_image_plan *plan, char *to, const char *from, int64_t step, int64_t n, bool second)
{
  const conv_direct *direct = plan->direct;
  if (n <= 0) return;
  if (plan->kind == CONV_HALVES) amp__move(2, to, 1, from, step, n);
  else if (plan->kind == CONV_PAIRS && second)
    interleave((uint16_t *)to, (const uint16_t *)from, (const uint16_t *)from + direct->src_channel, step, n);
  else if (plan->kind == CONV_PAIRS)
    for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = ((const uint16_t *)from)[i * step];
  else if (direct->src_dtype == AMP_FLOAT32 && step == 1) memcpy(to, from, (size_t)n * 4);
  else amp__load(AMP_C_F32, to, direct->src_dtype, from, step, n);
}

void conv_fill(const conv_image_plan *plan, const conv_unit *unit, char *copy)
{
  const conv_direct *direct = plan->direct;
  int64_t bytes = amp__dtype_size[direct->src_dtype], width = plan->len[2], elem_bytes = plan->bytes,
          all = plan->lines * plan->phases * plan->plane;
  const char *src = (const char *)direct->src
                    + (unit->image * direct->src_image + unit->group * direct->channels * direct->src_channel) * bytes;
  AMP_ASSERT((size_t)(all * elem_bytes) <= plan->image_bytes);
  memset(copy + all * elem_bytes, 0, plan->image_bytes - (size_t)(all * elem_bytes));
  for (int64_t c = 0; c < plan->lines; c++)
    for (int64_t f = 0; f < plan->phases; f++) {
      int64_t h = plan->phase[f],
              r[3]
              = { h / (direct->step[1] * direct->step[2]), h / direct->step[2] % direct->step[1], h % direct->step[2] },
              first[3], low, high;
      char *to = copy + (c * plan->phases + f) * plan->plane * elem_bytes;
      bool second = plan->kind == CONV_PAIRS && 2 * c + 1 < direct->channels;
      const char *plane = src + (plan->kind == CONV_PAIRS ? 2 * c : c) * direct->src_channel * bytes;
      for (int i = 0; i < 3; i++) first[i] = (unit->first[i] + plan->low[i]) * direct->step[i] + r[i];
      inside(width, first[2], direct->step[2], direct->in[2], &low, &high);
      for (int64_t l = 0; l < plan->len[0] * plan->len[1]; l++, to += width * elem_bytes) {
        int64_t z = first[0] + l / plan->len[1] * direct->step[0], y = first[1] + l % plan->len[1] * direct->step[1];
        if (z < 0 || z >= direct->in[0] || y < 0 || y >= direct->in[1] || high == low) {
          memset(to, 0, (size_t)(width * elem_bytes));
          continue;
        }
        const char *from = plane
                           + (z * direct->src_axis[0] + y * direct->src_axis[1]
                              + (first[2] + low * direct->step[2]) * direct->src_axis[2])
                                 * bytes;
        if (low > 0) memset(to, 0, (size_t)(low * elem_bytes));
        copy_line(plan, to + low * elem_bytes, from, direct->step[2] * direct->src_axis[2], high - low, second);
        if (high < width) memset(to + high * elem_bytes, 0, (size_t)((width - high) * elem_bytes));
      }
    }
}
