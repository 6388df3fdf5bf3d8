#pragma once

/// Marks what a shared build exports; everything else is hidden.
#if defined(ATTNGRAPH_SHARED) && defined(_WIN32)
#if defined(ATTNGRAPH_BUILDING)
#define ATTNGRAPH_API __declspec(dllexport)
#else
#define ATTNGRAPH_API __declspec(dllimport)
#endif
#else
#define ATTNGRAPH_API __attribute__((visibility("default")))
#endif
