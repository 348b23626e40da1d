/*
** amp_cudnn.h: graphs of operations for cuDNN, through its backend API in C.
**
**   amp__dnn_begin -> amp__dnn_tensor, operations -> amp__dnn_make: candidates from
**   the heuristics, filtered, timed -> amp_dnn_plan -> amp__dnn_execute
**
** Everything of a graph is a descriptor (here a node). The first call that fails
** makes the graph fail; the later ones do nothing, so builders need no checks. A
** plan is made once for a key and kept for the life of the process; that there is
** none is remembered as well. All is done between amp__dnn_enter and amp__dnn_leave.
** Without cuDNN's headers, or in the emulator, amp__dnn_enter says no.
*/
#ifndef AMP_CUDNN_H
#define AMP_CUDNN_H
#include "cuda.h"
#if defined(AMP_HAVE_CUDNN) && !defined(AMP_EMULATED)
#define AMP_DNN 1
#include <cudnn_graph.h>
#endif

extern int
    amp__cuda_cudnn; /* 0: never asked, 1: where it is worth it, 2: always; the environment may say (AMP_CUDNN) */
const char *amp__cuda_dnn_info(void); /* its version, or why it is not there */

#ifdef AMP_DNN
enum { AMP_DNN_NODES = 128, AMP_DNN_OPS = 32, AMP_DNN_POINTERS = 16 };

typedef struct amp_dnn_graph {
  void *node[AMP_DNN_NODES], *op[AMP_DNN_OPS];
  int nnode, nop;
  const char *failed; /* what did, NULL: nothing */
  int status;
} amp_dnn_graph;

typedef struct amp_dnn_job { /* what a plan runs on, and how it may be chosen */
  int n;
  int64_t id[AMP_DNN_POINTERS];
  void *pointer[AMP_DNN_POINTERS];
  bool exact;           /* float32 stays float32: no TF32 */
  bool fixed;           /* nothing is timed: the first candidate that works */
  int (*rival)(void *); /* timed as well, NULL: none; if it wins the plan is not usable */
  void *rival_data;
} amp_dnn_job;

typedef struct amp_dnn_plan {
  void *key;
  size_t nkey;
  enum { AMP_DNN_NEW, AMP_DNN_USABLE, AMP_DNN_NONE } state;
  void *plan, *config;
  int64_t workspace;
  float ms;  /* timed, <0: not */
  int calls; /* what a caller counts before it makes it, */
  void *own; /* and memory that it keeps with it */
} amp_dnn_plan;

int amp__dnn_version(void); /* 91400: 9.14.0; 0: there is none */
/* Is cuDNN there? Then this thread has it, with the stream of the device entered. */
bool amp__dnn_enter(void);
void amp__dnn_leave(void);

/* -- Plans ------------------------------------------------------------------------- */
amp_dnn_plan *amp__dnn_find(const void *key, size_t n, bool make); /* NULL: there is none (make: no memory) */
void amp__dnn_make(amp_dnn_plan *p, amp_dnn_graph *g,
                   const amp_dnn_job *j);                          /* g goes; p is usable afterwards or never will be */
int amp__dnn_execute(const amp_dnn_plan *p, const amp_dnn_job *j); /* 0; 1: it failed; 2: no memory for its workspace */

/* -- Graphs ------------------------------------------------------------------------- */
void amp__dnn_begin(amp_dnn_graph *g);
void *amp__dnn_node(amp_dnn_graph *g, cudnnBackendDescriptorType_t type);
void amp__dnn_set(amp_dnn_graph *g, void *node, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t n, const void *v);
void amp__dnn_finish(amp_dnn_graph *g, void *node);
void amp__dnn_operation(amp_dnn_graph *g, void *node); /* finish it as an operation of the graph */
/* inner: it lies between two operations and has no memory. align: bytes that divide its address */
void *amp__dnn_tensor(amp_dnn_graph *g, int64_t id, int dtype, int ndim, const int64_t *size, const int64_t *stride,
                      int align, bool inner);
enum { AMP_DNN_FORWARD, AMP_DNN_DATA, AMP_DNN_FILTER };
/* x, w and y as of the forward direction; all sums in float32 */
void amp__dnn_convolution(amp_dnn_graph *g, int kind, void *x, void *w, void *y, int spatial, const int64_t *stride,
                          const int64_t *padding, const int64_t *dilation);
void amp__dnn_pointwise(amp_dnn_graph *g, cudnnPointwiseMode_t mode, void *x, void *b,
                        void *y); /* b NULL: of one operand */
/* `compute`: a dtype; axis: of GEN_INDEX, else <0; t: the condition of BINARY_SELECT, else NULL */
void amp__dnn_pointwise_of(amp_dnn_graph *g, cudnnPointwiseMode_t mode, int compute, int axis, void *x, void *b,
                           void *t, void *y);
/* rows, columns, terms: how many of each, a number for each batch in a tensor, else NULL */
void amp__dnn_matmul(amp_dnn_graph *g, void *a, void *b, void *c, void *rows, void *columns, void *terms);
void amp__dnn_reduce(amp_dnn_graph *g, cudnnReduceTensorOp_t op, void *x, void *y);
void amp__dnn_reshape(amp_dnn_graph *g, void *x, void *y);
void *amp__dnn_number(amp_dnn_graph *g, int64_t id); /* a float32 of the host: a job's pointer leads to it */
#endif
#endif
