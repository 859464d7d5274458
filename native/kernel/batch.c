/* Many images, in several threads, each with a workspace that is kept for the next batch. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernel.h"

enum {
  MOST_THREADS = 256,
  MOST_KEPT = 64 << 20, /* bytes: a few huge pictures would hold on to their memory for ever */
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct workspace *idle;

/* A process that is made by fork, while another thread holds the guard, could never take it. */
static void lock(void) { pthread_mutex_lock(&guard); }
static void unlock(void) { pthread_mutex_unlock(&guard); }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(lock, unlock, unlock); }

static struct workspace *take_workspace(void) {
  lock();
  struct workspace *space = idle;
  if (space) idle = space->next;
  unlock();
  return space ? space : new_workspace();
}

static void give_back(struct workspace *space) {
  if (size_of(space) > MOST_KEPT) {
    free_workspace(space);
    return;
  }
  lock();
  space->next = idle;
  idle = space;
  unlock();
}

struct batch {
  const struct bytes *files;
  const struct job *jobs;
  size_t count;
  int64_t max_pixels;
  struct target target;
  ptrdiff_t step;
  uint8_t *status;
  atomic_size_t next;
};

static void *work(void *given) {
  struct batch *batch = given;
  struct workspace *space = take_workspace();
  size_t n;
  while ((n = atomic_fetch_add(&batch->next, 1)) < batch->count) {
    struct target target = batch->target;
    target.data += (ptrdiff_t)n * batch->step;
    batch->status[n] = (uint8_t)(space ? make_image(space, batch->files[n], &batch->jobs[n],
                                                    batch->max_pixels, &target)
                                       : NO_MEMORY);
  }
  if (space) give_back(space);
  return NULL;
}

void make_batch(const struct bytes *files, const struct job *jobs, size_t count, int64_t max_pixels,
                struct target target, ptrdiff_t step, int threads, uint8_t *status) {
  struct batch batch = {files, jobs, count, max_pixels, target, step, status, 0};
  pthread_t others[MOST_THREADS];
  int started = 0;
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  if ((size_t)threads > count) threads = (int)count;
  while (started < threads - 1 && !pthread_create(&others[started], NULL, work, &batch)) started++;
  work(&batch); /* this thread is one of them, and does it all where no other can be had */
  while (started) pthread_join(others[--started], NULL);
}
