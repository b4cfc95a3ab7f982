// Places in the candidate's text, and what the name of an instruction says about memory.
#pragma once
#include <string.h>

#include <string>
#include <unordered_map>

#include "events.h"
#include "runtime.h"

namespace emu {
struct Site {
  uint32_t id;
  uint8_t order, scope, proxy;
};

// Qualifiers of PTX (`ld.acquire.sys.global.u32`) and names of functions (`atomicAdd_system`). PTX ISA, "Memory Consistency Model":
// no qualifier of strength is weak for ld and st, relaxed for atom and red, whose scope is then gpu; volatile is relaxed.sys.
inline Site meaning(const char* name) {
  Site s{0, WEAK, NO_SCOPE, GENERIC};
  const std::string text = std::string(".") + name + ".";
  auto has = [&](const char* q) { return text.find(std::string(".") + q + ".") != std::string::npos; };
  auto begins = [&](const char* q) { return text.compare(1, strlen(q), q) == 0; };
  if (has("acq_rel")) s.order = ACQ_REL;
  else if (has("acquire")) s.order = ACQUIRE;
  else if (has("release")) s.order = RELEASE;
  else if (has("sc") && begins("fence")) s.order = SC;
  else if (has("relaxed") || has("volatile") || has("mmio")) s.order = RELAXED;
  else if (begins("atom") || begins("red.") || begins("multimem.red")) s.order = RELAXED;
  if (has("cta") || has("block")) s.scope = CTA;
  else if (has("cluster")) s.scope = CLUSTER;
  else if (has("gpu") || has("gl")) s.scope = GPU;
  else if (has("sys") || has("volatile") || has("mmio") || begins("multimem")) s.scope = SYS;
  else if (s.order != WEAK) s.scope = GPU;
  if (begins("atomic")) {
    const size_t at = text.rfind('_');
    if (at != std::string::npos) s.scope = text.compare(at, 8, "_system.") == 0 ? SYS : text.compare(at, 7, "_block.") == 0 ? CTA : s.scope;
  }
  if (s.order == WEAK) s.scope = NO_SCOPE;
  if (has("nc") || begins("__ldg")) s.proxy = READONLY;
  if (begins("cp.async.bulk") || begins("cp.reduce.async.bulk") || begins("st.async") || begins("red.async")) s.proxy = ASYNC;
  return s;
}

class Sites {
 public:
  using Tell = void (*)(const Site&, const char* file, int line, const char* text);  // of a new one
  explicit Sites(Tell tell) : tell_(tell) {}
  const Site& of_code(const void* address) {
    auto [found, is_new] = all_.try_emplace(Key{address, nullptr, 0});
    if (is_new) {
      found->second = {++last_, WEAK, NO_SCOPE, GENERIC};
      code_[last_] = address;
    }
    return found->second;
  }
  const Site& of_instruction(const EmuAt& at) {
    auto [found, is_new] = all_.try_emplace(Key{at.what, at.file, at.line});
    if (is_new) {
      found->second = meaning(at.what);
      found->second.id = ++last_;
      tell_(found->second, at.file ? at.file : "", at.line, at.what);
    }
    return found->second;
  }
  uint32_t of_text(const char* file, int line, const char* text) {
    auto [found, is_new] = texts_.try_emplace(std::string(file) + "\n" + text + "\n" + std::to_string(line));
    if (is_new) {
      found->second = {++last_, WEAK, NO_SCOPE, GENERIC};
      tell_(found->second, file, line, text);
    }
    return found->second.id;
  }
  const std::unordered_map<uint32_t, const void*>& code() const { return code_; }
  void clear() { all_.clear(), texts_.clear(), code_.clear(), last_ = 0; }

 private:
  struct Key {
    const void* what;
    const void* file;
    int line;
    bool operator==(const Key& o) const { return what == o.what && file == o.file && line == o.line; }
  };
  struct Hash {
    size_t operator()(const Key& k) const { return (size_t)k.what * 0x9e3779b97f4a7c15ull ^ (size_t)k.file * 31 ^ (size_t)k.line << 20; }
  };
  Tell tell_;
  uint32_t last_ = 0;
  std::unordered_map<Key, Site, Hash> all_;
  std::unordered_map<std::string, Site> texts_;
  std::unordered_map<uint32_t, const void*> code_;
};
}  // namespace emu
