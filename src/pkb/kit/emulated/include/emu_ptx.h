// PTX instructions as functions: ptx.py writes calls of them in the place of inline assembly.
#pragma once

namespace emu::ptx {
inline void fence(const EmuAt& at) { EMU_FENCE(at); }
// Operands have the C++ type of the text and the PTX type of the instruction: bits where the sizes agree, else numbers.
template <class T, class X>
inline T get(const X& x) {
  if constexpr (std::is_same_v<X, decltype(nullptr)>) return T{};
  else if constexpr (sizeof(T) == sizeof(X) && !std::is_same_v<X, bool>) return bits<T>(x);
  else if constexpr (std::is_pointer_v<X>) return (T)(uintptr_t)x;
  else if constexpr (std::is_array_v<X>) return (T)(uintptr_t)&x[0];
  else if constexpr (std::is_floating_point_v<T> && std::is_integral_v<X>) return bits<T>((word_t<T>)x);
  else return (T)x;
}
template <class D, class V>
inline void set(D& d, const V& v) {
  if constexpr (sizeof(D) == sizeof(V) && !std::is_same_v<D, bool>) memcpy(&d, &v, sizeof d);
  else d = (D)v;
}
template <class X> inline char* generic(const X& x, int64_t offset = 0) { return (char*)get<uint64_t>(x) + offset; }
template <class X> inline char* shared(const X& x, int64_t offset = 0) { return emu_shared_arena + get<uint32_t>(x) + offset; }

inline void aligned(const void* p, size_t bytes) {
  if ((uintptr_t)p % bytes) emu_fault("misaligned address", p);
}
template <class T, unsigned N>
EMU_UNSEEN inline void load(T (&v)[N], const char* p, const EmuAt& at, bool looks) {
  aligned(p, sizeof v);
  if (looks) emu_poll(p, sizeof v, &at);
  EMU_ACCESS(p, sizeof v, 0, at);
  if constexpr (N == 1) v[0] = bits<T>(__atomic_load_n((const std::conditional_t<sizeof(T) == 1, uint8_t, word_t<T>>*)p, __ATOMIC_SEQ_CST));
  else memcpy(v, p, sizeof v);
}
template <class T, unsigned N>
EMU_UNSEEN inline void store(char* p, const T (&v)[N], const EmuAt& at) {
  aligned(p, sizeof v);
  EMU_ACCESS(p, sizeof v, 1, at);
  if constexpr (N == 1) {
    using Word = std::conditional_t<sizeof(T) == 1, uint8_t, word_t<T>>;
    __atomic_store_n((Word*)p, bits<Word>(v[0]), __ATOMIC_SEQ_CST);
    if constexpr (sizeof(T) >= 4) emu_set_word(p, &at);
  } else memcpy(p, v, sizeof v);
}
template <class T, class Op>
EMU_UNSEEN inline T atom(char* p, Op op, const EmuAt& at, bool looks) {
  aligned(p, sizeof(T));
  if (looks) emu_poll(p, sizeof(T), &at);
  return update((T*)p, op, at, false);
}

// Numbers of 16 and 8 bits.
struct Bf16 {
  static float widen(uint16_t h) { return bits<float>((uint32_t)h << 16); }
  static uint16_t narrow(float f) {
    const uint32_t u = bits<uint32_t>(f);
    return f != f ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
};
struct F16 {
  static float widen(uint16_t h) { return (float)bits<_Float16>(h); }
  static uint16_t narrow(float f) { return f != f ? 0x7fff : bits<uint16_t>((_Float16)f); }
};
template <int E, int M, bool HAS_INFINITY>
struct F8 {  // sign, E bits of exponent, M of mantissa
  static constexpr int BIAS = (1 << (E - 1)) - 1;
  static constexpr float MOST = HAS_INFINITY ? 57344.f : 448.f;
  static float widen(uint8_t x) {
    const int e = x >> M & ((1 << E) - 1), m = x & ((1 << M) - 1);
    float value = e ? ldexpf(1.f + ldexpf((float)m, -M), e - BIAS) : ldexpf((float)m, 1 - BIAS - M);
    if (HAS_INFINITY && e == (1 << E) - 1) value = m ? NAN : INFINITY;
    if (!HAS_INFINITY && (x & 127) == 127) value = NAN;
    return x & 128 ? -value : value;
  }
  static uint8_t narrow(float f) {  // to nearest even, and to the largest number what is larger
    if (f != f) return 127;
    const uint8_t sign = signbit(f) ? 128 : 0;
    const float a = fabsf(f);
    if (a >= MOST) return sign | (uint8_t)(HAS_INFINITY ? 123 : 126);
    int e = a == 0.f ? -100 : ilogbf(a);
    if (e < 1 - BIAS) e = 1 - BIAS;
    const float units = nearbyintf(ldexpf(a, M - e));  // up to 2^(M + 1)
    const int whole = (int)units + ((e + BIAS - 1) << M);
    return sign | (uint8_t)whole;
  }
};
using E4m3 = F8<4, 3, false>;
using E5m2 = F8<5, 2, true>;
template <class H> inline float half(unsigned word, unsigned high) { return H::widen((uint16_t)(high ? word >> 16 : word)); }
template <class H> inline unsigned pair(float high, float low) { return H::narrow(low) | (unsigned)H::narrow(high) << 16; }
template <class H, class Op>
inline unsigned both(unsigned a, unsigned b, Op op) {  // computed in float, then rounded: exact for one operation on 16 bits
  return pair<H>(op(half<H>(a, 1), half<H>(b, 1)), op(half<H>(a, 0), half<H>(b, 0)));
}
template <class H> inline unsigned fma2(unsigned a, unsigned b, unsigned c) {  // exact in double, then rounded (twice)
  auto one = [&](int h) { return (float)((double)half<H>(a, h) * half<H>(b, h) + half<H>(c, h)); };
  return pair<H>(one(1), one(0));
}

// Four 8 x 8 matrices of 16-bit numbers; lane l has the address of row l % 8 of matrix l / 8.
template <unsigned N>
EMU_UNSEEN inline void ldmatrix(unsigned (&r)[N], const char* p, bool trans, const EmuAt& at) {
  aligned(p, 16);
  const unsigned lane = emu_lane();
  if (lane < 8 * N) EMU_ACCESS(p, 16, 0, at);
  emu_warp()[lane].word[0] = (uint64_t)p;
  emu_meet_warp(~0u);
  for (unsigned m = 0; m < N; ++m) {
    uint16_t two[2];
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned row = trans ? 2 * (lane % 4) + e : lane / 4, col = trans ? lane / 4 : 2 * (lane % 4) + e;
      memcpy(&two[e], (const char*)emu_warp()[8 * m + row].word[0] + 2 * col, 2);
    }
    r[m] = two[0] | (unsigned)two[1] << 16;
  }
  emu_meet_warp(~0u);
}
template <unsigned N>
EMU_UNSEEN inline void stmatrix(char* p, const unsigned (&r)[N], bool trans, const EmuAt& at) {
  aligned(p, 16);
  const unsigned lane = emu_lane();
  EmuWords* all = emu_warp();
  all[lane] = {};
  memcpy(&all[lane], r, sizeof r);
  emu_meet_warp(~0u);
  if (lane < 8 * N) {  // it has the address of a row
    EMU_ACCESS(p, 16, 1, at);
    for (unsigned col = 0; col < 8; ++col) {
      const unsigned from = trans ? 4 * col + lane % 8 / 2 : lane % 8 * 4 + col / 2, odd = trans ? lane % 2 : col % 2;
      memcpy(p + 2 * col, reinterpret_cast<const char*>(&all[from]) + 4 * (lane / 8) + 2 * odd, 2);
    }
  }
  emu_meet_warp(~0u);
}
struct Tf32 {  // the low 13 bits do not count
  static float widen(unsigned word) { return bits<float>(word & ~0x1fffu); }
};
// c += a (16 x K) b (K x 8) with PTX's layout of fragments: E numbers in a word, and 4 E columns of `a` in a row of lanes.
template <class H, unsigned E, unsigned A>
EMU_UNSEEN inline void mma(float (&c)[4], const unsigned (&a_words)[A], const unsigned (&b_words)[A / 2]) {
  constexpr unsigned K = 2 * E * A;
  const unsigned lane = emu_lane();
  float b[2][K], a[2][K];
  EmuWords* all = emu_warp();
  auto number = [&](unsigned from, unsigned word, unsigned k) {
    unsigned w;
    memcpy(&w, reinterpret_cast<const char*>(&all[from]) + 4 * word, 4);
    if constexpr (E == 1) return H::widen(w);
    else return H::widen((std::conditional_t<E == 2, uint16_t, uint8_t>)(w >> 32 / E * (k % E)));
  };
  memcpy(&all[lane], a_words, sizeof a_words);
  emu_meet_warp(~0u);
  for (unsigned i = 0; i < 2; ++i)  // rows lane / 4 and 8 more
    for (unsigned k = 0; k < K; ++k) a[i][k] = number(lane / 4 * 4 + k % (4 * E) / E, i + 2 * (k / (4 * E)), k);
  emu_meet_warp(~0u);
  memcpy(&all[lane], b_words, sizeof b_words);
  emu_meet_warp(~0u);
  for (unsigned j = 0; j < 2; ++j)  // columns 2 (lane % 4) and 1 more
    for (unsigned k = 0; k < K; ++k) b[j][k] = number((lane % 4 * 2 + j) * 4 + k % (4 * E) / E, k / (4 * E), k);
  emu_meet_warp(~0u);
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned k = 0; k < K; ++k) c[i] += a[i / 2][k] * b[i % 2][k];
}

// The switch: a multicast address stands for the same place of all ranks. W is a word as it lies in memory.
template <class W, unsigned N, class Op>
EMU_UNSEEN inline void multicast_reduce(W (&v)[N], const char* p, Op op, const EmuAt& at) {
  W other[N];
  for (unsigned k = 0; const char* q = emu_multicast(k, (uint64_t)p); ++k) {
    aligned(q, sizeof v);
    EMU_ACCESS(q, sizeof v, 0, at);
    memcpy(other, q, sizeof v);
    for (unsigned i = 0; i < N; ++i) v[i] = k ? op(v[i], other[i]) : other[i];
  }
}
template <class H, unsigned N>  // two numbers of 16 bits in a word, summed in float
EMU_UNSEEN inline void multicast_sum2(uint32_t (&v)[N], const char* p, const EmuAt& at) {
  float sum[2 * N] = {};
  uint32_t other[N];
  for (unsigned k = 0; const char* q = emu_multicast(k, (uint64_t)p); ++k) {
    aligned(q, sizeof v);
    EMU_ACCESS(q, sizeof v, 0, at);
    memcpy(other, q, sizeof v);
    for (unsigned i = 0; i < 2 * N; ++i) sum[i] += half<H>(other[i / 2], i % 2);
  }
  for (unsigned i = 0; i < N; ++i) v[i] = pair<H>(sum[2 * i + 1], sum[2 * i]);
}
template <class T, unsigned N>
inline void multicast_store(char* p, const T (&v)[N], const EmuAt& at) {
  for (unsigned k = 0; char* q = emu_multicast(k, (uint64_t)p); ++k) store(q, v, at);
}
template <class T, unsigned N, class Op>
inline void multicast_update(char* p, const T (&v)[N], Op op, const EmuAt& at) {
  for (unsigned k = 0; char* q = emu_multicast(k, (uint64_t)p); ++k)
    for (unsigned i = 0; i < N; ++i) update((T*)q + i, [&](T old) { return op(old, v[i]); }, at, false);
}
EMU_UNSEEN inline void prefetch(const char* p, unsigned bytes) {  // touches the ends: what is not there faults
  if (((uintptr_t)p | bytes) & 15) emu_fault("a prefetch that is not aligned", p);
  volatile char c = p[0] + p[bytes - 1];
  (void)c;
}

// mbarriers: `at` says release for an arrival and acquire for a test. Arrivals of even and of odd phases are recorded at one half of the barrier
// each: who waits for a phase learns nothing of those who have come to the next.
EMU_UNSEEN inline uint64_t mbarrier_arrive(char* p, unsigned arrivals, int bytes, const EmuAt& at) {
  aligned(p, 8);
  EMU_ACCESS(p + 4 * emu_mbarrier_phase(p), 4, 2, at);
  return emu_mbarrier_arrive(p, arrivals, bytes);
}
EMU_UNSEEN inline bool mbarrier_over(char* p, uint64_t parity, const EmuAt& at) {
  aligned(p, 8);
  emu_poll(p, 8, &at);
  const bool over = emu_mbarrier_over(p, (unsigned)parity);
  const EmuAt looked{"mbarrier.test_wait.relaxed.cluster", at.file, at.line};  // what says no orders nothing
  EMU_ACCESS(p + 4 * (parity & 1), 4, 0, over ? at : looked);
  return over;
}
EMU_UNSEEN inline void copies_arrive(char* p, int one_more, const EmuAt& at) {
  aligned(p, 8);
  emu_copies_arrive(p, one_more);
  EMU_ACCESS(p + 4 * emu_mbarrier_phase(p), 4, 2, at);
}
inline void bulk_aligned(const char* to, const char* from, unsigned bytes) {
  aligned(to, 16), aligned(from, 16);
  if (bytes % 16) emu_fault("a bulk copy of a size that is no multiple of 16", to);
}
EMU_UNSEEN inline void bulk_load(char* to, const char* from, unsigned bytes, char* barrier, const EmuAt& at) {
  bulk_aligned(to, from, bytes);
  EMU_ACCESS(from, bytes, 0, at);
  emu_bulk_load(to, from, bytes, barrier);
}
inline void bulk_multicast(char* to, const char* from, unsigned bytes, char* barrier, unsigned ranks, const EmuAt& at) {
  for (; ranks; ranks &= ranks - 1) {
    const unsigned rank = (unsigned)__builtin_ctz(ranks);
    bulk_load(emu_mapped(to, rank), from, bytes, emu_mapped(barrier, rank), at);
  }
}
EMU_UNSEEN inline void bulk_store(char* to, const char* from, unsigned bytes, const EmuAt& at) {
  bulk_aligned(to, from, bytes);
  EMU_ACCESS(from, bytes, 0, at);
  emu_bulk_store(to, from, bytes, &at);
}
}  // namespace emu::ptx
