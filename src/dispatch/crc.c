/*
** dispatch/crc.c: CRC-32 of files (the polynomial of zip, gzip and PNG), eight bytes
** a step by eight tables, which the first call fills.
*/
#include <pthread.h>
#include "core.h"

static uint32_t table[8][256];

static void make_table(void)
{
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
    table[0][i] = c;
  }
  for (int t = 1; t < 8; t++)
    for (int i = 0; i < 256; i++) table[t][i] = (table[t - 1][i] >> 8) ^ table[0][table[t - 1][i] & 255];
}

static uint32_t word(const unsigned char *p)
{
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t amp_crc32(uint32_t crc, const void *data, size_t bytes)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const unsigned char *p = data;
  if (p == NULL || bytes == 0) return crc;
  pthread_once(&once, make_table);
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint32_t a = crc ^ word(p), b = word(p + 4);
    crc = table[7][a & 255] ^ table[6][a >> 8 & 255] ^ table[5][a >> 16 & 255] ^ table[4][a >> 24] ^ table[3][b & 255]
          ^ table[2][b >> 8 & 255] ^ table[1][b >> 16 & 255] ^ table[0][b >> 24];
  }
  while (bytes--) crc = table[0][(crc ^ *p++) & 255] ^ (crc >> 8);
  return ~crc;
}
