#include "cli/step_data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/element.hpp"
#include "base/message.hpp"
#include "cli/guarded.hpp"
#include "cli/random.hpp"
#include "graph/fields.hpp"

namespace attngraph::cli {
namespace {

bool is_real(DataType dtype) {
  return dtype == DataType::kF32 || dtype == DataType::kF16 || dtype == DataType::kBf16;
}

template <class Integer>
bool write_integer(std::byte* at, int64_t value, Integer least, Integer most) {
  if (value < least || value > most) return false;
  const auto narrowed = static_cast<Integer>(value);
  std::memcpy(at, &narrowed, sizeof narrowed);
  return true;
}

template <class Integer>
bool write_integer(std::byte* at, int64_t value) {
  return write_integer(at, value, std::numeric_limits<Integer>::min(), std::numeric_limits<Integer>::max());
}

/// False when the type cannot hold the number.
bool write_number(std::byte* at, DataType dtype, const Number& number) {
  if (is_real(dtype)) {
    write_real(at, dtype, 0, number.real());
    return true;
  }
  const int64_t* integer = std::get_if<int64_t>(&number.value);
  if (integer == nullptr) return false;
  if (dtype == DataType::kI32) return write_integer<int32_t>(at, *integer);
  if (dtype == DataType::kI64) return write_integer<int64_t>(at, *integer);
  return dtype == DataType::kBool && write_integer<uint8_t>(at, *integer, 0, 1);
}

/// Encodes the three sources that list their own elements.
class Encoder {
 public:
  explicit Encoder(const Tensor& tensor) : tensor_(tensor), bytes_(element_bytes(tensor.dtype)) {}

  Result<std::vector<std::byte>> operator()(const Values& source) const {
    std::vector<std::byte> content(source.list.size() * static_cast<size_t>(bytes_));
    for (size_t i = 0; i < source.list.size(); ++i)
      if (!write_number(content.data() + i * static_cast<size_t>(bytes_), tensor_.dtype, source.list[i]))
        return refuse(source.list[i]);
    return content;
  }

  Result<std::vector<std::byte>> operator()(const Repeated& source) const {
    ATTNGRAPH_RETURN_IF_ERROR(check_count(source.count));
    std::vector<std::byte> content(static_cast<size_t>(source.count * bytes_));
    for (int64_t i = 0; i < source.count; ++i)
      if (!write_number(content.data() + i * bytes_, tensor_.dtype, source.value))
        return refuse(source.value);
    return content;
  }

  Result<std::vector<std::byte>> operator()(const Random& source) const {
    ATTNGRAPH_RETURN_IF_ERROR(check_count(source.count));
    if (!is_real(tensor_.dtype))
      return fail(Code::kInvalidGraph, where(), ": is random ", tensor_.dtype, "; must be f32, f16 or bf16");
    std::vector<std::byte> content(static_cast<size_t>(source.count * bytes_));
    for (int64_t i = 0; i < source.count; ++i)
      write_real(content.data(), tensor_.dtype, i, normal(source.seed, static_cast<uint64_t>(i)));
    return content;
  }

 private:
  std::string where() const { return text("bind.", tensor_.uid); }

  Status refuse(const Number& number) const {
    return std::visit(
        [&](auto value) {
          return fail(Code::kInvalidGraph, where(), ": holds ", value, "; must fit ", tensor_.dtype);
        },
        number.value);
  }

  Status check_count(int64_t count) const {
    if (count <= GuardedMemory::kMostBytes / bytes_) return Status();
    return fail(Code::kInvalidGraph, where(), ".count: is ", count, "; must be at most ",
                GuardedMemory::kMostBytes / bytes_);
  }

  const Tensor& tensor_;
  int64_t bytes_;
};

/// The storage and byte offset that a chain of views ends at.
class Views {
 public:
  Views(const Graph& graph, const std::map<Uid, Source>& bind) : graph_(graph), bind_(bind) {}

  struct Place {
    Uid owner = 0;
    int64_t offset_bytes = 0;
  };
  Result<Place> resolve(Uid uid) const {
    Place place{uid, 0};
    for (size_t steps = 0; steps <= bind_.size(); ++steps) {
      const Tensor* tensor = graph_.find(place.owner);
      if (tensor == nullptr)
        return fail(Code::kInvalidGraph, "bind.", uid, ": views uid ", place.owner, "; must be a tensor");
      const auto entry = bind_.find(place.owner);
      const View* view = entry == bind_.end() ? nullptr : std::get_if<View>(&entry->second);
      if (view == nullptr) return place;
      int64_t bytes = 0;
      if (__builtin_mul_overflow(view->offset, element_bytes(tensor->dtype), &bytes) ||
          __builtin_add_overflow(place.offset_bytes, bytes, &place.offset_bytes))
        return fail(Code::kInvalidGraph, "bind.", uid, ".offset: is ", view->offset,
                    "; must lie in the storage");
      place.owner = view->of;
    }
    return fail(Code::kInvalidGraph, "bind.", uid, ": views itself; must view a storage");
  }

 private:
  const Graph& graph_;
  const std::map<Uid, Source>& bind_;
};

class Builder {
 public:
  Builder(const Graph& graph, const Step& step)
      : graph_(graph), step_(step), views_(graph, *step.bind), outputs_(bound_outputs(graph)) {}

  Result<StepData> build() {
    for (const auto& [uid, source] : *step_.bind) ATTNGRAPH_RETURN_IF_ERROR(bind(uid, source));
    for (const Uid uid : outputs_)
      if (!step_.bind->contains(uid)) ATTNGRAPH_RETURN_IF_ERROR(place(uid));
    return std::move(data_);
  }

 private:
  Status bind(Uid uid, const Source& source) {
    if (graph_.find(uid) == nullptr)
      return fail(Code::kInvalidGraph, "bind.", uid, ": is no uid of the graph; must be one");
    if (!std::holds_alternative<NullPointer>(source)) return place(uid);
    data_.tensors.push_back({uid, std::nullopt, 0});
    return Status();
  }

  Status place(Uid uid) {
    const Result<Views::Place> found = views_.resolve(uid);
    ATTNGRAPH_RETURN_IF_ERROR(found.status());
    const Result<size_t> storage = storage_of(found->owner);
    ATTNGRAPH_RETURN_IF_ERROR(storage.status());
    Storage& shared = data_.storages[*storage];
    shared.alignment = std::max(shared.alignment, graph_.find(uid)->alignment);
    shared.holds_output |= is_output(uid);
    data_.tensors.push_back({uid, *storage, found->offset_bytes});
    return Status();
  }

  Result<size_t> storage_of(Uid owner) {
    const auto known = std::find_if(data_.storages.begin(), data_.storages.end(),
                                    [&](const Storage& s) { return s.owner == owner; });
    if (known != data_.storages.end()) return static_cast<size_t>(known - data_.storages.begin());
    const Tensor& tensor = *graph_.find(owner);
    Storage storage{owner, tensor.dtype, 1, std::nullopt, Storage::kFootprint, false};
    const auto source = step_.bind->find(owner);
    if (source != step_.bind->end()) {
      Result<std::vector<std::byte>> content = encode(tensor, source->second);
      ATTNGRAPH_RETURN_IF_ERROR(content.status());
      storage.content = std::move(content).value();
    } else if (!is_output(owner)) {
      return fail(Code::kInvalidGraph, "bind: has a view of uid ", owner,
                  ", which is not bound; must be bound");
    } else if (const auto expect = step_.expect.find(owner); expect != step_.expect.end()) {
      if (const auto* list = std::get_if<WantedList>(&expect->second))
        storage.num_elems = static_cast<int64_t>(list->list.size());
    }
    data_.storages.push_back(std::move(storage));
    return data_.storages.size() - 1;
  }

  static Result<std::vector<std::byte>> encode(const Tensor& tensor, const Source& source) {
    const Encoder encoder(tensor);
    if (const auto* values = std::get_if<Values>(&source)) return encoder(*values);
    if (const auto* repeated = std::get_if<Repeated>(&source)) return encoder(*repeated);
    if (const auto* random = std::get_if<Random>(&source)) return encoder(*random);
    return fail(Code::kInvalidGraph, "bind.", tensor.uid,
                ": is null and viewed by another; must be a storage");
  }

  bool is_output(Uid uid) const { return std::find(outputs_.begin(), outputs_.end(), uid) != outputs_.end(); }

  const Graph& graph_;
  const Step& step_;
  Views views_;
  std::vector<Uid> outputs_;
  StepData data_;
};

}  // namespace

const BoundTensor* StepData::find(Uid uid) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const BoundTensor& t) { return t.uid == uid; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<StepData> make_step_data(const Graph& graph, const Step& step) { return Builder(graph, step).build(); }

std::vector<Uid> bound_outputs(const Graph& graph) {
  std::vector<Uid> uids;
  const auto collect = [&](Role, const Port& port, bool is_output) {
    const Tensor* tensor = port ? graph.find(*port) : nullptr;
    if (is_output && tensor != nullptr && !tensor->is_virtual) uids.push_back(*port);
  };
  for (const Node& node : graph.nodes) std::visit([&](const auto& n) { ports(n, collect); }, node);
  return uids;
}

}  // namespace attngraph::cli
