/* From the bytes of a JPEG to its place in a batch. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { MOST_PIXELS_OF_A_SIDE = 1 << 20 };

struct workspace *new_workspace(void) {
  struct workspace *space = calloc(1, sizeof *space);
  if (!space) return NULL;
  space->decoder = new_decoder();
  space->ordinary = new_ordinary();
  if (space->decoder && space->ordinary) return space;
  free_workspace(space);
  return NULL;
}

enum { MEMORIES = 9 };

static void memories_of(struct workspace *space, struct memory *all[MEMORIES]) {
  struct memory *found[MEMORIES] = {&space->picture,    &space->planes,     &space->lines,
                                    &space->turned,     &space->weights[0], &space->weights[1],
                                    &space->wide,       &space->across,     &space->row};
  memcpy(all, found, sizeof found);
}

void free_workspace(struct workspace *space) {
  struct memory *all[MEMORIES];
  memories_of(space, all);
  for (int n = 0; n < MEMORIES; n++) free(all[n]->data);
  free_decoder(space->decoder);
  free(space->ordinary);
  free(space);
}

size_t size_of(struct workspace *space) {
  struct memory *all[MEMORIES];
  size_t size = 0;
  memories_of(space, all);
  for (int n = 0; n < MEMORIES; n++) size += all[n]->size;
  return size;
}

/* Returns the smallest size at which nothing has to be made larger again, of those for which
   libjpeg-turbo has vector code. */
static int smallest_eighths(const struct job *job) {
  double across = (double)job->width / job->columns, down = (double)job->height / job->rows;
  double least = across < down ? across : down;
  for (int size = 1; size < 8; size *= 2)
    if (size * least >= 8) return size;
  return 8;
}

/* Returns how many pixels torch is told to make for a window that ends at `stop`: what lies behind
   it is left out. As many as there are to make them of would be taken for no change at all. */
static int made(int length, int stop, int source) {
  if (stop >= length) return length;
  return stop == source ? stop + 1 : stop;
}

/* Describes how an axis is resized. `wanted` pixels of a result of `length` are asked for, from
   `begin` on, which can lie outside; `scaled` is the part's exact length, `source` its pixels. */
static struct axis describe(int length, int begin, int wanted, double scaled, int source, int same) {
  int stop = begin + wanted;
  struct axis axis = {.from = source, .length = same ? source : made(length, stop, source)};
  if (!same && axis.length != source) axis.step = 1 / (length / scaled);
  axis.begin = begin > 0 ? begin : 0;
  axis.end = stop < axis.length ? stop : axis.length;
  return axis;
}

static int turns(int orientation) { return orientation >= 5; }
static int upside_down(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}
static int right_to_left(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

/* Returns where a part of the upright picture lies in the stored one, of `rows` x `columns`. */
static struct part stored_part(struct part part, int orientation, int rows, int columns) {
  struct part found = part;
  if (turns(orientation)) {
    found = (struct part){part.left, part.right, part.top, part.bottom};
  }
  if (upside_down(orientation)) {
    int top = rows - found.bottom;
    found.bottom = rows - found.top;
    found.top = top;
  }
  if (right_to_left(orientation)) {
    int left = columns - found.right;
    found.right = columns - found.left;
    found.left = left;
  }
  return found;
}

/* Turns pixels upright. */
static enum status turn(struct memory *memory, struct pixels *pixels, int orientation) {
  int rows = turns(orientation) ? pixels->columns : pixels->rows;
  int columns = turns(orientation) ? pixels->rows : pixels->columns, channels = pixels->channels;
  uint8_t *out = room(memory, (size_t)rows * (size_t)columns * (size_t)channels);
  if (!out) return NO_MEMORY;
  ptrdiff_t down = pixels->row, across = channels;
  const uint8_t *from = pixels->data;
  if (upside_down(orientation)) {
    from += down * (pixels->rows - 1);
    down = -down;
  }
  if (right_to_left(orientation)) {
    from += across * (pixels->columns - 1);
    across = -across;
  }
  if (turns(orientation)) {
    ptrdiff_t other = down;
    down = across;
    across = other;
  }
  uint8_t *to = out;
  for (int row = 0; row < rows; row++) {
    const uint8_t *at = from + row * down;
    for (int column = 0; column < columns; column++, at += across, to += channels)
      memcpy(to, at, (size_t)channels);
  }
  *pixels = (struct pixels){out, (ptrdiff_t)columns * channels, rows, columns, channels};
  return DONE;
}

/* Makes colours grey, in place, as Pillow does (Convert.c; ITU-R BT.601). */
static void make_grey(struct pixels *pixels) {
  for (int row = 0; row < pixels->rows; row++) {
    const uint8_t *in = pixels->data + row * pixels->row;
    uint8_t *out = pixels->data + row * pixels->row;
    for (int column = 0; column < pixels->columns; column++, in += 4)
      out[column] = (uint8_t)((in[0] * 19595 + in[1] * 38470 + in[2] * 7471 + 0x8000) >> 16);
  }
  pixels->channels = 1;
}

static void make_black(const struct job *job, const struct target *target) {
  int size = job->out_columns * target->channels;
  for (int row = 0; row < job->out_rows; row++) {
    uint8_t *at = target->data + row * target->row;
    if (target->channel == 1 && target->column == target->channels) {
      memset(at, 0, (size_t)size);
      continue;
    }
    for (int column = 0; column < job->out_columns; column++, at += target->column)
      for (int channel = 0; channel < target->channels; channel++) at[channel * target->channel] = 0;
  }
}

static int makes_sense(const struct job *job, int width, int height) {
  int most = MOST_PIXELS_OF_A_SIDE;
  return job->x >= 0 && job->y >= 0 && job->width > 0 && job->height > 0 &&
         job->width <= width - job->x && job->height <= height - job->y && job->rows > 0 &&
         job->columns > 0 && job->rows <= most && job->columns <= most && job->top > -most &&
         job->left > -most && job->top < most && job->left < most && job->out_rows > 0 &&
         job->out_columns > 0 && job->out_rows <= most && job->out_columns <= most &&
         job->orientation >= 1 && job->orientation <= 8;
}

static int clipped(double value, int most) { return value < most ? (int)value : most; }

enum status make_image(struct workspace *space, struct bytes file, const struct job *job,
                       int64_t max_pixels, const struct target *target) {
  struct header header;
  read_header(file, &header);
  int64_t count = (int64_t)header.width * header.height;
  if (!count || (max_pixels > 0 && count > max_pixels)) return UNABLE;
  if (header.components == 4 && target->channels == 1) return UNABLE;
  int turned = turns(job->orientation);
  int width = turned ? header.height : header.width, height = turned ? header.width : header.height;
  if (!makes_sense(job, width, height)) return UNABLE;

  int eighths = smallest_eighths(job);
  /* The last pixels would be parts of one, and come first when turned. */
  if (job->orientation != 1 && (width * eighths % 8 || height * eighths % 8)) eighths = 8;
  double scale = eighths / 8.0;
  int columns = (width * eighths + 7) / 8, rows = (height * eighths + 7) / 8;
  struct part part = {
      .top = (int)nearbyint(job->y * scale),
      .bottom = clipped(ceil((job->y + job->height) * scale), rows),
      .left = (int)nearbyint(job->x * scale),
      .right = clipped(ceil((job->x + job->width) * scale), columns),
  };
  if (part.bottom <= part.top || part.right <= part.left) return UNABLE;

  double high = job->height * scale, wide = job->width * scale;
  int same = job->rows == high && job->columns == wide;
  struct axis down = describe(job->rows, job->top, job->out_rows, high, part.bottom - part.top, same);
  struct axis across =
      describe(job->columns, job->left, job->out_columns, wide, part.right - part.left, same);
  across.mirrored = job->flip;
  int inner_rows = down.end - down.begin, inner_columns = across.end - across.begin;
  if (inner_rows < job->out_rows || inner_columns < job->out_columns) make_black(job, target);
  if (inner_rows <= 0 || inner_columns <= 0) return DONE;

  struct weights by_row, by_column;
  enum status status = weigh(&down, &space->weights[0], &by_row);
  if (status == DONE) status = weigh(&across, &space->weights[1], &by_column);
  if (status != DONE) return status;
  part.bottom = part.top + by_row.highest;
  part.top += by_row.lowest;
  part.right = part.left + by_column.highest;
  part.left += by_column.lowest;

  struct pixels pixels;
  part = stored_part(part, job->orientation, turned ? columns : rows, turned ? rows : columns);
  status = decode_ordinary(space, file, eighths, part, target->channels == 1, &pixels);
  if (status == UNABLE)
    status = decode_part(space, file, eighths, part, target->channels == 1, &pixels);
  if (status == DONE && job->orientation != 1) status = turn(&space->turned, &pixels, job->orientation);
  if (status != DONE) return status;
  if (target->channels == 1 && pixels.channels == 4) make_grey(&pixels);

  struct target inner = *target;
  int above = job->top < 0 ? -job->top : 0, before = job->left < 0 ? -job->left : 0;
  if (job->flip) before = job->out_columns - before - inner_columns;
  inner.data += above * target->row + before * target->column;
  return resize(space, &pixels, &by_row, &by_column, &inner);
}
