#!/bin/sh
# What a developer does with this project, in one place: `sh cmake/dev.sh help`.
set -eu
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: sh cmake/dev.sh COMMAND [ARGUMENT...]

  demo     build the program, run a packed training step and check it
  test     build and run every test that this machine can run, plainly and under sanitizers
  gpu      prove the cuda engine on this machine's GPU and write docs/results/DATE-GPU-cuda.json:
           sh cmake/dev.sh gpu [BUILD_DIR [RESULT_DIR]], with the programs of BUILD_DIR when it is given
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
  # Kernels compile for minutes, and without a driver nothing could run them.
  has nvidia-smi || set -- -DATTNGRAPH_CUDA=OFF "$@"
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

# One line of the results, "key": value, for the file that run_gpu writes.
note() { printf '  "%s": %s,\n' "$1" "$2" >>"$results"; }

# sweep_all COUNT: random problems on all processors, every process with seeds of its own.
sweep_all() {
  name=$1
  processes=$(jobs)
  each=$((($2 + processes - 1) / processes))
  shift 2
  n=0
  while [ "$n" -lt "$processes" ]; do
    "$program" sweep --engine cuda --count "$each" --seed $((1 + n * each)) --save "$log_dir" "$@" \
      >"$log_dir/sweep_$n.log" 2>&1 &
    n=$((n + 1))
  done
  wait
  cat "$log_dir"/sweep_*.log
  awk '/ problems from seed / { problems += $1; failed += $(NF - 1) }
    END { printf "{\"problems\": %d, \"failed\": %d}", problems, failed }' "$log_dir"/sweep_*.log \
    >"$log_dir/sweep.json"
  grep -q '"failed": 0}' "$log_dir/sweep.json" || failures="$failures $name"
  note "$name" "$(cat "$log_dir/sweep.json")"
}

# sanitize TOOL [OPTION...]: a small corpus and a few random problems under compute-sanitizer.
sanitize() {
  tool=$1
  shift
  if compute-sanitizer --tool "$tool" "$@" --error-exitcode 99 "$program" check --engine cuda $small_corpus \
    >"$log_dir/$tool.log" 2>&1 &&
    compute-sanitizer --tool "$tool" "$@" --error-exitcode 99 "$program" sweep --engine cuda --count 40 \
      >>"$log_dir/$tool.log" 2>&1 &&
    compute-sanitizer --tool "$tool" "$@" --error-exitcode 99 "$program" sweep --engine cuda --count 10 --aligned --large \
      --multiprocessors 1 >>"$log_dir/$tool.log" 2>&1; then
    say "$tool: no error"
    note "$tool" '"no error"'
  else
    say "$tool: failed; the end of its output:"
    tail -n 30 "$log_dir/$tool.log"
    note "$tool" '"failed"'
    failures="$failures $tool"
  fi
}

run_gpu() {
  build_dir=${1:-build/release}
  result_dir=${2:-docs/results}
  [ $# -gt 0 ] || { install_missing; build release -DATTNGRAPH_CUDA=ON; }
  has nvidia-smi || die "missing: nvidia-smi; a machine with an NVIDIA GPU and its driver is needed"
  program=$build_dir/src/cli/attngraph
  log_dir=$(mktemp -d)
  failures=
  small_corpus="test/cases/gqa.json test/cases/ragged_gaps.json test/cases/paged_kv.json test/cases/bfloat16.json
    test/cases/sink.json test/cases/bias_gradient.json test/cases/dropout_seeds.json test/cases/head_dims_72_to_96.json"
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
  mkdir -p "$result_dir"
  results=$result_dir/$(date +%Y-%m-%d)-$(echo "$gpu" | tr 'A-Z ' 'a-z-' | sed 's/^nvidia-//')-cuda.json
  echo '{' >"$results"
  note date "\"$(date +%Y-%m-%d)\""
  note gpu "\"$gpu\""
  note driver "\"$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)\""
  note command "\"sh cmake/dev.sh gpu $*\""

  say "every case on cuda"
  "$program" check --engine cuda test/cases/*.json >"$log_dir/corpus.log" 2>&1 || failures="$failures corpus"
  # For so few multiprocessors that small problems get the kernels of large ones.
  "$program" check --engine cuda --multiprocessors 1 test/cases/*.json >"$log_dir/corpus_small.log" 2>&1 ||
    failures="$failures corpus_small"
  grep -hv '^pass' "$log_dir/corpus.log" "$log_dir/corpus_small.log" || true
  note corpus "{\"passed\": $(grep -c '^pass' "$log_dir/corpus.log"), \"not passed\": $(grep -vc '^pass' "$log_dir/corpus.log")}"

  say "device memory, graph capture, bound data"
  "$build_dir/test/test_gpu" && "$build_dir/test/test_gpu_embed" && "$build_dir/test/test_exec" || failures="$failures test_gpu"

  say "random problems"
  sweep_all sweep 20000
  # Rows that tensor cores take, planned for so few multiprocessors that small problems get the kernels of large ones.
  sweep_all "sweep of fast kernels" 10000 --aligned --large --multiprocessors 2

  say "compute-sanitizer"
  for tool in memcheck initcheck synccheck; do sanitize "$tool"; done
  # The kernels of sm_90a are named hopper_; docs/contributing.md says what racecheck reports of them.
  sanitize racecheck --kernel-name-exclude kernel_substring=hopper_
  compute-sanitizer --tool racecheck --racecheck-indirect-barrier-dependency --kernel-name kernel_substring=hopper_ \
    "$program" sweep --engine cuda --count 10 --aligned --large --multiprocessors 1 \
    >"$log_dir/racecheck_sm_90a.log" 2>&1 || failures="$failures racecheck_sm_90a"
  reported=$(sed -n 's/^=* RACECHECK SUMMARY: //p' "$log_dir/racecheck_sm_90a.log")
  say "racecheck of sm_90a: $reported; to be judged: $log_dir/racecheck_sm_90a.log"
  note "racecheck of sm_90a" "\"$reported\""

  say "measuring"
  "$program" bench --engine cuda --json "$log_dir/bench.json"
  note failures "\"$failures\""
  { printf '  "bench": '; cat "$log_dir/bench.json"; echo '}'; } >>"$results"
  say "wrote $results"
  [ -z "$failures" ] || die "failed:$failures"
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
  gpu) run_gpu "$@" ;;
  bench) run_bench "$@" ;;
  format) run_format ;;
  help | --help | -h) usage ;;
  *) usage >&2; die "unknown command $command" ;;
esac
