/* A CUDA without a GPU: what libtvm_runtime_cuda.so wants of libcuda.so.1 (-DDRIVER) and libcudart.so.13 (-DRUNTIME).
 *
 * One device of compute capability 10.0. Its memory is the host's, and only copies read or write it: a tensor that is not
 * copied may have any address. No kernel runs, and there is one stream besides the default one.
 * cuTensorMapEncodeTiled and cuLaunchKernelEx append their arguments as one JSON line each to the file that the
 * environment variable CUDA_STUB_LOG names. An encoded descriptor holds only its number, in the order of encoding;
 * that is how a launch tells which descriptors it passes. */

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, MEMORY_ALLOCATION = 2, NOT_SUPPORTED = 801 };

#ifdef DRIVER

/* The layouts of cuda.h, as far as they are read here. */
typedef struct { uint64_t opaque[16]; } TensorMap;
typedef struct { uint32_t id, pad, value[16]; } LaunchAttribute;
typedef struct {
  uint32_t grid[3], block[3], smem;
  void *stream;
  LaunchAttribute *attributes;
  uint32_t attribute_count;
} LaunchConfig;
_Static_assert(sizeof(TensorMap) == 128 && sizeof(LaunchAttribute) == 72, "layout of cuda.h");
enum { CLUSTER_DIMENSION = 4, MAX_PARAMETERS = 64 };

static uint64_t encoded;
static char kernel_name[256];
static int parameter_count, parameter_bytes[MAX_PARAMETERS];

static FILE *log_file(void) {
  const char *path = getenv("CUDA_STUB_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) abort();
  return file;
}

#define LIST(file, key, values, count)                                                      \
  do {                                                                                      \
    fprintf(file, ", \"%s\": [", key);                                                      \
    for (uint32_t i_ = 0; i_ < (count); ++i_)                                               \
      fprintf(file, "%s%" PRIu64, i_ ? ", " : "", (uint64_t)(values)[i_]);                  \
    fprintf(file, "]");                                                                     \
  } while (0)

/* What cuda.h demands of an unpacked, not interleaved tensor; nothing but this is refused. */
static int allowed(const TensorMap *map, int dtype, uint32_t rank, uint64_t address, const uint64_t *dims,
                   const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle) {
  static const uint32_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  static const uint32_t swizzle_bytes[] = {UINT32_MAX, 32, 64, 128};
  if (dtype < 0 || dtype > 12 || interleave != 0 || swizzle < 0 || swizzle > 3) return 0;
  if ((uintptr_t)map % 64 || address % 16 || rank < 1 || rank > 5) return 0;
  for (uint32_t i = 0; i < rank; ++i)
    if (dims[i] < 1 || dims[i] > 1ull << 32 || box[i] < 1 || box[i] > 256 || steps[i] < 1 || steps[i] > 8) return 0;
  for (uint32_t i = 0; i + 1 < rank; ++i)
    if (strides[i] % 16 || strides[i] >= 1ull << 40) return 0;
  uint32_t row = box[0] * element_bytes[dtype];
  return row % 16 == 0 && row <= swizzle_bytes[swizzle];
}

int cuTensorMapEncodeTiled(TensorMap *map, int dtype, uint32_t rank, void *address, const uint64_t *dims,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int l2_promotion, int oob_fill) {
  uint64_t base = (uintptr_t)address;
  int ok = allowed(map, dtype, rank, base, dims, strides, box, steps, interleave, swizzle);
  FILE *file = log_file();
  fprintf(file, "{\"call\": \"encode\", \"number\": %" PRIu64 ", \"dtype\": %d, \"address\": %" PRIu64, encoded, dtype,
          base);
  LIST(file, "dims", dims, rank);
  LIST(file, "strides", strides, rank - 1);
  LIST(file, "box", box, rank);
  LIST(file, "steps", steps, rank);
  fprintf(file, ", \"interleave\": %d, \"swizzle\": %d, \"l2_promotion\": %d, \"oob_fill\": %d, \"allowed\": %s}\n",
          interleave, swizzle, l2_promotion, oob_fill, ok ? "true" : "false");
  fclose(file);
  memset(map, 0, sizeof *map);
  map->opaque[0] = encoded++;
  return ok ? SUCCESS : INVALID_VALUE;
}

/* A launch carries no sizes of its parameters: whoever knows the kernel's signature gives them here, in bytes. */
int stub_parameters(const int *bytes, int count) {
  if (count > MAX_PARAMETERS) return INVALID_VALUE;
  memcpy(parameter_bytes, bytes, sizeof(int) * (size_t)count);
  parameter_count = count;
  return SUCCESS;
}

int cuLaunchKernelEx(const LaunchConfig *config, void *function, void **parameters, void **extra) {
  uint32_t one[3] = {1, 1, 1}, *cluster = one;
  for (uint32_t i = 0; i < config->attribute_count; ++i)
    if (config->attributes[i].id == CLUSTER_DIMENSION) cluster = config->attributes[i].value;
  FILE *file = log_file();
  fprintf(file, "{\"call\": \"launch\", \"kernel\": \"%s\", \"smem\": %u, \"stream\": %" PRIuPTR, (const char *)function,
          config->smem, (uintptr_t)config->stream);
  LIST(file, "grid", config->grid, 3);
  LIST(file, "block", config->block, 3);
  LIST(file, "cluster", cluster, 3);
  fprintf(file, ", \"parameters\": [");
  for (int i = 0; i < parameter_count; ++i) {
    fprintf(file, "%s\"", i ? ", " : "");
    for (int j = 0; j < parameter_bytes[i]; ++j) fprintf(file, "%02x", ((const uint8_t *)parameters[i])[j]);
    fprintf(file, "\"");
  }
  fprintf(file, "]}\n");
  fclose(file);
  (void)extra;
  return SUCCESS;
}

int cuModuleLoadData(void **module, const void *image) { *module = (void *)image; return SUCCESS; }
int cuModuleUnload(void *module) { (void)module; return SUCCESS; }

int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  snprintf(kernel_name, sizeof kernel_name, "%s", name);
  *function = kernel_name;
  return SUCCESS;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return SUCCESS;
}

int cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "stub");
  return SUCCESS;
}

static int error_text(int error, const char **text) {
  static char buffer[64];
  snprintf(buffer, sizeof buffer, "stub CUDA error %d", error);
  *text = buffer;
  return SUCCESS;
}
int cuGetErrorName(int error, const char **text) { return error_text(error, text); }
int cuGetErrorString(int error, const char **text) { return error_text(error, text); }

#endif
#ifdef RUNTIME

enum { MAX_SHARED_MEMORY_PER_BLOCK = 8, MULTI_PROCESSOR_COUNT = 16, MAJOR = 75, MINOR = 76 };
enum { STREAM = 4096 }; /* the stream that a program makes */

int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 * 1024; break;
    case MULTI_PROCESSOR_COUNT: *value = 148; break;
    case MAJOR: *value = 10; break;
    case MINOR: *value = 0; break;
    default: *value = 0;
  }
  return SUCCESS;
}

int cudaGetDeviceCount(int *count) { *count = 1; return SUCCESS; }
int cudaGetDevice(int *device) { *device = 0; return SUCCESS; }
int cudaSetDevice(int device) { return device == 0 ? SUCCESS : INVALID_VALUE; }
int cudaGetLastError(void) { return SUCCESS; }
int cudaPeekAtLastError(void) { return SUCCESS; }
const char *cudaGetErrorName(int error) { (void)error; return "stub CUDA error"; }
const char *cudaGetErrorString(int error) { (void)error; return "stub CUDA error"; }
int cudaMalloc(void **memory, size_t bytes) {
  *memory = aligned_alloc(256, (bytes + 256) / 256 * 256);
  return *memory ? SUCCESS : MEMORY_ALLOCATION;
}
int cudaFree(void *memory) { free(memory); return SUCCESS; }
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  (void)kind, (void)stream;
  memcpy(to, from, bytes);
  return SUCCESS;
}
int cudaStreamCreateWithFlags(void **stream, unsigned flags) {
  (void)flags;
  *stream = (void *)STREAM;
  return SUCCESS;
}
int cudaStreamDestroy(void *stream) { return stream == (void *)STREAM ? SUCCESS : INVALID_VALUE; }
int cudaStreamSynchronize(void *stream) { (void)stream; return SUCCESS; }

/* Wanted by the loader, called by no launch. */
#define ABSENT(name) int name(void) { return NOT_SUPPORTED; }
ABSENT(cudaEventCreate) ABSENT(cudaEventDestroy) ABSENT(cudaEventElapsedTime) ABSENT(cudaEventRecord)
ABSENT(cudaEventSynchronize) ABSENT(cudaFreeHost) ABSENT(cudaGetDeviceProperties) ABSENT(cudaGraphDestroy)
ABSENT(cudaGraphExecDestroy) ABSENT(cudaGraphInstantiate) ABSENT(cudaGraphLaunch) ABSENT(cudaMallocHost)
ABSENT(cudaMemGetInfo) ABSENT(cudaMemcpyPeerAsync) ABSENT(cudaStreamBeginCapture) ABSENT(cudaStreamCreate)
ABSENT(cudaStreamEndCapture) ABSENT(cudaStreamWaitEvent)

#endif
