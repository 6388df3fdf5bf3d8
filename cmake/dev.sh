#!/bin/sh
# What a developer does with this project, in one place: `sh cmake/dev.sh help`.
set -eu
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: sh cmake/dev.sh COMMAND [ARGUMENT...]

  demo     build the program, run a packed training step and check it
  test     build and run every test that this machine can run, plainly and under sanitizers
  bench    build and measure: sh cmake/dev.sh bench --filter host, as attngraph bench --help says
  format   lay out all sources with clang-format

demo, test and bench install what is missing with apt-get (as root or through sudo).
Arguments after demo and test go to CMake: sh cmake/dev.sh test -DCMAKE_CXX_COMPILER=clang++
TEXT
}

say() { printf '\n== %s\n' "$*"; }
die() { printf 'dev.sh: %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

jobs() { nproc 2>/dev/null || echo 2; }

# True when a translation unit with these lines compiles; false also without a compiler.
compiles() { printf '%b' "$1" | "${CXX:-c++}" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; }

# Debian's names of the packages that this machine lacks.
missing_packages() {
  compiles '#if defined(__clang__) ? __clang_major__ < 14 : __GNUC__ < 12\n#error\n#endif\n' || echo g++
  has make || echo make
  has cmake || echo cmake
  has pkg-config || echo pkg-config
  compiles '#include <nlohmann/json.hpp>\n' || echo nlohmann-json3-dev
  compiles '#if !__has_include(<catch2/catch.hpp>) && !__has_include(<catch2/catch_all.hpp>)\n#error\n#endif\n' ||
    echo catch2
}

install_missing() {
  packages=$(missing_packages | tr '\n' ' ')
  [ -n "$packages" ] || return 0
  has apt-get || die "missing: $packages; there is no apt-get here, install them (Debian's names) by hand"
  as_root=
  if [ "$(id -u)" != 0 ]; then
    has sudo || die "missing: $packages; neither root nor sudo to install them: apt-get install $packages"
    as_root=sudo
  fi
  say "installing $packages"
  # A foreign package list that cannot be read is no reason to stop.
  $as_root apt-get update -qq || true
  # shellcheck disable=SC2086 # a list of words
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages ||
    die "missing: $packages; apt-get could not install them"
  packages=$(missing_packages | tr '\n' ' ')
  [ -z "$packages" ] || die "missing after apt-get install: $packages; is the compiler older than GCC 12 or Clang 14?"
}

# build PRESET [CMAKE ARGUMENT...]
build() {
  preset=$1
  shift
  say "building build/$preset"
  cmake --preset "$preset" "$@"
  cmake --build --preset "$preset" --parallel "$(jobs)"
}

run_demo() {
  install_missing
  build demo "$@"
  program=build/demo/src/cli/attngraph
  graph=samples/graphs/llama3_8b_packed_training.json
  say "how $graph is planned"
  "$program" explain "$graph"
  say "one training step, forward and backward, compared with the reference engine"
  "$program" run "$graph" --gaps 3 --compare
  say "packed steps whose answers were worked out by hand"
  "$program" check test/cases/ragged_gaps.json test/cases/ragged_kv_interleaved.json \
    test/cases/stats_head_major.json
}

run_tests() {
  install_missing
  for preset in release asan-ubsan; do
    build "$preset" "$@"
    say "testing build/$preset"
    ctest --preset "$preset" --parallel "$(jobs)"
  done
  run_thread_tests "$@"
}

# The programs whose tests share plans and contexts between threads, under the thread sanitizer.
run_thread_tests() {
  programs="test_capi_threads test_context"
  say "building $programs in build/tsan"
  cmake --preset tsan "$@"
  # shellcheck disable=SC2086 # a list of words
  cmake --build --preset tsan --parallel "$(jobs)" --target $programs
  for program in $programs; do
    say "testing build/tsan $program"
    "build/tsan/test/$program"
  done
}

run_bench() {
  install_missing
  build demo
  say "measuring"
  build/demo/src/cli/attngraph bench "$@"
}

run_format() {
  has clang-format || die "missing: clang-format"
  git ls-files -z '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | xargs -0 clang-format -i
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
  demo) run_demo "$@" ;;
  test) run_tests "$@" ;;
  bench) run_bench "$@" ;;
  format) run_format ;;
  help | --help | -h) usage ;;
  *) usage >&2; die "unknown command $command" ;;
esac
