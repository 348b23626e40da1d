/*
** cpu/rows.h: sums and maps over contiguous runs, in float and in double, that
** normalisation, softmax and losses are made of. Runs are expected to sit in
** the first-level cache; callers combine their sums in double.
*/
#ifndef AMP_CPU_ROWS_H
#define AMP_CPU_ROWS_H
#include "cpu/kernel_help.h"

#define real float
#define NAME(x) x##_f32
#include "cpu/rows_list.h"

#define real double
#define NAME(x) x##_f64
#include "cpu/rows_list.h"

#endif
