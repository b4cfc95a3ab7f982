// A floating-point type of 16 bits and its pair, with the arithmetic in float and one rounding, as the hardware has it. Included
// once for bfloat16 and once for fp16, each time with the names and the format in macros, which end here.
#define EMU_JOIN_(a, b) a##b
#define EMU_JOIN(a, b) EMU_JOIN_(a, b)
#define EMU_N(before, behind) EMU_JOIN(EMU_JOIN(before, EMU_WORD), behind)
#define EMU_N2(before, behind) EMU_JOIN(EMU_JOIN(before, EMU_WORD2), behind)
#define EMU_FROM EMU_N(__float2, )

struct alignas(2) EMU_RAW { unsigned short x; };
struct alignas(4) EMU_RAW2 { unsigned short x, y; };
struct alignas(2) EMU_T {
  uint16_t emu_bits;
  EMU_T() = default;
  constexpr EMU_T(const EMU_T&) = default;
  constexpr EMU_T& operator=(const EMU_T&) = default;
  constexpr EMU_T(const EMU_RAW& raw) : emu_bits(raw.x) {}
  operator EMU_RAW() const { return {emu_bits}; }
#if EMU_CONVERSIONS
  EMU_T(float x) : emu_bits(emu::ptx::EMU_FORMAT::narrow(x)) {}
  EMU_T(double x) : EMU_T((float)x) {}
  EMU_T(int x) : EMU_T((float)x) {}
  EMU_T(unsigned x) : EMU_T((float)x) {}
  EMU_T(long x) : EMU_T((float)x) {}
  EMU_T(unsigned long x) : EMU_T((float)x) {}
  EMU_T(long long x) : EMU_T((float)x) {}
  EMU_T(unsigned long long x) : EMU_T((float)x) {}
  operator float() const { return emu::ptx::EMU_FORMAT::widen(emu_bits); }
#endif
};
struct alignas(4) EMU_T2 {
  EMU_T x, y;
  EMU_T2() = default;
  EMU_T2(EMU_T x, EMU_T y) : x(x), y(y) {}
  EMU_T2(const EMU_RAW2& raw) : x(EMU_RAW{raw.x}), y(EMU_RAW{raw.y}) {}
  operator EMU_RAW2() const { return {x.emu_bits, y.emu_bits}; }
};
inline float EMU_N(__, 2float)(EMU_T x) { return emu::ptx::EMU_FORMAT::widen(x.emu_bits); }
inline EMU_T EMU_FROM(float x) { return EMU_T(EMU_RAW{emu::ptx::EMU_FORMAT::narrow(x)}); }
namespace emu {
inline float f(EMU_T x) { return EMU_N(__, 2float)(x); }
}
inline EMU_T __hneg(EMU_T a) { a.emu_bits ^= 0x8000; return a; }

#if EMU_OPERATORS
#define EMU_OPERATOR(op) \
  inline EMU_T operator op(EMU_T a, EMU_T b) { return EMU_FROM(emu::f(a) op emu::f(b)); } \
  inline EMU_T& operator op##=(EMU_T& a, EMU_T b) { return a = a op b; }
EMU_OPERATOR(+) EMU_OPERATOR(-) EMU_OPERATOR(*) EMU_OPERATOR(/)
#undef EMU_OPERATOR
#define EMU_OPERATOR(op) inline bool operator op(EMU_T a, EMU_T b) { return emu::f(a) op emu::f(b); }
EMU_OPERATOR(==) EMU_OPERATOR(!=) EMU_OPERATOR(<) EMU_OPERATOR(>) EMU_OPERATOR(<=) EMU_OPERATOR(>=)
#undef EMU_OPERATOR
inline EMU_T operator-(EMU_T a) { return __hneg(a); }
#endif

#define EMU_BINARY(name, expression) \
  inline EMU_T name(EMU_T p, EMU_T q) { \
    const float a = emu::f(p), b = emu::f(q); \
    return EMU_FROM(expression); \
  } \
  inline EMU_T2 name##2(EMU_T2 a, EMU_T2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
EMU_BINARY(__hadd, a + b) EMU_BINARY(__hsub, a - b) EMU_BINARY(__hmul, a * b)
EMU_BINARY(__hadd_rn, a + b) EMU_BINARY(__hsub_rn, a - b) EMU_BINARY(__hmul_rn, a * b) EMU_BINARY(__hdiv, a / b)
EMU_BINARY(__hmax, fmaxf(a, b)) EMU_BINARY(__hmin, fminf(a, b)) EMU_BINARY(__hadd_sat, __saturatef(a + b)) EMU_BINARY(__hmul_sat, __saturatef(a * b))
#undef EMU_BINARY
#if EMU_OPERATORS2
#define EMU_OPERATOR(op, name) \
  inline EMU_T2 operator op(EMU_T2 a, EMU_T2 b) { return name(a, b); } \
  inline EMU_T2& operator op##=(EMU_T2& a, EMU_T2 b) { return a = name(a, b); }
EMU_OPERATOR(+, __hadd2) EMU_OPERATOR(-, __hsub2) EMU_OPERATOR(*, __hmul2) EMU_OPERATOR(/, __hdiv2)
#undef EMU_OPERATOR
#endif
inline EMU_T2 __h2div(EMU_T2 a, EMU_T2 b) { return __hdiv2(a, b); }
inline EMU_T __hfma(EMU_T a, EMU_T b, EMU_T c) { return EMU_FROM((float)((double)emu::f(a) * emu::f(b) + emu::f(c))); }
inline EMU_T2 __hfma2(EMU_T2 a, EMU_T2 b, EMU_T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
inline EMU_T __hfma_relu(EMU_T a, EMU_T b, EMU_T c) { return __hmax(__hfma(a, b, c), EMU_FROM(0.f)); }
inline EMU_T2 __hfma2_relu(EMU_T2 a, EMU_T2 b, EMU_T2 c) { return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)}; }
inline EMU_T2 __hneg2(EMU_T2 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline EMU_T __habs(EMU_T a) { a.emu_bits &= 0x7fff; return a; }
inline EMU_T2 __habs2(EMU_T2 a) { return {__habs(a.x), __habs(a.y)}; }
inline bool __hisnan(EMU_T a) { return emu::f(a) != emu::f(a); }
inline int __hisinf(EMU_T a) { return isinf(emu::f(a)) ? (emu::f(a) < 0 ? -1 : 1) : 0; }
#define EMU_COMPARE(name, op) \
  inline bool __h##name(EMU_T a, EMU_T b) { return emu::f(a) op emu::f(b); } \
  inline bool __hb##name##2(EMU_T2 a, EMU_T2 b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); } \
  inline EMU_T2 __h##name##2(EMU_T2 a, EMU_T2 b) { return {EMU_FROM(__h##name(a.x, b.x)), EMU_FROM(__h##name(a.y, b.y))}; }
EMU_COMPARE(eq, ==) EMU_COMPARE(ne, !=) EMU_COMPARE(lt, <) EMU_COMPARE(gt, >) EMU_COMPARE(le, <=) EMU_COMPARE(ge, >=)
#undef EMU_COMPARE
#define EMU_UNARY(name, function) \
  inline EMU_T h##name(EMU_T a) { return EMU_FROM(function(emu::f(a))); } \
  inline EMU_T2 h2##name(EMU_T2 a) { return {h##name(a.x), h##name(a.y)}; }
EMU_UNARY(exp, expf) EMU_UNARY(exp2, exp2f) EMU_UNARY(log, logf) EMU_UNARY(log2, log2f) EMU_UNARY(sqrt, sqrtf)
EMU_UNARY(rsqrt, rsqrtf) EMU_UNARY(sin, sinf) EMU_UNARY(cos, cosf) EMU_UNARY(rcp, 1.f /) EMU_UNARY(tanh, tanhf)
EMU_UNARY(floor, floorf) EMU_UNARY(ceil, ceilf) EMU_UNARY(rint, rintf) EMU_UNARY(trunc, truncf)
#undef EMU_UNARY
inline EMU_T EMU_N(__float2, _rn)(float x) { return EMU_FROM(x); }
inline EMU_T EMU_N(__double2, )(double x) { return EMU_FROM((float)x); }
inline EMU_T EMU_N(__int2, _rn)(int x) { return EMU_FROM((float)x); }
inline EMU_T EMU_N(__uint2, _rn)(unsigned x) { return EMU_FROM((float)x); }
inline EMU_T EMU_N(__ll2, _rn)(long long x) { return EMU_FROM((float)x); }
inline int EMU_N(__, 2int_rn)(EMU_T x) { return (int)nearbyintf(emu::f(x)); }
inline int EMU_N(__, 2int_rz)(EMU_T x) { return (int)emu::f(x); }
inline EMU_T2 EMU_N2(__floats2, _rn)(float a, float b) { return {EMU_FROM(a), EMU_FROM(b)}; }
inline EMU_T2 EMU_N2(__float2, _rn)(float a) { return {EMU_FROM(a), EMU_FROM(a)}; }
inline EMU_T2 EMU_N2(__float22, _rn)(float2 a) { return {EMU_FROM(a.x), EMU_FROM(a.y)}; }
inline float2 EMU_N2(__, 2float2)(EMU_T2 a) { return {emu::f(a.x), emu::f(a.y)}; }
inline EMU_T2 EMU_N2(__halves2, )(EMU_T a, EMU_T b) { return {a, b}; }
inline EMU_T2 EMU_N(__, EMU_JOIN(2, EMU_WORD2))(EMU_T a) { return {a, a}; }
inline EMU_T2 EMU_N2(make_, )(EMU_T a, EMU_T b) { return {a, b}; }
inline float __low2float(EMU_T2 a) { return emu::f(a.x); }
inline float __high2float(EMU_T2 a) { return emu::f(a.y); }
inline EMU_T EMU_N(__low2, )(EMU_T2 a) { return a.x; }
inline EMU_T EMU_N(__high2, )(EMU_T2 a) { return a.y; }
inline EMU_T2 EMU_N2(__low2, )(EMU_T2 a) { return {a.x, a.x}; }
inline EMU_T2 EMU_N2(__high2, )(EMU_T2 a) { return {a.y, a.y}; }
inline EMU_T2 __lowhigh2highlow(EMU_T2 a) { return {a.y, a.x}; }
inline unsigned short EMU_N(__, _as_ushort)(EMU_T x) { return x.emu_bits; }
inline short EMU_N(__, _as_short)(EMU_T x) { return (short)x.emu_bits; }
inline EMU_T EMU_N(__ushort_as_, )(unsigned short x) { return EMU_T(EMU_RAW{x}); }
inline EMU_T EMU_N(__short_as_, )(short x) { return EMU_T(EMU_RAW{(unsigned short)x}); }
inline EMU_T atomicAdd(EMU_T* p, EMU_T v, EMU_HERE) {
  const EmuAt at{"atomicAdd", emu_file, emu_line};
  return emu::update(p, [v](EMU_T old) { return __hadd(old, v); }, at, false);
}
inline EMU_T2 atomicAdd(EMU_T2* p, EMU_T2 v, EMU_HERE) {
  const EmuAt at{"atomicAdd", emu_file, emu_line};
  return emu::update(p, [v](EMU_T2 old) { return __hadd2(old, v); }, at, false);
}

#undef EMU_JOIN_
#undef EMU_JOIN
#undef EMU_N
#undef EMU_N2
#undef EMU_FROM
#undef EMU_T
#undef EMU_T2
#undef EMU_RAW
#undef EMU_RAW2
#undef EMU_WORD
#undef EMU_WORD2
#undef EMU_FORMAT
#undef EMU_CONVERSIONS
#undef EMU_OPERATORS
#undef EMU_OPERATORS2
