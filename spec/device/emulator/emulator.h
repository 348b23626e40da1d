/*
** emulator.h: what the emulator's two halves share: fibers.cpp runs a launch, emulator.cpp is the runtime that orders
** launches.
*/
#ifndef EMU_EMULATOR_H
#define EMU_EMULATOR_H
#include <mutex>
#include "cuda_runtime.h"

enum { MAX_THREADS = 1024 };
extern std::recursive_mutex running; /* held while a launch or the streams' queues are worked on */
void launch_now(const std::function<void()> &f, dim3 grid, dim3 block, size_t shared);

#endif
