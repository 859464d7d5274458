/* From coefficients to pixels, by the arithmetic of libjpeg (jidctint.c, jidctred.c, jdsample.c,
   jdcolor.c), whose results these are, bit by bit.

   This is for any processor; compilers make vector code of it where they can, from vector types where
   they do not see them by themselves. */

#include "cells.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef int32_t ints __attribute__((vector_size(32)));
typedef int16_t shorts8 __attribute__((vector_size(16)));

enum { BITS = 13, MORE_BITS = 2 };

INLINE uint8_t limited(int32_t value) {
  value += 128;
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

#define DESCALED(value, bits) (((value) + (1 << ((bits)-1))) >> (bits))

/* One pass over eight rows or columns at once. */
INLINE void invert_once(ints v[8], int bits) {
  ints z1 = (v[2] + v[6]) * 4433, t2 = z1 - v[6] * 15137, t3 = z1 + v[2] * 6270;
  ints t0 = (v[0] + v[4]) * (1 << BITS), t1 = (v[0] - v[4]) * (1 << BITS);
  ints t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
  ints z5 = (v[7] + v[3] + v[5] + v[1]) * 9633;
  ints z3 = z5 - (v[7] + v[3]) * 16069, z4 = z5 - (v[5] + v[1]) * 3196, z2 = (v[5] + v[3]) * -20995;
  z1 = (v[7] + v[1]) * -7373;
  t0 = v[7] * 2446 + z1 + z3;
  t1 = v[5] * 16819 + z2 + z4;
  t2 = v[3] * 25172 + z2 + z3;
  t3 = v[1] * 12299 + z1 + z4;
  v[0] = DESCALED(t10 + t3, bits);
  v[7] = DESCALED(t10 - t3, bits);
  v[1] = DESCALED(t11 + t2, bits);
  v[6] = DESCALED(t11 - t2, bits);
  v[2] = DESCALED(t12 + t1, bits);
  v[5] = DESCALED(t12 - t1, bits);
  v[3] = DESCALED(t13 + t0, bits);
  v[4] = DESCALED(t13 - t0, bits);
}

#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (ints){__VA_ARGS__})

INLINE void transpose(ints v[8]) {
  ints a[8], b[8];
  for (int n = 0; n < 8; n += 2) {
    a[n] = SHUFFLED(v[n], v[n + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    a[n + 1] = SHUFFLED(v[n], v[n + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int n = 0; n < 8; n += 4)
    for (int k = 0; k < 2; k++) {
      b[n + 2 * k] = SHUFFLED(a[n + k], a[n + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      b[n + 2 * k + 1] = SHUFFLED(a[n + k], a[n + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int n = 0; n < 4; n++) {
    v[n] = SHUFFLED(b[n], b[n + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[n + 4] = SHUFFLED(b[n], b[n + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

static void invert(int16_t *coefficients, const int16_t *quantization, uint8_t *out,
                   ptrdiff_t row) {
  ints v[8];
  for (int n = 0; n < 8; n++) {
    shorts8 line, by;
    memcpy(&line, coefficients + 8 * n, sizeof line);
    memcpy(&by, quantization + 8 * n, sizeof by);
    v[n] = __builtin_convertvector(line * by, ints);
  }
  memset(coefficients, 0, 64 * sizeof *coefficients);
  invert_once(v, BITS - MORE_BITS);
  transpose(v);
  invert_once(v, BITS + MORE_BITS + 3);
  transpose(v);
  for (int n = 0; n < 8; n++, out += row) {
    ints value = v[n] + 128;
    value &= ~(value < 0);
    value = (value & (value <= 255)) | ((value > 255) & 255);
    shorts8 narrow = __builtin_convertvector(value, shorts8);
    for (int k = 0; k < 8; k++) out[k] = (uint8_t)narrow[k];
  }
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

const struct cells plain_cells = {invert, double_row, double_rows, to_colours};

void invert_to_4(const int16_t *coefficients, uint8_t *out, ptrdiff_t row) {
  int32_t made[4][8];
  for (int n = 0; n < 8; n++) {
    const int16_t *in = coefficients + n;
    if (n == 4) continue; /* the second pass has no use for it */
    int32_t even = in[0] * (1 << (BITS + 1)), t2 = in[16] * 15137 - in[48] * 6270;
    int32_t t10 = even + t2, t12 = even - t2;
    int32_t odd0 = in[56] * -1730 + in[40] * 11893 + in[24] * -17799 + in[8] * 8697;
    int32_t odd2 = in[56] * -4176 + in[40] * -4926 + in[24] * 7373 + in[8] * 20995;
    made[0][n] = DESCALED(t10 + odd2, BITS - MORE_BITS + 1);
    made[3][n] = DESCALED(t10 - odd2, BITS - MORE_BITS + 1);
    made[1][n] = DESCALED(t12 + odd0, BITS - MORE_BITS + 1);
    made[2][n] = DESCALED(t12 - odd0, BITS - MORE_BITS + 1);
  }
  for (int n = 0; n < 4; n++, out += row) {
    const int32_t *in = made[n];
    int32_t even = in[0] * (1 << (BITS + 1)), t2 = in[2] * 15137 - in[6] * 6270;
    int32_t t10 = even + t2, t12 = even - t2;
    int32_t odd0 = in[7] * -1730 + in[5] * 11893 + in[3] * -17799 + in[1] * 8697;
    int32_t odd2 = in[7] * -4176 + in[5] * -4926 + in[3] * 7373 + in[1] * 20995;
    out[0] = limited(DESCALED(t10 + odd2, BITS + MORE_BITS + 4));
    out[3] = limited(DESCALED(t10 - odd2, BITS + MORE_BITS + 4));
    out[1] = limited(DESCALED(t12 + odd0, BITS + MORE_BITS + 4));
    out[2] = limited(DESCALED(t12 - odd0, BITS + MORE_BITS + 4));
  }
}

void invert_to_2(const int16_t *coefficients, uint8_t *out, ptrdiff_t row) {
  int32_t made[2][8];
  for (int n = 0; n < 8; n++) {
    const int16_t *in = coefficients + n;
    if (n && n % 2 == 0) continue;
    int32_t even = in[0] * (1 << (BITS + 2));
    int32_t odd = in[56] * -5906 + in[40] * 6967 + in[24] * -10426 + in[8] * 29692;
    made[0][n] = DESCALED(even + odd, BITS - MORE_BITS + 2);
    made[1][n] = DESCALED(even - odd, BITS - MORE_BITS + 2);
  }
  for (int n = 0; n < 2; n++, out += row) {
    const int32_t *in = made[n];
    int32_t even = in[0] * (1 << (BITS + 2));
    int32_t odd = in[7] * -5906 + in[5] * 6967 + in[3] * -10426 + in[1] * 29692;
    out[0] = limited(DESCALED(even + odd, BITS + MORE_BITS + 5));
    out[1] = limited(DESCALED(even - odd, BITS + MORE_BITS + 5));
  }
}

void invert_to_1(const int16_t *coefficients, uint8_t *out) {
  out[0] = limited(DESCALED(coefficients[0], 3));
}
