/*
** cuda_core.h: the way to the core, for the host rooms of the CUDA plug-in.
*/
#ifndef AMP_CUDA_CORE_H
#define AMP_CUDA_CORE_H
#include "cuda.h"

extern const amp_core_api *amp__cuda_api;

#endif
