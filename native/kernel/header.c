/* What a JPEG says of itself, without decoding anything (ITU-T T.81, annex B; EXIF 2.3, 4.6). */

#include <string.h>

#include "kernel.h"

enum {
  MOST_BLOCK = 65533,
  ORIENTATION = 0x0112,
  SHORT = 3,
};

struct order {
  const uint8_t *data;
  size_t size;
  int little;
};

static uint32_t two(const struct order *order, size_t at) {
  const uint8_t *p = order->data + at;
  return order->little ? (uint32_t)(p[0] | p[1] << 8) : (uint32_t)(p[0] << 8 | p[1]);
}

static uint32_t four(const struct order *order, size_t at) {
  uint32_t one = two(order, at), other = two(order, at + 2);
  return order->little ? one | other << 16 : one << 16 | other;
}

/* Returns the orientation of an EXIF block, 0 where it says something else than a plain one. */
static int read_exif(const uint8_t *data, size_t size) {
  if (size < 14) return 0;
  struct order block = {data, size, data[0] == 'I'};
  if ((memcmp(data, "II*\0", 4) && memcmp(data, "MM\0*", 4))) return 0;
  size_t at = four(&block, 4);
  if (at > size - 2) return 0;
  size_t entries = two(&block, at);
  if (size - at - 2 < entries * 12) return 0;
  for (at += 2; entries; entries--, at += 12) {
    if (two(&block, at) != ORIENTATION) continue;
    int value = (int)two(&block, at + 8);
    int plain = two(&block, at + 2) == SHORT && four(&block, at + 4) == 1;
    return plain && value >= 1 && value <= 8 ? value : 0;
  }
  return 1;
}

void read_header(struct bytes file, struct header *header) {
  const uint8_t *data = file.data;
  size_t size = file.size, at = 2;
  int blocks = 0;
  memset(header, 0, sizeof *header);
  if (size < 4 || data[0] != 0xFF || data[1] != 0xD8) return;
  struct header found = {.orientation = 1};
  while (size - at >= 4) {
    if (data[at] != 0xFF) return;
    int marker = data[at + 1];
    if (marker == 0xFF) { /* padding */
      at++;
      continue;
    }
    size_t length = (size_t)(data[at + 2] << 8 | data[at + 3]);
    if (length < 2 || size - at - 2 < length) return;
    const uint8_t *block = data + at + 4;
    size_t inside = length - 2;
    switch (marker) {
      case 0xC0: case 0xC1: case 0xC2: case 0xC9: case 0xCA: /* 8 bits, Huffman or arithmetic */
        if (inside < 6 || block[0] != 8) return;
        found.height = block[1] << 8 | block[2];
        found.width = block[3] << 8 | block[4];
        found.components = block[5];
        break;
      case 0xC3: case 0xC5: case 0xC6: case 0xC7: case 0xCB: case 0xCD: case 0xCE: case 0xCF:
        return; /* lossless, or hierarchical */
      case 0x01: case 0xD0: case 0xD1: case 0xD2: case 0xD3: case 0xD4: case 0xD5: case 0xD6: case 0xD7:
        return; /* no block follows: libjpeg-turbo would go on elsewhere, and might find another size */
      case 0xE1:
        if (inside >= 6 && !memcmp(block, "Exif\0\0", 6)) {
          found.orientation = blocks ? 0 : read_exif(block + 6, inside - 6);
          blocks = 1;
        } else if (inside >= 29 && !memcmp(block, "http://ns.adobe.com/xap/1.0/\0", 29)) {
          /* XMP has a say where EXIF has none. */
          if (found.orientation == 1) found.orientation = 0;
          blocks = 1;
        }
        break;
      case 0xDA:
        if (found.width && found.height &&
            (found.components == 1 || found.components == 3 || found.components == 4))
          *header = found;
        return;
    }
    at += 2 + length;
  }
}
