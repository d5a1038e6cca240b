#include "runtime/dispatch.h"

#include "runtime/cpu_features.h"

namespace headway {

#define HEADWAY_DECLARE(ISA) \
  namespace ISA {            \
  extern const KernelTable kernel_table; \
  }
HEADWAY_DECLARE(portable)
HEADWAY_DECLARE(amx_emulated)
#if defined(HEADWAY_HAS_avx2)
HEADWAY_DECLARE(avx2)
HEADWAY_DECLARE(avx512)
HEADWAY_DECLARE(avx512_vnni)
#endif
#if defined(HEADWAY_HAS_avx_vnni)
HEADWAY_DECLARE(avx_vnni)
#endif
#if defined(HEADWAY_HAS_avx512_bf16)
HEADWAY_DECLARE(avx512_bf16)
#endif
#if defined(HEADWAY_HAS_amx)
HEADWAY_DECLARE(amx)
#endif
#undef HEADWAY_DECLARE

namespace {

#if defined(HEADWAY_HAS_amx)
constexpr const KernelTable* kAmx = &amx::kernel_table;
#else
constexpr const KernelTable* kAmx = nullptr;
#endif
#if defined(HEADWAY_HAS_avx512_bf16)
constexpr const KernelTable* kAvx512Bf16 = &avx512_bf16::kernel_table;
#else
constexpr const KernelTable* kAvx512Bf16 = nullptr;
#endif
#if defined(HEADWAY_HAS_avx_vnni)
constexpr const KernelTable* kAvxVnni = &avx_vnni::kernel_table;
#else
constexpr const KernelTable* kAvxVnni = nullptr;
#endif
#if defined(HEADWAY_HAS_avx2)
constexpr const KernelTable *kAvx512Vnni = &avx512_vnni::kernel_table, *kAvx512 = &avx512::kernel_table;
constexpr const KernelTable* kAvx2 = &avx2::kernel_table;
#else
constexpr const KernelTable *kAvx512Vnni = nullptr, *kAvx512 = nullptr, *kAvx2 = nullptr;
#endif

std::vector<IsaChoice> all_choices(const CpuFeatures& cpu) {
  const IsaChoice with_dot{"avx512_bf16", kAvx512Bf16, cpu.avx512_bf16};
  std::vector<IsaChoice> choices = {{"amx", kAmx, cpu.amx}};
  if (!cpu.slow_bf16_dot) choices.push_back(with_dot);
  choices.push_back({"avx512_vnni", kAvx512Vnni, cpu.avx512_vnni});
  choices.push_back({"avx512", kAvx512, cpu.avx512});
  if (cpu.slow_bf16_dot) choices.push_back(with_dot);
  choices.push_back({"avx_vnni", kAvxVnni, cpu.avx_vnni});
  choices.push_back({"avx2", kAvx2, cpu.avx2});
  choices.push_back({"portable", &portable::kernel_table, true});
  choices.push_back({"amx_emulated", &amx_emulated::kernel_table, true});
  return choices;
}

}  // namespace

const std::vector<IsaChoice>& isa_choices() {
  static const std::vector<IsaChoice> choices = all_choices(cpu_features());
  return choices;
}

const IsaChoice* find_isa(std::string_view name) {
  for (const IsaChoice& choice : isa_choices()) {
    if (choice.name == name) return &choice;
  }
  return nullptr;
}

}  // namespace headway
