/* One input for libFuzzer: a file, and behind it the numbers that its job is made of.

   The file is decoded by the plain inner loops and by the best ones, and a part of it by the decoder
   for ordinary JPEGs and by libjpeg-turbo. They have to say the same, and to write nothing but the
   pixels of the result. */

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "../kernel/kernel.h"

enum { NUMBERS = 16, MOST_PIXELS = 1 << 20, MOST_SIDE = 96, UNTOUCHED = 0xA5, MOST_COEFFICIENT = 1400 };

static int32_t below(const uint8_t *number, int32_t most) {
  return most > 0 ? (int32_t)((number[0] | (uint32_t)number[1] << 8) % (uint32_t)most) : 0;
}

/* Returns a job that makes sense for the picture, most of the time. */
static struct job make_job(const uint8_t *numbers, const struct header *header) {
  int orientation = 1 + (numbers[0] & 7), turned = orientation >= 5;
  int width = turned ? header->height : header->width, height = turned ? header->width : header->height;
  struct job job = {
      .x = below(numbers + 2, width),
      .y = below(numbers + 3, height),
      .rows = 1 + below(numbers + 6, 2 * MOST_SIDE),
      .columns = 1 + below(numbers + 7, 2 * MOST_SIDE),
      .out_rows = 1 + below(numbers + 10, MOST_SIDE),
      .out_columns = 1 + below(numbers + 11, MOST_SIDE),
      .flip = numbers[0] >> 3 & 1,
      .orientation = orientation,
  };
  job.width = 1 + below(numbers + 4, width - job.x);
  job.height = 1 + below(numbers + 5, height - job.y);
  if (numbers[0] & 16) { /* the whole picture, a window that ends with the result */
    job.x = job.y = 0;
    job.width = width;
    job.height = height;
    job.rows = job.out_rows;
    job.columns = job.out_columns;
  } else {
    job.top = (int8_t)numbers[12];
    job.left = (int8_t)numbers[13];
  }
  if (numbers[0] & 32 && numbers[14] < 48) { /* one that makes none: any number in any place */
    int32_t any;
    memcpy(&any, numbers + 4, sizeof any);
    int32_t *fields[] = {&job.x,    &job.y,       &job.width, &job.height, &job.rows,
                         &job.columns, &job.top, &job.left,   &job.orientation};
    *fields[numbers[14] % (sizeof fields / sizeof *fields)] = any;
  }
  return job;
}

static enum status make(struct workspace *space, struct bytes file, const struct job *job,
                        int channels, int planes, int plain, uint8_t *out, size_t size) {
  struct target target = {.data = out, .channels = channels};
  target.column = planes ? 1 : channels;
  target.row = job->out_columns * target.column;
  target.channel = planes ? (ptrdiff_t)job->out_rows * job->out_columns : 1;
  memset(out, UNTOUCHED, size);
  use_plain_loops(plain);
  return make_image(space, file, job, MOST_PIXELS, &target);
}

static jmp_buf back;

static void go_back(j_common_ptr jpeg) {
  (void)jpeg;
  longjmp(back, 1);
}

static void say_nothing(j_common_ptr jpeg, int level) { (void)jpeg, (void)level; }

static void complain(j_common_ptr jpeg, int level) {
  if (level < 0) go_back(jpeg);
}

/* Returns what is found of a file whose header libjpeg-turbo has read; 0 where an error comes first. */
static int look(struct bytes file, void (*message)(j_common_ptr, int),
                int (*find)(j_decompress_ptr)) {
  struct jpeg_error_mgr errors;
  static struct jpeg_decompress_struct jpeg;
  jpeg.err = jpeg_std_error(&errors);
  errors.error_exit = go_back;
  errors.emit_message = message;
  volatile int found = 0;
  if (!setjmp(back)) {
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, file.data, file.size);
    jpeg_read_header(&jpeg, TRUE);
    found = find(&jpeg);
  }
  jpeg_destroy_decompress(&jpeg);
  return found;
}

/* Returns whether all coefficients are such as pictures have. Of others libjpeg-turbo's own vector
   code and plain code make different pixels. */
static int is_in_range(j_decompress_ptr jpeg) {
  jvirt_barray_ptr *all = jpeg_read_coefficients(jpeg);
  for (int n = 0; n < jpeg->num_components; n++) {
    const jpeg_component_info *part = &jpeg->comp_info[n];
    for (JDIMENSION y = 0; y < part->height_in_blocks; y++) {
      JBLOCKARRAY row = jpeg->mem->access_virt_barray((j_common_ptr)jpeg, all[n], y, 1, FALSE);
      for (JDIMENSION x = 0; x < part->width_in_blocks; x++)
        for (int k = 0; k < DCTSIZE2; k++)
          if (abs(row[0][x][k] * part->quant_table->quantval[k]) > MOST_COEFFICIENT) return 0;
    }
  }
  return 1;
}

/* Returns whether all is right that is before the coded data. */
static int starts(j_decompress_ptr jpeg) {
  jpeg_start_decompress(jpeg);
  return 1;
}

/* Decodes a part by both decoders, if the first one takes it. */
static void compare_decoders(struct workspace *one, struct workspace *other, struct bytes file,
                             const struct header *header, const uint8_t *numbers) {
  int eighths = 1 << (numbers[15] & 3), grey = numbers[15] >> 2 & 1;
  if (!header->width || (int64_t)header->width * header->height > MOST_PIXELS) return;
  int columns = (header->width * eighths + 7) / 8, rows = (header->height * eighths + 7) / 8;
  struct part part = {.top = below(numbers + 2, rows), .left = below(numbers + 3, columns)};
  part.bottom = part.top + 1 + below(numbers + 4, rows - part.top);
  part.right = part.left + 1 + below(numbers + 5, columns - part.left);
  struct pixels own, theirs;
  use_plain_loops(1); /* the best ones were compared with them already */
  if (decode_ordinary(one, file, eighths, part, grey, &own) != DONE) return;
  if (!look(file, complain, starts)) abort();
  enum status status = decode_part(other, file, eighths, part, grey, &theirs);
  if (status == DAMAGED) return; /* libjpeg-turbo looks at more of the last rows than is wanted */
  if (status != DONE) abort();
  if (!look(file, say_nothing, is_in_range)) return;
  if (own.rows != theirs.rows || own.columns != theirs.columns || own.channels != theirs.channels)
    abort();
  for (int row = 0; row < own.rows; row++)
    for (int n = 0; n < own.columns * own.channels; n++)
      if ((own.channels == 1 || n % 4 != 3) &&
          own.data[row * own.row + n] != theirs.data[row * theirs.row + n])
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < NUMBERS) return -1;
  uint8_t numbers[NUMBERS];
  memcpy(numbers, data + size - NUMBERS, NUMBERS);
  size -= NUMBERS;
  uint8_t *copy = malloc(size + !size); /* so that one byte too many is noticed */
  memcpy(copy, data, size);
  struct bytes file = {copy, size};
  struct header header;
  read_header(file, &header);
  struct job job = make_job(numbers, &header);
  int channels = numbers[0] & 64 ? 1 : 3, planes = numbers[0] >> 7;
  size_t count = (size_t)job.out_rows * (size_t)job.out_columns * (size_t)channels;
  uint8_t *one = malloc(count), *other = malloc(count);

  static struct workspace *kept; /* as in a batch: it has decoded others before */
  struct workspace *fresh = new_workspace();
  if (!kept) kept = new_workspace();
  enum status plain = make(fresh, file, &job, channels, planes, 1, one, count);
  enum status best = make(kept, file, &job, channels, planes, 0, other, count);
  if (plain != best || (plain == DONE && memcmp(one, other, count))) abort();

  compare_decoders(fresh, kept, file, &header, numbers);
  free_workspace(fresh);
  free(one);
  free(other);
  free(copy);
  return 0;
}
