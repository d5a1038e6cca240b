#include "runtime/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace headway {
namespace {

#if defined(__x86_64__)

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) return {};
  return r;
}

bool bit(uint32_t word, int index) { return (word >> index & 1) != 0; }

// Register state that the operating system saves on a switch (XCR0).
uint64_t saved_state() {
  if (!bit(cpuid(1, 0).c, 27)) return 0;  // OSXSAVE
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool is_intel() {
  const Registers vendor = cpuid(0, 0);
  return vendor.b == signature_INTEL_ebx && vendor.c == signature_INTEL_ecx && vendor.d == signature_INTEL_edx;
}

bool may_use_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

CpuFeatures detect() {
  constexpr uint64_t kAvxState = 0x6, kAvx512State = 0xE6, kTileState = 0x60000;
  const uint64_t state = saved_state();
  const Registers basic = cpuid(1, 0), extended = cpuid(7, 0), more = cpuid(7, 1);
  const bool has_fma = bit(basic.c, 12);
  CpuFeatures found;
  found.avx2 = (state & kAvxState) == kAvxState && bit(extended.b, 5) && has_fma;
  found.avx_vnni = found.avx2 && bit(more.a, 4);
  found.avx512 = found.avx2 && (state & kAvx512State) == kAvx512State && bit(extended.b, 16) &&
                 bit(extended.b, 17) && bit(extended.b, 30) && bit(extended.b, 31);
  found.avx512_vnni = found.avx512 && bit(extended.c, 11);
  found.avx512_bf16 = found.avx512_vnni && bit(more.a, 5);
  found.slow_bf16_dot = is_intel();
  found.amx = found.avx512_bf16 && (state & kTileState) == kTileState && bit(extended.d, 22) &&
              bit(extended.d, 24) && bit(extended.d, 25) && may_use_tiles();
  return found;
}

#else

CpuFeatures detect() { return {}; }

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

}  // namespace headway
