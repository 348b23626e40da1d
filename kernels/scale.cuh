/*
** scale.cuh: what the scaler's and the optimizers' launches share: the found-inf
** cells as an argument, and the device that a cell lies on.
*/
#ifndef AMP_SCALE_CUH
#define AMP_SCALE_CUH
#include "kernel.cuh"

enum { AMP_FOUND_MOST = 16 };
typedef struct amp_found_list { int32_t n; const float *cell[AMP_FOUND_MOST]; } amp_found_list;

/* Enter the device that p lies on; NULL with error */
amp_cuda_device *amp_device_of(const void *p);
/* n cells as an argument; more than fit are joined into a cell that the caller frees once the launch is queued */
amp_tensor *amp_found_pack(amp_found_list *f, const float *const *found, int n, int *rc);

#endif
