// Every name that our torch header offers to a host compiler, used once; compiled with it and with torch's own.
#include <torch/extension.h>

#include <stdexcept>

using Texts = std::vector<std::string>;

std::string text(at::IntArrayRef values) { return c10::str(values); }

Texts facts(const torch::Tensor& x) {
  return {c10::str(x.numel(), x.dim(), x.ndimension(), x.size(0), x.size(-1), x.stride(0)), text(x.sizes()), text(x.strides()),
          c10::str(x.storage_offset(), " ", x.element_size(), " ", x.itemsize(), " ", x.nbytes()),
          c10::str(x.scalar_type(), " ", x.dtype(), " ", x.dtype().name(), " ", toString(x.scalar_type())),
          c10::str(x.device(), " ", x.device().str(), " ", x.device().type(), " ", x.device().is_cpu(), x.device().is_cuda()),
          c10::str(static_cast<int>(x.get_device()), x.device().has_index(), x.is_cuda(), x.is_cpu(), x.is_contiguous()),
          c10::str(x.defined(), torch::Tensor().defined(), x.is_same(x), x.requires_grad(), torch::Tensor().numel()),
          c10::str(x.dtype() == torch::kFloat32, x.scalar_type() == at::kFloat, x.device() == torch::Device(torch::kCPU),
                   x.sizes() == x.sizes(), x.sizes().equals(x.strides()), x.sizes().vec().size(), x.sizes().front(),
                   x.sizes().back(), x.sizes().empty(), x.sizes()[0])};
}

double first(torch::Tensor x) { return x.data_ptr<float>()[0]; }
bool same_pointers(torch::Tensor x) {
  return x.data_ptr() == x.data_ptr<float>() && x.mutable_data_ptr<float>() == x.const_data_ptr<float>();
}
int64_t as_bfloat16(torch::Tensor x) { return x.data_ptr<at::BFloat16>() != nullptr; }

Texts constants() {
  const at::ScalarType all[] = {
      torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64, torch::kFloat16, torch::kFloat32,
      torch::kFloat64, torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong, torch::kHalf, torch::kFloat,
      torch::kDouble, torch::kBool, torch::kBFloat16, torch::kComplexFloat, torch::kComplexDouble, torch::kFloat8_e4m3fn,
      torch::kFloat8_e5m2, at::kUInt16, at::kUInt32, at::kUInt64, at::ScalarType::Half};
  Texts names;
  for (at::ScalarType type : all) names.push_back(c10::str(type, " ", static_cast<int>(type)));
  return names;
}

// Conversions and arithmetic of the small numbers; the bits must be torch's own.
std::vector<int64_t> bits(double value) {
  const float f = static_cast<float>(value);
  at::BFloat16 b = f;
  at::Half h = f;
  b = b + b;
  b *= b;
  h = h - at::Half(1.0f);
  const uint8_t code = static_cast<uint8_t>(std::fabs(f) < 256 ? std::fabs(f) : 0);
  const at::Float8_e4m3fn e4(code, at::Float8_e4m3fn::from_bits());
  const at::Float8_e5m2 e5(code, at::Float8_e5m2::from_bits());
  const float large = float(e4), wide = float(e5);
  const float sum = static_cast<float>(b) + h * 2.0f;
  const c10::complex<float> product = c10::complex<float>(f, 1.0f) * c10::complex<float>(2.0f, f);
  return {at::BFloat16(f).x, at::Half(f).x, b.x, h.x, at::BFloat16(f) < at::BFloat16(1.0f), std::isnan(sum) ? 0 : sum > 3.0f,
          std::isnan(large) ? -1 : int64_t(large * 512), std::isfinite(wide) ? int64_t(wide * 65536) : -1, std::isnan(wide),
          std::signbit(large), std::signbit(wide), product.real() == product.imag()};
}

std::vector<torch::Tensor> made(torch::Tensor x) {
  const auto options = torch::TensorOptions().dtype(torch::kInt32).device(torch::kCPU);
  torch::Tensor empty = torch::empty({2, 3}, options);
  empty.zero_();
  static float kept[] = {1, 2, 3, 4, 5, 6};
  return {empty, torch::zeros({2}), torch::ones({x.size(0)}, x.options()), torch::empty_like(x).fill_(2),
          torch::zeros_like(x), torch::ones_like(x, torch::kFloat64), torch::full({3}, 1.5, torch::dtype(torch::kFloat)),
          torch::from_blob(kept, {2, 3}).clone().mul_(3), torch::from_blob(kept, {6}, [](void*) {}, torch::kFloat32), torch::from_blob(kept, {3, 2}, {1, 3}, torch::kFloat32).contiguous(),
          at::zeros({1}, at::kBFloat16), torch::zeros({2}, torch::device(torch::kCPU).dtype(x.dtype()))};
}

std::vector<torch::Tensor> changed(torch::Tensor x) {
  torch::Tensor target = torch::empty({3, 2});
  target.copy_(x.t());
  return {x.contiguous(), x.clone(), x.detach(), x.cpu(), x.t(), x.flatten(), x.view({3, 2}), x.view(-1), x.reshape({6}),
          x.narrow(1, 1, 2), x.select(0, 1), x.transpose(0, 1), x.unsqueeze(0), x.to(torch::kFloat64), x.to(x.device()), target};
}
std::tuple<double, int64_t> items(torch::Tensor x) { return {x.item<double>(), x.item<int64_t>()}; }
torch::Tensor bad_view(torch::Tensor x) { return x.view({4, 4}); }
int64_t size_of(torch::Tensor x, int64_t dim) { return x.size(dim); }
int64_t stride_of(torch::Tensor x, int64_t dim) { return x.stride(dim); }

void refuse(torch::Tensor x, int64_t n) {
  TORCH_CHECK(n > 3, "n is ", n, " for ", x.sizes(), " of ", x.scalar_type(), " on ", x.device(), ", ", 1.5, " ", 1e-7f, " ",
              true, " ", std::string("text"), 'c', " ", x.dtype());
}
void check(int kind, int n) {
  if (kind == 0) TORCH_CHECK(n > 3);
  if (kind == 1) TORCH_CHECK_VALUE(n > 3, "bad value");
  if (kind == 2) TORCH_CHECK_TYPE(n > 3, "bad type");
  if (kind == 3) TORCH_CHECK_INDEX(n > 3, "bad index");
  if (kind == 4) TORCH_CHECK_NOT_IMPLEMENTED(n > 3, "not there");
  if (kind == 5) AT_ERROR("error ", n);
  if (kind == 6) {
    try {
      TORCH_CHECK(false, "caught");
    } catch (const c10::Error& error) {
      throw std::runtime_error(std::string("again: ") + error.what_without_backtrace());
    }
  }
}
void raise(int kind) {
  if (kind == 0) throw std::runtime_error("r");
  if (kind == 1) throw std::invalid_argument("i");
  if (kind == 2) throw std::out_of_range("o");
  if (kind == 3) throw std::overflow_error("v");
  if (kind == 4) throw std::bad_alloc();
  if (kind == 5) throw 3;
  if (kind == 6) throw std::range_error("ra");
  if (kind == 7) throw std::length_error("l");
  if (kind == 8) throw std::domain_error("d");
}

#define BYTES [&] { bytes = sizeof(scalar_t); }
int64_t dispatched(torch::Tensor x, int kind) {
  int64_t bytes = 0;
  if (kind == 0) AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "floats", BYTES);
  if (kind == 1) AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "halves", BYTES);
  if (kind == 2) AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "one more", BYTES);
  if (kind == 3) AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "two more", BYTES);
  if (kind == 4) AT_DISPATCH_INTEGRAL_TYPES(x.scalar_type(), "integers", BYTES);
  if (kind == 5) AT_DISPATCH_ALL_TYPES(x.scalar_type(), "all", BYTES);
  if (kind == 6) AT_DISPATCH_ALL_TYPES_AND(at::kBool, x.scalar_type(), "all and one", BYTES);
  if (kind == 7) AT_DISPATCH_ALL_TYPES_AND2(at::kBool, at::kHalf, x.scalar_type(), "all and two", BYTES);
  if (kind == 8) AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, x.scalar_type(), "all and three", BYTES);
  return bytes;
}

std::tuple<torch::Tensor, int64_t> pair(torch::Tensor x, std::optional<torch::Tensor> y) { return {y ? *y : x, 3}; }
std::vector<torch::Tensor> many(std::vector<torch::Tensor> xs, const std::vector<int64_t>& numbers) {
  xs.resize(std::min(xs.size(), numbers.size()));
  return xs;
}
double scaled(double a, float b, bool c, const std::string& s, uint64_t u, int32_t i, uint8_t small) {
  return (c ? a * b : a + static_cast<double>(u)) + i + small + static_cast<double>(s.size());
}
std::pair<bool, std::string> turned(bool value, std::string s) { return {!value, s + "!"}; }
std::optional<double> maybe(c10::optional<double> x) { return x ? x : c10::nullopt; }
int64_t number(int64_t a) { return a; }
double tensor(torch::Tensor) { return 2.5; }
torch::Tensor undefined() { return torch::Tensor(); }
std::string not_text() { return "\xff"; }

double indexed(torch::Tensor x) {
  auto at = x.accessor<float, 2>();
  at[0][0] += 1.f;
  double sum = 0;
  for (int64_t i = 0; i < at.size(0); ++i)
    for (int64_t j = 0; j < at[i].size(0); ++j) sum += at[i][j] * (i + 10 * j);
  at[0][0] -= 1.f;
  return sum + 1000 * at.stride(0);
}
py::tuple tupled(torch::Tensor x, int64_t n) { return py::make_tuple(x, n, 2.5, std::string("a"), n > 1); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "the module";
  m.def("facts", &facts, "what is known of a tensor");
  m.def("first", &first).def("same_pointers", &same_pointers).def("as_bfloat16", as_bfloat16);
  m.def("constants", &constants);
  m.def("bits", &bits);
  m.def("made", &made);
  m.def("changed", &changed);
  m.def("items", &items);
  m.def("bad_view", &bad_view);
  m.def("size_of", &size_of);
  m.def("stride_of", &stride_of);
  m.def("refuse", &refuse);
  m.def("check", &check);
  m.def("raise_", &raise);
  m.def("dispatched", &dispatched);
  m.def("pair", &pair, "a pair", py::arg("x"), py::arg("y") = py::none());
  m.def("many", &many);
  m.def("scaled", &scaled, py::arg("a"), py::arg("b") = 2.0f, py::arg("c") = true, py::arg("s") = "hi", py::arg("u") = 7,
        py::arg("i") = -1, py::arg("small") = 3);
  m.def("turned", &turned);
  m.def("maybe", &maybe);
  m.def("overloaded", &number, "of a number");
  m.def("overloaded", &tensor, "of a tensor");
  m.def("undefined", &undefined);
  m.def("not_text", &not_text);
  m.def("indexed", &indexed);
  m.def("tupled", &tupled);
  const int64_t extra = 10;
  m.def("added", [extra](const torch::Tensor& x, int64_t n) { return x.numel() + n + extra; }, "doc", py::arg("x"),
        py::arg("n") = 4);
}
