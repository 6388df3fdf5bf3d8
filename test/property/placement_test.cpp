#include "plan/placement.hpp"

#include <algorithm>
#include <limits>
#include <random>

#include "support/catch.hpp"

using namespace attngraph;

namespace {

std::vector<Block> random_blocks(std::mt19937& random, size_t count, int64_t max_units) {
  std::vector<Block> blocks(count);
  for (Block& block : blocks) {
    block.alignment = int64_t{1} << (random() % 3 == 0 ? random() % 4 : 2);
    block.bytes = static_cast<int64_t>(random() % static_cast<uint64_t>(max_units + 1));
    block.first = static_cast<int>(random() % 5);
    block.last = block.first + static_cast<int>(random() % 4);
  }
  return blocks;
}

/// Whether every block from `index` on finds a place below `bytes`: all offsets are tried, one by one.
bool fits(const std::vector<Block>& blocks, std::vector<int64_t>& offsets, size_t index, int64_t bytes) {
  if (index == blocks.size()) return true;
  const Block& block = blocks[index];
  for (int64_t offset = 0; offset + block.bytes <= bytes; offset += block.alignment) {
    bool is_free = true;
    for (size_t i = 0; i < index && is_free; ++i)
      for (int phase = block.first; phase <= block.last; ++phase)
        if (blocks[i].first <= phase && phase <= blocks[i].last && offset < offsets[i] + blocks[i].bytes &&
            offsets[i] < offset + block.bytes)
          is_free = false;
    offsets[index] = offset;
    if (is_free && fits(blocks, offsets, index + 1, bytes)) return true;
  }
  return false;
}

int64_t brute_force_bytes(const std::vector<Block>& blocks) {
  std::vector<int64_t> offsets(blocks.size());
  for (int64_t bytes = 0;; ++bytes)
    if (fits(blocks, offsets, 0, bytes)) return bytes;
}

}  // namespace

TEST_CASE("blocks that live together share no byte, are aligned and lie inside the total", "[placement]") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::vector<Block> blocks = random_blocks(random, random() % 24, 100);
    const Placement placed = place_blocks(blocks).value();
    REQUIRE(placed.offsets.size() == blocks.size());
    int64_t sum = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      sum += blocks[i].bytes + blocks[i].alignment - 1;
      REQUIRE(placed.offsets[i] >= 0);
      REQUIRE(placed.offsets[i] % blocks[i].alignment == 0);
      REQUIRE(placed.offsets[i] + blocks[i].bytes <= placed.bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool meet = blocks[i].first <= blocks[j].last && blocks[j].first <= blocks[i].last;
        const bool share = placed.offsets[i] < placed.offsets[j] + blocks[j].bytes &&
                           placed.offsets[j] < placed.offsets[i] + blocks[i].bytes;
        REQUIRE_FALSE((meet && share && blocks[i].bytes > 0 && blocks[j].bytes > 0));
      }
    }
    REQUIRE(placed.bytes <= sum);
    REQUIRE(place_blocks(blocks).value().offsets == placed.offsets);
  }
}

TEST_CASE("small instances are placed as tightly as trying every offset can", "[placement]") {
  std::mt19937 random(2);
  for (int trial = 0; trial < 1500; ++trial) {
    const std::vector<Block> blocks = random_blocks(random, 1 + random() % 6, 6);
    INFO("trial " << trial);
    REQUIRE(place_blocks(blocks).value().bytes == brute_force_bytes(blocks));
  }
}

TEST_CASE("blocks whose bytes leave int64 are refused", "[placement]") {
  const int64_t half = std::numeric_limits<int64_t>::max() / 2 + 1;
  const std::vector<Block> blocks = {{half, 256, 0, 0}, {half, 256, 0, 0}};
  const auto refused = place_blocks(blocks);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().message().find("exceeds int64") != std::string::npos);
}
