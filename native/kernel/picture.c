/* As much of a JPEG as is needed, by libjpeg-turbo.

   Undoing the entropy coding takes most of the time, and is only possible from the first row on. What
   can be left out is the rest of the work for what lies above, left and right of the part, and
   everything below it. */

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "kernel.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "jpeglib.h is that of another libjpeg: install libjpeg-turbo's (Debian: libjpeg62-turbo-dev)"
#endif

#define TEXT(name) #name
#define TEXT_OF(macro) TEXT(macro)

const char library[] = "libjpeg-turbo " TEXT_OF(LIBJPEG_TURBO_VERSION);

struct decoder {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  jmp_buf back;
};

static void go_back(j_common_ptr jpeg) { longjmp(((struct decoder *)jpeg)->back, 1); }

/* Any complaint ends it: what is right then is for others to say. */
static void complain(j_common_ptr jpeg, int level) {
  if (level < 0) go_back(jpeg);
}

static void say_nothing(j_common_ptr jpeg) { (void)jpeg; }

struct decoder *new_decoder(void) {
  struct decoder *decoder = calloc(1, sizeof *decoder);
  if (!decoder) return NULL;
  decoder->jpeg.err = jpeg_std_error(&decoder->errors);
  decoder->errors.error_exit = go_back;
  decoder->errors.emit_message = complain;
  decoder->errors.output_message = say_nothing;
  return decoder;
}

void free_decoder(struct decoder *decoder) { free(decoder); }

/* Pillow's conversion (Convert.c), of values that are stored inverted, as Adobe does. */
static void cmyk_to_rgb(uint8_t *pixels, size_t count) {
  for (; count; count--, pixels += 4) {
    int black = pixels[3];
    for (int channel = 0; channel < 3; channel++) {
      int product = (255 - pixels[channel]) * black + 128;
      pixels[channel] = (uint8_t)(black - ((product + (product >> 8)) >> 8));
    }
  }
}

/* Returns whether Python's side, by TurboJPEG, decodes such pictures at less than their size: others it
   leaves to Pillow, which decodes them whole. */
static int can_be_reduced(j_decompress_ptr jpeg) {
  if (jpeg->num_components == 1) return !jpeg->arith_code;
  const jpeg_component_info *parts = jpeg->comp_info;
  int across = parts[0].h_samp_factor, down = parts[0].v_samp_factor;
  return !jpeg->arith_code && jpeg->num_components == 3 && parts[1].h_samp_factor == 1 &&
         parts[1].v_samp_factor == 1 && parts[2].h_samp_factor == 1 && parts[2].v_samp_factor == 1 &&
         across != 3 && down <= 2 && across * down <= 4;
}

/* Returns whether the file has an end, behind the rows that are not decoded: one that was cut short is
   shown by nobody, whatever of it is wanted. */
static int has_end(j_decompress_ptr jpeg) {
  if (jpeg_input_complete(jpeg)) return 1;
  const uint8_t *at = jpeg->src->next_input_byte, *stop = at + jpeg->src->bytes_in_buffer;
  int marker = jpeg->unread_marker;
  while (marker == 0 || (marker >= JPEG_RST0 && marker <= JPEG_RST0 + 7)) {
    at = memchr(at, 0xFF, (size_t)(stop - at));
    if (!at || stop - at < 2) return 0;
    marker = at[1] == 0xFF ? 0 : at[1]; /* padding; and 0 stands behind an 0xFF of the pixels */
    at++;
  }
  return marker == JPEG_EOI;
}

/* Returns whether all of each coefficient was there. Where scans of a progressive picture are missing,
   libjpeg-turbo smooths it with neighbours beyond the part, and each version in another way. */
static int is_complete(j_decompress_ptr jpeg) {
  for (int n = 0; jpeg->coef_bits && n < jpeg->num_components; n++)
    for (int k = 0; k < DCTSIZE2; k++)
      if (jpeg->coef_bits[n][k]) return 0;
  return 1;
}

enum status decode_part(struct workspace *space, struct bytes file, int eighths, struct part part,
                        int grey, struct pixels *out) {
  struct decoder *decoder = space->decoder;
  j_decompress_ptr jpeg = &decoder->jpeg;
  if (setjmp(decoder->back)) {
    int lacks = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    jpeg_destroy_decompress(jpeg);
    return lacks ? NO_MEMORY : DAMAGED;
  }
  jpeg_create_decompress(jpeg); /* for each picture: tables that one lacks are not the last one's */
  jpeg_mem_src(jpeg, file.data, (unsigned long)file.size);
  jpeg_read_header(jpeg, TRUE);
  if (eighths < 8 && !can_be_reduced(jpeg)) {
    jpeg_destroy_decompress(jpeg);
    return UNABLE;
  }
  int channels = grey && jpeg->num_components == 1 ? 1 : 4;
  jpeg->out_color_space = channels == 1               ? JCS_GRAYSCALE
                          : jpeg->num_components == 4 ? JCS_CMYK
                                                      : JCS_EXT_RGBX;
  jpeg->scale_num = (unsigned)eighths;
  jpeg->scale_denom = 8;
  jpeg_start_decompress(jpeg);
  if (!is_complete(jpeg)) {
    jpeg_destroy_decompress(jpeg);
    return UNABLE;
  }
  if (part.bottom > (int)jpeg->output_height || part.right > (int)jpeg->output_width) {
    jpeg_destroy_decompress(jpeg);
    return DAMAGED; /* its second header says otherwise */
  }
  /* Colours that are stored at half the size are smoothed with their neighbours. */
  JDIMENSION left = (JDIMENSION)part.left, more = 2 * (JDIMENSION)jpeg->max_h_samp_factor;
  JDIMENSION begin = left > more ? left - more : 0;
  JDIMENSION width = (JDIMENSION)part.right + more - begin;
  if (width > jpeg->output_width - begin) width = jpeg->output_width - begin;
  if (begin || width < jpeg->output_width) jpeg_crop_scanline(jpeg, &begin, &width);
  if (part.top) jpeg_skip_scanlines(jpeg, (JDIMENSION)part.top);

  out->channels = channels;
  out->rows = part.bottom - part.top;
  out->columns = part.right - part.left;
  out->row = (ptrdiff_t)width * channels;
  uint8_t *pixels = room(&space->picture, (size_t)out->row * (size_t)out->rows);
  if (!pixels) {
    jpeg_destroy_decompress(jpeg);
    return NO_MEMORY;
  }
  for (int row = 0; row < out->rows;) {
    JSAMPROW rows[16];
    int ahead = 0;
    for (; ahead < 16 && row + ahead < out->rows; ahead++)
      rows[ahead] = pixels + (ptrdiff_t)(row + ahead) * out->row;
    row += (int)jpeg_read_scanlines(jpeg, rows, (JDIMENSION)ahead);
  }
  if (jpeg->num_components == 4) cmyk_to_rgb(pixels, (size_t)width * (size_t)out->rows);
  out->data = pixels + (ptrdiff_t)(left - begin) * channels;
  int whole = jpeg->output_scanline < jpeg->output_height ? has_end(jpeg) : jpeg_finish_decompress(jpeg);
  jpeg_destroy_decompress(jpeg);
  return whole ? DONE : DAMAGED;
}
