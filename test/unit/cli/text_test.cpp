#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "cli/arguments.hpp"
#include "cli/files.hpp"
#include "support/catch.hpp"

using namespace attngraph;
using namespace attngraph::cli;

namespace {

constexpr std::array kOptions = {Option{"--seed", "N", ""}, Option{"--flag", nullptr, ""}};

/// A directory that goes away with the test.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "attngraph_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const char* name) const { return (path / name).string(); }
};

void check_words(const Status& status, std::initializer_list<const char*> words) {
  INFO(status.message());
  CHECK(status.code() == Code::kInvalidGraph);
  for (const char* word : words) CHECK(status.message().find(word) != std::string::npos);
}

}  // namespace

TEST_CASE("options take their value from the next word or behind an equals sign", "[cli]") {
  const std::array words = {"a.json", "--seed", "7", "--flag", "b.json"};
  const auto arguments = Arguments::parse(kOptions, words);
  REQUIRE(arguments.ok());
  CHECK(arguments->positional() == std::vector<std::string>{"a.json", "b.json"});
  CHECK(arguments->integer("--seed", 1, 0).value() == 7);
  CHECK(arguments->has("--flag"));
  const std::array with_equals = {"--seed=8"};
  CHECK(Arguments::parse(kOptions, with_equals)->integer("--seed", 1, 0).value() == 8);
  CHECK(Arguments::parse(kOptions, {})->integer("--seed", 3, 0).value() == 3);
}

TEST_CASE("a wrong option is named with what it must be", "[cli]") {
  const std::array unknown = {"--sede", "7"};
  check_words(Arguments::parse(kOptions, unknown).status(), {"--sede", "unknown option"});
  const std::array cut = {"--seed"};
  check_words(Arguments::parse(kOptions, cut).status(), {"--seed", "has no value", "N"});
  const std::array too_much = {"--flag=3"};
  check_words(Arguments::parse(kOptions, too_much).status(), {"--flag=3", "takes none"});
  for (const char* bad : {"seven", "-1", "7x", "", "99999999999999999999"}) {
    const std::array words = {"--seed", bad};
    check_words(Arguments::parse(kOptions, words)->integer("--seed", 1, 0).status(),
                {"--seed", bad, "integer of at least 0"});
  }
}

TEST_CASE("a file that cannot be read is named with the reason", "[cli]") {
  const Folder folder;
  check_words(read_file(folder.file("absent")).status(), {"absent", "open", "No such file"});
  check_words(read_file(folder.path.string()).status(), {folder.path.c_str(), "read", "directory"});
}

TEST_CASE("a written file appears as a whole and replaces the one before", "[cli]") {
  const Folder folder;
  const std::string path = folder.file("result.json");
  REQUIRE(write_file(path, "first, and longer").ok());
  REQUIRE(write_file(path, "second").ok());
  CHECK(read_file(path).value() == "second");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("a file that cannot be written leaves nothing behind", "[cli]") {
  const Folder folder;
  const Status absent = write_file(folder.file("no/result.json"), "text");
  CHECK(absent.code() == Code::kBackend);
  CHECK(absent.message().find("mkstemp fails with 2") != std::string::npos);
  REQUIRE(mkdir(folder.file("taken").c_str(), 0700) == 0);
  const Status taken = write_file(folder.file("taken"), "text");
  CHECK(taken.code() == Code::kBackend);
  CHECK(taken.message().find("rename fails with") != std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}
