#include "base/message.hpp"
#include "device/check.hpp"
#include "device/device.hpp"

namespace attngraph::device {
namespace {

Status none() {
  return fail(Code::kUnsupported,
              "no CUDA device: the library was built without the CUDA toolkit; needs ATTNGRAPH_CUDA");
}

}  // namespace

Result<Target> cuda_target() { return none(); }
Result<std::string> description() { return none(); }
Status copy(std::byte*, const std::byte*, int64_t, void*) { return none(); }
Result<WrongEntry> first_wrong_entry(std::span<const EntryCheck>, std::byte*, void*) { return none(); }
Result<int> current() { return none(); }
Result<int> sm_version() { return none(); }
Status fill(std::byte*, int64_t, Fill, void*) { return none(); }
Status write_guard(std::byte*, int64_t, int64_t, void*) { return none(); }
Status write(float*, std::span<const float>, void*) { return none(); }
Status record(void*, bool, const std::function<Status(void*)>&) { return none(); }
Result<Replay> Replay::record(const std::function<Status(void*)>&) { return none(); }
Replay::Replay(Replay&&) noexcept = default;
Replay& Replay::operator=(Replay&&) noexcept = default;
Replay::~Replay() = default;
Status Replay::launch(void*) const { return none(); }
Result<bool> is_captured(void*) { return none(); }
Status read(const std::byte*, std::span<std::byte>) { return none(); }
Status synchronize() { return none(); }
Result<double> elapsed_seconds(const std::function<Status()>&, void*) { return none(); }
Status check_not_captured(void*, const char*, const char*) { return none(); }

Result<Memory> Memory::allocate(int64_t) { return none(); }
Memory::Memory(Memory&&) noexcept = default;
Memory& Memory::operator=(Memory&&) noexcept = default;
Memory::~Memory() = default;
Status Memory::copy_in(const std::byte*) { return none(); }
Status Memory::copy_out(std::byte*) const { return none(); }

}  // namespace attngraph::device
