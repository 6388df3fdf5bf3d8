#pragma once

#include <array>
#include <optional>
#include <utility>

#include "attngraph/attngraph.h"
#include "attngraph/context.hpp"
#include "base/enum_names.hpp"
#include "base/message.hpp"

namespace attngraph::capi {

/// The C numbers of an enum's values: they stay when the C++ ones change.
template <class Enum>
struct CNumbers;
template <class Enum, size_t kSize>
using CTable = std::array<std::pair<Enum, int32_t>, kSize>;

template <>
struct CNumbers<Code> {
  static constexpr CTable<Code, 6> table = {{{Code::kOk, ATTNGRAPH_OK},
                                             {Code::kInvalidGraph, ATTNGRAPH_INVALID_GRAPH},
                                             {Code::kUnsupported, ATTNGRAPH_UNSUPPORTED},
                                             {Code::kBadBinding, ATTNGRAPH_BAD_BINDING},
                                             {Code::kBackend, ATTNGRAPH_BACKEND},
                                             {Code::kInternal, ATTNGRAPH_INTERNAL}}};
};
template <>
struct CNumbers<DataType> {
  static constexpr CTable<DataType, 8> table = {{{DataType::kF32, ATTNGRAPH_F32},
                                                 {DataType::kF16, ATTNGRAPH_F16},
                                                 {DataType::kBf16, ATTNGRAPH_BF16},
                                                 {DataType::kFp8E4m3, ATTNGRAPH_FP8_E4M3},
                                                 {DataType::kFp8E5m2, ATTNGRAPH_FP8_E5M2},
                                                 {DataType::kI32, ATTNGRAPH_I32},
                                                 {DataType::kI64, ATTNGRAPH_I64},
                                                 {DataType::kBool, ATTNGRAPH_BOOL}}};
};
template <>
struct CNumbers<Align> {
  static constexpr CTable<Align, 2> table = {
      {{Align::kTopLeft, ATTNGRAPH_TOP_LEFT}, {Align::kBottomRight, ATTNGRAPH_BOTTOM_RIGHT}}};
};
template <>
struct CNumbers<StatsBase> {
  static constexpr CTable<StatsBase, 2> table = {
      {{StatsBase::kE, ATTNGRAPH_STATS_BASE_E}, {StatsBase::k2, ATTNGRAPH_STATS_BASE_2}}};
};
template <>
struct CNumbers<MemoryKind> {
  static constexpr CTable<MemoryKind, 2> table = {
      {{MemoryKind::kHost, ATTNGRAPH_HOST}, {MemoryKind::kCuda, ATTNGRAPH_CUDA}}};
};
template <>
struct CNumbers<CpuIsa> {
  static constexpr CTable<CpuIsa, 4> table = {{{CpuIsa::kPortable, ATTNGRAPH_PORTABLE},
                                               {CpuIsa::kAvx2, ATTNGRAPH_AVX2},
                                               {CpuIsa::kAvx512, ATTNGRAPH_AVX512},
                                               {CpuIsa::kAvx512Bf16, ATTNGRAPH_AVX512_BF16}}};
};
template <>
struct CNumbers<LogLevel> {
  static constexpr CTable<LogLevel, 3> table = {{{LogLevel::kError, ATTNGRAPH_LOG_ERROR},
                                                 {LogLevel::kWarning, ATTNGRAPH_LOG_WARNING},
                                                 {LogLevel::kInfo, ATTNGRAPH_LOG_INFO}}};
};

template <class Enum>
constexpr int32_t c_value(Enum value) {
  for (const auto& [entry, number] : CNumbers<Enum>::table)
    if (entry == value) return number;
  return CNumbers<Enum>::table.back().second;  // a value without a row: the last one, kInternal of codes
}

/// Nothing for a number that no value has.
template <class Enum>
std::optional<Enum> value_of_c(int32_t number) {
  for (const auto& [entry, known] : CNumbers<Enum>::table)
    if (known == number) return entry;
  return std::nullopt;
}

/// Errors: kInvalidGraph naming the member, the number and what is accepted.
template <class Enum>
Status read_enum(int32_t number, const char* member, Enum& value) {
  const auto known = value_of_c<Enum>(number);
  if (!known)
    return fail(Code::kInvalidGraph, member, ": is ", number, "; must be a number of ", all_names<Enum>());
  value = *known;
  return {};
}

/// Errors: kInvalidGraph on members that are no value of their enum.
Result<Target> target_of(const attngraph_target& given);
attngraph_target c_target(const Target& target);

}  // namespace attngraph::capi
