/* The inner loops of resizing, for any processor: compilers make vector code of them where they
   can. */

#include <string.h>

#include "kernel.h"

static void across(const uint8_t *row, uint8_t *out, const struct weights *weights,
                   const int16_t *wide) {
  (void)wide;
  int32_t half = 1 << (weights->precision - 1);
  const int16_t *weight = weights->weight;
  for (int n = 0; n < weights->count; n++, weight += weights->taps, out += 3) {
    const uint8_t *at = row + 4 * (ptrdiff_t)weights->first[n];
    int32_t red = half, green = half, blue = half;
    for (int tap = 0; tap < weights->taps; tap++, at += 4) {
      red += at[0] * weight[tap];
      green += at[1] * weight[tap];
      blue += at[2] * weight[tap];
    }
    out[0] = (uint8_t)(red >> weights->precision);
    out[1] = (uint8_t)(green >> weights->precision);
    out[2] = (uint8_t)(blue >> weights->precision);
  }
}

static void down(const uint8_t *rows, ptrdiff_t step, const int16_t *weight, int taps, int precision,
                 uint8_t *out, int size) {
  enum { BLOCK = 64 };
  for (int begin = 0; begin < size; begin += BLOCK) {
    int32_t sums[BLOCK];
    int count = size - begin < BLOCK ? size - begin : BLOCK;
    for (int n = 0; n < BLOCK; n++) sums[n] = 1 << (precision - 1);
    for (int tap = 0; tap < taps; tap++) {
      const uint8_t *row = rows + begin + tap * step;
      for (int n = 0; n < BLOCK; n++) sums[n] += row[n] * weight[tap]; /* SLACK is as much */
    }
    for (int n = 0; n < count; n++) out[begin + n] = (uint8_t)(sums[n] >> precision);
  }
}

static void narrow(const uint8_t *row, uint8_t *out, int count) {
  for (int n = 0; n < count; n++, row += 4, out += 3) memcpy(out, row, 4);
}

const struct rows plain_rows = {across, down, narrow, 2};
