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

const std::vector<IsaChoice>& isa_choices() {
  const CpuFeatures& cpu = cpu_features();
  static const std::vector<IsaChoice> choices = {
#if defined(HEADWAY_HAS_amx)
      {"amx", &amx::kernel_table, cpu.amx},
#else
      {"amx", nullptr, cpu.amx},
#endif
#if defined(HEADWAY_HAS_avx512_bf16)
      {"avx512_bf16", &avx512_bf16::kernel_table, cpu.avx512_bf16},
#else
      {"avx512_bf16", nullptr, cpu.avx512_bf16},
#endif
#if defined(HEADWAY_HAS_avx2)
      {"avx512_vnni", &avx512_vnni::kernel_table, cpu.avx512_vnni},
      {"avx512", &avx512::kernel_table, cpu.avx512},
#else
      {"avx512_vnni", nullptr, cpu.avx512_vnni},
      {"avx512", nullptr, cpu.avx512},
#endif
#if defined(HEADWAY_HAS_avx_vnni)
      {"avx_vnni", &avx_vnni::kernel_table, cpu.avx_vnni},
#else
      {"avx_vnni", nullptr, cpu.avx_vnni},
#endif
#if defined(HEADWAY_HAS_avx2)
      {"avx2", &avx2::kernel_table, cpu.avx2},
#else
      {"avx2", nullptr, cpu.avx2},
#endif
      {"portable", &portable::kernel_table, true},
      {"amx_emulated", &amx_emulated::kernel_table, true},
  };
  return choices;
}

const IsaChoice* find_isa(std::string_view name) {
  for (const IsaChoice& choice : isa_choices()) {
    if (choice.name == name) return &choice;
  }
  return nullptr;
}

}  // namespace headway
