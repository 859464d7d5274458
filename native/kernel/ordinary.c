/* As much of an ordinary JPEG as is needed: baseline, Huffman, one scan, grey or YCbCr with colours
   at full or half size, without restart markers. Cameras and encoders write hardly anything else.

   Of libjpeg-turbo's time two thirds go into undoing the Huffman code, one coefficient after the
   other. Here a table of the next bits gives number of zeros, value and length at once, and blocks
   that are not needed are only skipped. The arithmetic is libjpeg's, and so are the pixels.

   Whatever is out of the ordinary, damage too, is left to libjpeg-turbo. */

#include <stdlib.h>
#include <string.h>

#include "cells.h"
#include "kernel.h"

#define INLINE static inline __attribute__((always_inline))

enum {
  LOOK = 10,        /* bits that are looked up at once */
  NO_SYMBOL = 0xFF, /* a length that no code has */
  SMALLEST_SIDE = 16,
  LARGEST_SIDE = 65500, /* that libjpeg takes */
  MOST_CELLS = 4,       /* of an MCU, along a side */
};

/* The order in which coefficients are stored; as many more as a run can lead past the end. */
static const uint8_t natural[64 + 16] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33,
    40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36,
    29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63, 63};

/* What the next bits mean, a code and a value, as one number: the value of a coefficient that is not
   0 (upper 16 bits), the zeros before it (8 bits), the bits of both (8 bits). It is 0 where it takes a
   closer look. */
typedef uint32_t entry;
#define ENTRY(value, run, bits) ((uint32_t)(value) << 16 | (uint32_t)(run) << 8 | (uint32_t)(bits))
#define VALUE(entry) ((int32_t)(entry) >> 16)
#define RUN(entry) ((entry) >> 8 & 0xFF)
#define BITS(entry) ((entry) & 0xFF)

struct code {
  int16_t symbol, length; /* NO_SYMBOL where it is longer than LOOK */
};

struct huffman {
  uint8_t counts[16], symbols[256]; /* as they are in the file */
  int total;
  entry entries[1 << LOOK];
  struct code codes[1 << LOOK];
  int32_t limit[18]; /* the first code of each length that there is not, at its left end */
  int32_t offset[17];
};

struct component {
  int across, down; /* cells of an MCU */
  const int16_t *quantization;
  const struct huffman *dc, *ac;
  int size;          /* of a cell, in samples */
  int width, height; /* samples that the picture has */
  int expand_across, expand_down;
  uint8_t *plane; /* the first sample that is decoded */
  ptrdiff_t row;
  int left, top; /* its place in the picture */
  int last;      /* the DC value before */
};

struct ordinary {
  int16_t quantization[4][64];
  int has_quantization[4], has_table[2][4];
  struct huffman tables[2][4];
  struct component components[3];
  int count, width, height;
};

struct ordinary *new_ordinary(void) { return calloc(1, sizeof(struct ordinary)); }

/* --- what is before the scan --- */

/* Returns the value that `size` bits stand for. */
static inline int extended(int bits, int size) {
  return bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits;
}

/* Makes the tables of a code; returns 0 where it is none. */
static int make_huffman(struct huffman *table, const uint8_t *counts, const uint8_t *symbols, int total,
                        int is_dc) {
  if (table->total == total && !memcmp(table->counts, counts, 16) &&
      !memcmp(table->symbols, symbols, (size_t)total))
    return 1; /* as in the picture before */
  table->total = 0;
  memset(table->entries, 0, sizeof table->entries);
  for (int n = 0; n < 1 << LOOK; n++) table->codes[n].length = NO_SYMBOL;
  int code = 0, place = 0;
  for (int length = 1; length <= 16; length++, code <<= 1) {
    table->offset[length] = place - code;
    if (code + counts[length - 1] >= 1 << length) return 0; /* none is all ones, libjpeg says */
    for (int n = 0; n < counts[length - 1]; n++, code++, place++) {
      int symbol = symbols[place], size = symbol & 15, run = symbol >> 4;
      if (is_dc && symbol > 11) return 0;
      if (length > LOOK) continue;
      int spare = LOOK - length, first = code << spare;
      for (int rest = 0; rest < 1 << spare; rest++) {
        table->codes[first + rest] = (struct code){(int16_t)symbol, (int16_t)length};
        if (size && size <= spare)
          table->entries[first + rest] =
              ENTRY(extended(rest >> (spare - size), size), run, length + size);
      }
    }
    table->limit[length] = code << (16 - length);
  }
  table->limit[17] = INT32_MAX;
  memcpy(table->counts, counts, 16);
  memcpy(table->symbols, symbols, (size_t)total);
  table->total = total;
  return 1;
}

static int read_quantization(struct ordinary *jpeg, const uint8_t *block, size_t size) {
  while (size >= 65) {
    if (block[0] > 3) return 0; /* 16 bits: not baseline */
    for (int n = 0; n < 64; n++) jpeg->quantization[block[0]][natural[n]] = block[1 + n];
    jpeg->has_quantization[block[0]] = 1;
    block += 65;
    size -= 65;
  }
  return !size;
}

static int read_huffman(struct ordinary *jpeg, const uint8_t *block, size_t size) {
  while (size >= 17) {
    int kind = block[0] >> 4, number = block[0] & 15, total = 0;
    for (int n = 1; n <= 16; n++) total += block[n];
    if (kind > 1 || number > 3 || !total || total > 256 || size - 17 < (size_t)total) return 0;
    if (!make_huffman(&jpeg->tables[kind][number], block + 1, block + 17, total, !kind)) return 0;
    jpeg->has_table[kind][number] = 1;
    block += 17 + total;
    size -= 17 + (size_t)total;
  }
  return !size;
}

static int read_frame(struct ordinary *jpeg, const uint8_t *block, size_t size, uint8_t ids[3]) {
  if (jpeg->count || size < 6 || block[0] != 8) return 0;
  jpeg->height = block[1] << 8 | block[2];
  jpeg->width = block[3] << 8 | block[4];
  jpeg->count = block[5];
  if (jpeg->width < SMALLEST_SIDE || jpeg->height < SMALLEST_SIDE) return 0;
  if (jpeg->width > LARGEST_SIDE || jpeg->height > LARGEST_SIDE) return 0;
  if ((jpeg->count != 1 && jpeg->count != 3) || size != 6 + 3 * (size_t)jpeg->count) return 0;
  for (int n = 0; n < jpeg->count; n++) {
    const uint8_t *each = block + 6 + 3 * n;
    struct component *component = &jpeg->components[n];
    ids[n] = each[0];
    component->across = each[1] >> 4;
    component->down = each[1] & 15;
    if (each[2] > 3 || !jpeg->has_quantization[each[2]]) return 0;
    component->quantization = jpeg->quantization[each[2]];
    if (n && (component->across != 1 || component->down != 1)) return 0;
  }
  struct component *first = &jpeg->components[0];
  int across = first->across, down = first->down;
  if (jpeg->count == 1) { /* they say nothing then, but have to be some that libjpeg takes */
    first->across = first->down = 1;
    return across >= 1 && across <= MOST_CELLS && down >= 1 && down <= MOST_CELLS;
  }
  /* Not 1 x 2: versions of libjpeg-turbo differ in how they double those. */
  return (across == 1 && down == 1) || (across == 2 && (down == 1 || down == 2));
}

static int read_scan(struct ordinary *jpeg, const uint8_t *block, size_t size, const uint8_t ids[3]) {
  size_t count = (size_t)jpeg->count;
  if (!count || size != 4 + 2 * count || block[0] != count) return 0;
  for (size_t n = 0; n < count; n++) {
    int dc = block[2 + 2 * n] >> 4, ac = block[2 + 2 * n] & 15;
    if (block[1 + 2 * n] != ids[n] || dc > 3 || ac > 3) return 0;
    if (!jpeg->has_table[0][dc] || !jpeg->has_table[1][ac]) return 0;
    jpeg->components[n].dc = &jpeg->tables[0][dc];
    jpeg->components[n].ac = &jpeg->tables[1][ac];
  }
  const uint8_t *last = block + 1 + 2 * count;
  return last[0] == 0 && last[1] == 63 && last[2] == 0;
}

/* Reads all before the coded data; returns where these begin, NULL for what is out of the
   ordinary. */
static const uint8_t *read_headers(struct ordinary *jpeg, struct bytes file) {
  const uint8_t *data = file.data;
  size_t at = 2;
  int jfif = 0, adobe = -1;
  uint8_t ids[3] = {0};
  jpeg->count = 0;
  memset(jpeg->has_quantization, 0, sizeof jpeg->has_quantization);
  memset(jpeg->has_table, 0, sizeof jpeg->has_table);
  while (file.size - at >= 4) {
    if (data[at] != 0xFF) return NULL;
    int marker = data[at + 1];
    size_t length = (size_t)(data[at + 2] << 8 | data[at + 3]);
    if (length < 2 || file.size - at - 2 < length) return NULL;
    const uint8_t *block = data + at + 4;
    size_t inside = length - 2;
    at += 2 + length;
    if (marker == 0xDB) {
      if (!read_quantization(jpeg, block, inside)) return NULL;
    } else if (marker == 0xC4) {
      if (!read_huffman(jpeg, block, inside)) return NULL;
    } else if (marker == 0xC0 || marker == 0xC1) {
      if (!read_frame(jpeg, block, inside, ids)) return NULL;
    } else if (marker == 0xDA) {
      int colours = jfif || (adobe < 0 ? ids[0] == 1 && ids[1] == 2 && ids[2] == 3 : adobe == 1);
      if (jpeg->count == 3 && !colours) return NULL;
      return read_scan(jpeg, block, inside, ids) ? data + at : NULL;
    } else if (marker == 0xE0) {
      if (inside >= 14 && !memcmp(block, "JFIF\0", 5)) {
        if (block[5] != 1) return NULL; /* a version that libjpeg complains of */
        jfif = 1;
      }
    } else if (marker == 0xEE) {
      if (inside >= 12 && !memcmp(block, "Adobe", 5)) adobe = block[11];
    } else if (marker != 0xFE && (marker & 0xF0) != 0xE0) {
      return NULL; /* restart intervals, other frames, padding */
    }
  }
  return NULL;
}

/* --- the coded data --- */

struct bits {
  const uint8_t *at, *end;
  uint64_t next; /* from the highest bit on */
  int count;
  int made_up; /* bits of `next` that are not in the file */
};

static __attribute__((noinline)) void refill_slowly(struct bits *bits) {
  while (bits->count <= 56) {
    uint64_t byte = 0;
    if (bits->at < bits->end && (*bits->at != 0xFF || (bits->end - bits->at > 1 && !bits->at[1]))) {
      byte = *bits->at;
      bits->at += byte == 0xFF ? 2 : 1;
    } else {
      bits->made_up += 8; /* a marker, or the end */
    }
    bits->next |= byte << (56 - bits->count);
    bits->count += 8;
  }
}

/* Returns eight bytes as a number; 0 where one of them is 0xFF, or there are not as many. */
INLINE uint64_t eight_bytes(const uint8_t *at, const uint8_t *end) {
  uint64_t eight, others;
  if (end - at < 8) return 0;
  memcpy(&eight, at, 8);
  others = ~eight; /* one of its bytes is 0 */
  if ((others - 0x0101010101010101) & eight & 0x8080808080808080) return 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  eight = __builtin_bswap64(eight);
#endif
  return eight;
}

/* The state of `struct bits` is kept in variables of their own, which stay in registers. */

/* Sees to it that there are at least 56 bits. */
#define REFILL()                                                            \
  do {                                                                      \
    uint64_t eight_ = eight_bytes(at, end);                                 \
    if (__builtin_expect(eight_ != 0, 1)) {                                 \
      next |= eight_ >> count;                                              \
      at += (63 - count) >> 3;                                              \
      count |= 56;                                                          \
    } else {                                                                \
      struct bits slow_ = {at, end, next, count, given->made_up};           \
      refill_slowly(&slow_);                                                \
      at = slow_.at, next = slow_.next, count = slow_.count;                \
      given->made_up = slow_.made_up;                                       \
    }                                                                       \
  } while (0)

#define DROP(number) (next <<= (number), count -= (int)(number))

static __attribute__((noinline)) struct code longer_code(const struct huffman *table, uint64_t next) {
  int32_t code = (int32_t)(next >> 48);
  int length = LOOK + 1;
  while (code >= table->limit[length]) length++;
  if (length > 16) return (struct code){-1, 16};
  int place = table->offset[length] + (code >> (16 - length));
  return (struct code){table->symbols[place & 255], (int16_t)length};
}

/* Returns the next symbol of a code; below 0 where it is none of this code. */
INLINE struct code next_code(const struct huffman *table, uint64_t next) {
  struct code code = table->codes[next >> (64 - LOOK)];
  return __builtin_expect(code.length == NO_SYMBOL, 0) ? longer_code(table, next) : code;
}

/* Reads a block, not multiplied out yet, or skips it where `out` is NULL. Returns whether it has more
   than its first coefficient; below 0 where it is damaged. */
INLINE int read_block(struct bits *given, struct component *component, int16_t *out) {
  const uint8_t *at = given->at, *end = given->end;
  uint64_t next = given->next;
  int count = given->count, k = 1;
  const struct huffman *table = component->ac;
  REFILL();
  struct code code = next_code(component->dc, next);
  if (code.symbol < 0) return -1;
  DROP(code.length);
  if (code.symbol) {
    component->last += extended((int)(next >> (64 - code.symbol)), code.symbol);
    DROP(code.symbol);
  }
  if (out) out[0] = (int16_t)component->last;
  while (k < 64) {
    /* Three that are looked up, of LOOK bits, and a longer one, of 26, take 56 at most. */
    REFILL();
    for (int n = 0; n < 3; n++) {
      entry found = table->entries[next >> (64 - LOOK)];
      if (__builtin_expect(!found, 0)) break;
      next <<= BITS(found);
      count -= (int)BITS(found);
      k += (int)RUN(found);
      if (out) out[natural[k]] = (int16_t)VALUE(found);
      if (++k >= 64) goto done;
    }
    if (table->entries[next >> (64 - LOOK)]) continue;
    code = next_code(table, next);
    if (code.symbol < 0) return -1;
    DROP(code.length);
    int size = code.symbol & 15;
    k += code.symbol >> 4;
    if (size) {
      if (out) out[natural[k]] = (int16_t)extended((int)(next >> (64 - size)), size);
      DROP(size);
      k++;
    } else if (code.symbol == 0xF0) {
      k++;
    } else {
      break;
    }
  }
done:
  given->at = at;
  given->next = next;
  given->count = count;
  return k > 64 ? -1 : k > 1;
}

/* Writes a cell, and leaves the block empty for the next one. */
INLINE void put_cell(const struct cells *cells, int16_t *block, int more, const struct component *component,
                     uint8_t *out) {
  const int16_t *quantization = component->quantization;
  int size = component->size;
  if (!more) {
    fill_cell(block[0], quantization[0], size, out, component->row);
    block[0] = 0;
  } else if (size == 8) {
    cells->invert_8(block, quantization, out, component->row);
  } else if (size == 4) {
    cells->invert_4(block, quantization, out, component->row);
  } else {
    cells->invert_2(block, quantization, out, component->row);
  }
}

/* Reads one component's part of an MCU; returns 0 where it is damaged. `column` and `row` are the
   first sample's place in the plane, below 0 where the MCU is not needed. */
INLINE int decode_mcu(struct component *component, const struct cells *cells, struct bits *bits,
                      int16_t *block, int column, int row) {
  for (int y = 0; y < component->down; y++) {
    uint8_t *out = component->plane + (ptrdiff_t)(row + y * component->size) * component->row + column;
    for (int x = 0; x < component->across; x++, out += component->size) {
      int whole = column >= 0 && component->size > 1, more = read_block(bits, component, whole ? block : NULL);
      if (more < 0) return 0;
      if (whole)
        put_cell(cells, block, more, component, out);
      else if (column >= 0)
        fill_cell((int16_t)component->last, component->quantization[0], 1, out, component->row);
    }
  }
  return 1;
}

/* Decodes MCUs from `left` to `right` and `top` to `bottom`; returns 0 where they are damaged. */
INLINE int decode_mcus(struct ordinary *jpeg, const struct cells *cells, struct bits *bits, int across,
                       struct part part) {
  int16_t block[64] __attribute__((aligned(32))) = {0};
  for (int y = 0; y < part.bottom; y++) {
    int last = y == part.bottom - 1 ? part.right : across;
    for (int x = 0; x < last; x++) {
      int needed = y >= part.top && x >= part.left && x < part.right;
      for (int n = 0; n < jpeg->count; n++) {
        struct component *component = &jpeg->components[n];
        int column = needed ? (x - part.left) * component->across * component->size : -1;
        int row = needed ? (y - part.top) * component->down * component->size : 0;
        if (!decode_mcu(component, cells, bits, block, column, row)) return 0;
      }
      if (bits->count < bits->made_up) return 0; /* there is less than there should be */
    }
  }
  return 1;
}

static int decode_cells_anywhere(struct ordinary *jpeg, const struct cells *cells, struct bits *bits,
                                 int across, struct part part) {
  return decode_mcus(jpeg, cells, bits, across, part);
}

#if defined(__x86_64__)
/* With shifts that leave the flags alone. */
__attribute__((target("bmi,bmi2"))) static int decode_cells_bmi2(struct ordinary *jpeg,
                                                                 const struct cells *cells,
                                                                 struct bits *bits, int across,
                                                                 struct part part) {
  return decode_mcus(jpeg, cells, bits, across, part);
}
#endif

static int decode_cells(struct ordinary *jpeg, const struct cells *cells, struct bits *bits, int across,
                        struct part part) {
#if defined(__x86_64__)
  if (has_bmi2()) return decode_cells_bmi2(jpeg, cells, bits, across, part);
#endif
  return decode_cells_anywhere(jpeg, cells, bits, across, part);
}

/* Returns whether what follows is as it should be: there is an end, behind the rows that are not
   decoded, as one that was cut short is shown by nobody, whatever of it is wanted; and it follows at
   once where all rows are. */
static int ends_well(const struct bits *bits, int all) {
  const uint8_t *at = bits->at, *end = bits->end;
  if (all && (bits->count - bits->made_up >= 8 || end - at < 2 || at[0] != 0xFF)) return 0;
  while ((at = memchr(at, 0xFF, (size_t)(end - at))) && end - at >= 2) {
    if (at[1] && at[1] != 0xFF) return at[1] == 0xD9;
    if (all) return 0;
    at++;
  }
  return 0;
}

/* --- the picture --- */

/* Repeats the first and last column that the picture has, for what is smoothed with neighbours. */
static void extend(struct component *component, int columns, int rows) {
  int end = component->width - component->left;
  for (int row = 0; row < rows; row++) {
    uint8_t *line = component->plane + row * component->row;
    if (!component->left) line[-1] = line[0];
    if (end <= columns) line[end] = line[end - 1];
  }
}

static const uint8_t *line_of(const struct component *component, int row) {
  if (row < 0) row = 0;
  if (row >= component->height) row = component->height - 1;
  return component->plane + (ptrdiff_t)(row - component->top) * component->row;
}

/* Returns a line of a colour at full size, from an even column on. */
static const uint8_t *line_at_full_size(const struct component *component, const struct cells *cells,
                                        int row, int left, int right, uint8_t *memory) {
  if (component->expand_across == 1) return line_of(component, row) + left - component->left;
  int first = left / 2, count = (right + 1) / 2 - first;
  const uint8_t *near = line_of(component, row / component->expand_down) + first - component->left;
  if (component->expand_down == 2) {
    const uint8_t *far =
        line_of(component, row / 2 + (row % 2 ? 1 : -1)) + first - component->left;
    cells->double_rows(near, far, (uint16_t *)memory, count);
  } else {
    cells->double_row(near, (uint16_t *)memory, count);
  }
  return memory;
}

static int divided(int value, int by) { return (value + by - 1) / by; }

enum status decode_ordinary(struct workspace *space, struct bytes file, int eighths, struct part part,
                            int grey, struct pixels *out) {
  struct ordinary *jpeg = space->ordinary;
  const uint8_t *coded = read_headers(jpeg, file);
  if (!coded) return UNABLE;
  const struct component *first = &jpeg->components[0];
  int most_across = first->across, most_down = first->down;
  int mcu_width = most_across * eighths, mcu_height = most_down * eighths;
  int columns = divided(jpeg->width * eighths, 8), rows = divided(jpeg->height * eighths, 8);
  if (part.right > columns || part.bottom > rows) return UNABLE;
  int across = divided(jpeg->width, 8 * most_across), down = divided(jpeg->height, 8 * most_down);
  struct part mcus = {
      .top = part.top > 2 ? (part.top - 2) / mcu_height : 0,
      .bottom = divided(part.bottom + 2, mcu_height),
      .left = part.left > 2 ? (part.left - 2) / mcu_width : 0,
      .right = divided(part.right + 2, mcu_width),
  };
  if (mcus.bottom > down) mcus.bottom = down;
  if (mcus.right > across) mcus.right = across;

  size_t size = 0, places[3];
  for (int n = 0; n < jpeg->count; n++) {
    struct component *component = &jpeg->components[n];
    component->size = eighths;
    /* Colours at half the size have cells that are twice as large, where all is made smaller. */
    if (n && eighths < 8 && most_across == 2 && most_down == 2) component->size *= 2;
    component->expand_across = mcu_width / (component->across * component->size);
    component->expand_down = mcu_height / (component->down * component->size);
    component->width = divided(jpeg->width * component->across * component->size, most_across * 8);
    if (component->expand_across == 2 && (eighths == 1 || component->width <= 2))
      return UNABLE; /* libjpeg smooths nothing */
    component->height = divided(jpeg->height * component->down * component->size, most_down * 8);
    component->left = mcus.left * component->across * component->size;
    component->top = mcus.top * component->down * component->size;
    component->row = (mcus.right - mcus.left) * component->across * component->size + SLACK;
    component->last = 0;
    places[n] = size + SLACK;
    size += SLACK + (size_t)component->row * (size_t)(mcus.bottom - mcus.top) *
                        (size_t)(component->down * component->size);
  }
  out->rows = part.bottom - part.top;
  out->columns = part.right - part.left;
  out->channels = grey && jpeg->count == 1 ? 1 : 4;
  int left = part.left & ~1, width = part.right - left;
  out->row = (ptrdiff_t)width * out->channels;
  uint8_t *planes = room(&space->planes, size), *lines = room(&space->lines, 2 * (size_t)width + 4 * SLACK);
  uint8_t *pixels = room(&space->picture, (size_t)out->row * (size_t)out->rows);
  if (!planes || !lines || !pixels) return NO_MEMORY;
  for (int n = 0; n < jpeg->count; n++) jpeg->components[n].plane = planes + places[n];

  const struct cells *cells = BEST_OF(avx2_cells, plain_cells);
  struct bits bits = {.at = coded, .end = file.data + file.size};
  if (!decode_cells(jpeg, cells, &bits, across, mcus)) return UNABLE;
  if (bits.count <= 56) refill_slowly(&bits); /* up to the end, where that is near */
  if (!ends_well(&bits, mcus.bottom == down && mcus.right == across)) return UNABLE;

  for (int n = 1; n < jpeg->count; n++) {
    struct component *component = &jpeg->components[n];
    if (component->expand_across == 2)
      extend(component, (mcus.right - mcus.left) * component->across * component->size,
             (mcus.bottom - mcus.top) * component->down * component->size);
  }
  uint8_t *other = lines + ((size_t)width + 2 * SLACK) / SLACK * SLACK;
  for (int row = 0; row < out->rows; row++) {
    uint8_t *to = pixels + row * out->row;
    const uint8_t *light = line_of(first, part.top + row) + left - first->left, *blue = light, *red = light;
    if (out->channels == 1) {
      memcpy(to, light, (size_t)width);
      continue;
    }
    if (jpeg->count == 3) {
      blue = line_at_full_size(&jpeg->components[1], cells, part.top + row, left, part.right, lines);
      red = line_at_full_size(&jpeg->components[2], cells, part.top + row, left, part.right, other);
      cells->to_colours(light, blue, red, (uint32_t *)to, width);
    } else {
      for (int n = 0; n < width; n++) memset(to + 4 * n, light[n], 4);
    }
  }
  out->data = pixels + (part.left - left) * out->channels;
  return DONE;
}
