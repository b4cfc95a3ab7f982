// pkb_collective.cuh: parts of collectives in turns (pkb::pipeline). Kernels take `const __grid_constant__ Pipe pipe`, begin with
// `turns_of(pipe)` and get `shared` = 8 bytes per rank; for a second pipe as many more, and `turns_of(second, first.world)`.
//
// Words. A tensor is cut into *chunks*; block b has chunk `turn * blocks + b` in a turn, on every rank alike. What
// passes between ranks in a turn lies in *slots*, one per block and turn, in every rank's symmetric memory. *Rows* are
// equal pieces that a block moves at once, such as the same chunk for every peer: many short rows fly together where
// one at a time would wait.
//
// Slots are meant to stay in L2. So what is read or written once (arguments, results) goes by ld_leaving and st_leaving.
//
// Any alignment is right. The arguments `misfit` are addresses and strides of what is not a slot, joined by `|`: the
// copies take the widest loads that fit them. Ranks need not agree in that, since slots look the same whichever way
// they were filled.
#pragma once
#include "pkb.cuh"

namespace pkb {

// 1, 2 or 4 bytes, for what is not aligned to 16.
__device__ __forceinline__ u32 ld_narrow(const char* p, u32 size) {
  if (size == 4) return *reinterpret_cast<const u32*>(p);
  return size == 2 ? *reinterpret_cast<const unsigned short*>(p) : *reinterpret_cast<const unsigned char*>(p);
}
__device__ __forceinline__ void st_narrow(char* p, u32 v, u32 size) {
  if (size == 4) *reinterpret_cast<u32*>(p) = v;
  else if (size == 2) *reinterpret_cast<unsigned short*>(p) = v;
  else *reinterpret_cast<unsigned char*>(p) = v;
}

// What the threads of a block share in such a kernel. Make it with `turns_of`, by all threads.
struct Turns {
  const Pipe& pipe;
  char* const* slots;  // of all ranks, in shared memory: every acquire empties L1
  u32 rank, world; mutable u32 epoch;  // run moves it

  // This block's chunk of `total` bytes in a turn: nothing in turns past the end.
  __device__ __forceinline__ Part part(u64 total, u64 chunk, u32 turn) const {
    const u64 begin = ((u64)turn * blocks_in_grid() + block_in_grid()) * chunk;
    if (begin >= total) return Part{total, 0};
    return Part{begin, total - begin < chunk ? total - begin : chunk};
  }
  // Where this block's slot of a turn begins, from the start of any rank's slots (or of their multicast address).
  __device__ __forceinline__ u64 at(u32 turn) const { return pipe.at(epoch, turn); }
  // The k-th peer, counted from the neighbour on, so that not everybody is at rank 0 first. k = world - 1 is this rank.
  __device__ __forceinline__ u32 peer(u32 k) const {
    const u32 next = rank + 1 + k;
    return next < world ? next : next - world;
  }

  // The turns themselves: see pkb::pipeline. As often as need be, each time all of them; not again after meet(pipe).
  template <class Produce, class Consume> __device__ __forceinline__ void run(Produce produce, Consume consume) const {
    if (DEBUG && slots[rank] != pipe.slots[rank]) report_overwritten(rank);
    pipeline(pipe, epoch, produce, consume), epoch += pipe.turns;
  }
};
__device__ __forceinline__ Turns turns_of(const Pipe& pipe, u32 place = 0) {
  extern __shared__ char* peers[];
  const u32 epoch = pipe.epoch();  // on its way while the table is
  for (u32 peer = thread_in_block(); peer < pipe.world; peer += threads_in_block()) peers[place + peer] = pipe.slots[peer];
  __syncthreads();
  return Turns{pipe, peers + place, (u32)pipe.rank, (u32)pipe.world, epoch};
}

// ---------------------------------------------------------------------------------------------------------------------
// Rows: `total` bytes in rows of `row` bytes, of which the last may be short; row k goes from `from(k)` to `to(k)`

struct Nowhere {  // no second place for any row
  __device__ __forceinline__ char* operator()(u32) const { return nullptr; }
};
// Which row comes k-th. Turned: from `first` on and round, of `count` equal ones, so that ranks do not all load the same port.
struct InOrder {
  __device__ __forceinline__ u32 operator()(u32 k) const { return k; }
};
struct Turned {
  u32 first, count;
  __device__ __forceinline__ u32 operator()(u32 k) const { return k + first < count ? k + first : k + first - count; }
};

template <bool TO_SLOTS, class From, class To, class Also, class Order>
__device__ __forceinline__ void copy_rows(u32 total, u32 row, u64 misfit, From from, To to, Also also, Order order) {
  if (total == 0) return;
  constexpr u32 flight = 4;
  const bool wide = (misfit | row) % 16 == 0;
  const u32 vectors = wide ? total / 16 : 0, per_row = row / 16, threads = threads_in_block();
  // n / per_row as a product, which is exact while n * per_row < 2^32.
  const u64 inverse = wide ? (u64)(0xffffffffu / per_row) + 1 : 0;
  for (u32 first = thread_in_block(); first < vectors; first += flight * threads) {
    uint4 v[flight];
    u32 k[flight], x[flight];
#pragma unroll
    for (u32 m = 0; m < flight; ++m) {
      const u32 n = first + m * threads;
      const u32 place = (u32)(n * inverse >> 32);
      k[m] = order(place);
      x[m] = (n - place * per_row) * 16;
      if (n < vectors) v[m] = TO_SLOTS ? ld_leaving(from(k[m]) + x[m]) : ld_stream(from(k[m]) + x[m]);
    }
#pragma unroll
    for (u32 m = 0; m < flight; ++m) {
      if (first + m * threads >= vectors) continue;
      if constexpr (TO_SLOTS) st_weak(to(k[m]) + x[m], v[m]);
      else st_leaving(to(k[m]) + x[m], v[m]);
      if (char* second = also(k[m])) st_leaving(second + x[m], v[m]);
    }
  }
  // What is left, or everything if rows are not aligned: by the widest units that fit.
  const u64 fit = misfit | row | total;
  const u32 size = fit % 4 == 0 ? 4 : fit % 2 == 0 ? 2 : 1;
  for (u32 n = 16 * vectors + size * thread_in_block(); n < total; n += size * threads) {
    const u32 place = n / row, k = order(place), x = n - place * row;
    const u32 v = ld_narrow(from(k) + x, size);
    st_narrow(to(k) + x, v, size);
    if (char* second = also(k)) st_narrow(second + x, v, size);
  }
}
// From an argument into slots; `also(k)`, where it is not null, is a second place for row k, in a result.
template <class From, class To, class Also = Nowhere, class Order = InOrder>
__device__ __forceinline__ void stage_rows(u32 total, u32 row, u64 misfit, From from, To to, Also also = {}, Order order = {}) {
  copy_rows<true>(total, row, misfit, from, to, also, order);
}
// From slots (or an argument) into a result.
template <class From, class To, class Order = InOrder>
__device__ __forceinline__ void deliver_rows(u32 total, u32 row, u64 misfit, From from, To to, Order order = {}) {
  copy_rows<false>(total, row, misfit, from, to, Nowhere{}, order);
}

// to[0..bytes) = the sum of the rows from(0) .. from(count - 1), in that order and in fp32 (fp64 for f64). Everything
// is 16-byte aligned, but `bytes` need not be a multiple of that.
template <class T, class From>
__device__ __forceinline__ void sum_rows(char* to, u32 count, u32 bytes, From from) {
  constexpr u32 flight = 4, size = Lanes<T>::size;
  const u32 vectors = bytes / 16;
  for (u32 i = thread_in_block(); i < vectors; i += threads_in_block()) {
    wide_t<T> sum[Lanes<T>::count] = {};
    for (u32 k = 0; k < count; k += flight) {
      uint4 v[flight];
#pragma unroll
      for (u32 m = 0; m < flight; ++m)
        if (k + m < count) v[m] = ld_stream(from(k + m) + 16 * i);
#pragma unroll
      for (u32 m = 0; m < flight; ++m)
        if (k + m < count) Lanes<T>::accumulate(sum, v[m]);
    }
    st_weak(to + 16 * i, Lanes<T>::pack(sum));
  }
  for (u32 x = 16 * vectors + size * thread_in_block(); x < bytes; x += size * threads_in_block()) {
    wide_t<T> sum = 0;
    for (u32 k = 0; k < count; ++k) sum += Lanes<T>::get(from(k) + x);
    Lanes<T>::put(to + x, sum);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Sums of whole tensors: for all ranks (all-reduce), or for one (reduce), where the others return what they gave

// One phase: everybody stages its chunk, those who want the sum add all W of them. `chunk` bytes a block and turn.
template <class T>
__device__ __forceinline__ void sum_one_shot(const Turns& t, const char* in, char* out, u64 bytes, u32 chunk,
                                             bool wants) {
  auto produce = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    stage_rows(part.bytes, part.bytes, (u64)in, [&](u32) { return in + part.begin; },
               [&](u32) { return t.slots[t.rank] + t.at(turn); },
               [&](u32) { return wants ? nullptr : out + part.begin; });
  };
  auto consume = [&](u32 turn) {
    const Part part = t.part(bytes, chunk, turn);
    if (wants) sum_rows<T>(out + part.begin, t.world, part.bytes, [&](u32 k) { return t.slots[k] + t.at(turn); });
  };
  t.run(produce, consume);
}

// Who adds which row of a chunk. All ranks, where all want the sum. Where one root wants it, all but the root: so S bytes
// enter and leave its port, where 2 (W-1)/W S would if it added too. (With two ranks that is the same, and both add.)
struct Owners {
  u32 count, root;  // root: one that owns nothing, or none
  __device__ __forceinline__ u32 rank_of(u32 k) const { return k + (k >= root); }
  __device__ __forceinline__ u32 row_of(u32 rank) const { return rank - (rank > root); }  // of any rank but the root
};
__device__ __forceinline__ Owners all_but(u32 world, int root) {
  return root < 0 || world < 3 ? Owners{world, ~0u} : Owners{world - 1, (u32)root};
}

// Two phases in the same turns: a chunk is a row for each owner, who adds it; the last may be short. What it added in
// turn t it has announced with its next turn, ahead + 1 later, and then those who want the sum fetch all rows. So there
// are that many turns more than chunks. A slot is W + 1 equal rows, the last for sums. That one too is free when the
// slot comes round: sums of turn t are read in turn t + ahead + 1, which all have left when sums are written there
// again, since that happens after awaiting turn t + 2 ahead + 2. But rows to add are written without such a wait, so
// sums must not lie where another call, with shorter or longer rows, has rows: their place depends on the slot alone.
//
// Blocks begin with different rows: at any time a rank's blocks load all ports alike, and blocks of the same number read the
// same rows at the same time, which ranks that share an L2 like. Where the last row is short, all go in order.
template <class T>
__device__ __forceinline__ void sum_two_shot(const Turns& t, const char* in, char* out, u64 bytes, u32 chunk,
                                             int root = -1) {
  const bool wants = root < 0 || t.rank == (u32)root;
  const Owners owners = all_but(t.world, root);
  const u32 later = t.pipe.ahead + 1;
  const u64 sums = t.pipe.slot_bytes / (t.world + 1) * t.world;  // where they lie in a slot
  auto part_of = [&](u32 turn) { return t.part(bytes, chunk, turn); };
  auto length_of = [&](u32 of) { return (of + 16 * owners.count - 1) / (16 * owners.count) * 16; };
  auto row_of = [&](const Part& part) { return length_of((u32)part.bytes); };  // less in the last chunk
  const u32 row = length_of(chunk);
  const u32 first = block_in_grid() % owners.count;
  auto order_of = [&](const Part& part, u32 length) {
    return Turned{part.bytes == (u64)owners.count * length ? first : 0, owners.count};
  };
  auto produce = [&](u32 turn) {
    const Part part = part_of(turn);
    const u32 length = row_of(part);
    const u64 to = t.at(turn) + (u64)t.rank * row;
    stage_rows(part.bytes, length, (u64)in, [&](u32 k) { return in + part.begin + k * length; },
               [&](u32 k) { return t.slots[owners.rank_of(k)] + to; },
               [&](u32 k) { return wants ? nullptr : out + part.begin + k * length; }, order_of(part, length));
  };
  auto consume = [&](u32 turn) {
    const Part part = part_of(turn);
    const u32 length = row_of(part), begin = owners.row_of(t.rank) * length;
    char* mine = t.slots[t.rank] + t.at(turn);
    if (t.rank != owners.root && begin < part.bytes) {
      const u32 left = (u32)part.bytes - begin;
      sum_rows<T>(mine + sums, t.world, left < length ? left : length, [&](u32 k) { return mine + k * row; });
    }
    if (turn < later || !wants) return;
    const Part done = part_of(turn - later);
    const u32 each = row_of(done);
    const u64 from = t.at(turn - later) + sums;
    deliver_rows(done.bytes, each, (u64)out, [&](u32 k) { return t.slots[owners.rank_of(k)] + from; },
                 [&](u32 k) { return out + done.begin + k * each; }, order_of(done, each));
  };
  t.run(produce, consume);
}

// ---------------------------------------------------------------------------------------------------------------------
// NVLS (the switch reduces): 16-byte aligned, whole vectors; `multicast` is the address of all ranks' slots at once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// to[0..bytes) = the sum over all ranks of what lies at `multicast`; `to` may itself be a multicast address (TO_ALL).
template <class T, bool TO_ALL = false>
__device__ __forceinline__ void sum_by_switch(char* to, const char* multicast, u32 bytes) {
  constexpr u32 flight = 4;
  const u32 step = 16 * threads_in_block();
  for (u32 first = 16 * thread_in_block(); first < bytes; first += flight * step) {
    uint4 v[flight];
#pragma unroll
    for (u32 m = 0; m < flight; ++m)
      if (first + m * step < bytes) v[m] = Multimem<T>::ld_reduce(multicast + first + m * step);
#pragma unroll
    for (u32 m = 0; m < flight; ++m) {
      if (first + m * step >= bytes) continue;
      if constexpr (TO_ALL) Multimem<T>::st(to + first + m * step, v[m]);
      else st_weak(to + first + m * step, v[m]);
    }
  }
}
// From an argument to the same place of all ranks. The bits are stored as they are, whatever they stand for.
__device__ __forceinline__ void stage_by_switch(char* multicast, const char* from, u32 bytes) {
  constexpr u32 flight = 4;
  const u32 step = 16 * threads_in_block();
  for (u32 first = 16 * thread_in_block(); first < bytes; first += flight * step) {
    uint4 v[flight];
#pragma unroll
    for (u32 m = 0; m < flight; ++m)
      if (first + m * step < bytes) v[m] = ld_leaving(from + first + m * step);
#pragma unroll
    for (u32 m = 0; m < flight; ++m)
      if (first + m * step < bytes) Multimem<f32>::st(multicast + first + m * step, v[m]);
  }
}
#endif

}  // namespace pkb
