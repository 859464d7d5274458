/* One image: from the bytes of a JPEG to its place in a batch.

   header.c    what a JPEG says of itself
   ordinary.c  as much of its pixels as is needed, for JPEGs as nearly all are
   cells.c     its inner loops, for any processor; cells_avx2.c for those with AVX2
   picture.c   the same for all other JPEGs, by libjpeg-turbo
   resize.c    antialiased resizing, by torch's arithmetic
   rows.c      its inner loops, for any processor; rows_avx2.c for those with AVX2
   image.c     puts them together
   processor.c what it may use
   batch.c     many images, in several threads
   module.c    what Python sees */

#ifndef FASTCONV_KERNEL_H
#define FASTCONV_KERNEL_H

#include <stddef.h>
#include <stdint.h>

enum status {
  DONE = 0,
  UNABLE = 1, /* not an image for this kernel, or one with more pixels than allowed */
  DAMAGED = 2,
  NO_MEMORY = 3,
};

struct bytes {
  const uint8_t *data;
  size_t size;
};

/* What a JPEG says of itself; `width` is 0 where the kernel does not decode it. */
struct header {
  int32_t width, height;
  int32_t components; /* 1, 3 or 4 */
  int32_t orientation; /* 1 to 8, as EXIF has it; 0 where something is said that is not understood */
};

void read_header(struct bytes file, struct header *header);

int has_avx2(void);
int has_bmi2(void);
#if defined(__x86_64__)
#define BEST_OF(with_avx2, plain) (has_avx2() ? &(with_avx2) : &(plain))
#else
#define BEST_OF(with_avx2, plain) (&(plain))
#endif
void use_plain_loops(int plain); /* whatever the processor has; tests compare both */

extern const char library[]; /* that decodes: its name and version */

/* What becomes of one image: a part of it is resized, and a window of that is the result. Where the
   window lies outside, it is black. All is in pixels of the upright picture. */
struct job {
  int32_t x, y, width, height; /* the part */
  int32_t rows, columns;       /* what it is resized to */
  int32_t top, left;           /* where the window begins in that */
  int32_t out_rows, out_columns;
  int32_t flip;        /* left and right change places in the end */
  int32_t orientation; /* how the stored picture is turned to be upright */
};

struct target { /* steps in bytes */
  uint8_t *data;
  ptrdiff_t row, column, channel;
  int channels; /* 1 or 3 */
};

struct memory {
  uint8_t *data;
  size_t size;
};

/* What a thread uses again for each image. */
struct workspace {
  struct decoder *decoder;
  struct ordinary *ordinary;
  struct memory picture, planes, lines, turned, weights[2], wide, across, row;
  struct workspace *next;
};

struct workspace *new_workspace(void);
void free_workspace(struct workspace *space);
size_t size_of(struct workspace *space);

/* Returns that much memory, and SLACK zeros behind; NULL where there is none. What was in it is lost. */
void *room(struct memory *memory, size_t size);

/* Pixels side by side, `channels` bytes each: 4 (R, G, B and one that is not used) or 1. */
struct pixels {
  uint8_t *data;
  ptrdiff_t row; /* bytes from one row to the next */
  int rows, columns;
  int channels;
};

struct ordinary *new_ordinary(void);
struct decoder *new_decoder(void);
void free_decoder(struct decoder *decoder);

/* A part of a picture: rows `top` to `bottom`, columns `left` to `right`. */
struct part {
  int top, bottom, left, right;
};

/* Decodes a part of a picture at a size of `eighths` / 8, as it is when the whole is decoded; in one
   channel if `grey` is set and the picture has no colours. */
enum status decode_part(struct workspace *space, struct bytes file, int eighths, struct part part,
                        int grey, struct pixels *out);

/* The same, of an ordinary JPEG; UNABLE for all others and damaged ones. */
enum status decode_ordinary(struct workspace *space, struct bytes file, int eighths, struct part part,
                            int grey, struct pixels *out);

/* How one axis is resized. */
struct axis {
  int from;       /* pixels of the source */
  int length;     /* pixels of the result that torch would make, from the first one on */
  double step;    /* pixels of the source for one of the result; 0: they are the same */
  int begin, end; /* of the window, in the result */
  int mirrored;   /* whether the window is wanted from its end */
};

/* The weights of an axis. Each pixel of the window is the sum of `taps` neighbouring ones, from
   `first` on, by their weights, whose sum is `1 << precision`. One tap is a copy. */
struct weights {
  int count; /* pixels of the window */
  int taps, precision;
  int lowest, highest; /* the pixels of the source that are used: lowest <= n < highest */
  const int32_t *first;
  const int16_t *weight; /* `taps` for each pixel of the window, 0 for those that are too many */
};

enum status weigh(const struct axis *axis, struct memory *memory, struct weights *out);

/* The inner loops. Pixels of four bytes become pixels of three; up to `SLACK` bytes behind what is
   asked for are read and written. */
enum { SLACK = 64 };

struct rows {
  /* One row of pixels of four bytes; `wide` is made by `widen`. */
  void (*across)(const uint8_t *row, uint8_t *out, const struct weights *weights,
                 const int16_t *wide);
  /* One row of the result of `taps` rows, `step` bytes apart; exactly `size` bytes are written. */
  void (*down)(const uint8_t *rows, ptrdiff_t step, const int16_t *weight, int taps, int precision,
               uint8_t *out, int size);
  /* One row that is only copied. */
  void (*narrow)(const uint8_t *row, uint8_t *out, int count);
  /* How many weights of a pixel `across` takes at once. */
  int group;
};

extern const struct rows plain_rows, avx2_rows;

/* Resizes pixels, the first of which are the `lowest` ones of the weights, into the target. */
enum status resize(struct workspace *space, const struct pixels *source, const struct weights *down,
                   const struct weights *across, const struct target *target);

/* Makes one image. */
enum status make_image(struct workspace *space, struct bytes file, const struct job *job,
                       int64_t max_pixels, const struct target *target);

/* Makes `count` images in `threads` threads; `targets` are `step` bytes apart. */
void make_batch(const struct bytes *files, const struct job *jobs, size_t count, int64_t max_pixels,
                struct target target, ptrdiff_t step, int threads, uint8_t *status);

#endif
