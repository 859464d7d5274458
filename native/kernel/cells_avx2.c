/* From coefficients to pixels with AVX2: the results of `cells.c`, bit by bit, for coefficients as
   encoders write them. */

#include "cells.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE_AVX2 static inline __attribute__((always_inline, target("avx2")))

enum { BITS = 13, MORE_BITS = 2 };

/* Multiplies pairs of 16 bits by two numbers, and adds the products. */
#define BY(pairs, one, other) \
  _mm256_madd_epi16(pairs, _mm256_set1_epi32((int32_t)((uint32_t)(uint16_t)(one) | (uint32_t)(other) << 16)))
#define PLUS(a, b) _mm256_add_epi32(a, b)
#define MINUS(a, b) _mm256_sub_epi32(a, b)

/* One pass over eight rows or columns at once. What jidctint.c adds up step by step is a sum of
   products of the eight inputs, which come in pairs; no step of it is rounded. */
INLINE_AVX2 void invert_once(__m256i p04, __m256i p26, __m256i p15, __m256i p37, int bits,
                             __m256i out[8]) {
  const __m256i half = _mm256_set1_epi32(1 << (bits - 1));
  __m256i t0 = PLUS(BY(p04, 1 << BITS, 1 << BITS), half), t1 = PLUS(BY(p04, 1 << BITS, -(1 << BITS)), half);
  __m256i t2 = BY(p26, 4433, 4433 - 15137), t3 = BY(p26, 4433 + 6270, 4433);
  __m256i e0 = PLUS(t0, t3), e3 = MINUS(t0, t3), e1 = PLUS(t1, t2), e2 = MINUS(t1, t2);
  __m256i o0 = PLUS(BY(p15, 11363, 6437), BY(p37, 9633, 2260));
  __m256i o1 = PLUS(BY(p15, 9633, -11362), BY(p37, -2259, -6436));
  __m256i o2 = PLUS(BY(p15, 6437, 2261), BY(p37, -11362, 9633));
  __m256i o3 = PLUS(BY(p15, 2260, 9633), BY(p37, -6436, -11363));
  out[0] = _mm256_srai_epi32(PLUS(e0, o0), bits);
  out[7] = _mm256_srai_epi32(MINUS(e0, o0), bits);
  out[1] = _mm256_srai_epi32(PLUS(e1, o1), bits);
  out[6] = _mm256_srai_epi32(MINUS(e1, o1), bits);
  out[2] = _mm256_srai_epi32(PLUS(e2, o2), bits);
  out[5] = _mm256_srai_epi32(MINUS(e2, o2), bits);
  out[3] = _mm256_srai_epi32(PLUS(e3, o3), bits);
  out[4] = _mm256_srai_epi32(MINUS(e3, o3), bits);
}

INLINE_AVX2 __m128i line(const int16_t *coefficients, const int16_t *quantization, int row) {
  return _mm_mullo_epi16(_mm_loadu_si128((const __m128i *)coefficients + row),
                         _mm_loadu_si128((const __m128i *)quantization + row));
}

INLINE_AVX2 __m256i paired(__m128i one, __m128i other) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi16(one, other)),
                                 _mm_unpackhi_epi16(one, other), 1);
}

/* Of four rows, two in each argument: pairs of columns n and n + 4, two of them one after the other. */
INLINE_AVX2 void columns_of(__m256i rows01, __m256i rows23, __m256i *even, __m256i *odd) {
  const __m256i pairs = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, 0, 1, 8, 9,
                                         2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
  __m256i low = _mm256_unpacklo_epi16(rows01, rows23), high = _mm256_unpackhi_epi16(rows01, rows23);
  __m256i a = _mm256_unpacklo_epi16(low, high), b = _mm256_unpackhi_epi16(low, high);
  *even = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(a, 0xD8), pairs); /* 0 and 4, 1 and 5 */
  *odd = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(b, 0xD8), pairs);  /* 2 and 6, 3 and 7 */
}

INLINE_AVX2 void two_rows(uint8_t *out, ptrdiff_t row, __m128i both) {
  _mm_storel_epi64((__m128i *)out, both);
  _mm_storeh_pd((double *)(out + row), _mm_castsi128_pd(both));
}

/* Multiplies the coefficients out, in pairs of rows, and empties the block. */
INLINE_AVX2 void multiply(int16_t *coefficients, const int16_t *quantization, __m256i *p04, __m256i *p26,
                          __m256i *p15, __m256i *p37) {
  __m128i v[8];
  for (int n = 0; n < 8; n++) v[n] = line(coefficients, quantization, n);
  for (int n = 0; n < 4; n++) _mm256_storeu_si256((__m256i *)coefficients + n, _mm256_setzero_si256());
  *p04 = paired(v[0], v[4]);
  *p26 = paired(v[2], v[6]);
  *p15 = paired(v[1], v[5]);
  *p37 = paired(v[3], v[7]);
}

AVX2 static void invert_8(int16_t *coefficients, const int16_t *quantization, uint8_t *out,
                          ptrdiff_t row) {
  __m256i made[8], a, b, c, d;
  multiply(coefficients, quantization, &a, &b, &c, &d);
  invert_once(a, b, c, d, BITS - MORE_BITS, made);
  columns_of(_mm256_packs_epi32(made[0], made[1]), _mm256_packs_epi32(made[2], made[3]), &a, &b);
  columns_of(_mm256_packs_epi32(made[4], made[5]), _mm256_packs_epi32(made[6], made[7]), &c, &d);
  invert_once(_mm256_permute2x128_si256(a, c, 0x20), _mm256_permute2x128_si256(b, d, 0x20),
              _mm256_permute2x128_si256(a, c, 0x31), _mm256_permute2x128_si256(b, d, 0x31),
              BITS + MORE_BITS + 3, made);

  const __m256i turned = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12,
                                          1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m256i middle = _mm256_set1_epi8((char)128);
  a = _mm256_packs_epi16(_mm256_packs_epi32(made[0], made[1]), _mm256_packs_epi32(made[2], made[3]));
  b = _mm256_packs_epi16(_mm256_packs_epi32(made[4], made[5]), _mm256_packs_epi32(made[6], made[7]));
  a = _mm256_shuffle_epi8(_mm256_add_epi8(a, middle), turned);
  b = _mm256_shuffle_epi8(_mm256_add_epi8(b, middle), turned);
  c = _mm256_unpacklo_epi32(a, b); /* rows 0 and 1, 4 and 5 */
  d = _mm256_unpackhi_epi32(a, b);
  two_rows(out, row, _mm256_castsi256_si128(c));
  two_rows(out + 2 * row, row, _mm256_castsi256_si128(d));
  two_rows(out + 4 * row, row, _mm256_extracti128_si256(c, 1));
  two_rows(out + 6 * row, row, _mm256_extracti128_si256(d, 1));
}

/* Four of eight (jidctred.c). */
INLINE_AVX2 void four_of(__m256i p04, __m256i p26, __m256i p15, __m256i p37, int bits, __m256i out[4]) {
  const __m256i half = _mm256_set1_epi32(1 << (bits - 1));
  __m256i t0 = PLUS(BY(p04, 1 << (BITS + 1), 0), half), t2 = BY(p26, 15137, -6270);
  __m256i e0 = PLUS(t0, t2), e1 = MINUS(t0, t2);
  __m256i o0 = PLUS(BY(p15, 20995, -4926), BY(p37, 7373, -4176));
  __m256i o1 = PLUS(BY(p15, 8697, 11893), BY(p37, -17799, -1730));
  out[0] = _mm256_srai_epi32(PLUS(e0, o0), bits);
  out[3] = _mm256_srai_epi32(MINUS(e0, o0), bits);
  out[1] = _mm256_srai_epi32(PLUS(e1, o1), bits);
  out[2] = _mm256_srai_epi32(MINUS(e1, o1), bits);
}

/* Of pairs of columns, what `columns_of` gives, those of the second pass. */
INLINE_AVX2 __m256i upper(__m256i pairs) { return _mm256_permute2x128_si256(pairs, pairs, 0x11); }

AVX2 static void invert_4(int16_t *coefficients, const int16_t *quantization, uint8_t *out,
                          ptrdiff_t row) {
  const __m128i turned = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m256i made[4], a, b, c, d;
  multiply(coefficients, quantization, &a, &b, &c, &d);
  four_of(a, b, c, d, BITS - MORE_BITS + 1, made);
  columns_of(_mm256_packs_epi32(made[0], made[1]), _mm256_packs_epi32(made[2], made[3]), &a, &b);
  four_of(a, b, upper(a), upper(b), BITS + MORE_BITS + 4, made); /* four rows, in the lower half */
  a = _mm256_packs_epi16(_mm256_packs_epi32(made[0], made[1]), _mm256_packs_epi32(made[2], made[3]));
  __m128i bytes = _mm_add_epi8(_mm256_castsi256_si128(a), _mm_set1_epi8((char)128));
  bytes = _mm_shuffle_epi8(bytes, turned);
  uint32_t lines[4];
  _mm_storeu_si128((__m128i *)lines, bytes);
  for (int n = 0; n < 4; n++) memcpy(out + n * row, &lines[n], 4);
}

INLINE_AVX2 void two_of(__m256i p04, __m256i p15, __m256i p37, int bits, __m256i out[2]) {
  __m256i even = PLUS(_mm256_slli_epi32(BY(p04, 1 << (BITS + 1), 0), 1), _mm256_set1_epi32(1 << (bits - 1)));
  __m256i odd = PLUS(BY(p15, 29692, 6967), BY(p37, -10426, -5906));
  out[0] = _mm256_srai_epi32(PLUS(even, odd), bits);
  out[1] = _mm256_srai_epi32(MINUS(even, odd), bits);
}

AVX2 static void invert_2(int16_t *coefficients, const int16_t *quantization, uint8_t *out,
                          ptrdiff_t row) {
  __m256i made[2], a, b, c, d;
  multiply(coefficients, quantization, &a, &b, &c, &d);
  two_of(a, c, d, BITS - MORE_BITS + 2, made);
  c = _mm256_packs_epi32(made[0], made[1]);
  columns_of(c, c, &a, &b);
  two_of(a, upper(a), upper(b), BITS + MORE_BITS + 5, made);
  a = _mm256_packs_epi32(made[0], made[1]);
  __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(a), _mm256_castsi256_si128(a));
  uint8_t values[16]; /* four rows of the first column, then of the second */
  _mm_storeu_si128((__m128i *)values, _mm_add_epi8(bytes, _mm_set1_epi8((char)128)));
  for (int n = 0; n < 2; n++, out += row) {
    out[0] = values[n];
    out[1] = values[4 + n];
  }
}

/* Returns (value * factor + 32768) >> 16, of twice the value. */
INLINE_AVX2 __m256i product(__m256i twice, int factor) {
  __m256i high = _mm256_mulhi_epi16(twice, _mm256_set1_epi16((short)factor));
  return _mm256_srai_epi16(_mm256_add_epi16(high, _mm256_set1_epi16(1)), 1);
}

INLINE_AVX2 __m256i widened(const uint8_t *at) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)at));
}

/* The factors of jdcolor.c, without the multiples of 65536 that would not fit into 16 bits. */
AVX2 static void to_colours(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t *out,
                            int count) {
  const __m256i middle = _mm256_set1_epi16(128), half = _mm256_set1_epi32(32768);
  const __m256i all = _mm256_set1_epi16(255);
  const __m256i pairs = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15, 0, 8, 1, 9, 2,
                                         10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  for (int n = 0; n < count; n += 16) {
    __m256i light = widened(y + n);
    __m256i blue = _mm256_sub_epi16(widened(cb + n), middle);
    __m256i red = _mm256_sub_epi16(widened(cr + n), middle);
    __m256i twice_red = _mm256_add_epi16(red, red), twice_blue = _mm256_add_epi16(blue, blue);
    __m256i r = _mm256_add_epi16(_mm256_add_epi16(light, red), product(twice_red, 91881 - 65536));
    __m256i b = _mm256_add_epi16(_mm256_add_epi16(light, twice_blue), product(twice_blue, 116130 - 131072));
    __m256i low = PLUS(BY(_mm256_unpacklo_epi16(blue, red), -22554, 65536 - 46802), half);
    __m256i high = PLUS(BY(_mm256_unpackhi_epi16(blue, red), -22554, 65536 - 46802), half);
    __m256i g = _mm256_packs_epi32(_mm256_srai_epi32(low, 16), _mm256_srai_epi32(high, 16));
    g = _mm256_add_epi16(_mm256_sub_epi16(light, red), g);
    __m256i rg = _mm256_shuffle_epi8(_mm256_packus_epi16(r, g), pairs);
    __m256i bx = _mm256_shuffle_epi8(_mm256_packus_epi16(b, all), pairs);
    low = _mm256_unpacklo_epi16(rg, bx);
    high = _mm256_unpackhi_epi16(rg, bx);
    _mm256_storeu_si256((__m256i *)(out + n), _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256((__m256i *)(out + n + 8), _mm256_permute2x128_si256(low, high, 0x31));
  }
}

AVX2 static void double_row(const uint8_t *in, uint16_t *out, int count) {
  for (int n = 0; n < count; n += 16) {
    __m256i here = widened(in + n), most = _mm256_add_epi16(_mm256_add_epi16(here, here), here);
    __m256i left = _mm256_add_epi16(_mm256_add_epi16(most, widened(in + n - 1)), _mm256_set1_epi16(1));
    __m256i right = _mm256_add_epi16(_mm256_add_epi16(most, widened(in + n + 1)), _mm256_set1_epi16(2));
    __m256i both = _mm256_or_si256(_mm256_srli_epi16(left, 2), _mm256_slli_epi16(_mm256_srli_epi16(right, 2), 8));
    _mm256_storeu_si256((__m256i *)(out + n), both);
  }
}

INLINE_AVX2 __m256i between(const uint8_t *near, const uint8_t *far) {
  __m256i value = widened(near);
  return _mm256_add_epi16(_mm256_add_epi16(_mm256_add_epi16(value, value), value), widened(far));
}

AVX2 static void double_rows(const uint8_t *near, const uint8_t *far, uint16_t *out, int count) {
  for (int n = 0; n < count; n += 16) {
    __m256i here = between(near + n, far + n), most = _mm256_add_epi16(_mm256_add_epi16(here, here), here);
    __m256i left = _mm256_add_epi16(_mm256_add_epi16(most, between(near + n - 1, far + n - 1)),
                                    _mm256_set1_epi16(8));
    __m256i right = _mm256_add_epi16(_mm256_add_epi16(most, between(near + n + 1, far + n + 1)),
                                     _mm256_set1_epi16(7));
    __m256i both = _mm256_or_si256(_mm256_srli_epi16(left, 4), _mm256_slli_epi16(_mm256_srli_epi16(right, 4), 8));
    _mm256_storeu_si256((__m256i *)(out + n), both);
  }
}

const struct cells avx2_cells = {invert_8, invert_4, invert_2, double_row, double_rows, to_colours};

#endif
