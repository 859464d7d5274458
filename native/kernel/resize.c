/* Antialiased bilinear resizing of 8-bit pixels: along the rows, then down the columns.

   The weights and the rounding are those of torch's `_upsample_bilinear2d_aa` for uint8 (ATen,
   UpSampleKernel.cpp), which are Pillow's (Resample.c): so are the results, bit by bit. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { MOST_BITS = 22, WEIGHT_BITS = 15 };

void *room(struct memory *memory, size_t size) {
  if (memory->size < size) {
    free(memory->data);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    size_t wanted = size; /* so that what goes beyond it is noticed */
#else
    size_t wanted = size + size / 2;
#endif
    memory->data = aligned_alloc(64, (wanted + SLACK + 63) / 64 * 64);
    memory->size = memory->data ? wanted : 0;
  }
  if (memory->data) memset(memory->data + size, 0, SLACK);
  return memory->data;
}

/* Weights of one: the pixels are copied. */
static enum status keep(const struct axis *axis, struct memory *memory, struct weights *out) {
  int count = axis->end - axis->begin;
  int32_t *first = room(memory, (size_t)count * sizeof *first);
  if (!first) return NO_MEMORY;
  for (int i = 0; i < count; i++) first[i] = axis->mirrored ? axis->end - 1 - i : axis->begin + i;
  *out = (struct weights){count, 1, 0, axis->begin, axis->end, first, NULL};
  return DONE;
}

enum status weigh(const struct axis *axis, struct memory *memory, struct weights *out) {
  if (axis->step == 0) return keep(axis, memory, out);
  double step = axis->step, support = step > 1 ? step : 1, inverse = step > 1 ? 1 / step : 1;
  int count = axis->end - axis->begin;
  int taps = 2 * support + 1 < axis->from ? (int)(2 * support + 1) : axis->from;
  size_t values = (size_t)taps * (size_t)count;
  /* One pixel's weights more: those outside the window, of which only the largest is asked for. */
  double *exact = room(memory, (values + (size_t)taps) * sizeof *exact + values * sizeof(int16_t) +
                                   (size_t)count * sizeof(int32_t));
  if (!exact) return NO_MEMORY;
  double *spare = exact + values;
  int32_t *first = (int32_t *)(spare + taps);
  int16_t *weight = (int16_t *)(first + count);
  double largest = 0;
  int lowest = axis->from, highest = 0, most = 1;
  for (int i = 0; i < axis->length; i++) {
    double center = step * (i + 0.5);
    int64_t low = (int64_t)(center - support + 0.5), high = (int64_t)(center + support + 0.5);
    if (low < 0) low = 0;
    if (high > axis->from) high = axis->from;
    int size = high > low ? (int)(high - low) : 0;
    if (size > taps) size = taps;
    double *w = spare;
    if (i >= axis->begin && i < axis->end) {
      int place = axis->mirrored ? axis->end - 1 - i : i - axis->begin;
      w = exact + (size_t)place * (size_t)taps;
      if (!size) {
        low = axis->from - 1;
        size = 1;
      }
      first[place] = (int32_t)low;
      if (low < lowest) lowest = (int)low;
      if (low + size > highest) highest = (int)low + size;
      if (size > most) most = size;
    }
    double total = 0;
    for (int j = 0; j < size; j++) {
      double x = fabs(((double)(j + low) - center + 0.5) * inverse);
      w[j] = x < 1 ? 1 - x : 0;
      total += w[j];
    }
    for (int j = 0; j < size; j++) {
      if (total != 0) w[j] /= total;
      if (w[j] > largest) largest = w[j];
    }
    for (int j = size; j < taps; j++) w[j] = 0;
  }
  int precision = 0;
  while (precision < MOST_BITS && (int)(0.5 + largest * (1 << (precision + 1))) < 1 << WEIGHT_BITS)
    precision++;
  /* Those at the end begin sooner, so that none takes pixels that are not used. */
  for (int n = 0; n < count; n++) {
    const double *w = exact + (size_t)n * (size_t)taps;
    int16_t *to = weight + (size_t)n * (size_t)most;
    int over = first[n] + most - highest, before = over > 0 ? over : 0;
    first[n] -= before;
    for (int j = 0; j < most; j++)
      to[j] = j < before ? 0 : (int16_t)(0.5 + w[j - before] * (1 << precision));
  }
  *out = (struct weights){count, most, precision, lowest, highest, first, weight};
  return DONE;
}

static void copy_of_colours(const struct rows *rows, const uint8_t *row, uint8_t *out,
                            const struct weights *weights) {
  const int32_t *first = weights->first;
  if (weights->count == 1 || first[1] > first[0]) { /* not mirrored */
    rows->narrow(row + 4 * (ptrdiff_t)first[0], out, weights->count);
    return;
  }
  for (int column = 0; column < weights->count; column++, out += 3)
    memcpy(out, row + 4 * (ptrdiff_t)weights->first[column], 4);
}

/* Returns the weights of pixels of four bytes, in groups as the processor takes them: those of two
   neighbours side by side, for each channel. Groups are filled up with zeros. */
static const int16_t *widen(const struct weights *weights, int group, struct memory *memory) {
  int taps = weights->taps, groups = (taps + group - 1) / group;
  size_t size = (size_t)weights->count * (size_t)groups * (size_t)group * 4 * sizeof(int16_t);
  int16_t *wide = room(memory, size), *at = wide;
  if (!wide) return NULL;
  const int16_t *weight = weights->weight;
  for (int n = 0; n < weights->count; n++, weight += taps)
    for (int tap = 0; tap < groups * group; tap += 2) {
      int16_t one = tap < taps ? weight[tap] : 0, other = tap + 1 < taps ? weight[tap + 1] : 0;
      for (int channel = 0; channel < 4; channel++) {
        *at++ = one;
        *at++ = other;
      }
    }
  return wide;
}

static void greys_across(const uint8_t *row, uint8_t *out, const struct weights *weights) {
  const int16_t *weight = weights->weight;
  for (int n = 0; n < weights->count; n++, weight += weights->taps) {
    const uint8_t *at = row + weights->first[n];
    int32_t sum = 1 << (weights->precision - 1);
    for (int tap = 0; tap < weights->taps; tap++) sum += at[tap] * weight[tap];
    out[n] = (uint8_t)(sum >> weights->precision);
  }
}

/* Resizes each row, to pixels without a fourth byte, `step` bytes a row. */
static enum status go_across(struct workspace *space, const struct rows *rows,
                             const struct pixels *source, const struct weights *weights,
                             uint8_t *out, ptrdiff_t step) {
  const uint8_t *row = source->data - (ptrdiff_t)weights->lowest * source->channels;
  const int16_t *wide = NULL;
  if (source->channels == 4 && weights->taps > 1 &&
      !(wide = widen(weights, rows->group, &space->wide)))
    return NO_MEMORY;
  for (int n = 0; n < source->rows; n++, row += source->row, out += step) {
    if (wide)
      rows->across(row, out, weights, wide);
    else if (source->channels == 4)
      copy_of_colours(rows, row, out, weights);
    else if (weights->taps > 1)
      greys_across(row, out, weights);
    else
      for (int column = 0; column < weights->count; column++) out[column] = row[weights->first[column]];
  }
  return DONE;
}

enum status resize(struct workspace *space, const struct pixels *source, const struct weights *down,
                   const struct weights *across, const struct target *target) {
  const struct rows *rows = BEST_OF(avx2_rows, plain_rows);
  int channels = target->channels, size = across->count * channels;
  uint8_t *made = room(&space->across, (size_t)size * (size_t)source->rows);
  uint8_t *line = room(&space->row, (size_t)size);
  if (!made || !line) return NO_MEMORY;
  enum status status = go_across(space, rows, source, across, made, size);
  if (status != DONE) return status;
  int packed = target->channel == 1 && target->column == channels;
  for (int row = 0; row < down->count; row++) {
    uint8_t *place = target->data + row * target->row, *out = packed ? place : line;
    const uint8_t *in = made + (ptrdiff_t)(down->first[row] - down->lowest) * size;
    if (down->taps > 1)
      rows->down(in, size, down->weight + (ptrdiff_t)row * down->taps, down->taps, down->precision,
                 out, size);
    else
      memcpy(out, in, (size_t)size);
    if (packed) continue;
    for (int channel = 0; channel < channels; channel++) {
      uint8_t *at = place + channel * target->channel;
      for (int n = channel; n < size; n += channels, at += target->column) *at = line[n];
    }
  }
  return DONE;
}
