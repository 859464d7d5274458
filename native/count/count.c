/* Decodes files one after the other, for callgrind to count instructions: count MODE FILE...

   MODE is ordinary or turbo: whole pictures, by either decoder; or crop: 256 pixels on the shorter
   side, of which the middle 224 are made. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernel/kernel.h"

enum { SIDE = 256, CROP = 224 };

static struct bytes contents(const char *name) {
  FILE *file = fopen(name, "rb");
  if (!file) exit((perror(name), 1));
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  uint8_t *data = malloc(size + 1);
  rewind(file);
  if (!data || fread(data, 1, size, file) != size) exit((perror(name), 1));
  fclose(file);
  return (struct bytes){data, size};
}

int main(int count, char **words) {
  static uint8_t made[CROP * CROP * 3];
  struct workspace *space = new_workspace();
  int bad = 0;
  for (int n = 2; n < count; n++) {
    struct bytes file = contents(words[n]);
    struct header header;
    struct pixels pixels;
    read_header(file, &header);
    struct part all = {0, header.height, 0, header.width};
    int wide = header.width > header.height, shorter = wide ? header.height : header.width;
    struct job job = {.width = header.width, .height = header.height, .out_rows = CROP, .out_columns = CROP};
    job.rows = shorter ? SIDE * header.height / shorter : 0;
    job.columns = shorter ? SIDE * header.width / shorter : 0;
    job.top = (job.rows - CROP) / 2;
    job.left = (job.columns - CROP) / 2;
    job.orientation = 1;
    struct target target = {made, CROP * 3, 3, 1, 3};
    enum status status = !strcmp(words[1], "crop")   ? make_image(space, file, &job, 0, &target)
                         : !strcmp(words[1], "turbo") ? decode_part(space, file, 8, all, 0, &pixels)
                                                      : decode_ordinary(space, file, 8, all, 0, &pixels);
    bad += status != DONE;
    free((void *)file.data);
  }
  free_workspace(space);
  if (bad) fprintf(stderr, "count: %d of %d files were not decoded\n", bad, count - 2);
  return 0;
}
