/*
** autograd/autograd.h: nodes, edges, the gradients of leaves, and what a derivative sees.
** A function that returns amp_node* gives its caller one count unless it says "borrowed".
*/
#ifndef AMP_AUTOGRAD_AUTOGRAD_H
#define AMP_AUTOGRAD_AUTOGRAD_H
#include "base/ids.h"
#include "dispatch/dispatch.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct amp_edge { /* where a gradient goes; both NULL: nowhere */
  amp_node *node;         /* counted */
  amp_tensor *leaf;       /* counted */
  int32_t index;          /* output of node */
} amp_edge;

typedef struct amp_saved { /* a tensor backward needs */
  amp_tensor *tensor;      /* leaf itself, or an alias without history */
  amp_edge edge;           /* history it had (inputs); outputs use the node */
  uint32_t version;
} amp_saved;

/* As short as the node's most dimensions allow: size[] holds ndim values. */
typedef struct amp_shape {
  uint8_t dtype, ndim, device, device_index;
  int64_t size[AMP_MAX_DIM];
} amp_shape;

enum {
  AMP_N_FREED = 1,
  AMP_N_LUA = 2,
  AMP_N_SLICES = 4,
  AMP_N_CAST = 8,
  AMP_N_SHADOW = 16 /* saves its leaf, for the version */,
  AMP_N_SPENT = 32 /* what it saved gave way to what this backward makes of it, and no other can have it */,
  AMP_N_SCALED = 64 /* it multiplies by a loss scale: gradients behind it are those of a scaled loss */
};
enum { AMP_NODE_LUA = 0x7fff }; /* op of a node whose function lives in Lua */

/* A recorded op. Order of backward is seq, descending. */
struct amp_node {
  AMP_ATOMIC(int32_t) refs;
  int16_t op;
  uint8_t flags, nout;
  int32_t nin, nsaved;
  int16_t nslot, shape_bytes;
  int32_t bytes; /* of this allocation */
  int64_t seq;
  int64_t id;                /* Lua function's id */
  int64_t *hooks;            /* id of each output's hooks (0: none, -1: gone with a backward); NULL: none at all */
  amp_edge *edge;            /* [nin] */
  amp_saved *saved;          /* [nsaved]: nin + nout, of which only the row's are filled, or none at all */
  char *shapes;              /* [nin + nout], shape_bytes each: amp__shape_of */
  amp_slot *attrs;           /* [nslot] */
  struct amp_slices *slices; /* AMP_N_SLICES: an in-place op seen from the base */
};

/* The shape of input i, or of output i - nin. */
static inline amp_shape *amp__shape_of(const amp_node *node, int i)
{
  return (amp_shape *)(node->shapes + i * node->shape_bytes);
}

/* A gradient that a master has had is replaced by the next one; a value that it has still is copied before a change. */
enum amp_master { AMP_MASTER_NONE, AMP_MASTER_HAD, AMP_MASTER_HAS };
typedef struct amp_grad { /* a leaf's gradient, maybe 16-bit, maybe with a factor pending */
  amp_tensor *value;      /* NULL: none. Leaf's dtype once materialised */
  amp_tensor *factor;     /* float32 cell to be multiplied yet, NULL: 1 */
  amp_tensor
      *scale; /* the loss scale in it, counted, while origin says that there is one; NULL: its scaler's, or none */
  amp_check *check; /* last check of this value, counted; NULL: none */
  uint32_t version; /* of value's storage when checked */
  uint8_t visible;  /* value has been handed to the user */
  uint8_t master;   /* enum amp_master: what a master (precision/master.c) has of it */
  uint8_t origin;   /* enum amp_origin: of which backwards it is the sum, while its version is `made` */
  uint32_t made;    /* version of value's storage when amp last wrote it; another one: it was written elsewhere */
} amp_grad;

/* Where grad comes from; 0: from the user's hand, or his pointer, who says no more of it. */
static inline int amp__grad_origin(const amp_grad *grad)
{
  return grad->value && grad->made == amp__version(grad->value)
                 && !(grad->value->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN))
             ? grad->origin
             : 0;
}
/* amp changed the gradient's values (or their memory) itself, and the origin `before` is still theirs. */
static inline void amp__grad_from(amp_grad *grad, int before)
{
  AMP_ASSERT(grad->value != NULL);
  grad->origin = (uint8_t)before;
  grad->made = amp__version(grad->value);
}

/* Autograd side of a tensor. */
struct amp_ag {
  amp_tensor *self; /* borrowed */
  amp_node *node;
  int32_t index;
  amp_tensor *base;      /* a differentiable view's base, counted */
  uint32_t view_version; /* base storage's version that node is right for */
  int64_t hook;          /* id of hooks of a leaf, 0: none */
  int64_t ready;         /* id of who is told when a backward has given a leaf all that comes for it, 0: nobody */
  int32_t ready_at;      /* its place in the list of the backward that runs */
  amp_grad grad;
  amp_tensor *shadow;      /* low-precision copy, its storage's version tells stale aliases */
  uint32_t shadow_version; /* of self's storage that the shadow is right for */
  uint32_t shadow_stamp;   /* of the shadow's own storage, as it was filled */
  uint8_t shadow_is_model; /* it is a parameter that users see (precision/master.c) */
  uint8_t shadow_owned;    /* an optimizer keeps it: it stays when memory is short */
  amp_tensor *half_copy;   /* self in 16 bits, left by what made it, while self's storage is as it was then; the first
                              cast takes it */
  struct amp_float8_layer
      *float8;           /* what regions of 8 bits keep of a weight (precision/float8_layer.h); NULL: nothing */
  int64_t shadow_epoch;  /* region in which an exposed storage's shadow was filled */
  amp_ag *prev, *next;   /* list of droppable shadows; */
  amp_state *list_owner; /* whose list, NULL: none */
  amp_tensor *kept8, *kept8_largest; /* self, as a matrix transposed, in 8 bits, and what its scale is made of: what a
                                        product keeps for backward, for others of the same input; NULL: none */
  uint32_t kept8_version;            /* of self's storage, as it was then */
};
void amp__autograd_install(void); /* puts its functions into amp__hooks, as the next */
void amp__journal_install(void);
void amp__shadow_drop(amp_ag *ag);
amp_ag *amp__ag(amp_tensor *tensor);                  /* made at need; NULL with error */
int amp__edge_of(amp_tensor *tensor, amp_edge *edge); /* counted; regenerates a stale view's node */
int amp__check_inplace(const amp_tensor *tensor);     /* errors of an in-place op that is recorded */
int64_t amp__newest_node(void);
void amp__node_free(amp_node *node);                 /* drops one count */
void amp__node_release_saved(amp_node *node);        /* after backward */
void amp__node_spend(amp_node *node, uint32_t went); /* after a backward through those outputs */
bool amp__node_spent(const amp_node *node, uint32_t came);
amp_tensor *amp__saved_get(amp_node *node, int i,
                           bool with_history); /* with version check; i < nin inputs, then outputs */

/* Leaf gradients */
int amp__grad_fits(const amp_tensor *leaf, const amp_tensor *value); /* else an error: its data was replaced */
int amp__grad_accumulate(amp_tensor *leaf, amp_tensor *g,
                         bool may_keep);     /* g any float dtype; takes g's count where it gives 0 */
int amp__grad_materialize(amp_tensor *leaf); /* value float32 (leaf's dtype), factor none */
void amp__grad_clear(amp_tensor *leaf);
int amp__grad_adopt(amp_tensor *leaf, amp_tensor *value); /* value, counted anew, is the leaf's gradient; NULL: none */
void amp__check_retain(amp_check *check);
/* For the optimizer: found-inf cell of the leaf's valid check, NULL if none or void. Borrowed. */
amp_tensor *amp__check_cell(const amp_grad *grad);
/* Checked, and unchanged since */
static inline bool amp__check_valid(const amp_grad *grad)
{
  return grad->value && grad->check && grad->version == amp__version(grad->value);
}
static inline int amp__grad_drop_there(amp_tensor *leaf) { return amp__hooks.grad_drop_there(leaf); }
static inline bool amp__grad_dropped(amp_tensor *leaf, bool wait) { return amp__hooks.grad_dropped(leaf, wait); }

/* -- Journals (autograd/journal.c) ------------------------------------------------- */

#ifndef __cplusplus
int amp__journal_note(const amp_tensor *tensor); /* now, so that a change of tensor after others takes no memory */
#endif

/* -- Derivatives (autograd/engine.c calls FAMILY_derivative.c of ops) -------------------------- */

/* What a derivative sees. Gradients and saved tensors are borrowed; results go to grad_in, from the pool. */
struct amp_bwd {
  amp_node *node;
  int nin, nout;
  const amp_slot *attrs;
  amp_tensor *grad[AMP_MAX_OUT]; /* NULL: zero; at least one is there */
  amp_tensor **grad_in;          /* [nin], NULL: none */
  bool create_graph;
  bool may_alias; /* grad_in[0] may be a tensor that others hold: only a derivative reads it */
  bool any_dtype; /* grad_in[0] may have any float dtype: its only reader takes it so */
  /* Instead of grad_in[0] a view's derivative may give the gradient of some elements of input 0, of these strides, as
  ** if the input were contiguous. */
  bool takes_part;
  amp_tensor *part;
  int64_t part_stride[AMP_MAX_DIM], part_offset;
  /* What came for input 0 so far, in its shape and dtype, or NULL. A derivative that adds it to grad_in[0] as it goes
  ** along sets `summed`, and leaves `sum` itself as it is. */
  amp_tensor *sum;
  bool summed;
  bool last; /* the node's saved tensors are freed after this */
  struct amp_deferred_wgrad *
      *later; /* where products may be left for the end of the backward (autograd/deferred_wgrad.c); NULL: nowhere */
  bool accumulates; /* leaves' gradients are added to, all of them (amp__grad_to_add) */
  uint32_t
      stays; /* bits of inputs, leaves of float32, whose gradients may stay in the 16 bits that they are given in */
};
/* one derivative per K and V row: int amp__bwd_NAME(amp_bwd *b) */

#ifdef __cplusplus
}
#endif
#endif
