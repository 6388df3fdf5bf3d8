#pragma once

/// Marks what a shared build exports; everything else is hidden. attngraph.h, which includes nothing of ours,
/// has the same for C.
#if defined(__GNUC__) && !defined(_WIN32)
#define ATTNGRAPH_API __attribute__((visibility("default")))
#elif !defined(ATTNGRAPH_SHARED) || !defined(_WIN32)
#define ATTNGRAPH_API
#elif defined(ATTNGRAPH_BUILDING)
#define ATTNGRAPH_API __declspec(dllexport)
#else
#define ATTNGRAPH_API __declspec(dllimport)
#endif
