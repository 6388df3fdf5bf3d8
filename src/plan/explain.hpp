#pragma once

#include <string>

#include "base/enum_names.hpp"
#include "plan/planner.hpp"

namespace attngraph {

template <>
struct EnumNames<Fill> {
  static constexpr std::array table = {std::pair{Fill::kNone, "none"}, std::pair{Fill::kZero, "zero"},
                                       std::pair{Fill::kMinusInf, "-inf"}};
};

/// "host avx2, 2 threads", "cuda sm_90, 132 SMs".
std::string target_text(const Target& target);
/// "batch, tokens".
std::string varying_text(const Varying& varying);
/// "way 3 of 9, the fastest of 5 that work in the workspace: 412.30 us, 430.10 us before".
std::string tuning_text(const Tuning& tuning);
/// The phases of all nodes a region lives through, for people: "0-2", "1".
std::string phases_text(const Lifetime& lifetime);
/// "640 B", "1.50 KiB", "2.00 GiB".
std::string bytes_text(int64_t bytes);

std::string explain_text(const PlanState& state);
std::string explain_json(const PlanState& state);
std::string explain_svg(const PlanState& state);

}  // namespace attngraph
