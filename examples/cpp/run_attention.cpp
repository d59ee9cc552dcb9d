// Runs an exported attention kernel without Python and checks every element of the result; README.md has the commands.

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "arguments.h"
#include "expected.h"

namespace {

namespace ffi = tvm::ffi;
namespace fs = std::filesystem;

// In the order of loading: each needs those before it, and the kernel needs all.
constexpr const char* kLibraries[] = {"libtvm_runtime.so", "libtvm_runtime_cuda.so", "libtvm_runtime_extra.so"};

constexpr const char* kFunctions[] = {"flash_attention", "flash_attention4"};  // for sm_90a; for sm_100a and sm_103a

constexpr DLDevice kDevice{kDLCUDA, 0};
constexpr DLDataType kHalf{kDLFloat, 16, 1}, kFloat{kDLFloat, 32, 1};

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

ffi::Function load(const std::string& path, const std::string& tvm_libraries) {
  const fs::path file = fs::absolute(path);  // a bare name would be searched for elsewhere
  if (!fs::is_regular_file(file)) throw std::runtime_error(file.string() + ": no such file");
  for (const char* name : kLibraries) {
    const fs::path library = fs::absolute(tvm_libraries) / name;
    if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) throw std::runtime_error(dlerror());
  }
  const ffi::Module module = ffi::Module::LoadFromFile(file.string());
  for (const char* name : kFunctions) {
    const ffi::Optional<ffi::Function> function = module->GetFunction(name);
    if (function.has_value()) return *function;  // it keeps the module loaded
  }
  throw std::runtime_error(file.string() + ": holds no attention kernel");
}

// Where ffi::Tensor::FromNDAlloc takes memory from.
struct DeviceMemory {
  void AllocData(DLTensor* tensor) { check(cudaMalloc(&tensor->data, ffi::GetDataSize(*tensor)), "cudaMalloc"); }
  void FreeData(DLTensor* tensor) { cudaFree(tensor->data); }
};

// A tensor on the GPU, and its elements on the host.
template <typename T>
struct Array {
  ffi::Tensor tensor;
  std::vector<T> host;

  Array(const ffi::Shape& shape, DLDataType dtype)
      : tensor(ffi::Tensor::FromNDAlloc(DeviceMemory(), shape, dtype, kDevice)), host(tensor.numel()) {}

  void upload(cudaStream_t stream) {
    check(cudaMemcpyAsync(tensor.data_ptr(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync to the GPU");
  }
  void download(cudaStream_t stream) {
    check(cudaMemcpyAsync(host.data(), tensor.data_ptr(), host.size() * sizeof(T), cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync from the GPU");
  }
};

bool run(const Arguments& a) {
  const ffi::Function kernel = load(a.library, a.tvm_libraries);
  check(cudaSetDevice(kDevice.device_id), "cudaSetDevice");
  const ffi::Shape q_shape{a.batches, a.tokens, a.q_heads, a.head_size};
  const ffi::Shape kv_shape{a.batches, a.tokens, a.kv_heads, a.head_size};
  Array<uint16_t> q(q_shape, kHalf), k(kv_shape, kHalf), v(kv_shape, kHalf), o(q_shape, kHalf);
  std::optional<Array<float>> lse;
  if (a.lse) lse.emplace(ffi::Shape{a.batches, a.q_heads, a.tokens}, kFloat);

  // Q = 0 gives all visible keys the same weight, whatever K is. The outputs are NaN before.
  for (size_t i = 0; i < v.host.size(); ++i) {
    const int64_t column = i % a.head_size, row = i / a.head_size, head = row % a.kv_heads, token = row / a.kv_heads;
    k.host[i] = half_of(i % 7);
    v.host[i] = half_of(value_of(offset_of(token / a.tokens, head, column), token % a.tokens));
  }
  std::fill(o.host.begin(), o.host.end(), 0xffff);
  if (lse) std::fill(lse->host.begin(), lse->host.end(), std::numeric_limits<float>::quiet_NaN());

  // The kernel runs on the stream of the TVM FFI environment. This one does not wait for the default stream: a launch
  // there could come before the copies.
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  TVMFFIStreamHandle before = nullptr;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvSetStream(kDevice.device_type, kDevice.device_id, stream, &before));
  for (Array<uint16_t>* array : {&q, &k, &v, &o}) array->upload(stream);
  if (lse) lse->upload(stream);

  std::vector<ffi::AnyView> parameters{q.tensor, k.tensor, v.tensor, o.tensor};
  if (lse) parameters.emplace_back(lse->tensor);
  if (a.scale) parameters.emplace_back(*a.scale);
  ffi::Any nothing;
  kernel.CallPacked(parameters.data(), static_cast<int32_t>(parameters.size()), &nothing);

  o.download(stream);
  if (lse) lse->download(stream);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvSetStream(kDevice.device_type, kDevice.device_id, before, nullptr));
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");

  const auto visible = [&a](int64_t token) { return a.causal ? token + 1 : a.tokens; };
  bool good = agrees("O", o.host, [&](int64_t i) {
    const int64_t column = i % a.head_size, row = i / a.head_size, head = row % a.q_heads, token = row / a.q_heads;
    const int64_t kv_head = head / (a.q_heads / a.kv_heads);
    return mean_of_first(offset_of(token / a.tokens, kv_head, column), visible(token % a.tokens));
  });
  if (lse) good &= agrees("LSE", lse->host, [&](int64_t i) { return std::log(visible(i % a.tokens)); });
  return good;
}

}  // namespace

// Exit status: 0 the result is right, 1 it is wrong or there is none, 2 wrong arguments.
int main(int argc, char** argv) {
  const std::optional<Arguments> arguments = parse(std::vector<const char*>(argv + 1, argv + argc));
  if (!arguments) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  try {
    return run(*arguments) ? 0 : 1;
  } catch (const ffi::Error& error) {
    std::fprintf(stderr, "run_attention: %s: %s\n", error.kind().c_str(), error.message().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run_attention: %s\n", error.what());
  }
  return 1;
}
