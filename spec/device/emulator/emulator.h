/*
** emulator.h: what the emulator's parts share: fibers.cpp runs a launch, streams.cpp orders launches, emulator.cpp has
** the rest of the runtime.
*/
#ifndef EMU_EMULATOR_H
#define EMU_EMULATOR_H
#include <mutex>
#include "cuda_runtime.h"

enum { MAX_THREADS = 1024 };
extern std::recursive_mutex running; /* held while a launch or the streams' queues are worked on */
cudaError_t emu_fail(cudaError_t e); /* for cudaGetLastError */
bool emu_pinned(const void *p);
void emu_catch_up_all();
void launch_now(const std::function<void()> &f, dim3 grid, dim3 block, size_t shared);

#endif
