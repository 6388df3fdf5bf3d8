#pragma once

#include <initializer_list>

#include "problem/program.hpp"
#include "support/catch.hpp"
#include "unit/problem/sample.hpp"

namespace attngraph::test {

/// A valid graph, what is done to it, and the words that the refusal must hold.
struct Fault {
  Sample (*valid)();
  void (*spoil)(Sample&);
  const char* words;
};

inline void check_refusals(std::initializer_list<Fault> faults) {
  for (const Fault& fault : faults) {
    Sample sample = fault.valid();
    REQUIRE(sample.graph.validate().message() == "");
    fault.spoil(sample);
    const Status refusal = sample.graph.validate();
    INFO("expected: " << fault.words << "\n  got:      " << refusal.message());
    CHECK(refusal.code() == Code::kInvalidGraph);
    CHECK(refusal.message().find(fault.words) != std::string::npos);
  }
}

}  // namespace attngraph::test
