#include "tests/kernels/differential.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

namespace sluice::testing {
namespace {

// Sums whose terms add up to more than this may overflow in one order only.
constexpr double kOverflow = 1e37;

// The bytes of a case, then a generator seeded by them.
class Source {
 public:
  explicit Source(std::span<const uint8_t> bytes) : bytes_(bytes) {
    for (const uint8_t b : bytes) state_ = (state_ ^ b) * 1099511628211ull;  // FNV-1a
  }
  uint8_t Byte() {
    if (at_ < bytes_.size()) return bytes_[at_++];
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;  // Knuth, MMIX
    return static_cast<uint8_t>(state_ >> 56);
  }
  uint32_t Word() {
    const uint32_t low = Byte() | uint32_t{Byte()} << 8;
    return low | uint32_t{Byte()} << 16 | uint32_t{Byte()} << 24;
  }
  uint32_t Below(uint32_t n) { return (Byte() | uint32_t{Byte()} << 8) % n; }
  // Small numbers more often than large ones.
  uint32_t Size(uint32_t most) { return 1 + Below(1 + Below(most)); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  uint64_t state_ = 14695981039346656037ull;
};

enum class Kind { kPlain, kTiny, kMixed, kBad, kAnyBits };

float PlainFloat(Source* s) { return float(int(s->Below(65536)) - 32768) / 8192; }

float Draw(Source* s, Kind kind) {
  if (kind == Kind::kAnyBits) return __builtin_bit_cast(float, s->Word());
  const float plain = PlainFloat(s);
  if (kind == Kind::kPlain || !s->OneIn(kind == Kind::kTiny ? 2 : 24)) return plain;
  switch (s->Below(kind == Kind::kTiny ? 3 : kind == Kind::kMixed ? 6 : 9)) {
    case 0:
      return plain * 1e-38f;  // subnormal or nearly
    case 1:
      return plain < 0 ? -0.0f : 0.0f;
    case 2:
      return plain * 3e-37f;  // around the smallest block the quantiser counts
    case 3:
      return plain * 1e30f;
    case 4:
      return plain * 1000;
    case 5:
      return float(int(s->Below(255)) - 127) / 2;  // ties
    case 6:
      return NAN;
    case 7:
      return INFINITY;
    default:
      return -INFINITY;
  }
}

Kind DrawKind(Source* s) { return static_cast<Kind>(s->Below(5)); }

std::vector<float> Floats(Source* s, uint64_t n, Kind kind) {
  std::vector<float> x(n);
  for (float& v : x) v = Draw(s, kind);
  return x;
}

bool SameFloat(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, 4) == 0;
}

std::string SameFloats(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < b.size(); ++i) {
    if (!SameFloat(a[i], b[i])) return fmt::format("[{}] {} is not {}", i, a[i], b[i]);
  }
  return {};
}

// Within tolerance(i) of each other, or not finite on both sides.
std::string CloseFloats(const std::vector<float>& a, const std::vector<float>& b,
                        const std::function<double(size_t)>& slack) {
  double most = 0;
  for (const float v : b) most = std::isfinite(v) ? std::max(most, std::abs(double(v))) : most;
  for (size_t i = 0; i < b.size(); ++i) {
    const double more = slack(i);
    if (!(more < kOverflow)) continue;  // overflow: nothing to say
    if (!std::isfinite(a[i]) && !std::isfinite(b[i])) continue;
    const double difference = std::abs(double(a[i]) - double(b[i]));
    if (!(difference <= 1e-5 * most + more + 1e-40))
      return fmt::format("[{}] {} is not {} (largest {}, slack {})", i, a[i], b[i], most, more);
  }
  return {};
}

// Infinities, NaNs, subnormals, the largest and the smallest halves, wherever they may be scales.
void OddHalves(Source* s, uint64_t begin, std::vector<uint8_t>* bytes) {
  constexpr uint16_t kOdd[] = {0x7c00, 0xfc00, 0x7e00, 0xfdff, 0x0001, 0x83ff, 0x7bff, 0x8000};
  for (uint64_t at = begin; at + 2 <= bytes->size(); at += 2) {
    if (s->OneIn(6)) std::memcpy(&(*bytes)[at], &kOdd[s->Below(8)], 2);
  }
}

// A block's bytes: any, or one of the patterns that make extreme quants and scales. Blocks begin
// at `pad`.
std::vector<uint8_t> Blocks(Source* s, uint64_t pad, uint64_t n) {
  std::vector<uint8_t> bytes(pad + n);
  const uint32_t mode = s->Below(8);
  for (uint8_t& b : bytes) {
    switch (mode) {
      case 0:
        b = 0;
        break;
      case 1:
        b = 0xff;
        break;
      case 2:
        b = s->OneIn(2) ? 0x7f : 0x80;
        break;
      case 3:
      case 4:
      case 5:
        b = s->Byte() & 0x3b;  // finite scales
        break;
      default:
        b = s->Byte();
    }
  }
  if (mode == 7) OddHalves(s, pad, &bytes);
  return bytes;
}

std::vector<WeightType> Types() {
  std::vector<WeightType> types;
  for (uint32_t id = 0; id < 64; ++id) {
    const WeightTypeInfo* info = FindWeightType(id);
    const bool is_float =
        id == 0 || id == 1 || (info != nullptr && info->type == WeightType::kBF16);
    if (info != nullptr && info->decodes &&
        (is_float || ActFormatOf(info->type) != ActFormat::kF32))
      types.push_back(info->type);
  }
  return types;
}

// Activations of any format; the quantised ones come from the quantiser or are extreme themselves.
struct Acts {
  Acts(Source* s, const Ops& reference, ActFormat format, uint32_t tokens, uint32_t cols)
      : f32(Floats(s, uint64_t{tokens} * cols, DrawKind(s))) {
    rows = {.format = format, .rows = tokens, .cols = cols, .f32 = f32.data(), .f32_stride = cols};
    if (format == ActFormat::kF32) return;
    const uint64_t scales = ActScales(format, cols), n_sums = ActSums(format, cols);
    q.resize(f32.size());
    scale.resize(tokens * scales);
    sums.resize(tokens * n_sums);
    if (s->OneIn(3)) {
      Extreme(s, cols / n_sums);
    } else {
      for (uint32_t t = 0; t < tokens; ++t)
        reference.quantize(format, &f32[uint64_t{t} * cols], cols, &q[uint64_t{t} * cols],
                           &scale[t * scales], &sums[t * n_sums]);
    }
    rows.q = q.data();
    rows.scale = scale.data();
    rows.sums = sums.data();
    rows.q_stride = cols;
    rows.scale_stride = scales;
    rows.sums_stride = n_sums;
  }
  void Extreme(Source* s, uint64_t sum_elems) {
    const uint32_t mode = s->Below(3);
    for (int8_t& v : q) v = int8_t(mode == 0 ? 127 : mode == 1 ? -127 : s->OneIn(2) ? 127 : -127);
    const Kind kind = DrawKind(s);
    for (float& v : scale) v = Draw(s, kind);
    for (size_t i = 0; i < sums.size(); ++i) {
      int sum = 0;
      for (uint64_t j = 0; j < sum_elems; ++j) sum += q[i * sum_elems + j];
      sums[i] = static_cast<int16_t>(sum);
    }
  }
  ActRows rows;
  std::vector<float> f32, scale;
  std::vector<int8_t> q;
  std::vector<int16_t> sums;
};

std::string CheckMatmul(const Ops& ops, const Ops& reference, Source* s) {
  static const std::vector<WeightType> types = Types();
  const WeightType type = types[s->Below(static_cast<uint32_t>(types.size()))];
  const uint32_t block = InfoOf(type).block_elems;
  const uint32_t rows = s->Size(40), tokens = s->OneIn(4) ? s->Size(40) : s->Size(4);
  const uint32_t cols = block == 1 ? s->Size(300) : block * s->Size(block == 32 ? 20 : 3);
  const uint32_t begin = s->OneIn(3) ? s->Below(rows) : 0, end = begin + 1 + s->Below(rows - begin);
  const ActFormat format = s->OneIn(4) ? ActFormat::kF32 : ActFormatOf(type);
  const uint64_t row_bytes = RowBytes(type, cols).value(), pad = s->Below(8);
  std::vector<uint8_t> weights = Blocks(s, pad, rows * row_bytes);
  const Acts acts(s, reference, format, tokens, cols);
  const std::vector<float> bias =
      s->OneIn(2) ? Floats(s, rows, Kind::kPlain) : std::vector<float>();
  std::vector<float> got(uint64_t{tokens} * rows, 1), want = got;
  MatmulArgs args{.weights = weights.data() + pad,
                  .row_bytes = row_bytes,
                  .type = type,
                  .x = acts.rows,
                  .bias = bias.empty() ? nullptr : bias.data(),
                  .out = got.data(),
                  .out_stride = rows};
  ops.matmul(args, begin, end);
  args.out = want.data();
  reference.matmul(args, begin, end);
  std::string wrong;
  if (format != ActFormat::kF32) {
    wrong = SameFloats(got, want);
  } else {
    std::vector<double> terms(want.size());  // what the terms of a sum come to without their signs
    std::vector<float> row(cols);
    for (uint32_t r = begin; r < end; ++r) {
      DecodeRow(type, args.weights + r * row_bytes, row.data(), cols);
      for (uint32_t t = 0; t < tokens; ++t) {
        double sum = 0;
        for (uint32_t c = 0; c < cols; ++c)
          if (const double p = std::abs(double(row[c]) * acts.f32[uint64_t{t} * cols + c]);
              std::isfinite(p))
            sum += p;
        terms[uint64_t{t} * rows + r] = sum;
      }
    }
    wrong = CloseFloats(
        got, want, [&](size_t i) { return terms[i] < kOverflow ? 1e-6 * terms[i] : terms[i]; });
  }
  if (wrong.empty()) return {};
  return fmt::format("matmul {} x {}: rows {} [{}, {}) cols {} tokens {}{}: {}", InfoOf(type).name,
                     format == ActFormat::kF32 ? "f32" : "int8", rows, begin, end, cols, tokens,
                     bias.empty() ? "" : " bias", wrong);
}

std::string CheckQuantize(const Ops& ops, const Ops& reference, Source* s) {
  const ActFormat format = s->OneIn(2) ? ActFormat::kQ8x32 : ActFormat::kQ8x256;
  const uint32_t n = (format == ActFormat::kQ8x32 ? 32 : 256) * s->Size(6);
  const std::vector<float> x = Floats(s, n, DrawKind(s));
  const auto run = [&](const Ops& set, std::vector<int8_t>* q, std::vector<int16_t>* sums) {
    std::vector<float> scale(ActScales(format, n));
    q->resize(n);
    sums->resize(ActSums(format, n));
    set.quantize(format, x.data(), n, q->data(), scale.data(), sums->data());
    return scale;
  };
  std::vector<int8_t> q1, q2;
  std::vector<int16_t> sums1, sums2;
  const std::vector<float> got = run(ops, &q1, &sums1), want = run(reference, &q2, &sums2);
  std::string wrong = SameFloats(got, want);
  if (wrong.empty() && q1 != q2) wrong = "quants differ";
  if (wrong.empty() && sums1 != sums2) wrong = "sums differ";
  return wrong.empty() ? wrong : fmt::format("quantize n {}: {}", n, wrong);
}

std::string CheckNorms(const Ops& ops, const Ops& reference, Source* s) {
  const uint32_t n = s->Size(300);
  const std::vector<float> x = Floats(s, n, DrawKind(s)), w = Floats(s, n, Kind::kPlain);
  std::vector<float> got = x, want = x;
  if (s->OneIn(2)) {
    ops.softmax(got.data(), n);
    reference.softmax(want.data(), n);
    const std::string wrong = CloseFloats(got, want, [](size_t) { return 0.0; });
    return wrong.empty() ? wrong : fmt::format("softmax n {}: {}", n, wrong);
  }
  double squares = 0;
  for (const float v : x) squares += std::isfinite(v) ? double(v) * v : 0;
  const float* weights = s->OneIn(3) ? nullptr : w.data();
  const float eps = s->OneIn(4) ? 0 : 1e-6f;
  ops.rms_norm(x.data(), weights, eps, n, got.data());
  reference.rms_norm(x.data(), weights, eps, n, want.data());
  // Squares of subnormals and their mean may vanish in one order only: infinities, or nothing.
  const bool vanishes = squares / n + eps < 1e-36;
  const std::string wrong = CloseFloats(got, want, [&](size_t) {
    return vanishes ? 1e38 : squares < kOverflow ? 0 : 1e38;
  });
  return wrong.empty() ? wrong : fmt::format("rms_norm n {}: {}", n, wrong);
}

// The bits of a KV row with its NaNs made alike.
std::vector<uint8_t> Canonical(KvFormat format, bool is_value, uint32_t n,
                               std::vector<uint8_t> row) {
  const bool q4 = format == KvFormat::kK8V4 && is_value;
  const uint64_t block = format == KvFormat::kF16 ? 2 : q4 ? 20 : 34;
  if (format == KvFormat::kF32) return row;
  for (uint64_t at = 0; at + block <= row.size(); at += block) {
    for (uint64_t half = at; half < at + (q4 ? 4 : 2); half += 2) {
      uint16_t bits;
      std::memcpy(&bits, &row[half], 2);
      if ((bits & 0x7c00) != 0x7c00 || (bits & 0x3ff) == 0) continue;
      bits = 0x7e00;
      std::memcpy(&row[half], &bits, 2);
    }
  }
  return row;
}

std::string CheckKvStore(const Ops& ops, const Ops& reference, Source* s) {
  const auto format = static_cast<KvFormat>(s->Below(4));
  const bool is_value = s->OneIn(2);
  const uint32_t n = s->Size(200);
  const std::vector<float> x = Floats(s, n, DrawKind(s));
  const uint64_t bytes = KvRowBytes(format, is_value, n);
  std::vector<uint8_t> got(bytes, 0x5a), want = got;
  ops.kv_store(format, is_value, x.data(), n, got.data());
  reference.kv_store(format, is_value, x.data(), n, want.data());
  got = Canonical(format, is_value, n, std::move(got));
  want = Canonical(format, is_value, n, std::move(want));
  if (got == want) return {};
  const auto at = std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin();
  return fmt::format("kv_store format {} value {} n {}: byte {} is {:#x}, not {:#x}", int(format),
                     is_value, n, at, got[static_cast<size_t>(at)], want[static_cast<size_t>(at)]);
}

std::string CheckAttention(const Ops& ops, const Ops& reference, Source* s) {
  const auto format = static_cast<KvFormat>(s->Below(4));
  const uint32_t group = s->Size(9), dim_k = 4 * s->Size(24), dim_v = 4 * s->Size(24);
  const uint32_t last = s->Size(150) - 1, first = s->OneIn(3) ? s->Below(last + 1) : 0;
  const Kind kind = s->OneIn(2) ? Kind::kPlain : s->OneIn(2) ? Kind::kTiny : Kind::kBad;
  const uint64_t k_row = KvRowBytes(format, false, dim_k), v_row = KvRowBytes(format, true, dim_v);
  const uint64_t page_bytes = (k_row + v_row) * kKvPageTokens;
  std::vector<uint8_t> kv(page_bytes * (last / kKvPageTokens + 1), 0xff);
  std::vector<const uint8_t*> pages;
  for (uint64_t at = 0; at < kv.size(); at += page_bytes) pages.push_back(&kv[at]);
  for (uint32_t p = first; p <= last; ++p) {
    uint8_t* page = &kv[p / kKvPageTokens * page_bytes];
    const uint64_t row = p % kKvPageTokens;
    reference.kv_store(format, false, Floats(s, dim_k, kind).data(), dim_k, page + row * k_row);
    reference.kv_store(format, true, Floats(s, dim_v, kind).data(), dim_v,
                       page + kKvPageTokens * k_row + row * v_row);
  }
  const std::vector<float> q = Floats(s, group * dim_k, kind);
  const std::vector<float> sinks = Floats(s, group, s->OneIn(4) ? kind : Kind::kPlain);
  std::vector<float> got(group * dim_v, 1), want = got;
  AttentionArgs args{.q = q.data(),
                     .group = group,
                     .dim_k = dim_k,
                     .dim_v = dim_v,
                     .format = format,
                     .pages = pages.data(),
                     .k_offset = 0,
                     .v_offset = kKvPageTokens * k_row,
                     .k_row = k_row,
                     .v_row = v_row,
                     .first = first,
                     .last = last,
                     .scale = 0.5f / float(dim_k),
                     .sinks = s->OneIn(3) ? sinks.data() : nullptr,
                     .out = got.data()};
  ops.attention(args);
  args.out = want.data();
  reference.attention(args);
  // Values reach 4 and beyond where they are not plain; large ones may cancel and overflow.
  const std::string wrong = CloseFloats(got, want, [&](size_t i) {
    return kind != Kind::kBad                                ? 4e-5
           : std::isfinite(got[i]) && std::isfinite(want[i]) ? 1e38
                                                             : 4e-5;
  });
  if (wrong.empty()) return wrong;
  return fmt::format("attention format {} group {} dims {} {} [{}, {}] kind {}: {}", int(format),
                     group, dim_k, dim_v, first, last, int(kind), wrong);
}

std::string CheckMaps(const Ops& ops, const Ops& reference, Source* s) {
  const uint32_t n = s->Size(100), which = s->Below(6);
  const Kind kind = DrawKind(s);
  const std::vector<float> a = Floats(s, n, kind), b = Floats(s, n, kind);
  std::vector<float> got = b, want = b;
  const auto run = [&](const Ops& set, float* y) {
    switch (which) {
      case 0:
        return set.silu_mul(a.data(), b.data(), n, y);
      case 1:
        return set.gelu_tanh_mul(a.data(), b.data(), n, y);
      case 2:
        return set.swiglu_clamped_mul(a.data(), b.data(), 7, 1.702f, n, y);
      case 3:
        return set.add(a.data(), 0.75f, n, y);
      case 4:
        return set.mul_sigmoid(a.data(), n, y);
      default:
        return set.rope(y, 1, n, n / 2 * 2, n % 4 < 2, a.data(), a.data() + n / 2);
    }
  };
  run(ops, got.data());
  run(reference, want.data());
  double most = 0;
  for (const float v : a) most = std::isfinite(v) ? std::max(most, std::abs(double(v))) : most;
  for (const float v : b) most = std::isfinite(v) ? std::max(most, std::abs(double(v))) : most;
  // Products of three factors appear; sums of two may cancel.
  const double slack = std::max(1.0, most) > 1e12 ? 1e38 : 1e-6 * std::max(1.0, most * most);
  const std::string wrong = CloseFloats(got, want, [&](size_t) { return slack; });
  return wrong.empty() ? wrong : fmt::format("map {} n {}: {}", which, n, wrong);
}

std::string CheckRecurrent(const Ops& ops, const Ops& reference, Source* s) {
  const Kind kind = s->OneIn(2) ? Kind::kPlain : s->OneIn(2) ? Kind::kTiny : Kind::kBad;
  if (s->OneIn(2)) {
    const uint32_t kernel = s->Size(5), channels = s->Size(50), begin = s->Below(channels);
    const std::vector<float> w = Floats(s, channels * kernel, kind), x = Floats(s, channels, kind);
    std::vector<float> state = Floats(s, channels * (kernel - 1), kind), other = state;
    std::vector<float> got(channels), want(channels);
    ops.conv_step(w.data(), kernel, x.data(), state.data(), begin, channels, got.data());
    reference.conv_step(w.data(), kernel, x.data(), other.data(), begin, channels, want.data());
    std::string wrong = SameFloats(state, other);
    if (wrong.empty() && kind != Kind::kBad)
      wrong = CloseFloats(got, want, [](size_t) { return 1e-4; });
    return wrong.empty() ? wrong : fmt::format("conv_step kernel {}: {}", kernel, wrong);
  }
  const uint32_t kd = 8 * s->Size(8), vd = 4 * s->Size(20);
  std::vector<float> state = Floats(s, kd * vd, kind), other = state, got(vd), want(vd);
  std::vector<float> q = Floats(s, kd, kind), k = Floats(s, kd, kind);
  for (float& v : k) v /= float(kd);
  const std::vector<float> v = Floats(s, vd, kind);
  const float beta = float(s->Below(100)) / 100, decay = float(s->Below(101)) / 100;
  DeltaStepArgs args{.state = state.data(),
                     .q = q.data(),
                     .k = k.data(),
                     .v = v.data(),
                     .beta = beta,
                     .decay = decay,
                     .kd = kd,
                     .vd = vd,
                     .out = got.data()};
  ops.delta_step(args);
  args.state = other.data();
  args.out = want.data();
  reference.delta_step(args);
  const auto slack = [&](size_t) { return kind == Kind::kBad ? 1e38 : 1e-6 * 16 * kd; };
  std::string wrong = CloseFloats(got, want, slack);
  if (wrong.empty())
    wrong = CloseFloats(state, other, [&](size_t) { return kind == Kind::kBad ? 1e38 : 1e-4; });
  return wrong.empty() ? wrong : fmt::format("delta_step {} x {}: {}", kd, vd, wrong);
}

}  // namespace

std::string CheckKernelCase(const Ops& ops, const Ops& reference, std::span<const uint8_t> bytes) {
  Source source(bytes);
  switch (source.Below(16)) {
    case 0:
    case 1:
      return CheckQuantize(ops, reference, &source);
    case 2:
      return CheckNorms(ops, reference, &source);
    case 3:
      return CheckKvStore(ops, reference, &source);
    case 4:
      return CheckAttention(ops, reference, &source);
    case 5:
      return CheckMaps(ops, reference, &source);
    case 6:
      return CheckRecurrent(ops, reference, &source);
    default:
      return CheckMatmul(ops, reference, &source);
  }
}

}  // namespace sluice::testing
