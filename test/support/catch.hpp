#pragma once

// Catch2 v2.13 (Debian 12) and v3 (Ubuntu 24.04) under one include.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
