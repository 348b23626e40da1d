/*
** cpu/convert.h: elements in bulk, between any dtype and a compute class.
**
** Kernels exist per compute class only: float32 for the 16- and 32-bit floats,
** float64, int64 for integers and bool, and uint8 (0 or 1) for truth values.
** Loading widens exactly or rounds to nearest even, storing rounds to nearest
** even (floats), wraps (integers) or tests for non-zero (bool). A float that an
** integer cannot hold is stored as 0: amp__first_misfit says so beforehand.
*/
#ifndef AMP_CPU_CONVERT_H
#define AMP_CPU_CONVERT_H
#include "core.h"

enum amp_class { AMP_C_F32, AMP_C_F64, AMP_C_I64, AMP_C_U8 };
extern const uint8_t amp__class_size[4];
extern const uint8_t amp__class_dtype[4];               /* the dtype that needs no conversion */
extern const uint8_t amp__dtype_class[AMP_DTYPE_COUNT]; /* bool counts as an integer */

/* count elements, `stride` elements apart in memory, to or from a dense array of a class */
void amp__load(int cls, void *dst, int dtype, const void *src, int64_t stride, int64_t count);
void amp__store(int dtype, void *dst, int64_t stride, int cls, const void *src, int64_t count);
/* Elements of 1, 2, 4 or 8 bytes moved unchanged; strides in elements */
void amp__move(int esize, void *dst, int64_t dstride, const void *src, int64_t sstride, int64_t count);

void amp__halves_to_floats(float *dst, const uint16_t *src, int64_t count);
void amp__floats_to_halves(uint16_t *dst, const float *src, int64_t count);
void amp__bf16s_to_floats(float *dst, const uint16_t *src, int64_t count);
void amp__floats_to_bf16s(uint16_t *dst, const float *src, int64_t count);
void amp__portable_halves_to_floats(float *dst, const uint16_t *src, int64_t count); /* the same without intrinsics */
void amp__portable_floats_to_halves(uint16_t *dst, const float *src, int64_t count);

/* The first of `count` floats (class F32 or F64) that does not fit integer dtype; count if all do. bool takes all. */
int64_t amp__first_misfit(int dtype, int cls, const void *src, int64_t count);

#endif
