/*
** base/device.c: the tables that devices fill (base/device.h), and their names.
*/
#include "base/device.h"

amp_device_ops amp__devices[AMP_DEVICE_COUNT];

const char *amp_device_name(int device)
{
  static const char *const names[AMP_DEVICE_COUNT] = { "cpu", "cuda" };
  return device >= 0 && device < AMP_DEVICE_COUNT ? names[device] : "no device";
}
