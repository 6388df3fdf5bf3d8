#include <algorithm>
#include <filesystem>
#include <sstream>

#include "cli/bench_attention.hpp"
#include "cli/files.hpp"
#include "cli/program.hpp"
#include "json/document.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cli;

namespace {

/// A timing whose samples are given, the warm-up first.
Timing scripted(std::vector<double> seconds, double work = 0) {
  Timing timing;
  timing.work = work;
  timing.seconds = [seconds, next = size_t{0}]() mutable { return Result<double>(seconds.at(next++)); };
  return timing;
}

int bench(const std::vector<const char*>& options, std::string& out, std::string& err) {
  std::vector<const char*> words = {"bench"};
  words.insert(words.end(), options.begin(), options.end());
  std::ostringstream out_stream, err_stream;
  Io io{out_stream, err_stream};
  const int code = run_program(words, io);
  out = out_stream.str(), err = err_stream.str();
  return code;
}

}  // namespace

TEST_CASE("a quantile is the element of the nearest rank", "[bench]") {
  const std::vector<double> eleven = {30, 10, 0, 20, 40, 100, 90, 80, 70, 60, 50};
  CHECK(quantile(eleven, 0.1) == 10);
  CHECK(quantile(eleven, 0.5) == 50);
  CHECK(quantile(eleven, 0.9) == 90);
  CHECK(quantile({2, 1, 3, 4}, 0.5) == 3);
  CHECK(quantile({7}, 0.9) == 7);
}

TEST_CASE("the warm-up does not count and a ratio pairs samples of one round", "[bench]") {
  // Both slow down fourfold in the last round: the median of ratios sees it, that of figures does not.
  const std::vector<Timed> all = {{"half", "whole", nullptr, scripted({9, 2, 2, 8}, 4e9)},
                                  {"whole", "", nullptr, scripted({9, 1, 1, 4}, 4e9)}};
  std::ostringstream out, err;
  Io io{out, err};
  Progress progress(io);
  const Result<std::vector<Figure>> figures = measure(all, 3, progress);
  REQUIRE(figures.ok());
  REQUIRE(figures->size() == 2);
  CHECK((*figures)[0].median == 2.0);
  CHECK((*figures)[0].p10 == 0.5);
  CHECK((*figures)[0].p90 == 2.0);
  CHECK((*figures)[0].ratio == 0.5);
  CHECK((*figures)[1].median == 4.0);
  CHECK((*figures)[1].ratio == 0.0);
}

TEST_CASE("what has no work is measured in microseconds", "[bench]") {
  std::ostringstream out, err;
  Io io{out, err};
  Progress progress(io);
  const auto figures = measure({{"call", "", nullptr, scripted({1, 0.25})}}, 1, progress);
  REQUIRE(figures.ok());
  CHECK((*figures)[0].median == 250'000);
}

TEST_CASE("a failing sample is named", "[bench]") {
  Timing timing;
  timing.seconds = average_of(1, [] { return Status(Code::kBackend, "the call fails"); });
  std::ostringstream out, err;
  Io io{out, err};
  Progress progress(io);
  const auto figures = measure({{"row", "", nullptr, timing}}, 1, progress);
  REQUIRE(!figures.ok());
  CHECK(figures.status().code() == Code::kBackend);
  CHECK(figures.status().message() == "row: the call fails");
}

TEST_CASE("operations are counted by kept elements", "[bench]") {
  AttentionCase problem = {"", Pass::kForward,   DataType::kF32,           2, 3, 3, 4, 4,
                           8,  BenchMask::kFull, BenchPacking::kHeadsFirst};
  CHECK(attention_flops(problem) == 2 * 2 * 8 * (2 * 3 * 16));
  problem.mask = BenchMask::kCausal;
  CHECK(attention_flops(problem) == 2 * 2 * 8 * (2 * 3 * 10));
  problem.pass = Pass::kBackward;
  CHECK(attention_flops(problem) == 5 * 2 * 8 * (2 * 3 * 10));
  AttentionCase windowed = problem;
  windowed.mask = BenchMask::kWindow, windowed.q_len = windowed.kv_len = 2048;
  CHECK(attention_flops(windowed) == 5.0 * 2 * 8 * (2 * 3 * (1024 * 1025 / 2 + 1024 * 1024)));
  CHECK(kv_bytes(problem) == 2 * (2 * 3 * 4 * 8) * 4);
  problem.v_dim = 4;
  CHECK(attention_flops(problem) == 2 * (3 * 8 + 2 * 4) * (2 * 3 * 10));
  CHECK(kv_bytes(problem) == (2 * 3 * 4) * (8 + 4) * 4);
}

TEST_CASE("the packed cases keep as many elements as the dense ones they are compared with", "[bench]") {
  const BenchGroup group = packed_group(GENERATE(MemoryKind::kHost, MemoryKind::kCuda));
  for (const BenchRow& row : group.rows) {
    if (row.ceiling.empty()) continue;
    const auto dense = std::find_if(group.rows.begin(), group.rows.end(),
                                    [&](const BenchRow& other) { return other.name == row.ceiling; });
    INFO(row.name);
    REQUIRE(dense != group.rows.end());
    CHECK(attention_flops(*row.problem) / attention_flops(*dense->problem) == Approx(1).epsilon(0.001));
  }
}

TEST_CASE("decode on pages and of unequal lengths reads as many bytes as what it is compared with",
          "[bench]") {
  const BenchGroup group = decode_group(MemoryKind::kCuda);
  int compared = 0;
  for (const BenchRow& row : group.rows) {
    if (row.ceiling.empty() || row.ceiling == group.rows.front().name) continue;
    const auto plain = std::find_if(group.rows.begin(), group.rows.end(),
                                    [&](const BenchRow& other) { return other.name == row.ceiling; });
    INFO(row.name);
    REQUIRE(plain != group.rows.end());
    CHECK(kv_bytes(*row.problem) / kv_bytes(*plain->problem) == Approx(1).epsilon(0.01));
    ++compared;
  }
  CHECK(compared == 5);
}

TEST_CASE("a case of unequal lengths has every multiple of its shortest one", "[bench]") {
  const AttentionCase problem{"decode", Pass::kForward,   DataType::kF32,        4, 2, 1, 1, 12,
                              8,        BenchMask::kFull, BenchPacking::kUnequal};
  std::vector<int32_t> lens = forward_graph(problem).length_values;
  std::sort(lens.begin(), lens.end());
  CHECK(lens == std::vector{3, 6, 9, 12});
  CHECK(kv_bytes(problem) == 30 * (8 + 8) * 4);
}

TEST_CASE("bench writes figures that parse, and prints the machine and the same names", "[bench]") {
  const auto path = (std::filesystem::temp_directory_path() / "attngraph_bench_test.json").string();
  std::string out, err;
  REQUIRE(bench({"--filter", "host/", "--rounds", "1", "--threads", "2", "--json", path.c_str()}, out, err) ==
          0);
  CHECK(err.empty());
  CHECK(out.find("2 threads") != std::string::npos);
  const Result<std::string> text = read_file(path);
  std::filesystem::remove(path);
  REQUIRE(text.ok());
  REQUIRE(JsonDocument::parse(*text).ok());
  for (const BenchRow& row : host_group(MemoryKind::kHost).rows) {
    CHECK(out.find(row.name) != std::string::npos);
    CHECK(text->find("\"name\": \"" + row.name + '"') != std::string::npos);
  }
}

TEST_CASE("bench measures in the engine's fastest way when told to", "[bench]") {
  Context context;
  const BenchSetup setup{context, context.host_target(), "reference", /*autotunes=*/true};
  const AttentionCase small{"small", Pass::kBackward,    DataType::kF32,           1, 2, 1, 8, 8,
                            4,       BenchMask::kCausal, BenchPacking::kHeadsFirst};
  const auto made = AttentionBench::make(small, setup);
  REQUIRE(made.ok());
  CHECK((*made)->run().ok());
  PlanOptions options;
  options.engine = setup.engine;
  const Graph backward = bench_pair(small, forward_graph(small).graph)->backward;
  CHECK(context.plan(backward, setup.target, options)->explain().find("autotuned: ") != std::string::npos);
}

TEST_CASE("bench refuses a filter, an instruction set and an operand that it does not know", "[bench]") {
  std::string out, err;
  CHECK(bench({"--filter", "nonsense"}, out, err) == 2);
  CHECK(err ==
        "attngraph bench: --filter: is nonsense and names no row; the groups are host, cpu, decode, "
        "packed, planner\n");
  CHECK(bench({"--isa", "mmx"}, out, err) == 2);
  CHECK(err == "attngraph bench: --isa: is mmx; must be one of portable, avx2, avx512, avx512bf16\n");
  CHECK(bench({"host"}, out, err) == 2);
  CHECK(err == "attngraph bench: host: is given; bench takes options alone\n");
}
