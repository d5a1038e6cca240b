// The Python side of the kernels: every argument is checked here, once, before the lock is released.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <optional>

#include "bind/array_view.h"
#include "bind/dequantize.h"
#include "bind/embed_table.h"
#include "bind/linear_grouped.h"
#include "bind/linear_int8.h"
#include "bind/paged.h"
#include "bind/program.h"
#include "bind/weight.h"
#include "runtime/backend.h"

namespace headway {
namespace {

constexpr size_t kMaxThreads = 1024;

std::unique_ptr<Backend> make_backend(const std::string& isa, size_t num_threads) {
  const IsaChoice* choice = find_isa(isa);
  need(choice != nullptr, "there is no instruction set named '", isa, "'");
  need(choice->can_run, "this machine cannot run ", isa);
  need(choice->kernels != nullptr, "this build has no kernels for ", isa, ": its compiler did not know it");
  need(num_threads <= kMaxThreads, "num_threads must be at most ", kMaxThreads, ", got ", num_threads);
  return std::make_unique<Backend>(*choice, num_threads > 0 ? num_threads : num_allowed_cpus());
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const IsaChoice& choice : isa_choices()) {
    if (choice.can_run && choice.kernels != nullptr) names.emplace_back(choice.name);
  }
  return names;
}

std::vector<std::string> known_isas() {
  std::vector<std::string> names;
  for (const IsaChoice& choice : isa_choices()) names.emplace_back(choice.name);
  return names;
}

void pack_linear(Backend& backend, nb::handle weight, bool to_bf16, nb::handle packed) {
  const ArrayView from("weight", weight);
  from.need_float();
  from.need_shape({kAny, kAny});
  const size_t words = packed_words(to_bf16 ? kLayoutBf16 : kLayoutF32, from.size(0), from.size(1));
  const ArrayView to("packed", packed, to_bf16 ? Kind::kUint16 : Kind::kFloat32,
                     {extent(to_bf16 ? 2 * words : words)}, Access::kWrite);
  const PackArgs args{from.as<void>(), from.is_bf16(), to_bf16, from.size(0), from.size(1), to.as<uint32_t>()};
  const nb::gil_scoped_release unlocked;
  backend.pack(args);
}

void linear(Backend& backend, nb::handle x, nb::handle packed, const OptionalArray& scales, const OptionalArray& bias,
            size_t out_features, size_t in_features, const char* layout, nb::handle out, bool accumulate) {
  const WeightView weight(packed, scales, bias, out_features, in_features, layout);
  const ArrayView rows("x", x, Kind::kFloat32, {kAny, extent(in_features)});
  const ArrayView result("out", out, Kind::kFloat32, {extent(rows.size(0)), extent(out_features)}, Access::kWrite);
  result.need_apart_from(rows);
  const LinearCall call{rows.as<const float>(), weight.weight(), result.as<float>(), rows.size(0), accumulate};
  const nb::gil_scoped_release unlocked;
  backend.linear(call);
}

void embed(Backend& backend, nb::handle table, nb::handle token_ids, nb::handle out) {
  const EmbedTable rows(table);
  const ArrayView ids("token_ids", token_ids, Kind::kInt32, {kAny});
  ids.need_in_range(0, extent(rows.vocabulary));
  const ArrayView result("out", out, Kind::kFloat32, {extent(ids.count()), extent(rows.width)}, Access::kWrite);
  const EmbedArgs args = rows.args(ids.as<const int32_t>(), result.as<float>());
  const nb::gil_scoped_release unlocked;
  backend.embed(args, ids.count());
}

void rms_norm(Backend& backend, nb::handle x, nb::handle weight, float eps, nb::handle out) {
  const ArrayView rows("x", x, Kind::kFloat32, {kAny, kAny});
  const ArrayView scale("weight", weight, Kind::kFloat32, {extent(rows.size(1))});
  const ArrayView result("out", out, Kind::kFloat32, {extent(rows.size(0)), extent(rows.size(1))}, Access::kWrite);
  const RmsNormArgs args{rows.as<const float>(), scale.as<const float>(), eps, rows.size(1), result.as<float>()};
  const nb::gil_scoped_release unlocked;
  backend.rms_norm(args, rows.size(0));
}

void silu_mul(Backend& backend, nb::handle gate_up, nb::handle out) {
  const ArrayView result("out", out, Kind::kFloat32, {kAny, kAny}, Access::kWrite);
  const ArrayView both("gate_up", gate_up, Kind::kFloat32, {extent(result.size(0)), extent(2 * result.size(1))});
  result.need_apart_from(both);
  const SiluMulArgs args{both.as<const float>(), result.size(1), result.as<float>()};
  const nb::gil_scoped_release unlocked;
  backend.silu_mul(args, result.size(0));
}

void rope_and_store(Backend& backend, nb::handle qkv, nb::handle positions, nb::handle kv_rows, nb::handle cos,
                    nb::handle sin, nb::handle keys, nb::handle values, int64_t block_size, int64_t layer,
                    int64_t num_heads, const OptionalArray& q_norm, const OptionalArray& k_norm, float eps,
                    bool interleaved) {
  const CacheLayer cache(keys, values, block_size, layer, Access::kWrite);
  const size_t width = qkv_width(cache, num_heads);
  const ArrayView rows("qkv", qkv, Kind::kFloat32, {kAny, extent(width)}, Access::kWrite);
  const ArrayView places("positions", positions, Kind::kInt32, {extent(rows.size(0))});
  const ArrayView slots("kv_rows", kv_rows, Kind::kInt64, {extent(rows.size(0))});
  const ArrayView cosines("cos", cos, Kind::kFloat32, {kAny, kAny});
  const ArrayView sines("sin", sin, Kind::kFloat32, {extent(cosines.size(0)), extent(cosines.size(1))});
  const size_t rotary_dim = 2 * cosines.size(1);
  need(rotary_dim <= cache.head_dim, "cos and sin turn ", rotary_dim, " dimensions, a head has ", cache.head_dim);
  places.need_in_range(0, extent(cosines.size(0)));
  slots.need_in_range(0, extent(cache.num_tiles * kTileTokens));
  const OptionalView q_weight("q_norm", q_norm, cache.head_dim), k_weight("k_norm", k_norm, cache.head_dim);
  const RopeArgs args{rows.as<float>(), places.as<const int32_t>(), slots.as<const int64_t>(),
                      cosines.as<const float>(), sines.as<const float>(), q_weight.data(), k_weight.data(),
                      cache.layer_keys(), cache.layer_values(), static_cast<size_t>(num_heads), cache.num_kv_heads,
                      cache.head_dim, rotary_dim, eps, interleaved, cache.kv_type};
  const nb::gil_scoped_release unlocked;
  backend.rope_and_store(args, rows.size(0));
}

void paged_attention(Backend& backend, nb::handle qkv, nb::handle keys, nb::handle values, int64_t block_size,
                     int64_t layer, nb::handle positions, nb::handle chunk_starts, nb::handle block_tables,
                     int64_t num_heads, float scale, int64_t window, nb::handle out) {
  const CacheLayer cache(keys, values, block_size, layer, Access::kRead);
  need(window >= 0, "window must be at least 0 (0: off), got ", window);
  const size_t width = qkv_width(cache, num_heads);
  const ArrayView rows("qkv", qkv, Kind::kFloat32, {kAny, extent(width)});
  const ArrayView places("positions", positions, Kind::kInt32, {extent(rows.size(0))});
  const ArrayView starts("chunk_starts", chunk_starts, Kind::kInt32, {kAny});
  need(starts.count() >= 1, "chunk_starts must have at least one entry");
  const ArrayView tables("block_tables", block_tables, Kind::kInt32, {extent(starts.count() - 1), kAny});
  const ArrayView result("out", out, Kind::kFloat32,
                         {extent(rows.size(0)), extent(static_cast<size_t>(num_heads) * cache.head_dim)},
                         Access::kWrite);
  result.need_apart_from(rows);
  check_chunks(starts, places, tables, static_cast<size_t>(block_size), cache.num_blocks());
  const AttentionArgs args{rows.as<const float>(), static_cast<const uint32_t*>(cache.layer_keys()),
                           static_cast<const uint32_t*>(cache.layer_values()), places.as<const int32_t>(),
                           tables.as<const int32_t>(), result.as<float>(), width, tables.size(1),
                           static_cast<size_t>(num_heads), cache.num_kv_heads, cache.head_dim, cache.tiles_per_block,
                           static_cast<size_t>(window), scale, cache.kv_type};
  const std::span<const int32_t> chunks(starts.as<const int32_t>(), starts.count());
  const nb::gil_scoped_release unlocked;
  backend.attention(args, chunks);
}

void argmax(Backend& backend, nb::handle logits, nb::handle out) {
  const ArrayView rows("logits", logits, Kind::kFloat32, {kAny, kAny});
  need(rows.size(1) > 0, "logits must have at least one column");
  const ArrayView result("out", out, Kind::kInt32, {extent(rows.size(0))}, Access::kWrite);
  const ArgmaxArgs args{rows.as<const float>(), rows.size(1), result.as<int32_t>()};
  const nb::gil_scoped_release unlocked;
  backend.argmax(args, rows.size(0));
}

void log_softmax(Backend& backend, nb::handle logits, nb::handle out) {
  const ArrayView rows("logits", logits, Kind::kFloat32, {kAny, kAny});
  need(rows.size(1) > 0, "logits must have at least one column");
  const ArrayView result("out", out, Kind::kFloat32, {extent(rows.size(0)), extent(rows.size(1))}, Access::kWrite);
  const LogSoftmaxArgs args{rows.as<const float>(), rows.size(1), result.as<float>()};
  const nb::gil_scoped_release unlocked;
  backend.log_softmax(args, rows.size(0));
}

void check_sampling(const SampleCall& call) {
  for (size_t i = 0; i < call.rows; ++i) {
    need(call.temperature[i] >= 0 && std::isfinite(call.temperature[i]),
         "temperature must be a finite number of at least 0, got ", call.temperature[i]);
    need(call.top_k[i] >= 0, "top_k must be at least 0 (0: off), got ", call.top_k[i]);
    need(call.top_p[i] > 0 && call.top_p[i] <= 1, "top_p must lie in (0, 1], got ", call.top_p[i]);
    need(call.min_p[i] >= 0 && call.min_p[i] <= 1, "min_p must lie in [0, 1], got ", call.min_p[i]);
  }
}

void sample(Backend& backend, nb::handle logits, nb::handle temperature, nb::handle top_k, nb::handle top_p,
            nb::handle min_p, nb::handle seeds, nb::handle positions, nb::handle out) {
  const ArrayView rows("logits", logits, Kind::kFloat32, {kAny, kAny});
  need(rows.size(1) > 0, "logits must have at least one column");
  const Py_ssize_t count = extent(rows.size(0));
  const ArrayView temperatures("temperature", temperature, Kind::kFloat32, {count});
  const ArrayView top_ks("top_k", top_k, Kind::kInt32, {count});
  const ArrayView top_ps("top_p", top_p, Kind::kFloat32, {count});
  const ArrayView min_ps("min_p", min_p, Kind::kFloat32, {count});
  const ArrayView keys("seeds", seeds, Kind::kUint64, {count});
  const ArrayView counters("positions", positions, Kind::kInt64, {count});
  const ArrayView result("out", out, Kind::kInt32, {count}, Access::kWrite);
  const SampleCall call{rows.as<const float>(), rows.size(0), rows.size(1), temperatures.as<const float>(),
                        top_ps.as<const float>(), min_ps.as<const float>(), top_ks.as<const int32_t>(),
                        keys.as<const uint64_t>(), counters.as<const int64_t>(), result.as<int32_t>()};
  check_sampling(call);
  const nb::gil_scoped_release unlocked;
  backend.sample(call);
}

void widen(Backend& backend, nb::handle from, nb::handle to) {
  const ArrayView source("from", from, Kind::kUint16, {kAny});
  const ArrayView target("to", to, Kind::kFloat32, {extent(source.count())}, Access::kWrite);
  const nb::gil_scoped_release unlocked;
  backend.widen(source.as<const uint16_t>(), source.count(), target.as<float>());
}

void narrow(Backend& backend, nb::handle from, nb::handle to) {
  const ArrayView source("from", from, Kind::kFloat32, {kAny});
  const ArrayView target("to", to, Kind::kUint16, {extent(source.count())}, Access::kWrite);
  const nb::gil_scoped_release unlocked;
  backend.narrow(source.as<const float>(), source.count(), target.as<uint16_t>());
}

}  // namespace
}  // namespace headway

NB_MODULE(_native, module) {
  using namespace headway;
  module.attr("LAYOUT_F32") = kLayoutF32;
  module.attr("LAYOUT_BF16") = kLayoutBf16;
  module.def("available_isas", available_isas, "Instruction sets that this machine and build can run, best first.");
  module.def("known_isas", known_isas, "All names that a backend may be asked for, best first.");
  module.def("num_allowed_cpus", num_allowed_cpus, "Processors that this process may run on.");
  module.def("packed_words", packed_words, "32-bit words of a weight [out_features, in_features] in a layout.");
  nb::class_<Backend> backend(module, "Backend");
  backend
      .def(nb::new_(&make_backend), nb::arg("isa"), nb::arg("num_threads"))
      .def_prop_ro("isa", &Backend::isa_name)
      .def_prop_ro("num_threads", &Backend::num_threads)
      .def("pack_linear", pack_linear)
      .def("linear", linear)
      .def("embed", embed)
      .def("rms_norm", rms_norm)
      .def("silu_mul", silu_mul)
      .def("rope_and_store", rope_and_store)
      .def("paged_attention", paged_attention)
      .def("argmax", argmax)
      .def("log_softmax", log_softmax)
      .def("sample", sample)
      .def("widen", widen)
      .def("narrow", narrow);
  bind_linear_int8(module, backend);
  bind_program(module);
  bind_dequantize(module);
  bind_linear_grouped(backend);
}
