#pragma once

#include <vector>

#include "attngraph/types.hpp"
#include "engine/cpu/isa.hpp"

namespace attngraph::test {

/// Every instruction set that this machine runs.
inline std::vector<CpuIsa> isas_here() {
  std::vector<CpuIsa> isas;
  for (const CpuIsa isa : {CpuIsa::kPortable, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16})
    if (cpu::machine_runs(isa)) isas.push_back(isa);
  return isas;
}

}  // namespace attngraph::test
