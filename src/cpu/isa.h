/* cpu/isa.h: the instruction sets that kernels are made for, by what the processor has and AMP_CPU_ISA allows. */
#ifndef AMP_CPU_ISA_H
#define AMP_CPU_ISA_H

enum amp_isa { AMP_ISA_BASELINE, AMP_ISA_AVX2, AMP_ISA_AVX512 };
int amp__cpu_isa(void);

#endif
