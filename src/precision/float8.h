/*
** precision/float8.h: regions of 8 bits. A layer is a weight: of it are kept its 8-bit copies, right for one version,
*and
** the largest |x| that its inputs and gradients had in earlier steps.
*/
#ifndef AMP_PRECISION_FLOAT8_H
#define AMP_PRECISION_FLOAT8_H
#include "autograd/autograd.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { AMP_REGION_FLAG = 1 }; /* the bit of an autocast_state's bytes that says yes */
enum amp_float8_kind { AMP_FLOAT8_INPUT, AMP_FLOAT8_GRADIENT, AMP_FLOAT8_WEIGHT, AMP_FLOAT8_KINDS };
enum { AMP_FLOAT8_HISTORIES = AMP_FLOAT8_WEIGHT, AMP_FLOAT8_LATE = 8 }; /* steps whose backward may still come */

/* What a region has in an autocast_state. */
static inline int amp__float8_recipe(const amp_autocast_state *region)
{
  return region->enabled ? region->cache >> 2 & 3 : AMP_FLOAT8_NONE;
}
static inline int amp__float8_window(const amp_autocast_state *region)
{
  return region->verbose >> 1 | region->cache >> 4 << 7;
}

typedef struct amp_float8_layer {
  struct amp_float8_layer *next; /* in the table of all */
  int64_t id;                    /* of the weight */
  amp_tensor *leaf;              /* it, borrowed */
  /* Copies whose rows lie along the weight's second dimension, and along its first; and what their scales are made of
   */
  amp_tensor *copy[2], *largest[2];
  bool block; /* the copies have a scale a piece */
  uint32_t version;
  int64_t epoch; /* the region that filled them: of exposed storage they are right in it only */
  amp_tensor *history[AMP_FLOAT8_HISTORIES]; /* [room], the latest step first; NULL: none */
  int64_t *step[AMP_FLOAT8_HISTORIES];       /* [room], the steps that these are of; 0: none */
  int room[AMP_FLOAT8_HISTORIES];
  amp_tensor *counts[AMP_FLOAT8_KINDS];
} amp_float8_layer;

bool amp__float8_lock(void); /* whether it took it: to be given to unlock */
void amp__float8_unlock(bool took);
/* Of a weight, made at need: NULL with error. Of an id: NULL where none is. */
amp_float8_layer *amp__float8_layer_of(amp_tensor *leaf);
amp_float8_layer *amp__float8_layer_find(int64_t id);
void amp__float8_free(amp_ag *ag);
int amp__float8_drop_copies(int device); /* of a kind of device, -1: of all; how many */
/* The place of a step in a history of which `window` steps are read, or -1: it is the next. write: it gets a place, and
** *shift says whether the others move up first. Makes the history at need. <-1: an error. */
int amp__float8_place(amp_float8_layer *layer, int kind, int64_t step, int window, bool write, bool *shift);

void amp__float8_stepped(amp_tensor *leaf);    /* of a weight with a layer */
bool amp__float8_wanted(const amp_call *call); /* an 8-bit region has a say in the op */
int amp__float8_run(amp_call *call);           /* runs it in 8 bits and sets call->done; or leaves it as it is */

#ifdef __cplusplus
}
#endif
#endif
