#!/bin/sh
# Builds cudnn-frontend's own SDPA samples, as they are, against compat/cudnn_frontend.h, and runs their test
# cases one by one: a line each with pass, FAIL, skip (they skip themselves) or time.
#
#   cudnn_frontend_samples.sh build CUDNN_FRONTEND_DIR BUILD_DIR OUT_DIR [--host]
#   cudnn_frontend_samples.sh run OUT_DIR
#
# BUILD_DIR holds a static attngraph. With --host the samples run on host memory, on the cpu engine, without a
# GPU: cudnn_frontend_host.cpp stands in for the calls of CUDA and cuDNN that they make. The second step needs
# OUT_DIR/samples alone, and no compiler, so that it may run on another machine than the first.
# Environment: CXX, CXXFLAGS and LDFLAGS (where CUDA's, cuDNN's and Catch2 v3's headers and libraries are),
# TIMEOUT (seconds a test case, 60).
set -eu

build() {
  theirs=$1 build=$2 out=$3 mode=${4:-}
  here=$(cd "$(dirname "$0")/../.." && pwd)
  cxx=${CXX:-c++}
  mkdir -p "$out"
  includes="-I$here/include/attngraph/compat/drop_in -I$here/include"
  built=0 total=0
  : > "$out/build.log"
  for file in "$theirs"/samples/cpp/sdpa/*.cpp; do
    total=$((total + 1))
    object=$out/$(basename "$file" .cpp).o
    # Their build's warnings; their precompiled header stands for what a file leaves out.
    if $cxx -std=c++17 -Wall -Wextra -Werror -Wno-unused-function $includes ${CXXFLAGS:-} \
      -include cudnn_frontend.h -c "$file" -o "$object" 2>> "$out/build.log"; then
      built=$((built + 1))
    else
      echo "does not build: $(basename "$file")"
    fi
  done
  echo "$built of $total files build"

  libraries="-lcudnn -lcudart"
  if [ "$mode" = --host ]; then
    $cxx -std=c++20 $includes ${CXXFLAGS:-} -c "$here/test/peers/cudnn_frontend_host.cpp" -o "$out/host.o"
    libraries="-Wl,--wrap=_ZN9attngraph6compat7Program4makeENS0_10TranslatedERKNS0_14ProgramOptionsE"
  fi
  $cxx -o "$out/samples" "$out"/*.o "$build/src/libattngraph.a" $libraries ${LDFLAGS:-} \
    -lCatch2Main -lCatch2 -lpthread -ldl
}

run() {
  out=$1
  "$out/samples" --list-tests --verbosity quiet | sed 's/^ *//' | grep -vE '^$|test cases?$' > "$out/names"
  while read -r name; do
    log=$out/$(echo "$name" | tr " /" __).log
    code=0
    timeout "${TIMEOUT:-60}" "$out/samples" "$name" > "$log" 2>&1 < /dev/null || code=$?
    outcome=FAIL
    [ $code -eq 0 ] && outcome=pass
    [ $code -eq 124 ] && outcome=time
    grep -q SKIPPED "$log" && outcome=skip
    echo "$outcome $name"
  done < "$out/names"
}

step=${1:-}
case $step in
  build | run) shift && $step "$@" ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
