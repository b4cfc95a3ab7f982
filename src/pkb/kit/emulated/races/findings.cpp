#include "findings.h"

#include <stdio.h>

using namespace emu;
namespace races {
namespace {
constexpr size_t MOST = 200, SHOWN = 20, TIMELINE = 40;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const unsigned char c : text.substr(0, 300)) {
    if (c == '"' || c == '\\') out += '\\', out += (char)c;
    else if (c >= 32 && c < 127) out += (char)c;
    else out += '?';
  }
  return out + "\"";
}
const SiteText& site(const Trace& trace, uint32_t rank, uint32_t id) {
  static const SiteText none;
  const auto& all = trace.logs[rank].sites();
  auto found = all.find(id);
  return found == all.end() ? none : found->second;
}
std::string place(const Trace& trace, uint32_t rank, uint32_t id) {
  const SiteText& s = site(trace, rank, id);
  return "\"file\": " + quoted(s.file) + ", \"line\": " + std::to_string(s.line);
}
std::string what(const Trace& trace, uint32_t rank, uint32_t id, uint8_t mode, bool write, bool copied) {
  const SiteText& s = site(trace, rank, id);
  if (!s.text.empty()) return s.text;
  if (copied) return write ? "asynchronous copy (write)" : "asynchronous copy (read)";
  return std::string((mode & 7) != WEAK ? "volatile " : "plain ") + (write ? "store" : "load");
}
std::string access(const Trace& trace, const Side& s) {
  char numbers[200];
  snprintf(numbers, sizeof numbers, "{\"rank\": %u, \"block\": %u, \"thread\": %u, \"call\": %u, \"write\": %s, \"kernel\": ", s.who.rank, s.who.block, s.who.thread,
           s.call, s.write ? "true" : "false");
  return numbers + quoted(site(trace, s.who.rank, s.name).text) + ", \"what\": " + quoted(what(trace, s.who.rank, s.site, s.mode, s.write, s.copied)) + ", " +
         place(trace, s.who.rank, s.site) + "}";
}
std::string end_of_edge(const Trace& trace, uint32_t rank, uint32_t id) {
  return "{" + place(trace, rank, id) + ", \"what\": " + quoted(what(trace, rank, id, RELAXED, false, false)) + "}";
}
std::string moment_name(const Trace& trace, const Moment& m) {
  const std::string& text = site(trace, m.rank, m.site).text;
  switch (m.kind) {
    case R_BARRIER_BLOCK: case R_BARRIER_SOME: case R_BARRIER_WARP: return m.kind == R_BARRIER_WARP ? "warp barrier" : "barrier";
    case R_FENCE: return text.empty() ? "fence" : text;
    case R_SIGNAL: return text.empty() ? "signal" : text;
    case R_WAIT: return text.empty() ? "wait" : text;
    default: return text.empty() ? (m.kind == R_STRONG_READ ? "volatile load" : "volatile store") : text;
  }
}
std::string timeline(const Trace& trace, const Finding& f) {
  std::vector<Moment> all = f.moments;
  std::stable_sort(all.begin(), all.end(), [](const Moment& a, const Moment& b) { return a.number < b.number; });
  if (all.size() > TIMELINE - 2) all.erase(all.begin(), all.end() - (TIMELINE - 2));
  std::string out;
  auto line = [&](uint32_t rank, uint64_t order, const std::string& name, uint32_t id, const std::string& detail) {
    out += (out.empty() ? "" : ", ") + ("{\"rank\": " + std::to_string(rank) + ", \"order\": " + std::to_string(order)) + ", \"what\": " + quoted(name) + ", " +
           place(trace, rank, id) + ", \"detail\": " + quoted(detail) + "}";
  };
  auto thread = [](const Who& w) { return "block " + std::to_string(w.block) + ", thread " + std::to_string(w.thread); };
  for (const Moment& m : all) line(m.rank, m.number, moment_name(trace, m), m.site, thread(m.who));
  for (const Side* s : {&f.first, &f.second}) line(s->who.rank, f.number, s->write ? "write" : "read", s->site, thread(s->who));
  return out;
}
std::string scopes_text(const Finding& f) {
  return f.first.who.rank != f.second.who.rank ? "they are on two ranks, so both need scope sys" : "the scope of one does not include the thread of the other";
}
}  // namespace

Finding* Findings::add(const FindingKey& key) {
  auto found = all.find(key);
  if (found != all.end()) return ++found->second.count, nullptr;
  if (all.size() >= MOST) return nullptr;
  order.push_back(key);
  Finding& f = all[key];
  f.count = 1;
  return &f;
}

// The same trace by more lenient rules: the first that orders two accesses says what is wrong with them.
void classify(Trace& trace, Findings& findings) {
  struct Way { const char* kind; Rules rules; const char* text; };
  const Way ways[] = {
      {"scope_too_narrow", {true, false, true}, "the scope of these is too narrow: "},
      {"relaxed_where_release_acquire_is_needed", {false, true, true}, "these are relaxed: they order nothing else; a release and an acquire would"},
      {"relaxed_where_release_acquire_is_needed", {true, true, true}, "these are relaxed, and their scope is too narrow: a release and an acquire at scope sys would order them"},
  };
  size_t open = 0;
  for (auto& [key, f] : findings.all) {
    if (f.read_only) f.kind = "read_only_cache", f.missing = "the read-only path may return what was there before this launch: load it without .nc or __ldg";
    else if (f.proxy) f.kind = "async_proxy_without_fence", f.missing = "fence.proxy.async between the access by the generic proxy and the asynchronous one";
    else ++open;
  }
  for (const Way& way : ways) {
    if (!open) break;
    Findings other;
    Machine again(trace, way.rules, other);
    again.run();
    for (auto& [key, f] : findings.all) {
      if (!f.kind.empty() || other.has(key)) continue;
      f.kind = way.kind, f.missing = way.text, --open;
      if (f.kind == "scope_too_narrow") f.missing += scopes_text(f);
      // The last edge that only these rules give, towards the second access and from the first, if there is one.
      int best = -1;
      for (const Edge& e : again.edges) {
        if (e.number > f.number) break;
        if (e.to.rank != f.second.who.rank) continue;
        const int match = (e.from.rank == f.first.who.rank) * 4 + (e.to.launch == f.second.who.launch && e.to.block == f.second.who.block) * 2 + (e.from.block == f.first.who.block);
        if (match >= best) best = match, f.edge = {e};
      }
    }
  }
  for (auto& [key, f] : findings.all)
    if (f.kind.empty()) {
      const bool weak = (f.first.mode & 7) == WEAK && (f.second.mode & 7) == WEAK;  // a flag is no buffer
      // A write of a later call, or of a kernel that goes round its slots. Of another kernel in the same call: it may as well be
      // the write that the read should have waited for.
      const auto kernel = [&](const Side& s) { return site(trace, s.who.rank, s.name).text; };
      const bool later = f.second.call > f.first.call || kernel(f.first) == kernel(f.second);
      const bool reused = weak && !f.first.write && f.second.write && f.first.who.rank != f.second.who.rank && later;
      f.kind = reused ? "buffer_reused_too_early" : "no_synchronisation";
      f.missing = reused ? "nothing tells the writer that the reader has read" : "nothing orders these two accesses";
    }
}

std::string report(Trace& trace, const Machine& machine, Findings& findings) {
  unsigned calls = ~0u;
  for (const Log& log : trace.logs) calls = std::min(calls, log.calls());
  std::string out = "{\"calls\": " + std::to_string(calls) + (trace.touched ? ", \"reason\": \"the candidate has touched it\"" : "") + ", \"events\": " + std::to_string(machine.events) + ", \"threads\": " + std::to_string(machine.threads) + ", \"truncated\": " +
                    (trace.truncated ? "true" : "false") + ", \"broken\": " + (trace.broken ? "true" : "false") + ", \"findings\": [";
  size_t shown = 0;
  for (const FindingKey& key : findings.order) {
    if (shown == SHOWN) break;
    const Finding& f = findings.all[key];
    out += shown++ ? ", " : "";
    out += "{\"kind\": " + quoted(f.kind) + ", \"count\": " + std::to_string(f.count) + ", \"memory\": " + quoted(f.memory) + ", \"offset\": " + std::to_string(f.offset) +
           ", \"bytes\": " + std::to_string(f.bytes) + ", \"first\": " + access(trace, f.first) + ", \"second\": " + access(trace, f.second) +
           ", \"missing\": {\"text\": " + quoted(f.missing);
    const bool known = !f.edge.empty();
    out += ", \"first\": " + (known ? end_of_edge(trace, f.edge[0].from.rank, f.edge[0].released) : "null");
    out += ", \"second\": " + (known ? end_of_edge(trace, f.edge[0].to.rank, f.edge[0].acquired) : "null") + "}}";
  }
  out += "], \"timeline\": [";
  if (!findings.order.empty()) out += timeline(trace, findings.all[findings.order[0]]);
  return out + "]}\n";
}
}  // namespace races
