// Streams and events. The default stream is drained by every operation on it, since torch's own operators run at once on a CPU.
// What is put on another stream is late: it runs when somebody waits for it, when a running kernel waits in vain (it may wait for
// that), or after a tenth of a second in which the host did something else.
#include <malloc.h>
#include <string.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "record.h"

namespace emu {
namespace {
struct Stream;
struct Token {  // a place in a stream
  bool done = false;
  uint64_t number = 0;
  Stream* stream = nullptr;
};
struct Operation {
  std::unique_ptr<Kernel> kernel;          // one of these three
  std::function<void()> call;
  std::shared_ptr<Token> wait;
  std::shared_ptr<Token> record;           // with a call or alone
  const char* name = "";                   // of a call
  unsigned launch = 0, begun = 0;
  bool again = false;                      // the call may be made more than once
};
struct Graph { std::vector<Operation> nodes; };
struct Stream {
  uint64_t number = 0;
  std::deque<Operation> queue;
  bool blocking = false;                   // waits for the default stream and it for this one
  Graph* capture = nullptr;                // takes what is put here, which does not run
};

std::recursive_mutex mutex;
std::map<uint64_t, std::unique_ptr<Stream>> streams;
std::map<uint64_t, std::shared_ptr<Token>> events;
uint64_t last_number = 16;
uint64_t current_stream = 0;
double oldest = 0;                         // since when something waits in a queue
bool running = false;
int last_error = 0;

Stream& stream_of(uint64_t number) {
  auto& found = streams[number <= 2 ? 0 : number];  // 1 and 2 are names of the default stream
  if (!found) found.reset(new Stream), found->number = number <= 2 ? 0 : number;
  return *found;
}
bool pending() {
  for (auto& [number, stream] : streams)
    if (!stream->queue.empty()) return true;
  return false;
}
void free_kernel(Kernel& k) { k.free(k.argument); }
void drop_all() {
  for (auto& [number, stream] : streams) {
    for (Operation& o : stream->queue) {
      if (o.kernel) o.kernel->abandon(), free_kernel(*o.kernel);
      if (o.record) o.record->done = true;
    }
    stream->queue.clear();
  }
}
// Streams that have to move for this one to move.
void gather(Stream& stream, std::set<Stream*>& wanted) {
  if (!wanted.insert(&stream).second) return;
  for (Operation& o : stream.queue)
    if (o.wait && !o.wait->done && o.wait->stream) gather(*o.wait->stream, wanted);
}
// Runs streams until `over` says so. A wanted stream that waits in vain for long makes all others wanted too.
template <class Over>
void run(std::set<Stream*> wanted, Over over) {
  if (running) return;  // a host function that a stream calls
  running = true;
  begin_running();
  double still_since = 0;
  while (!over()) {
    bool moved = false;
    std::vector<Kernel*> kernels;
    for (Stream* stream : wanted) {
      if (stream->queue.empty()) continue;
      Operation& o = stream->queue.front();
      bool done = false;
      if (o.launch && !o.begun++) weak_acquire(), record_plain(R_BEGIN, o.launch);
      if (o.kernel) {
        kernels.push_back(o.kernel.get());
        moved |= o.kernel->step();
        if (!failure.empty()) break;
        done = o.kernel->over();
        if (done) free_kernel(*o.kernel), kernels.pop_back();
      } else if (o.wait) {
        done = o.wait->done;
        if (done) record_token(R_EVENT_WAIT, o.wait->number, stream->number);
      } else {
        const AsOperation as(o.launch);
        const WeakPause pause;
        if (o.call) o.call();
        done = true;
      }
      if (done) {
        if (o.launch) weak_release(), record_plain(R_END, o.launch);
        if (o.record) o.record->done = true, record_token(R_EVENT_RECORD, o.record->number, stream->number);
        stream->queue.pop_front();
        moved = true;
      }
    }
    if (!failure.empty()) {
      drop_all();
      break;
    }
    if (moved) {
      still_since = 0;
    } else {
      const double now = seconds();
      if (still_since == 0) still_since = now;
      if (now - still_since > 0.01)
        for (auto& [number, stream] : streams) wanted.insert(stream.get());
    }
    if (!over()) rest(moved, kernels);
  }
  end_running();
  running = false;
  if (!pending()) oldest = 0;
}
void drain(Stream& stream) {
  std::set<Stream*> wanted;
  gather(stream, wanted);
  run(wanted, [&] { return stream.queue.empty(); });
}
void drain_all() {
  std::set<Stream*> wanted;
  for (auto& [number, stream] : streams) gather(*stream, wanted);
  run(wanted, [&] { return !pending(); });
}
void drain_token(const std::shared_ptr<Token>& token) {
  if (!token || token->done || !token->stream) return;
  std::set<Stream*> wanted;
  gather(*token->stream, wanted);
  run(wanted, [&] { return token->done; });
}
// In a thread of its own: nothing stays in a queue for ever while the host is busy elsewhere.
void watch() {
  may_report = false;
  for (;;) {
    usleep(20000);
    std::unique_lock<std::recursive_mutex> guard(mutex, std::try_to_lock);
    if (guard && oldest && seconds() - oldest > 0.1) drain_all();
  }
}
void capture(Graph& graph, Operation o) {
  if (o.wait || o.record) failure = "events inside a CUDA graph";
  else if (o.call && !o.again) failure = "a function of a library inside a CUDA graph";
  else graph.nodes.push_back(std::move(o));
}
void put(uint64_t number, Operation o) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  Stream& stream = stream_of(number);
  const bool is_default = number <= 2;
  if (is_default)
    for (auto& [other, s] : streams)
      if (s->blocking && !s->queue.empty()) drain(*s);
  if (stream.capture) {
    capture(*stream.capture, std::move(o));
    return;
  }
  if (o.record) o.record->stream = &stream;
  if (o.kernel || o.call) {
    o.launch = new_launch();
    if (o.kernel) o.kernel->launch = o.launch;
    record_enqueue(o.launch, o.kernel ? o.kernel->name.c_str() : o.name, stream.number, stream.blocking, o.kernel ? o.kernel->total : 1,
                   o.kernel ? o.kernel->threads() : 1, !o.kernel ? 0 : o.kernel->early ? A_KERNEL | BEGINS_EARLY : A_KERNEL);
  }
  stream.queue.push_back(std::move(o));
  if (is_default) {
    drain(stream);
    return;
  }
  if (!oldest) {
    oldest = seconds();
    static std::thread* watcher = new std::thread(watch);
    (void)watcher;
  }
}
}  // namespace
}  // namespace emu

using namespace emu;
extern "C" {
void emu_enqueue(const char* name, const unsigned* grid, const unsigned* threads, const unsigned* cluster, unsigned shared, void* stream,
                 int how, void (*body)(void*), void* argument, void (*release)(void*)) {
  const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2], each = (uint64_t)threads[0] * threads[1] * threads[2];
  if (!blocks || !each || each > 1024 || threads[2] > 64 || grid[1] > 65535 || grid[2] > 65535 || shared > SHARED_MOST) {
    last_error = shared > SHARED_MOST ? 1 : 9;  // cudaErrorInvalidValue, cudaErrorInvalidConfiguration: nothing is launched
    release(argument);
    return;
  }
  auto kernel = std::make_unique<Kernel>();
  kernel->name = name, kernel->grid = {grid[0], grid[1], grid[2]}, kernel->block = {threads[0], threads[1], threads[2]};
  kernel->shared = shared, kernel->body = body, kernel->argument = argument, kernel->free = release;
  kernel->argument_bytes = malloc_usable_size(argument);
  kernel->total = (unsigned)blocks, kernel->live = (unsigned)(blocks * each);
  kernel->spread = 1 + random_numbers() % 4;
  kernel->cluster = {cluster[0], cluster[1], cluster[2]}, kernel->early = how & 2;
  const uint64_t together = (uint64_t)cluster[0] * cluster[1] * cluster[2];
  const bool whole = together && !(grid[0] % cluster[0]) && !(grid[1] % cluster[1]) && !(grid[2] % cluster[2]);
  if (!whole || together > CLUSTER_MOST || ((how & 1) && blocks > kernel->resident())) {
    last_error = !whole ? 9 : together > CLUSTER_MOST ? 912 : 720;  // cudaErrorInvalidClusterSize, cudaErrorCooperativeLaunchTooLarge
    release(argument);
    return;
  }
  Operation o;
  o.kernel = std::move(kernel);
  put((uint64_t)stream, std::move(o));
}
void emu_call(void (*function)(void*), void* argument, void* stream) {
  Operation o;
  o.call = [=] { function(argument); };
  o.name = "host function";
  put((uint64_t)stream, std::move(o));
}
void emu_copy(void* to, const void* from, size_t bytes, void* stream) {
  Operation o;
  o.name = "copy", o.again = true;
  o.call = [=] {
    record_range((uint64_t)from, bytes, false, 0), record_range((uint64_t)to, bytes, true, 0);
    memmove(to, from, bytes);
  };
  put((uint64_t)stream, std::move(o));
}
void emu_fill(void* to, int value, size_t bytes, void* stream) {
  Operation o;
  o.name = "fill", o.again = true;
  o.call = [=] {
    record_range((uint64_t)to, bytes, true, 0);
    memset(to, value, bytes);
  };
  put((uint64_t)stream, std::move(o));
}
uint64_t emu_stream_create(int blocking) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  const uint64_t number = ++last_number;
  stream_of(number).blocking = blocking;
  return number;
}
void emu_stream_synchronize(uint64_t number) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  drain(stream_of(number));
  record_plain(R_STREAM_JOIN, stream_of(number).number);
}
// The same, where a GPU's host would not wait: nothing is ordered by it.
void emu_stream_drain(uint64_t number) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  drain(stream_of(number));
}
int emu_stream_empty(uint64_t number) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  return stream_of(number).queue.empty();
}
int emu_stream_idle(uint64_t number) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  const bool idle = stream_of(number).queue.empty();
  if (idle) record_plain(R_STREAM_JOIN, stream_of(number).number);
  return idle;
}
void emu_synchronize() {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  drain_all();
  record_plain(R_STREAM_JOIN, ~0ull);
}
uint64_t emu_event_create() {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  events[++last_number] = nullptr;
  return last_number;
}
void emu_event_record(uint64_t event, uint64_t stream) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  Operation o;
  o.record = events[event] = std::make_shared<Token>();
  o.record->number = ++last_number;
  put(stream, std::move(o));
}
void emu_event_wait(uint64_t event, uint64_t stream) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto token = events[event];
  if (!token) return;  // one that is done is waited for all the same: it orders what follows
  Operation o;
  o.wait = token;
  put(stream, std::move(o));
}
void emu_event_synchronize(uint64_t event) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  drain_token(events[event]);
  if (events[event]) record_plain(R_EVENT_JOIN, events[event]->number);
}
int emu_event_done(uint64_t event) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  auto token = events[event];
  const bool done = !token || token->done;
  if (token && done) record_plain(R_EVENT_JOIN, token->number);
  return done;
}
// Graphs: operations of one stream, kept, and put on a stream anew by every launch. They live for ever.
int emu_capture_begin(uint64_t number) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  Stream& stream = stream_of(number);
  if (number <= 2 || stream.capture) return 0;
  stream.capture = new Graph;
  return 1;
}
void* emu_capture_end(uint64_t number) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  return std::exchange(stream_of(number).capture, nullptr);
}
int emu_capturing(uint64_t number) { return stream_of(number).capture != nullptr; }
void emu_graph_launch(void* graph, uint64_t stream) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  for (const Operation& node : static_cast<Graph*>(graph)->nodes) {
    Operation o;
    o.call = node.call, o.name = node.name, o.again = true;
    if (node.kernel) o.kernel = std::make_unique<Kernel>(*node.kernel), o.kernel->free = [](void*) {};
    put(stream, std::move(o));
  }
}
void emu_set_current_stream(uint64_t number) { current_stream = number; }
void* emu_current_stream() { return (void*)current_stream; }
int emu_last_error(int clear) {
  const int error = last_error;
  if (clear) last_error = 0;
  return error;
}
void emu_set_error(int error) { last_error = error; }

// What was asked for and is not emulated, once; 0 if nothing.
int emu_take_failure(char* out, unsigned size) {
  std::lock_guard<std::recursive_mutex> guard(mutex);
  if (failure.empty()) return 0;
  snprintf(out, size, "%s", failure.c_str());
  failure.clear();
  return 1;
}

// A multicast address: 0x70 in bits 48 to 55, the number of the buffer in bits 40 to 47, the place in it below.
static struct Cast { char* const* table; unsigned world; } casts[256];
void emu_set_multicast(unsigned number, void* table, unsigned world) { casts[number & 255] = {static_cast<char* const*>(table), world}; }
char* emu_multicast(unsigned member, uint64_t address) {
  const Cast& c = casts[address >> 40 & 255];
  if (address >> 48 != 0x70 || !c.world) fail("not a multicast address", reinterpret_cast<void*>(address));
  return member < c.world ? c.table[member] + (address & ((1ull << 40) - 1)) : nullptr;
}
}
