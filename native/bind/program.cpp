#include "runtime/program.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <vector>

#include "bind/embed_table.h"
#include "bind/paged.h"
#include "bind/program.h"
#include "bind/weight.h"

namespace headway {
namespace {

constexpr size_t kMaxColumns = size_t{1} << 28;  // so that no product of sizes overflows
constexpr size_t kMaxLayers = size_t{1} << 20;

// A program has scratch memory of its own: two threads in it at once are refused, not made to wait.
class Turn {
 public:
  explicit Turn(std::atomic_flag& taken) : taken_(taken) {
    need(!taken_.test_and_set(std::memory_order_acquire), "the program is in use by another thread");
  }
  ~Turn() { taken_.clear(std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic_flag& taken_;
};

// A Program that checks what it is given. Weights must outlive it: the Python side keeps them.
class CheckedProgram {
 public:
  explicit CheckedProgram(Backend& backend) : program_(backend) {}

  size_t add_buffer(size_t columns) {
    need(0 < columns && columns <= kMaxColumns, "a buffer has 1 to ", kMaxColumns, " columns, got ", columns);
    const Turn turn(taken_);
    has_all_rows_.push_back(false);
    return program_.add_buffer(columns);
  }

  void embed(nb::handle table, size_t out) {
    const EmbedTable rows(table);
    need_columns(out, rows.width);
    need_all_rows("embed");
    const Turn turn(taken_);
    use({out});
    num_token_ids_ = std::min(num_token_ids_, rows.vocabulary);
    program_.embed(rows.args(nullptr, nullptr), out);
  }

  void rms_norm(size_t x, nb::handle weight, float eps, size_t out) {
    const ArrayView scale("weight", weight, Kind::kFloat32, {extent(columns(x))});
    need_columns(out, columns(x));
    const Turn turn(taken_);
    use({x, out});
    program_.rms_norm(x, scale.as<const float>(), eps, out);
  }

  void linear(size_t x, nb::handle packed, const OptionalArray& scales, const OptionalArray& bias, size_t out_features,
              size_t in_features, const char* layout, size_t out, bool accumulate) {
    const WeightView weight(packed, scales, bias, out_features, in_features, layout);
    need_columns(x, in_features);
    need_columns(out, out_features);
    need(x != out, "x and out must be different buffers");
    const Turn turn(taken_);
    use({x, out});
    program_.linear(x, weight.weight(), out, accumulate);
  }

  void rope_and_store(size_t qkv, size_t layer, size_t num_heads, size_t num_kv_heads, size_t head_dim, bool rotates,
                      const OptionalArray& q_norm, const OptionalArray& k_norm, float eps) {
    const HeadSizes sizes{num_heads, num_kv_heads, head_dim};
    need_heads(qkv, sizes, layer);
    const OptionalView q_weight("q_norm", q_norm, head_dim), k_weight("k_norm", k_norm, head_dim);
    need_all_rows("rope_and_store");
    const Turn turn(taken_);
    use({qkv});
    program_.rope_and_store(qkv, layer, sizes, rotates, q_weight.data(), k_weight.data(), eps);
  }

  void attention(size_t qkv, size_t layer, size_t num_heads, size_t num_kv_heads, size_t head_dim, float scale,
                 size_t window, size_t out) {
    const HeadSizes sizes{num_heads, num_kv_heads, head_dim};
    need_heads(qkv, sizes, layer);
    need_columns(out, num_heads * head_dim);
    need_all_rows("attention");
    const Turn turn(taken_);
    use({qkv, out});
    program_.attention(qkv, layer, sizes, scale, window, out);
  }

  void silu_mul(size_t gate_up, size_t out) {
    need_columns(gate_up, 2 * columns(out));
    const Turn turn(taken_);
    use({gate_up, out});
    program_.silu_mul(gate_up, out);
  }

  void pick_logit_rows(size_t x, size_t out) {
    need_columns(out, columns(x));
    need(x != out, "x and out must be different buffers");
    const Turn turn(taken_);
    has_all_rows_[x] = true;
    has_picked_ = true;
    program_.pick_logit_rows(x, out);
  }

  void run(nb::handle token_ids, nb::handle positions, nb::handle kv_rows, nb::handle chunk_starts,
           nb::handle block_tables, nb::handle logit_rows, nb::handle keys, nb::handle values, int64_t block_size,
           nb::handle cos, nb::handle sin, nb::handle identity_cos, nb::handle identity_sin, size_t result,
           nb::handle out) {
    const Turn turn(taken_);
    const ArrayView ids("token_ids", token_ids, Kind::kInt32, {kAny});
    const Py_ssize_t num_tokens = extent(ids.count());
    ids.need_in_range(0, extent(num_token_ids_));
    const ArrayView places("positions", positions, Kind::kInt32, {num_tokens});
    const ArrayView cache_rows("kv_rows", kv_rows, Kind::kInt64, {num_tokens});
    const ArrayView starts("chunk_starts", chunk_starts, Kind::kInt32, {kAny});
    need(starts.count() >= 1, "chunk_starts must have at least one entry");
    const ArrayView tables("block_tables", block_tables, Kind::kInt32, {extent(starts.count() - 1), kAny});
    const ArrayView wanted("logit_rows", logit_rows, Kind::kInt32, {kAny});
    wanted.need_in_range(0, num_tokens);
    const ArrayView written("out", out, Kind::kFloat32, {extent(wanted.count()), extent(columns(result))},
                            Access::kWrite);
    need(!has_all_rows_[result], "the result must be a buffer that only has the picked rows");
    const CacheView cache(keys, values, block_size, Access::kWrite);
    need_cache(cache);
    cache_rows.need_in_range(0, extent(cache.num_tiles * kTileTokens));
    check_chunks(starts, places, tables, static_cast<size_t>(block_size), cache.num_blocks());
    const ArrayView cosines("cos", cos, Kind::kFloat32, {kAny, kAny});
    const Py_ssize_t table_rows = extent(cosines.size(0)), turned = extent(cosines.size(1));
    const ArrayView sines("sin", sin, Kind::kFloat32, {table_rows, turned});
    const ArrayView ones("identity_cos", identity_cos, Kind::kFloat32, {table_rows, turned});
    const ArrayView zeros("identity_sin", identity_sin, Kind::kFloat32, {table_rows, turned});
    need(2 * cosines.size(1) <= cache.head_dim, "cos and sin turn ", 2 * turned, " dimensions, a head has ",
         cache.head_dim);
    places.need_in_range(0, table_rows);
    const PassInputs inputs{
        {ids.as<const int32_t>(), ids.count()},
        places.as<const int32_t>(),
        cache_rows.as<const int64_t>(),
        {starts.as<const int32_t>(), starts.count()},
        {wanted.as<const int32_t>(), wanted.count()},
        tables.as<const int32_t>(),
        tables.size(1),
        cache.place(),
        {cosines.as<const float>(), sines.as<const float>()},
        {ones.as<const float>(), zeros.as<const float>()},
        static_cast<size_t>(2 * turned),
        written.as<float>()};
    const nb::gil_scoped_release unlocked;
    program_.run(inputs, result);
  }

  void measure_time(bool wanted) {
    const Turn turn(taken_);
    program_.measure_time(wanted);
  }

  std::map<std::string, double> take_times() {
    const Turn turn(taken_);
    return program_.take_times();
  }

 private:
  size_t columns(size_t buffer) const {
    need(buffer < program_.num_buffers(), "there is no buffer ", buffer, " in this program");
    return program_.columns(buffer);
  }

  void need_columns(size_t buffer, size_t wanted) const {
    need(columns(buffer) == wanted, "buffer ", buffer, " must have ", wanted, " columns, it has ", columns(buffer));
  }

  void need_all_rows(const char* operation) const {
    need(!has_picked_, operation, " must come before pick_logit_rows");
  }

  // A buffer used before rows are picked has a row for each token.
  void use(std::initializer_list<size_t> buffers) {
    for (const size_t buffer : buffers) has_all_rows_[buffer] = has_all_rows_[buffer] || !has_picked_;
  }

  // All layers of a program have heads of one size; the cache is compared with it before a pass.
  void need_heads(size_t qkv, const HeadSizes& sizes, size_t layer) {
    need(sizes.num_kv_heads > 0 && sizes.num_heads > 0 && sizes.num_heads % sizes.num_kv_heads == 0,
         "num_heads must be a positive multiple of kv_heads=", sizes.num_kv_heads, ", got ", sizes.num_heads);
    need(layer < kMaxLayers, "layer must lie in [0, ", kMaxLayers, "), got ", layer);
    const size_t most = columns(qkv);
    need(std::max({sizes.num_heads, sizes.num_kv_heads, sizes.head_dim}) <= most, "buffer ", qkv, " has ", most,
         " columns, too few for these heads");
    need_columns(qkv, sizes.qkv_width());
    need(!sizes_ || *sizes_ == sizes, "all layers of a program must have the same heads");
    sizes_ = sizes;
    num_layers_ = std::max(num_layers_, layer + 1);
  }

  void need_cache(const CacheView& cache) const {
    need(sizes_ && cache.num_layers == num_layers_ && cache.num_kv_heads == sizes_->num_kv_heads &&
             cache.head_dim == sizes_->head_dim,
         "the KV cache does not fit this program");
  }

  Program program_;
  std::atomic_flag taken_;
  std::vector<bool> has_all_rows_;  // of each buffer
  bool has_picked_ = false;
  size_t num_token_ids_ = std::numeric_limits<int32_t>::max();
  std::optional<HeadSizes> sizes_;
  size_t num_layers_ = 0;
};

}  // namespace

void bind_program(nb::module_& module) {
  nb::class_<CheckedProgram>(module, "Program")
      .def(nb::init<Backend&>(), nb::keep_alive<1, 2>())
      .def("add_buffer", &CheckedProgram::add_buffer)
      .def("embed", &CheckedProgram::embed)
      .def("rms_norm", &CheckedProgram::rms_norm)
      .def("linear", &CheckedProgram::linear)
      .def("rope_and_store", &CheckedProgram::rope_and_store)
      .def("attention", &CheckedProgram::attention)
      .def("silu_mul", &CheckedProgram::silu_mul)
      .def("pick_logit_rows", &CheckedProgram::pick_logit_rows)
      .def("run", &CheckedProgram::run)
      .def("measure_time", &CheckedProgram::measure_time)
      .def("take_times", &CheckedProgram::take_times);
}

}  // namespace headway
