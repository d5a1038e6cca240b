#include "runtime/dispatch.h"

#include "runtime/cpu_features.h"

namespace headway {

using Kernels = const KernelTable& (*)();

// `name_kernels`: where an instruction set's kernels are, null where the build left it out.
#define HEADWAY_IN_BUILD(ISA)        \
  namespace ISA {                    \
  const KernelTable& kernel_table(); \
  }                                  \
  constexpr Kernels ISA##_kernels = &ISA::kernel_table;
#define HEADWAY_LEFT_OUT(ISA) constexpr Kernels ISA##_kernels = nullptr;

HEADWAY_IN_BUILD(portable)
HEADWAY_IN_BUILD(amx_emulated)
#if defined(HEADWAY_HAS_avx2)
HEADWAY_IN_BUILD(avx2)
#else
HEADWAY_LEFT_OUT(avx2)
#endif
#if defined(HEADWAY_HAS_avx_vnni)
HEADWAY_IN_BUILD(avx_vnni)
#else
HEADWAY_LEFT_OUT(avx_vnni)
#endif
#if defined(HEADWAY_HAS_avx512)
HEADWAY_IN_BUILD(avx512)
#else
HEADWAY_LEFT_OUT(avx512)
#endif
#if defined(HEADWAY_HAS_avx512_vnni)
HEADWAY_IN_BUILD(avx512_vnni)
#else
HEADWAY_LEFT_OUT(avx512_vnni)
#endif
#if defined(HEADWAY_HAS_avx512_bf16)
HEADWAY_IN_BUILD(avx512_bf16)
#else
HEADWAY_LEFT_OUT(avx512_bf16)
#endif
#if defined(HEADWAY_HAS_amx)
HEADWAY_IN_BUILD(amx)
#else
HEADWAY_LEFT_OUT(amx)
#endif
#undef HEADWAY_IN_BUILD
#undef HEADWAY_LEFT_OUT

namespace {

std::vector<IsaChoice> all_choices(const CpuFeatures& cpu) {
  const IsaChoice with_dot{"avx512_bf16", avx512_bf16_kernels, cpu.avx512_bf16};
  std::vector<IsaChoice> choices = {{"amx", amx_kernels, cpu.amx}};
  if (!cpu.slow_bf16_dot) choices.push_back(with_dot);
  choices.push_back({"avx512_vnni", avx512_vnni_kernels, cpu.avx512_vnni});
  choices.push_back({"avx512", avx512_kernels, cpu.avx512});
  if (cpu.slow_bf16_dot) choices.push_back(with_dot);
  choices.push_back({"avx_vnni", avx_vnni_kernels, cpu.avx_vnni});
  choices.push_back({"avx2", avx2_kernels, cpu.avx2});
  choices.push_back({"portable", portable_kernels, true});
  choices.push_back({"amx_emulated", amx_emulated_kernels, true});
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
