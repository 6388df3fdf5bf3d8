#pragma once

#include <array>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "attngraph/band.hpp"
#include "attngraph/graph.hpp"
#include "attngraph/status.hpp"
#include "attngraph/types.hpp"

namespace attngraph {

/// Spellings of an enum's values: the one table that JSON, logs and messages read.
template <class Enum>
struct EnumNames;

template <>
struct EnumNames<DataType> {
  static constexpr std::array table = {
      std::pair{DataType::kF32, "f32"},          std::pair{DataType::kF16, "f16"},
      std::pair{DataType::kBf16, "bf16"},        std::pair{DataType::kFp8E4m3, "fp8_e4m3"},
      std::pair{DataType::kFp8E5m2, "fp8_e5m2"}, std::pair{DataType::kI32, "i32"},
      std::pair{DataType::kI64, "i64"},          std::pair{DataType::kBool, "bool"}};
};
template <>
struct EnumNames<Align> {
  static constexpr std::array table = {std::pair{Align::kTopLeft, "top_left"},
                                       std::pair{Align::kBottomRight, "bottom_right"}};
};
template <>
struct EnumNames<StatsBase> {
  static constexpr std::array table = {std::pair{StatsBase::kE, "e"}, std::pair{StatsBase::k2, "2"}};
};
template <>
struct EnumNames<Code> {
  static constexpr std::array table = {std::pair{Code::kOk, "ok"},
                                       std::pair{Code::kInvalidGraph, "invalid_graph"},
                                       std::pair{Code::kUnsupported, "unsupported"},
                                       std::pair{Code::kBadBinding, "bad_binding"},
                                       std::pair{Code::kBackend, "backend"},
                                       std::pair{Code::kInternal, "internal"}};
};
template <>
struct EnumNames<MemoryKind> {
  static constexpr std::array table = {std::pair{MemoryKind::kHost, "host"},
                                       std::pair{MemoryKind::kCuda, "cuda"}};
};
template <>
struct EnumNames<CpuIsa> {
  static constexpr std::array table = {std::pair{CpuIsa::kPortable, "portable"},
                                       std::pair{CpuIsa::kAvx2, "avx2"}, std::pair{CpuIsa::kAvx512, "avx512"},
                                       std::pair{CpuIsa::kAvx512Bf16, "avx512bf16"}};
};

template <class Enum>
constexpr std::string_view name_of(Enum value) {
  for (const auto& [entry, spelling] : EnumNames<Enum>::table)
    if (entry == value) return spelling;
  return "?";
}

template <class Enum>
std::optional<Enum> value_of(std::string_view name) {
  for (const auto& [entry, spelling] : EnumNames<Enum>::table)
    if (spelling == name) return entry;
  return std::nullopt;
}

/// All spellings, for messages: "e, 2".
template <class Enum>
std::string all_names() {
  std::string all;
  for (const auto& [entry, spelling] : EnumNames<Enum>::table) {
    if (!all.empty()) all += ", ";
    all += spelling;
  }
  return all;
}

template <class Enum, auto = EnumNames<Enum>::table.size()>
std::ostream& operator<<(std::ostream& out, Enum value) {
  return out << name_of(value);
}

}  // namespace attngraph
