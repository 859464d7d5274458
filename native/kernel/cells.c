/* From coefficients to pixels, by the arithmetic of libjpeg (jidctint.c, jidctred.c, jdsample.c,
   jdcolor.c), whose results these are, bit by bit.

   This is for any processor; compilers make vector code of it where they can. */

#include "cells.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { BITS = 13, MORE_BITS = 2 };

INLINE uint8_t limited(int32_t value) {
  value += 128;
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

#define DESCALED(value, bits) (((value) + (1 << ((bits)-1))) >> (bits))

/* One pass over eight columns, side by side. */
static void invert_once(int32_t v[8][8], int bits) {
  for (int n = 0; n < 8; n++) {
    int32_t z1 = (v[2][n] + v[6][n]) * 4433, t2 = z1 - v[6][n] * 15137, t3 = z1 + v[2][n] * 6270;
    int32_t t0 = (v[0][n] + v[4][n]) * (1 << BITS), t1 = (v[0][n] - v[4][n]) * (1 << BITS);
    int32_t t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
    int32_t z5 = (v[7][n] + v[3][n] + v[5][n] + v[1][n]) * 9633;
    int32_t z3 = z5 - (v[7][n] + v[3][n]) * 16069, z4 = z5 - (v[5][n] + v[1][n]) * 3196;
    int32_t z2 = (v[5][n] + v[3][n]) * -20995;
    z1 = (v[7][n] + v[1][n]) * -7373;
    t0 = v[7][n] * 2446 + z1 + z3;
    t1 = v[5][n] * 16819 + z2 + z4;
    t2 = v[3][n] * 25172 + z2 + z3;
    t3 = v[1][n] * 12299 + z1 + z4;
    v[0][n] = DESCALED(t10 + t3, bits);
    v[7][n] = DESCALED(t10 - t3, bits);
    v[1][n] = DESCALED(t11 + t2, bits);
    v[6][n] = DESCALED(t11 - t2, bits);
    v[2][n] = DESCALED(t12 + t1, bits);
    v[5][n] = DESCALED(t12 - t1, bits);
    v[3][n] = DESCALED(t13 + t0, bits);
    v[4][n] = DESCALED(t13 - t0, bits);
  }
}

/* Limits a value to 16 bits, as vector code does; those of pictures never need it. */
static int32_t saturated(int32_t value) {
  return value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value;
}

/* Multiplies them out, and empties the block. */
static void multiply(int16_t *coefficients, const int16_t *quantization, int32_t v[8][8]) {
  for (int n = 0; n < 64; n++) v[n / 8][n % 8] = (int16_t)(coefficients[n] * quantization[n]);
  memset(coefficients, 0, 64 * sizeof *coefficients);
}

static void transpose(int32_t v[8][8]) {
  for (int n = 0; n < 8; n++)
    for (int k = 0; k < n; k++) {
      int32_t other = v[n][k];
      v[n][k] = v[k][n];
      v[k][n] = other;
    }
}

static void invert_8(int16_t *coefficients, const int16_t *quantization, uint8_t *out, ptrdiff_t row) {
  int32_t v[8][8];
  multiply(coefficients, quantization, v);
  invert_once(v, BITS - MORE_BITS);
  for (int n = 0; n < 64; n++) v[n / 8][n % 8] = saturated(v[n / 8][n % 8]);
  transpose(v);
  invert_once(v, BITS + MORE_BITS + 3);
  transpose(v);
  for (int n = 0; n < 8; n++, out += row)
    for (int k = 0; k < 8; k++) out[k] = limited(v[n][k]);
}

/* Two bytes, and four, are written as one number, which compilers make vectors of. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define TWO(first, second) ((uint16_t)((first) | (second) << 8))
#define FOUR(first, second, third) \
  ((uint32_t)(first) | (uint32_t)(second) << 8 | (uint32_t)(third) << 16 | 0xFF000000)
#else
#define TWO(first, second) ((uint16_t)((first) << 8 | (second)))
#define FOUR(first, second, third) \
  ((uint32_t)(first) << 24 | (uint32_t)(second) << 16 | (uint32_t)(third) << 8 | 255)
#endif

static void double_row(const uint8_t *restrict in, uint16_t *restrict out, int count) {
  for (int n = 0; n < count; n++) {
    uint16_t before = in[n - 1], here = (uint16_t)(3 * in[n]), after = in[n + 1];
    uint16_t left = (uint16_t)(here + before + 1) >> 2, right = (uint16_t)(here + after + 2) >> 2;
    out[n] = TWO(left, right);
  }
}

static void double_rows(const uint8_t *restrict near, const uint8_t *restrict far,
                        uint16_t *restrict out, int count) {
  for (int n = 0; n < count; n++) {
    uint16_t before = (uint16_t)(3 * near[n - 1] + far[n - 1]), here = (uint16_t)(3 * near[n] + far[n]);
    uint16_t after = (uint16_t)(3 * near[n + 1] + far[n + 1]), most = (uint16_t)(3 * here);
    uint16_t left = (uint16_t)(most + before + 8) >> 4, right = (uint16_t)(most + after + 7) >> 4;
    out[n] = TWO(left, right);
  }
}

INLINE int32_t in_range(int32_t value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

static void to_colours(const uint8_t *restrict y, const uint8_t *restrict cb, const uint8_t *restrict cr,
                       uint32_t *restrict out, int count) {
  for (int n = 0; n < count; n++) {
    int32_t light = y[n], blue = cb[n] - 128, red = cr[n] - 128;
    int32_t r = light + ((91881 * red + 32768) >> 16), b = light + ((116130 * blue + 32768) >> 16);
    int32_t g = light + ((-22554 * blue - 46802 * red + 32768) >> 16);
    out[n] = FOUR(in_range(r), in_range(g), in_range(b));
  }
}

/* Four of eight, `step` numbers apart. */
static void four_of(const int32_t *in, int step, int bits, int32_t out[4]) {
  int32_t even = in[0] * (1 << (BITS + 1)), t2 = in[2 * step] * 15137 - in[6 * step] * 6270;
  int32_t t10 = even + t2, t12 = even - t2;
  int32_t odd0 = in[7 * step] * -1730 + in[5 * step] * 11893 + in[3 * step] * -17799 + in[step] * 8697;
  int32_t odd2 = in[7 * step] * -4176 + in[5 * step] * -4926 + in[3 * step] * 7373 + in[step] * 20995;
  out[0] = DESCALED(t10 + odd2, bits);
  out[3] = DESCALED(t10 - odd2, bits);
  out[1] = DESCALED(t12 + odd0, bits);
  out[2] = DESCALED(t12 - odd0, bits);
}

static void invert_4(int16_t *coefficients, const int16_t *quantization, uint8_t *out, ptrdiff_t row) {
  int32_t v[8][8], made[4][8], last[4];
  multiply(coefficients, quantization, v);
  for (int n = 0; n < 8; n++) {
    four_of(&v[0][n], 8, BITS - MORE_BITS + 1, last);
    for (int k = 0; k < 4; k++) made[k][n] = saturated(last[k]);
  }
  for (int n = 0; n < 4; n++, out += row) {
    four_of(made[n], 1, BITS + MORE_BITS + 4, last);
    for (int k = 0; k < 4; k++) out[k] = limited(last[k]);
  }
}

static void two_of(const int32_t *in, int step, int bits, int32_t out[2]) {
  int32_t even = in[0] * (1 << (BITS + 2));
  int32_t odd = in[7 * step] * -5906 + in[5 * step] * 6967 + in[3 * step] * -10426 + in[step] * 29692;
  out[0] = DESCALED(even + odd, bits);
  out[1] = DESCALED(even - odd, bits);
}

static void invert_2(int16_t *coefficients, const int16_t *quantization, uint8_t *out, ptrdiff_t row) {
  int32_t v[8][8], made[2][8], last[2];
  multiply(coefficients, quantization, v);
  for (int n = 0; n < 8; n++) {
    two_of(&v[0][n], 8, BITS - MORE_BITS + 2, last);
    for (int k = 0; k < 2; k++) made[k][n] = saturated(last[k]);
  }
  for (int n = 0; n < 2; n++, out += row) {
    two_of(made[n], 1, BITS + MORE_BITS + 5, last);
    for (int k = 0; k < 2; k++) out[k] = limited(last[k]);
  }
}

void fill_cell(int16_t coefficient, int16_t quantization, int size, uint8_t *out, ptrdiff_t row) {
  uint8_t level = limited(DESCALED((int16_t)(coefficient * quantization), 3));
  for (int n = 0; n < size; n++, out += row) memset(out, level, (size_t)size);
}

const struct cells plain_cells = {invert_8, invert_4, invert_2, double_row, double_rows, to_colours};
