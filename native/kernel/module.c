/* What Python sees: `fastconv_native._kernel`. Its docstrings are in _kernel.pyi. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <string.h>

#include "kernel.h"

enum { INTERFACE = 1, HEADER_VALUES = 4, JOB_VALUES = 12 };

/* The encoded files of a batch, held while they are read. */
struct held {
  Py_ssize_t count;
  Py_buffer *buffers;
  struct bytes *files;
};

static void release(struct held *held) {
  for (Py_ssize_t n = 0; n < held->count; n++) PyBuffer_Release(&held->buffers[n]);
  PyMem_Free(held->buffers);
  PyMem_Free(held->files);
}

static int hold(PyObject *list, struct held *held) {
  Py_ssize_t count = PySequence_Check(list) ? PySequence_Size(list) : -1;
  memset(held, 0, sizeof *held);
  if (count < 0) {
    PyErr_SetString(PyExc_TypeError, "files has to be a sequence of buffers");
    return 0;
  }
  held->buffers = PyMem_Calloc((size_t)count + 1, sizeof *held->buffers);
  held->files = PyMem_Calloc((size_t)count + 1, sizeof *held->files);
  if (!held->buffers || !held->files) {
    release(held);
    PyErr_NoMemory();
    return 0;
  }
  for (Py_ssize_t n = 0; n < count; n++) {
    PyObject *file = PySequence_GetItem(list, n);
    int got = file ? PyObject_GetBuffer(file, &held->buffers[n], PyBUF_SIMPLE) : -1;
    Py_XDECREF(file);
    if (got) {
      PyErr_Clear();
      PyErr_Format(PyExc_TypeError, "files[%zd] has to be a contiguous buffer", n);
      release(held);
      return 0;
    }
    held->files[n] = (struct bytes){held->buffers[n].buf, (size_t)held->buffers[n].len};
    held->count = n + 1;
  }
  return 1;
}

static int get_buffer(PyObject *object, Py_buffer *view, int flags, const char *name) {
  if (!PyObject_GetBuffer(object, view, flags)) return 1;
  PyErr_Clear();
  PyErr_Format(PyExc_TypeError, "%s has to be a %sbuffer%s", name,
               flags & PyBUF_STRIDES ? "" : "contiguous ",
               flags & PyBUF_WRITABLE ? " that can be written to" : "");
  return 0;
}

/* Gets a C-contiguous table of `rows` rows, `size` bytes each. */
static int get_table(PyObject *object, Py_buffer *view, Py_ssize_t rows, Py_ssize_t size, int flags,
                     const char *name) {
  if (!get_buffer(object, view, flags, name)) return 0;
  if (view->len == rows * size) return 1;
  PyErr_Format(PyExc_ValueError, "%s has %zd bytes: for %zd files they are %zd, %zd each", name,
               view->len, rows, rows * size, size);
  PyBuffer_Release(view);
  return 0;
}

static PyObject *headers(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *list, *object;
  Py_buffer out;
  struct held held;
  if (!PyArg_ParseTuple(args, "OO:headers", &list, &object) || !hold(list, &held)) return NULL;
  if (!get_table(object, &out, held.count, HEADER_VALUES * sizeof(int32_t), PyBUF_WRITABLE, "out")) {
    release(&held);
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS;
  for (Py_ssize_t n = 0; n < held.count; n++) {
    struct header header;
    read_header(held.files[n], &header);
    memcpy((char *)out.buf + (size_t)n * sizeof header, &header, sizeof header);
  }
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&out);
  release(&held);
  Py_RETURN_NONE;
}

/* Takes the batch's place apart; returns 0 where it is none. */
static int get_target(const Py_buffer *out, Py_ssize_t count, struct target *target) {
  if (out->ndim != 4 || out->itemsize != 1 || out->shape[0] != count ||
      (out->shape[3] != 1 && out->shape[3] != 3)) {
    PyErr_Format(PyExc_ValueError, "out has to be uint8 (%zd, rows, columns, 1 or 3)", count);
    return 0;
  }
  *target = (struct target){out->buf, out->strides[1], out->strides[2], out->strides[3],
                            (int)out->shape[3]};
  return 1;
}

static int check_jobs(const struct job *jobs, Py_ssize_t count, const Py_buffer *out) {
  for (Py_ssize_t n = 0; n < count; n++) {
    if (jobs[n].out_rows == out->shape[1] && jobs[n].out_columns == out->shape[2]) continue;
    PyErr_Format(PyExc_ValueError, "job %zd is for %d x %d pixels, out has %zd x %zd", n,
                 (int)jobs[n].out_rows, (int)jobs[n].out_columns, out->shape[1], out->shape[2]);
    return 0;
  }
  return 1;
}

static PyObject *decode(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *list, *jobs_object, *out_object, *status_object, *result = NULL;
  Py_buffer jobs, out, status;
  long long max_pixels;
  int threads;
  struct held held;
  struct target target;
  if (!PyArg_ParseTuple(args, "OOOOLi:decode", &list, &jobs_object, &out_object, &status_object,
                        &max_pixels, &threads) ||
      !hold(list, &held))
    return NULL;
  if (!get_table(jobs_object, &jobs, held.count, JOB_VALUES * sizeof(int32_t), PyBUF_SIMPLE, "jobs"))
    goto no_jobs;
  if (!get_table(status_object, &status, held.count, 1, PyBUF_WRITABLE, "status")) goto no_status;
  if (!get_buffer(out_object, &out, PyBUF_STRIDES | PyBUF_WRITABLE, "out")) goto no_out;
  if (get_target(&out, held.count, &target) && check_jobs(jobs.buf, held.count, &out)) {
    Py_BEGIN_ALLOW_THREADS;
    make_batch(held.files, jobs.buf, (size_t)held.count, max_pixels, target, out.strides[0], threads,
               status.buf);
    Py_END_ALLOW_THREADS;
    result = Py_None;
    Py_INCREF(result);
  }
  PyBuffer_Release(&out);
no_out:
  PyBuffer_Release(&status);
no_status:
  PyBuffer_Release(&jobs);
no_jobs:
  release(&held);
  return result;
}

static PyObject *about(PyObject *self, PyObject *args) {
  (void)self, (void)args;
  return PyUnicode_FromFormat("%s, %s", library, has_avx2() ? "AVX2" : "plain C");
}

static PyObject *only_plain(PyObject *self, PyObject *object) {
  (void)self;
  int plain = PyObject_IsTrue(object);
  if (plain < 0) return NULL;
  use_plain_loops(plain);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"about", about, METH_NOARGS, NULL},
    {"use_plain_loops", only_plain, METH_O, NULL},
    {"headers", headers, METH_VARARGS, NULL},
    {"decode", decode, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fastconv_native._kernel", NULL, 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void) {
  PyObject *module = PyModule_Create(&definition);
  if (!module) return NULL;
  struct {
    const char *name;
    int value;
  } constants[] = {{"INTERFACE", INTERFACE}, {"DONE", DONE},           {"UNABLE", UNABLE},
                   {"DAMAGED", DAMAGED},     {"NO_MEMORY", NO_MEMORY}};
  for (size_t n = 0; n < sizeof constants / sizeof *constants; n++)
    if (PyModule_AddIntConstant(module, constants[n].name, constants[n].value)) {
      Py_DECREF(module);
      return NULL;
    }
  return module;
}
