/// Writes the lists of operations that test_cudnn compares with: `attngraph_cudnn_golden DIR`.
#include <fstream>
#include <iostream>
#include <string>

#include "engine/cudnn/lower.hpp"
#include "unit/cudnn/lowered.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: attngraph_cudnn_golden DIR\n";
    return 1;
  }
  for (const attngraph::test::Lowered& row : attngraph::test::lowered_problems()) {
    std::ofstream file(std::string(argv[1]) + "/" + row.name + ".txt");
    file << describe(attngraph::cudnn::lower(row.problem));
    if (!file.good()) return 1;
  }
  return 0;
}
