/* Runs target.c over files, without libFuzzer, and then all of them as one batch in several threads:

       replay FILE... */

#include <stdio.h>
#include <stdlib.h>

#include "../kernel/kernel.h"

enum { THREADS = 4, SIDE = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct bytes load(const char *name) {
  FILE *file = fopen(name, "rb");
  if (!file || fseek(file, 0, SEEK_END)) exit(2);
  size_t size = (size_t)ftell(file);
  uint8_t *data = malloc(size + 1);
  rewind(file);
  if (!data || fread(data, 1, size, file) != size) exit(2);
  fclose(file);
  return (struct bytes){data, size};
}

int main(int argc, char **argv) {
  uint32_t hash = 2166136261; /* FNV-1a */
  size_t count = (size_t)argc - 1, done = 0, bytes = (size_t)SIDE * SIDE * 3;
  struct bytes *files = calloc(count + 1, sizeof *files);
  struct job *jobs = calloc(count + 1, sizeof *jobs);
  uint8_t *status = calloc(count + 1, 1), *out = malloc(count * bytes + 1);
  if (!files || !jobs || !status || !out) return 2;
  for (size_t n = 0; n < count; n++) {
    files[n] = load(argv[n + 1]);
    LLVMFuzzerTestOneInput(files[n].data, files[n].size);
    struct header header;
    read_header(files[n], &header);
    jobs[n] = (struct job){0, 0, header.width, header.height, SIDE, SIDE, 0, 0, SIDE, SIDE, 0, 1};
  }
  struct target target = {out, SIDE * 3, 3, 1, 3};
  make_batch(files, jobs, count, 1 << 20, target, (ptrdiff_t)bytes, THREADS, status);
  for (size_t n = 0; n < count; n++) {
    done += status[n] == DONE;
    for (size_t at = n * bytes; at < (n + 1) * bytes && status[n] == DONE; at++)
      hash = (hash ^ out[at]) * 16777619;
    free((void *)files[n].data);
  }
  free(files);
  free(jobs);
  free(status);
  free(out);
  printf("%zu files, %zu of them whole, hash of their pixels %08x\n", count, done, (unsigned)hash);
  return 0;
}
