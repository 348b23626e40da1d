/*
** cuda_chain.h: elementwise rows that become one kernel, generated and compiled while the program runs.
**
**   cuda_chain.c    notes what the rows would compute, says it as a kernel's text, keeps what was compiled, launches it
**   cuda_compile.c  NVRTC and the folder that keeps what it made
**   cuda_module.c   compiled code on a card: the driver's functions
**   kernels/elementwise/chain.cuh  what all such kernels share; chain.cu: how their operands lie
**
** A row's own function (amp__cuda_NAME) runs with amp__chain_record set: it looks at the call as ever, chooses type and
** formula, and amp_ew_run (elementwise.cuh) notes them here in place of a launch. So what a row computes in a chain is
** said where it is said for a launch of its own, and a new row needs nothing here.
*/
#ifndef AMP_CUDA_CHAIN_H
#define AMP_CUDA_CHAIN_H
#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  AMP_CHAIN_STEPS = 24,
  AMP_CHAIN_OPERANDS = 3,
  AMP_CHAIN_INPUTS = 14,  /* different tensors that are read */
  AMP_CHAIN_NUMBERS = 24, /* values of the host */
  AMP_CHAIN_PART = 64     /* bytes of a functor */
};
enum amp_chain_from { AMP_CHAIN_INPUT, AMP_CHAIN_NUMBER, AMP_CHAIN_MADE };

typedef struct amp_chain_step {
  char functor[48]; /* its name in generated text, */
  size_t bytes;     /* and what it has in memory: */
  unsigned char part[AMP_CHAIN_PART];
  const char *type;   /* in which it computes */
  bool lengthy;       /* its code is too long to be there eight times */
  uint8_t dtype, nin; /* dtype: of its result */
  struct {
    uint8_t from, at; /* amp_chain_from; the number of the input, the value or the step */
  } operand[AMP_CHAIN_OPERANDS];
} amp_chain_step;

typedef struct amp_chain_number {
  double v;
  int64_t i;
} amp_chain_number;

typedef struct amp_chain {
  amp_call *call; /* whose results, out[0], are those of steps */
  int steps, inputs, numbers;
  bool unfit; /* can't be said */
  amp_chain_step step[AMP_CHAIN_STEPS];
  amp_tensor *input[AMP_CHAIN_INPUTS];
  amp_chain_number number[AMP_CHAIN_NUMBERS];
} amp_chain;

amp_kernel_fn amp__cuda_row(int op);                                  /* its own function (cuda_device.c) */
static inline amp_chain_number amp__chain_number(const amp_tensor *t) /* the value of one of the host's */
{
  amp_chain_number n;
  n.v = amp__value_get(amp__data(t), t->dtype);
  n.i = t->dtype == AMP_INT64 ? *AMP_DATA(int64_t, t) : n.v >= -9.2e18 && n.v <= 9.2e18 ? (int64_t)n.v : 0;
  return n;
}
extern __thread amp_chain *amp__chain_record; /* NULL: rows launch */
/* The next step, but for its functor; NULL: there is no room, or this call is none of the chain's */
amp_chain_step *amp__chain_step(const char *type, const amp_tensor *out, amp_tensor *const *in, int nin);

extern int
    amp__cuda_generated; /* chains are compiled (on unless switched off; in the emulator off unless switched on) */
int amp__cuda_chain_run(int index, amp_call *call, int count, char *why, size_t room);
const char *amp__cuda_chain_info(void); /* what compiles, or why nothing does; and what was compiled */

/* -- Compiling (cuda_compile.c) ---------------------------------------------------- */

typedef struct amp_code {
  void *data; /* to be freed */
  size_t bytes;
  bool kept; /* it comes from the folder */
} amp_code;
/* Machine code of this text for a card of compute capability cc (times 10): from the folder (not if it must be fresh),
** or compiled. False: it can't be had. why: what has not been told yet, also of the folder where the code is there */
bool amp__compile(const char *text, int cc, bool fresh, amp_code *code, char *why, size_t room);
const char *amp__compile_info(void);            /* NVRTC's version, or why there is none */
extern const char *const amp__chain_texts[][2]; /* names and texts of what generated text includes; NULL ends it */

/* -- Loading (cuda_module.c; of the emulator, spec/device/emulator) ------------------- */

typedef struct amp_module amp_module; /* a chain's two kernels on a card: 0 wide, 1 any */
amp_module *amp__module_load(const amp_code *code, const char *text, char *why, size_t room);
/* arguments: pointers to what the kernel takes, with their sizes */
/* <0: error */
int amp__module_launch(amp_module *module, int kernel, unsigned grid, unsigned block, void *const *arguments,
                       const size_t *sizes, int n);

/* -- How operands lie (kernels/elementwise/chain.cu) ----------------------------------- */

enum { AMP_CHAIN_PLACES = 2048 };
/* Fills what the kernels take first, of *bytes; true: for the wide one */
bool amp__chain_places(const amp_chain *chain, amp_tensor *result, void *places, size_t *bytes);
unsigned amp__chain_grid(int64_t n, int64_t per);

#ifdef __cplusplus
}
#endif
#endif
