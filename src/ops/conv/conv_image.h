/*
** ops/conv/conv_image.h: padded copies of parts of images, in which every tap of
** every output pixel lies at a fixed distance from it:
**
**   copy[channel][phase][z][y][x], one phase for each remainder of a place by
**   the stride that some tap has; output pixel i = y * width + x of plane z
**   reads copy[z * height * width + i + off[channel, tap]]
**
** Elements of a copy are floats, bfloat16 as it is, or pairs of bfloat16: two
** channels side by side. Behind it stands room to read a vector or two.
*/
#ifndef AMP_CPU_CONV_IMAGE_H
#define AMP_CPU_CONV_IMAGE_H
#include "ops/conv/conv.h"

enum { CONV_PHASES = 64, CONV_SLACK = 128 };
enum { CONV_FLOATS, CONV_HALVES, CONV_PAIRS };

typedef struct conv_image_plan {
  const conv_direct *direct;
  int kind, bytes;                  /* of an element */
  int64_t low[3], reach[3];         /* least place of a tap over the stride; the greatest less that */
  int64_t part[3], parts[3], units; /* output sizes of a part, parts; of all images and groups */
  int64_t len[3], phases, plane;    /* sizes of a phase; phases that taps read; elements of one */
  int8_t phase[CONV_PHASES];        /* of those: remainders as one number */
  int64_t lines, inner, pixels;     /* channels (or pairs) of a copy; lines times taps; of a plane of a part */
  size_t image_bytes;               /* of a copy with its slack */
} conv_image_plan;

/* One unit: image, group and part; `first` its first output place, `size` its output sizes */
typedef struct conv_unit {
  int64_t image, group, first[3], size[3];
} conv_unit;

bool conv_plan(conv_image_plan *plan, const conv_direct *direct, int kind); /* false: not for copies */
void conv_offsets(const conv_image_plan *plan, int32_t *off);               /* k of them */
conv_unit conv_unit_of(const conv_image_plan *plan, int64_t i);
void conv_fill(const conv_image_plan *plan, const conv_unit *unit, char *copy);

#endif
