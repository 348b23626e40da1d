/*
** capture/inside.h: what a captured step has noted, for capture/note.c, which notes, and capture/capture.c,
** which begins, ends and replays.
*/
#ifndef AMP_CAPTURE_INSIDE_H
#define AMP_CAPTURE_INSIDE_H
#include "dispatch/op_builder.h"
#include "optim/optim.h"
#include "precision/scale.h"

typedef struct noted {
  amp_storage *storage;
  void *data;
  amp_tensor *leaf;
  int32_t bumps;
} noted; /* storage first: it is the key. data NULL: only changed; leaf: a parameter that lies there, counted */
typedef struct hyper {
  const amp_optim *optim;
  int ngroup;
  amp_tensor *cell;
  amp_hyper *sent;
  bool fresh;
} hyper;
typedef struct gradient {
  amp_tensor *leaf, *was, *left;
  bool cleared;
  int scale, origin;
} gradient; /* was: borrowed, compared only; left: when the step ends, counted; cleared: by the step, first of all;
               scale: which the left one carries, -1: none */
typedef struct scaling {
  amp_scaler *scaler;
  amp_tensor *cell, *last;
} scaling; /* scaler counted; cell: holds its scale in the step, NULL: the step updates it; last: what the last replay
              scaled by, or NULL */
typedef struct argument {
  amp_tensor *to;
  const amp_storage *from;
  const void *data;
  uint32_t mark, version, own;
} argument; /* what lies in the step's own tensor `to` (counted), at its version */
typedef struct shadow {
  amp_tensor *leaf, *copy;
  bool right;
} shadow; /* right: when the step ends, too */

struct amp_capture {
  amp_state *state;
  int device, index;
  amp_pool *pool;
  void *graph;
  amp_tensor *random;
  uint64_t draws, seed, offset; /* of one replay; the generator when the capture began */
  noted *notes;
  int nnoted, notes_cap; /* open addressing, cap a power of two */
  hyper *hypers;
  int nhyper;
  gradient *gradients;
  int ngradient, gradients_cap;
  shadow *shadows;
  int nshadow;
  argument *arguments;
  int nargument;
  scaling *scalings;
  int nscaling;
  int64_t casts, cached_casts;
  double talks; /* 0, or seconds that calls to other ranks in it may take */
  bool failed;  /* something could not be noted */
  bool reseeded;
  int other; /* something lies on another device of the type, counted from 1, which no replay works on; 0: nothing */
  bool ended;
};

#endif
