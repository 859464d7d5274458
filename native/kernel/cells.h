/* From coefficients to pixels: the inner loops of `ordinary.c`. */

#ifndef FASTCONV_CELLS_H
#define FASTCONV_CELLS_H

#include <stddef.h>
#include <stdint.h>

struct cells {
  /* Write a cell of 8 x 8, 4 x 4, and 2 x 2, and make the coefficients 0. */
  void (*invert_8)(int16_t *coefficients, const int16_t *quantization, uint8_t *out, ptrdiff_t row);
  void (*invert_4)(int16_t *coefficients, const int16_t *quantization, uint8_t *out, ptrdiff_t row);
  void (*invert_2)(int16_t *coefficients, const int16_t *quantization, uint8_t *out, ptrdiff_t row);
  /* Of those that follow, up to 15 results more are made than are asked for.

     Doubles a row: `count` samples make as many pairs. One more is read on both sides. */
  void (*double_row)(const uint8_t *in, uint16_t *out, int count);
  /* The same between two rows, of which `near` counts three times. */
  void (*double_rows)(const uint8_t *near, const uint8_t *far, uint16_t *out, int count);
  /* Makes pixels of four bytes. */
  void (*to_colours)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t *out, int count);
};

extern const struct cells plain_cells, avx2_cells;

/* Writes a cell of any size whose first coefficient is the only one. */
void fill_cell(int16_t coefficient, int16_t quantization, int size, uint8_t *out, ptrdiff_t row);

#endif
