// Atomic functions. One that may be a look at a flag (compare and swap, exchange, adding nothing) lets others run before it.
#pragma once

namespace emu {
template <class T>
using word_t = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;

template <class T, class Op>
EMU_UNSEEN inline T update(T* p, Op op, const EmuAt& at, bool looks) {  // any type of 2, 4 or 8 bytes
  using Word = word_t<T>;
  static_assert(sizeof(T) == sizeof(Word));
  if ((uintptr_t)p % sizeof(T)) emu_fault("an atomic operation at an address that is not aligned", p);
  if (looks) emu_poll(p, sizeof(T), &at);
  EMU_ACCESS(p, sizeof(T), 2, at);
  Word old = __atomic_load_n((Word*)p, __ATOMIC_SEQ_CST);
  Word made = bits<Word>((T)op(bits<T>(old)));
  while (!__atomic_compare_exchange_n((Word*)p, &old, made, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) made = bits<Word>((T)op(bits<T>(old)));
  if (emu_access_.on && made == old && (strstr(at.what, "cas") || strstr(at.what, "CAS"))) emu_access_.way = 0;  // it failed, and wrote nothing
  if (made != old && sizeof(T) >= 4) emu_set_word(p, &at);
  return bits<T>(old);
}
template <class T> inline bool nothing(T v) { const T zero{}; return !memcmp(&v, &zero, sizeof v); }
template <class T> struct Same { using type = T; };
template <class T> using same_t = typename Same<T>::type;
}  // namespace emu

#define EMU_ATOMIC(name, expression, looks)                                                                            \
  EMU_ATOMIC_IN(name, expression, looks) EMU_ATOMIC_IN(name##_system, expression, looks) EMU_ATOMIC_IN(name##_block, expression, looks)
#define EMU_ATOMIC_IN(name, expression, looks)                                                                         \
  template <class T> inline T name(T* p, emu::same_t<T> v, EMU_HERE) {                                                 \
    const EmuAt at{#name, emu_file, emu_line};                                                                         \
    return emu::update(p, [v](T old) -> T { return expression; }, at, looks);                                          \
  }
EMU_ATOMIC(atomicAdd, old + v, emu::nothing(v))
EMU_ATOMIC(atomicSub, old - v, emu::nothing(v))
EMU_ATOMIC(atomicMax, old < v ? v : old, emu::nothing(v))
EMU_ATOMIC(atomicMin, v < old ? v : old, false)
EMU_ATOMIC(atomicAnd, old & v, false)
EMU_ATOMIC(atomicOr, old | v, emu::nothing(v))
EMU_ATOMIC(atomicXor, old ^ v, emu::nothing(v))
EMU_ATOMIC(atomicExch, v, true)
EMU_ATOMIC(atomicInc, old >= v ? T(0) : T(old + 1), false)
EMU_ATOMIC(atomicDec, old == T(0) || old > v ? v : T(old - 1), false)
#undef EMU_ATOMIC
#undef EMU_ATOMIC_IN
#define EMU_CAS(name)                                                                                                  \
  template <class T> inline T name(T* p, emu::same_t<T> expect, emu::same_t<T> v, EMU_HERE) {                          \
    using Word = emu::word_t<T>;                                                                                       \
    const EmuAt at{#name, emu_file, emu_line};                                                                         \
    return emu::update(p, [=](T old) { return emu::bits<Word>(old) == emu::bits<Word>(expect) ? v : old; }, at, true); \
  }
EMU_CAS(atomicCAS) EMU_CAS(atomicCAS_system) EMU_CAS(atomicCAS_block)
#undef EMU_CAS

// Loads and stores with a hint. __ldg and __ldcs are plain here; those that look past L1 may be a look at a flag.
template <class T> EMU_UNSEEN inline T __ldg(const T* p, EMU_HERE) {
  const EmuAt at{"__ldg", emu_file, emu_line};
  EMU_ACCESS(p, sizeof(T), 0, at);
  return *p;
}
template <class T> inline T __ldcs(const T* p) { return *p; }
template <class T> inline T __ldca(const T* p) { return *p; }
template <class T> inline T __ldlu(const T* p) { return *p; }
template <class T> EMU_UNSEEN inline T __ldcg(const T* p, EMU_HERE) {
  const EmuAt at{"__ldcg", emu_file, emu_line};
  emu_poll(p, sizeof(T), &at);
  EMU_ACCESS(p, sizeof(T), 0, at);
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <class T> EMU_UNSEEN inline T __ldcv(const T* p, EMU_HERE) {
  const EmuAt at{"__ldcv", emu_file, emu_line};
  emu_poll(p, sizeof(T), &at);
  EMU_ACCESS(p, sizeof(T), 0, at);
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <class T> inline void __stcs(T* p, emu::same_t<T> v) { *p = v; }
template <class T> inline void __stcg(T* p, emu::same_t<T> v) { *p = v; }
template <class T> inline void __stwb(T* p, emu::same_t<T> v) { *p = v; }
template <class T> inline void __stwt(T* p, emu::same_t<T> v) { *p = v; }
