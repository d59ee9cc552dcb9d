// The command line of run_attention.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

constexpr const char* kUsage =
    "usage: run_attention LIBRARY TVM_LIBRARIES [--full] [--lse] [--scale NUMBER] [B S Hq Hkv D]\n"
    "LIBRARY        what tirx_attn.runtime.export wrote, for fp16\n"
    "TVM_LIBRARIES  folder of libtvm_runtime.so, libtvm_runtime_cuda.so and libtvm_runtime_extra.so\n"
    "--full         the kernel has no causal mask\n"
    "--lse          the kernel returns LSE\n"
    "--scale        the kernel takes a scale at the launch: this one, more than 0\n"
    "B S Hq Hkv D   sizes, with Sq = Skv = S and up to 2^31 elements in Q; 2 1000 8 2 128 without them\n";

struct Arguments {
  std::string library, tvm_libraries;
  int64_t batches = 2, tokens = 1000, q_heads = 8, kv_heads = 2, head_size = 128;
  bool causal = true, lse = false;
  std::optional<double> scale;
};

// A number from 1 to 2^31; 0 for anything else.
inline int64_t parse_size(const char* word) {
  char* end = nullptr;
  const long long value = std::strtoll(word, &end, 10);
  return *end == '\0' && value >= 1 && value <= 1ll << 31 ? value : 0;
}

// Nothing where the words are no arguments of the program.
inline std::optional<Arguments> parse(const std::vector<const char*>& words) {
  if (words.size() < 2) return std::nullopt;
  Arguments parsed;
  parsed.library = words[0];
  parsed.tvm_libraries = words[1];
  std::vector<int64_t> sizes;
  for (size_t i = 2; i < words.size(); ++i) {
    const std::string word = words[i];
    if (word == "--full") {
      parsed.causal = false;
    } else if (word == "--lse") {
      parsed.lse = true;
    } else if (word == "--scale" && i + 1 < words.size()) {
      char* end = nullptr;
      parsed.scale = std::strtod(words[++i], &end);
      if (*end != '\0' || !(*parsed.scale > 0)) return std::nullopt;
    } else if (const int64_t size = parse_size(words[i])) {
      sizes.push_back(size);
    } else {
      return std::nullopt;
    }
  }
  if (sizes.empty()) return parsed;
  if (sizes.size() != 5 || sizes[2] % sizes[3] != 0) return std::nullopt;
  double elements = 1;
  for (const size_t i : {0, 1, 2, 4}) elements *= static_cast<double>(sizes[i]);
  if (elements > 1ll << 31) return std::nullopt;
  parsed.batches = sizes[0];
  parsed.tokens = sizes[1];
  parsed.q_heads = sizes[2];
  parsed.kv_heads = sizes[3];
  parsed.head_size = sizes[4];
  return parsed;
}
