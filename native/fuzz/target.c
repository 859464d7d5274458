/* One input for libFuzzer: a file, and behind it the numbers that its job is made of.

   The file is decoded by the plain inner loops and by the best ones. Both have to say the same, and
   to write nothing but the pixels of the result. */

#include <stdlib.h>
#include <string.h>

#include "../kernel/kernel.h"

enum { NUMBERS = 16, MOST_PIXELS = 1 << 20, MOST_SIDE = 96, UNTOUCHED = 0xA5 };

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

  free_workspace(fresh);
  free(one);
  free(other);
  free(copy);
  return 0;
}
