#ifndef ATTNGRAPH_ATTNGRAPH_H_
#define ATTNGRAPH_ATTNGRAPH_H_

/*
 * The C interface of attngraph, for frameworks: no exception, no global, no copy of data.
 *
 * A call that can fail returns an attngraph_status and, when `message` is not null, writes why there; on
 * success the message is empty. Handles come in create/destroy pairs; destroying null does nothing. All
 * calls may come from many threads at once, except that a graph is not changed while another thread uses it.
 * Texts are UTF-8.
 *
 * Structs that grow begin with their size: start from the ATTNGRAPH_..._INIT value, then set members. A
 * library newer than its caller reads and writes the members alone that the caller's struct has. Symbols,
 * numbers and members are added, never changed.
 */
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(ATTNGRAPH_SHARED)
#if defined(ATTNGRAPH_BUILDING)
#define ATTNGRAPH_C_API __declspec(dllexport)
#else
#define ATTNGRAPH_C_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define ATTNGRAPH_C_API __attribute__((visibility("default")))
#else
#define ATTNGRAPH_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- versions --------------------------------------------------------------------------------------- */

/* Rises when something is added here. */
#define ATTNGRAPH_ABI_VERSION 1
ATTNGRAPH_C_API uint32_t attngraph_abi_version(void); /* of the library that is loaded */
ATTNGRAPH_C_API const char* attngraph_version(void);  /* "0.1.0" */

/* ---- status and text -------------------------------------------------------------------------------- */

/* Who has to act. */
typedef int32_t attngraph_status;
enum {
  ATTNGRAPH_OK = 0,
  ATTNGRAPH_INVALID_GRAPH = 1, /* a description or an argument contradicts itself, JSON is not readable */
  ATTNGRAPH_UNSUPPORTED = 2,   /* valid, but no engine takes it */
  ATTNGRAPH_BAD_BINDING = 3,   /* the pointers, sizes or bound data given to execute */
  ATTNGRAPH_BACKEND = 4,       /* a library or system call failed, host memory and callbacks included */
  ATTNGRAPH_INTERNAL = 5       /* a defect of the library */
};
ATTNGRAPH_C_API const char* attngraph_status_name(attngraph_status status); /* "invalid_graph" */

/* Memory of the caller for a text. A call writes at most `capacity` bytes, whole characters and a closing 0,
 * and sets `length` to the bytes of the whole text without the 0: a second call with more gets it all. */
typedef struct attngraph_text {
  char* data; /* may be null with capacity 0 */
  size_t capacity;
  size_t length;
} attngraph_text;
typedef attngraph_text attngraph_message;

/* ---- values ----------------------------------------------------------------------------------------- */

typedef int32_t attngraph_data_type;
enum {
  ATTNGRAPH_F32 = 0,
  ATTNGRAPH_F16 = 1,
  ATTNGRAPH_BF16 = 2,
  ATTNGRAPH_FP8_E4M3 = 3,
  ATTNGRAPH_FP8_E5M2 = 4,
  ATTNGRAPH_I32 = 5,
  ATTNGRAPH_I64 = 6,
  ATTNGRAPH_BOOL = 7
};

typedef int32_t attngraph_align;
enum {
  ATTNGRAPH_TOP_LEFT = 0,    /* row i lies on the diagonal at key i */
  ATTNGRAPH_BOTTOM_RIGHT = 1 /* at key i + kv_len - q_len of its own sequence */
};

typedef int32_t attngraph_stats_base;
enum { ATTNGRAPH_STATS_BASE_E = 0, ATTNGRAPH_STATS_BASE_2 = 1 };
typedef int32_t attngraph_log_level;
enum { ATTNGRAPH_LOG_ERROR = 0, ATTNGRAPH_LOG_WARNING = 1, ATTNGRAPH_LOG_INFO = 2 };
typedef int32_t attngraph_memory_kind;
enum { ATTNGRAPH_HOST = 0, ATTNGRAPH_CUDA = 1 };
typedef int32_t attngraph_cpu_isa;
enum { ATTNGRAPH_PORTABLE = 0, ATTNGRAPH_AVX2 = 1, ATTNGRAPH_AVX512 = 2, ATTNGRAPH_AVX512_BF16 = 3 };
typedef int32_t attngraph_format;
enum { ATTNGRAPH_TEXT = 0, ATTNGRAPH_JSON = 1, ATTNGRAPH_SVG = 2 };

/* No tensor at this place, no bound on this side, no such number given. */
#define ATTNGRAPH_NONE INT64_MIN

/* ---- graphs ----------------------------------------------------------------------------------------- */

typedef struct attngraph_graph attngraph_graph;

ATTNGRAPH_C_API attngraph_status attngraph_graph_create(const char* name, attngraph_graph** graph,
                                                        attngraph_message* message);
ATTNGRAPH_C_API void attngraph_graph_destroy(attngraph_graph* graph);
ATTNGRAPH_C_API attngraph_status attngraph_graph_from_json(const char* json, size_t json_bytes,
                                                           attngraph_graph** graph,
                                                           attngraph_message* message);
ATTNGRAPH_C_API attngraph_status attngraph_graph_to_json(const attngraph_graph* graph, attngraph_text* json,
                                                         attngraph_message* message);

/* One tensor. Logical order is [batch, heads, len, dim] whatever the memory order. Arrays are copied.
 * Units: dims and strides in elements, alignment in bytes. */
typedef struct attngraph_tensor {
  size_t struct_size;
  int64_t uid;      /* ATTNGRAPH_NONE: a fresh one */
  const char* name; /* a label; null: none */
  attngraph_data_type data_type;
  int32_t rank;
  const int64_t* dims;
  const int64_t* strides;    /* null on an output: dense, last axis fastest */
  int64_t ragged_offsets;    /* uid of the offsets of packed sequences; ATTNGRAPH_NONE: not ragged */
  int64_t ragged_multiplier; /* elements per offset unit; the token stride makes offsets token counts */
  int64_t alignment;         /* of the pointer */
  int32_t is_virtual;        /* lives in the workspace: made by one node, read by another, never bound */
} attngraph_tensor;
#define ATTNGRAPH_TENSOR_INIT \
  { sizeof(attngraph_tensor), ATTNGRAPH_NONE, NULL, ATTNGRAPH_F32, 0, NULL, NULL, ATTNGRAPH_NONE, 1, 16, 0 }

/* `uid`, which may be null, receives the tensor's uid. */
ATTNGRAPH_C_API attngraph_status attngraph_graph_add_tensor(attngraph_graph* graph,
                                                            const attngraph_tensor* tensor, int64_t* uid,
                                                            attngraph_message* message);
/* Describes a tensor of the graph; its arrays and name live until the graph is changed or destroyed. */
ATTNGRAPH_C_API attngraph_status attngraph_graph_tensor(const attngraph_graph* graph, int64_t uid,
                                                        attngraph_tensor* tensor, attngraph_message* message);

/* What a node says beside its tensors. A merge has stats_base and max_total_q alone. */
typedef struct attngraph_attributes {
  size_t struct_size;
  int32_t has_scale; /* 0: scale is 1 / sqrt(dim of q) */
  double scale;
  double softcap;   /* 0: none */
  double dropout_p; /* probability that an element is dropped */
  attngraph_align align;
  int64_t band_left, band_right; /* keys, inclusive, from the diagonal; ATTNGRAPH_NONE: unbounded */
  attngraph_stats_base stats_base;
  int64_t max_total_q, max_total_kv; /* token slots, gaps included; ATTNGRAPH_NONE: batch * len */
  int64_t max_seq_len_kv;            /* of paged k and v; ATTNGRAPH_NONE: columns * page size */
  int32_t deterministic;             /* backward: bit-equal from run to run */
} attngraph_attributes;
#define ATTNGRAPH_ATTRIBUTES_INIT                                                                       \
  {                                                                                                     \
    sizeof(attngraph_attributes), 0, 0.0, 0.0, 0.0, ATTNGRAPH_TOP_LEFT, ATTNGRAPH_NONE, ATTNGRAPH_NONE, \
        ATTNGRAPH_STATS_BASE_E, ATTNGRAPH_NONE, ATTNGRAPH_NONE, ATTNGRAPH_NONE, 0                       \
  }

/* A tensor at a place of a node, named as in graph files: "q", "seq_len_kv", "do". */
typedef struct attngraph_port {
  const char* role;
  int64_t uid; /* ATTNGRAPH_NONE: as if not listed */
} attngraph_port;

typedef struct attngraph_node {
  size_t struct_size;
  const char* op;              /* "sdpa_forward", "sdpa_backward" or "merge_partials" */
  const char* name;            /* a label; null: none */
  const attngraph_port* ports; /* inputs and outputs in any order */
  size_t num_ports;
  const attngraph_attributes* attributes; /* null: the defaults */
} attngraph_node;
#define ATTNGRAPH_NODE_INIT \
  { sizeof(attngraph_node), NULL, NULL, NULL, 0, NULL }

ATTNGRAPH_C_API attngraph_status attngraph_graph_add_node(attngraph_graph* graph, const attngraph_node* node,
                                                          attngraph_message* message);
ATTNGRAPH_C_API size_t attngraph_graph_num_nodes(const attngraph_graph* graph);
/* The uid at a place of a node; ATTNGRAPH_NONE: there is no such node, place or tensor. */
ATTNGRAPH_C_API int64_t attngraph_graph_port(const attngraph_graph* graph, size_t node, const char* role);
ATTNGRAPH_C_API attngraph_status attngraph_graph_validate(const attngraph_graph* graph,
                                                          attngraph_message* message);

/* Gradients of a training pair; a sum of bits. */
#define ATTNGRAPH_GRADIENT_Q 1u
#define ATTNGRAPH_GRADIENT_K 2u
#define ATTNGRAPH_GRADIENT_V 4u
#define ATTNGRAPH_GRADIENT_BIAS 8u
#define ATTNGRAPH_GRADIENT_SINK 16u
#define ATTNGRAPH_GRADIENT_ALIBI_SLOPES 32u
/* From a graph of one forward node: the forward that emits stats, and the backward of these gradients.
 * Tensors that both have keep their uids. */
ATTNGRAPH_C_API attngraph_status attngraph_training_pair(const attngraph_graph* graph, uint32_t gradients,
                                                         attngraph_graph** forward,
                                                         attngraph_graph** backward,
                                                         attngraph_message* message);

/* ---- contexts --------------------------------------------------------------------------------------- */

typedef struct attngraph_context attngraph_context;

/* Callbacks and what they point to must outlive the context and its plans. None may call back into the
 * library, and none may leave by an exception or a jump. */
typedef struct attngraph_context_options {
  size_t struct_size;
  int32_t num_threads; /* host threads of a plan; 0: as many as the process may run on */
  /* Runs task(arg, 0) .. task(arg, num_tasks - 1) on the caller's threads, in any order, and returns when
   * all are done; null: the library's own pool, whose threads start with the first run. */
  void (*executor)(void* self, int64_t num_tasks, void (*task)(void* arg, int64_t index), void* arg);
  void* executor_self;
  void (*log)(void* self, attngraph_log_level level, const char* line); /* null: silent */
  void* log_self;
  /* Workspace of executions that bring none; null: such are refused. `stream` is that of the execution, and
   * `free`, called when its work is submitted, has to respect the order of the stream. */
  void* (*allocate)(void* self, size_t bytes, size_t alignment, void* stream);
  void (*free)(void* self, void* data, size_t bytes, void* stream);
  void* allocator_self;
  int64_t cache_entries; /* plans kept; 0: none */
  int64_t cache_bytes;   /* their estimated host memory */
} attngraph_context_options;
#define ATTNGRAPH_CONTEXT_OPTIONS_INIT \
  { sizeof(attngraph_context_options), 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 256, 64 * 1024 * 1024 }

/* `options` may be null. */
ATTNGRAPH_C_API attngraph_status attngraph_context_create(const attngraph_context_options* options,
                                                          attngraph_context** context,
                                                          attngraph_message* message);
/* Plans and support answers outlive it. */
ATTNGRAPH_C_API void attngraph_context_destroy(attngraph_context* context);
/* Engines of this build in order of preference; null beyond the last. */
ATTNGRAPH_C_API const char* attngraph_context_engine(const attngraph_context* context, size_t index);

typedef struct attngraph_cache_statistics {
  size_t struct_size;
  int64_t hits, misses, builds, evictions, entries;
} attngraph_cache_statistics;
#define ATTNGRAPH_CACHE_STATISTICS_INIT \
  { sizeof(attngraph_cache_statistics), 0, 0, 0, 0, 0 }
ATTNGRAPH_C_API attngraph_status attngraph_context_cache_statistics(const attngraph_context* context,
                                                                    attngraph_cache_statistics* statistics,
                                                                    attngraph_message* message);

/* ---- targets ---------------------------------------------------------------------------------------- */

/* What a plan is made for: read from this machine or written by hand, so that planning for any device works
 * anywhere. Units: bytes; sm_version 90 for sm_90; cudnn_version as cuDNN counts, 91900 for 9.19.0. */
typedef struct attngraph_target {
  size_t struct_size;
  attngraph_memory_kind memory;
  attngraph_cpu_isa isa; /* host alone */
  int32_t num_threads;   /* host alone */
  int32_t sm_version, sm_count, cudnn_version;
  int64_t shared_memory_bytes, l2_bytes;
} attngraph_target;
#define ATTNGRAPH_TARGET_INIT \
  { sizeof(attngraph_target), ATTNGRAPH_HOST, ATTNGRAPH_PORTABLE, 1, 0, 0, 0, 0, 0 }
/* Where an engine runs on this machine: its host, with the context's number of threads, or the current CUDA
 * device. `engine` null: the host. */
ATTNGRAPH_C_API attngraph_status attngraph_context_target(const attngraph_context* context,
                                                          const char* engine, attngraph_target* target,
                                                          attngraph_message* message);
/* By name: "a100", "h100", "h200", "b200". */
ATTNGRAPH_C_API attngraph_status attngraph_target_preset(const char* name, attngraph_target* target,
                                                         attngraph_message* message);

/* ---- support ---------------------------------------------------------------------------------------- */

typedef struct attngraph_support attngraph_support;

/* Every engine's answer with all its reasons, from the code that plans; needs no device. `target` null: this
 * machine's host. */
ATTNGRAPH_C_API attngraph_status attngraph_support_query(const attngraph_context* context,
                                                         const attngraph_graph* graph,
                                                         const attngraph_target* target,
                                                         attngraph_support** support,
                                                         attngraph_message* message);
ATTNGRAPH_C_API void attngraph_support_destroy(attngraph_support* support);
/* Null beyond the last. */
ATTNGRAPH_C_API const char* attngraph_support_engine(const attngraph_support* support, size_t engine);
/* 0: the engine takes the graph. */
ATTNGRAPH_C_API size_t attngraph_support_num_reasons(const attngraph_support* support, size_t engine);

/* Why an engine does not take a graph: "<subject> is <has>; needs <wants>". Texts live as long as the
 * support handle. */
typedef struct attngraph_reason {
  size_t struct_size;
  const char* subject; /* the tensor, attribute or property of the target */
  const char* has;
  const char* wants;
  const char* since; /* the version that lifts the limit; empty: none is known */
} attngraph_reason;
#define ATTNGRAPH_REASON_INIT \
  { sizeof(attngraph_reason), NULL, NULL, NULL, NULL }
ATTNGRAPH_C_API attngraph_status attngraph_support_reason(const attngraph_support* support, size_t engine,
                                                          size_t index, attngraph_reason* reason,
                                                          attngraph_message* message);

/* ---- plans ------------------------------------------------------------------------------------------ */

typedef struct attngraph_plan attngraph_plan; /* immutable */

/* Sizes of which each call may bring less than the graph declares; a sum of bits. */
#define ATTNGRAPH_VARYING_BATCH 1u
#define ATTNGRAPH_VARYING_LENGTHS 2u
#define ATTNGRAPH_VARYING_TOKENS 4u
#define ATTNGRAPH_VARYING_PAGES 8u
typedef struct attngraph_plan_options {
  size_t struct_size;
  const char* engine;          /* this engine alone; null: the first of the order that takes the graph */
  int64_t max_workspace_bytes; /* find a plan that fits, or refuse; ATTNGRAPH_NONE: no limit */
  int64_t guard_bytes;         /* pattern around every workspace region */
  int32_t validate_bindings;   /* check lengths, offsets and page tables before each launch; synchronises */
  uint32_t varying;
} attngraph_plan_options;
#define ATTNGRAPH_PLAN_OPTIONS_INIT \
  { sizeof(attngraph_plan_options), NULL, ATTNGRAPH_NONE, 0, 0, 0 }

/* Plans are shared through the context's cache. `target` null: where the engine of `options` runs on this
 * machine, without one its host; `options` may be null. */
ATTNGRAPH_C_API attngraph_status attngraph_plan_create(attngraph_context* context,
                                                       const attngraph_graph* graph,
                                                       const attngraph_target* target,
                                                       const attngraph_plan_options* options,
                                                       attngraph_plan** plan, attngraph_message* message);
ATTNGRAPH_C_API void attngraph_plan_destroy(attngraph_plan* plan);

/* Bytes that execute may touch in the workspace; 0 is common. */
ATTNGRAPH_C_API int64_t attngraph_plan_workspace_bytes(const attngraph_plan* plan);
/* Engine of a node; null beyond the last. */
ATTNGRAPH_C_API const char* attngraph_plan_engine(const attngraph_plan* plan, size_t node);
/* Two runs on the same data give the same bits. */
ATTNGRAPH_C_API int32_t attngraph_plan_is_deterministic(const attngraph_plan* plan);
ATTNGRAPH_C_API attngraph_status attngraph_plan_explain(const attngraph_plan* plan, attngraph_format format,
                                                        attngraph_text* text, attngraph_message* message);

ATTNGRAPH_C_API int32_t attngraph_plan_num_slots(const attngraph_plan* plan);
/* Place of a tensor in the pointer table; -1: execute needs no pointer for it. */
ATTNGRAPH_C_API int32_t attngraph_plan_slot(const attngraph_plan* plan, int64_t uid);
/* The same by name; -1 also when two tensors that execute needs bear it. */
ATTNGRAPH_C_API int32_t attngraph_plan_slot_by_name(const attngraph_plan* plan, const char* name);

/* What execute asks of a slot. The name lives as long as the plan. */
typedef struct attngraph_slot {
  size_t struct_size;
  int64_t uid;
  const char* name;
  int64_t bytes;     /* that the storage must hold, counted from its pointer */
  int64_t alignment; /* bytes */
  int32_t is_output;
  int32_t is_virtual; /* lives in the workspace: its pointer is not read */
} attngraph_slot;
#define ATTNGRAPH_SLOT_INIT \
  { sizeof(attngraph_slot), 0, NULL, 0, 0, 0, 0 }
ATTNGRAPH_C_API attngraph_status attngraph_plan_slot_info(const attngraph_plan* plan, int32_t slot,
                                                          attngraph_slot* info, attngraph_message* message);

/* ---- execution -------------------------------------------------------------------------------------- */

/* One call, filled once and used as often as its memory stays. */
typedef struct attngraph_call {
  size_t struct_size;
  void* const* pointers; /* by slot */
  const int64_t* bytes;  /* sizes of the storages by slot, -1: not told; null: none is told */
  int32_t num_pointers;
  void* workspace; /* 256-byte aligned; null with 0 bytes: execute and autotune ask the context's allocator */
  int64_t workspace_bytes;
  void* stream; /* a cudaStream_t; ignored on a host */
  /* Less than the graph declares, where the plan's `varying` says so; ATTNGRAPH_NONE: as declared. */
  int64_t batch, total_q, total_kv, pages;
} attngraph_call;
#define ATTNGRAPH_CALL_INIT                                                                               \
  {                                                                                                       \
    sizeof(attngraph_call), NULL, NULL, 0, NULL, 0, NULL, ATTNGRAPH_NONE, ATTNGRAPH_NONE, ATTNGRAPH_NONE, \
        ATTNGRAPH_NONE                                                                                    \
  }

/* Checks the call against the plan's footprints, then launches. Allocates nothing itself, takes no lock,
 * reads no environment and does not synchronise. */
ATTNGRAPH_C_API attngraph_status attngraph_execute(const attngraph_plan* plan, const attngraph_call* call,
                                                   attngraph_message* message);
/* Times the ways the plan's engines can run it, on the memory of the call, whose outputs are written, and
 * waits for the device. `tuned` is the plan in the fastest; it takes the plan's place in the context's cache.
 * Ways that need more workspace than the call brings are left out; one way leaves the plan as it is. */
ATTNGRAPH_C_API attngraph_status attngraph_plan_autotune(attngraph_context* context,
                                                         const attngraph_plan* plan,
                                                         const attngraph_call* call, attngraph_plan** tuned,
                                                         attngraph_message* message);
/* A call that repeats with the same pointers, sizes and workspace, and whatever data lie there then, recorded
 * on a device as one CUDA graph: the host launches it in less time than several kernels, or one of cuDNN's.
 * Creation checks the call, ignores its stream and runs nothing; the arrays of the call are copied, their
 * memory must stay. The workspace is part of it: the context's allocator is not asked. A launch does what
 * execute would do; on a host and in a stream capture it does execute. One launch at a time, as all have one
 * workspace. The recording outlives its plan and its context. */
typedef struct attngraph_recording attngraph_recording;
ATTNGRAPH_C_API attngraph_status attngraph_recording_create(const attngraph_plan* plan,
                                                            const attngraph_call* call,
                                                            attngraph_recording** recording,
                                                            attngraph_message* message);
ATTNGRAPH_C_API attngraph_status attngraph_recording_launch(const attngraph_recording* recording,
                                                            void* stream, attngraph_message* message);
ATTNGRAPH_C_API void attngraph_recording_destroy(attngraph_recording* recording);
/* Bytes of workspace that a call of these sizes needs, at most attngraph_plan_workspace_bytes(). */
ATTNGRAPH_C_API attngraph_status attngraph_call_workspace_bytes(const attngraph_plan* plan,
                                                                const attngraph_call* call, int64_t* bytes,
                                                                attngraph_message* message);
/* Looks at the guard patterns of a workspace after a run of a plan with guard_bytes. */
ATTNGRAPH_C_API attngraph_status attngraph_call_check_guards(const attngraph_plan* plan,
                                                             const attngraph_call* call,
                                                             attngraph_message* message);

#ifdef __cplusplus
}
#endif

#endif /* ATTNGRAPH_ATTNGRAPH_H_ */
