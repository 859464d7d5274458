/* The inner loops of resizing with AVX2, which is chosen when the program runs. */

#include "kernel.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE_AVX2 static inline __attribute__((always_inline, target("avx2")))

/* Returns one pixel, 32 bits a channel: the sum of its neighbours, four at once. */
INLINE_AVX2 __m128i sum_of(const uint8_t *at, const __m256i *wide, int groups, __m256i half) {
  const __m128i pairs = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  __m256i sum = half;
  for (int group = 0; group < groups; group++, at += 16) {
    __m128i four = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)at), pairs);
    __m256i products = _mm256_madd_epi16(_mm256_cvtepu8_epi16(four), _mm256_load_si256(wide + group));
    sum = _mm256_add_epi32(sum, products);
  }
  return _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
}

INLINE_AVX2 void across_by(const uint8_t *row, uint8_t *out, const struct weights *weights,
                           const __m256i *wide, int groups) {
  const __m128i colours = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const __m128i shift = _mm_cvtsi32_si128(weights->precision);
  const __m256i half = _mm256_setr_epi32(1 << (weights->precision - 1), 1 << (weights->precision - 1),
                                         1 << (weights->precision - 1), 1 << (weights->precision - 1),
                                         0, 0, 0, 0);
  const int32_t *first = weights->first;
  for (int n = 0; n < weights->count; n += 4, out += 12) {
    __m128i sums[4];
    for (int k = 0; k < 4; k++) {
      int pixel = n + k < weights->count ? n + k : weights->count - 1;
      sums[k] = _mm_sra_epi32(sum_of(row + 4 * (ptrdiff_t)first[pixel], wide + pixel * groups, groups, half),
                              shift);
    }
    __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(sums[0], sums[1]), _mm_packs_epi32(sums[2], sums[3]));
    _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(bytes, colours));
  }
}

AVX2 static void across(const uint8_t *row, uint8_t *out, const struct weights *weights,
                        const int16_t *wide) {
  const __m256i *all = (const __m256i *)wide;
  switch ((weights->taps + 3) / 4) {
    case 1: across_by(row, out, weights, all, 1); break;
    case 2: across_by(row, out, weights, all, 2); break;
    default: across_by(row, out, weights, all, (weights->taps + 3) / 4);
  }
}

INLINE_AVX2 __m256i block_down(const uint8_t *rows, ptrdiff_t step, const int16_t *weight, int taps,
                               __m256i half, __m128i shift) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i a = half, b = half, c = half, d = half;
  for (int tap = 0; tap < taps; tap += 2, rows += 2 * step) {
    __m256i one = _mm256_loadu_si256((const __m256i *)rows), other = zero;
    int32_t both = (uint16_t)weight[tap];
    if (tap + 1 < taps) {
      other = _mm256_loadu_si256((const __m256i *)(rows + step));
      both |= (int32_t)((uint32_t)(uint16_t)weight[tap + 1] << 16);
    }
    __m256i weights = _mm256_set1_epi32(both);
    __m256i low = _mm256_unpacklo_epi8(one, other), high = _mm256_unpackhi_epi8(one, other);
    a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), weights));
    b = _mm256_add_epi32(b, _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), weights));
    c = _mm256_add_epi32(c, _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), weights));
    d = _mm256_add_epi32(d, _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), weights));
  }
  return _mm256_packus_epi16(
      _mm256_packs_epi32(_mm256_sra_epi32(a, shift), _mm256_sra_epi32(b, shift)),
      _mm256_packs_epi32(_mm256_sra_epi32(c, shift), _mm256_sra_epi32(d, shift)));
}

AVX2 static void down(const uint8_t *rows, ptrdiff_t step, const int16_t *weight, int taps,
                      int precision, uint8_t *out, int size) {
  const __m128i shift = _mm_cvtsi32_si128(precision);
  const __m256i half = _mm256_set1_epi32(1 << (precision - 1));
  int at = 0;
  for (; at + 32 <= size; at += 32)
    _mm256_storeu_si256((__m256i *)(out + at), block_down(rows + at, step, weight, taps, half, shift));
  if (at < size) {
    uint8_t last[32];
    _mm256_storeu_si256((__m256i *)last, block_down(rows + at, step, weight, taps, half, shift));
    memcpy(out + at, last, (size_t)(size - at));
  }
}

AVX2 static void narrow(const uint8_t *row, uint8_t *out, int count) {
  const __m128i colours = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  for (int n = 0; n < count; n += 4, row += 16, out += 12)
    _mm_storeu_si128((__m128i *)out, _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)row), colours));
}

const struct rows avx2_rows = {across, down, narrow, 4};

#endif
